"""A share of a short window as a row of words, which threads hand to each other without Python.

A Python thread that wakes up needs the interpreter's lock first. That takes as long as reading a
second of events. So helper threads wait in a kernel, for a byte from a pipe. A reader puts a share
into a helper's slot. The helper takes the share from the slot. If no helper has taken the share
when the reader has nothing else to do, the reader takes it back.
"""

import time
from typing import Any

import numpy as np
from llvmlite import ir
from numba import carray, types  # type: ignore[attr-defined]  # it is documented
from numba.extending import intrinsic

from seglake.format.batch import TABLE
from seglake.format.codecs.codec_kernels import call_of, pointer
from seglake.interpreted import meanwhile
from seglake.jit import njit
from seglake.log.decode.column_kernels import Arena, Buffers
from seglake.log.short.window_kernels import (
    ELSEWHERE,
    SEGMENT_FIELDS,
    STRETCHES,
    BatchRoom,
    StretchTable,
    read_stretches,
)

# The words of a share: the address and the size of each array, then numbers. The addresses have
# NumPy's numbers, since numba would compile `_longs` and the like for each of Python's anew.
ARRAYS = 28
(
    SEGMENTS, SEEN, PLANNED, LIBRARIES, LOG, BATCHES, OWNERS, POSITIONS, ROWS, WINDOWS, CACHED_AT,
    CACHED_BYTES, ARENA, ARENA_ENDS, SIZES, PLACE, COST, STATE, OFFSETS, TIMESTAMPS,
    TIMESTAMP_TYPES, BATCH_OF, KEY_ENDS, KEYS, KEY_VALID, VALUE_ENDS, VALUES, VALUE_VALID,
) = np.arange(0, 2 * ARRAYS, 2)  # fmt: skip
WORDS = 2 * ARRAYS + 9
(FIRST, LAST, CACHES, LIMIT_BYTES, FIELDS, MAX_BYTES, REASON, IN_SLOT, FINISHED) = range(
    2 * ARRAYS, WORDS
)

SLOT_FIELDS = 8  # a line of the processor's cache
SHARE, WAKES, BYTE = range(3)  # address of a share's words or 0; write end of the pipe; its bytes

CALLS = 4
READ, WRITE, PREAD, YIELD = range(CALLS)  # functions of C by address

_NO_SLOT = np.int64(0)
_call1, _call3 = call_of(1), call_of(3)


@intrinsic
def _compare_and_swap(_typing_context, _address, _expected, _value):
    """Replace the value at an address if it is the expected one, in one atomic step.

    Returns the value that was there.
    """

    def generate(_context, builder, _signature, arguments):
        place = builder.inttoptr(arguments[0], ir.IntType(64).as_pointer())
        result = builder.cmpxchg(place, arguments[1], arguments[2], "seq_cst", "seq_cst")
        return builder.extract_value(result, 0)

    return types.int64(types.int64, types.int64, types.int64), generate


compare_and_swap: Any = _compare_and_swap  # numba adds the first argument


def _elsewhere(shares, _slots, _calls):
    shares[:, REASON] = ELSEWHERE


def _asleep(_slot, _wakes, _calls):
    """What a helper does until it can help: no reader has a share for it yet."""
    time.sleep(0.5)
    return -1


@njit(cache=True, nogil=True)
@meanwhile(_elsewhere)
def read_shares(shares, slots, calls):
    """Read some shares, with the help of the threads that wait for the `slots`.

    The caller's thread reads the first share, and each share that no helper takes.
    """
    for i in range(1, len(shares)):
        _put(shares[i], _slot(slots, i - 1), calls)
    _read(shares[0], calls)
    for i in range(1, len(shares)):
        if _took_back(shares[i], calls):
            _read(shares[i], calls)


@njit(cache=True, nogil=True)
@meanwhile(_asleep)
def help_readers(slot, wakes, calls):
    """Read the shares that are put into a slot, as long as bytes come from the pipe `wakes`.

    Returns the last result of C's `read`: 0 at the end of the pipe, -1 after a signal.
    """
    place = slot.ctypes.data
    while True:
        count = _call3(calls[READ], (wakes, place + 8 * BYTE, 1))
        if count != 1:
            return count
        taken = compare_and_swap(place, 0, 0)
        if taken and compare_and_swap(place, taken, 0) == taken:
            words: Any = pointer(taken)
            _read(carray(words, (WORDS,), np.int64), calls)
            compare_and_swap(taken + 8 * FINISHED, 0, 1)


@njit(cache=True, nogil=True)
def _slot(slots, number):
    """The address of a slot, or `_NO_SLOT`."""
    return slots.ctypes.data + 8 * SLOT_FIELDS * number if number < len(slots) else _NO_SLOT


@njit(cache=True, nogil=True)
def _put(share, slot, calls):
    """Put a share into a slot and wake the helper, if there is a slot and it is empty."""
    share[IN_SLOT], share[FINISHED] = _NO_SLOT, 0
    if slot != _NO_SLOT and compare_and_swap(slot, 0, share.ctypes.data) == 0:
        share[IN_SLOT] = slot
        words: Any = pointer(slot)
        wakes = carray(words, (SLOT_FIELDS,), np.int64)[WAKES]
        _call3(calls[WRITE], (wakes, slot, 1))  # any byte


@njit(cache=True, nogil=True)
def _took_back(share, calls):
    """Take a share back. Returns True if no helper has taken it.

    Otherwise waits until the helper has read the share, and returns False.
    """
    place, slot = share.ctypes.data, share[IN_SLOT]
    if slot == _NO_SLOT or compare_and_swap(slot, place, 0) == place:
        return True
    while compare_and_swap(place + 8 * FINISHED, 1, 1) == 0:
        _call1(calls[YIELD], (0,))
    return False


@njit(cache=True, nogil=True)
def _read(share, calls):
    """Read a share with `read_stretches`, and write down the reason why that stopped."""
    segments: Any = pointer(share[SEGMENTS])
    seen: Any = pointer(share[SEEN])
    planned: Any = pointer(share[PLANNED])
    table: Any = pointer(share[BATCHES])
    columns = carray(planned, (STRETCHES, share[PLANNED + 1] // STRETCHES), np.int64)
    stretches = StretchTable(
        carray(segments, (share[SEGMENTS + 1] // SEGMENT_FIELDS, SEGMENT_FIELDS), np.int64),
        columns[:, share[FIRST] : share[LAST]], calls[PREAD],
        carray(seen, (share[SEEN + 1],), np.uint64), share[CACHES] != 0,
    )  # fmt: skip
    room = BatchRoom(
        _bytes(share, LOG), carray(table, (share[BATCHES + 1],), TABLE), _ints(share, OWNERS),
        _longs(share, POSITIONS), _longs(share, ROWS), _ints(share, WINDOWS),
        _longs(share, CACHED_AT), _longs(share, CACHED_BYTES),
    )  # fmt: skip
    arena = Arena(
        _longs(share, LIBRARIES), share[MAX_BYTES], _bytes(share, ARENA), False,
        _longs(share, ARENA_ENDS), _longs(share, SIZES),
    )  # fmt: skip
    buffers = Buffers(
        share[FIELDS], share[LIMIT_BYTES], _longs(share, STATE), _longs(share, OFFSETS),
        _longs(share, TIMESTAMPS), _bytes(share, TIMESTAMP_TYPES), _ints(share, BATCH_OF),
        _ints(share, KEY_ENDS), _bytes(share, KEYS), _bytes(share, KEY_VALID),
        _ints(share, VALUE_ENDS), _bytes(share, VALUES), _bytes(share, VALUE_VALID),
    )  # fmt: skip
    place, costs = _longs(share, PLACE), _longs(share, COST)
    share[REASON] = read_stretches(stretches, room, arena, place, costs, buffers)


@njit(cache=True, nogil=True)
def _bytes(share, array):
    place: Any = pointer(share[array])
    return carray(place, (share[array + 1],), np.uint8)


@njit(cache=True, nogil=True)
def _ints(share, array):
    place: Any = pointer(share[array])
    return carray(place, (share[array + 1],), np.int32)


@njit(cache=True, nogil=True)
def _longs(share, array):
    place: Any = pointer(share[array])
    return carray(place, (share[array + 1],), np.int64)
