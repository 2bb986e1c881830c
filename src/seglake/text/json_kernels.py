"""Scan JSON: one pass validates a text (RFC 8259) and finds the positions of requested values.

Texts may be stored one after another, or with line feeds between them, and zeros follow the last
text. So loops over the bytes of a token do not compare the position with the end of the text. If a
token continues after that end, its loop stops in the next text or at the zeros, and the text is
rejected as not JSON. No object or array begins after the end.
"""

import numpy as np
import numpy.typing as npt

from seglake.compile.jit import njit
from seglake.format.records import Bytes, Flags, Int32s, Int64s
from seglake.text.newlines import first_newline, mark_length
from seglake.text.simd import PADDING, WIDTH, byte_at, lowest_bit, no_digit_mask, string_stop_mask
from seglake.text.utf8 import utf8_sequence

MAX_DEPTH = 512
MISSING, PLAIN, ESCAPED, RAW, NONE = range(5)  # kinds of values; NONE is JSON's null
FINE, NOT_JSON, NOT_UTF8 = 0, -1, -2  # the verdict on a text

# The columns of an entry (row) in the tree of requested member names: where the name begins in
# `names`, the length of the name, the slot of its value or -1, the range [FIRST, LAST) of the
# entries below it, and the range [LOW, HIGH) of the slots at or below it. A repeated name empties
# these slots. Entry 0 is the outermost object. Entry NOWHERE is any member that is not requested.
NAME, LENGTH, SLOT, FIRST, LAST, LOW, HIGH = range(7)
NOWHERE = 1

Int8s = npt.NDArray[np.int8]
Entries = npt.NDArray[np.int64]


@njit(cache=True, nogil=True, forceinline=True)
def _skip_space(base: int, position: int) -> int:
    """Return the position of the next byte that is not whitespace."""
    while True:
        byte = byte_at(base, position)
        if byte > 0x20 or byte not in (0x20, 0x09, 0x0A, 0x0D):
            return position
        position += 1


@njit(cache=True, nogil=True)
def _skip_escape(base: int, position: int) -> int:
    """Return the position after the escape sequence at `position`, or NOT_JSON."""
    kind = byte_at(base, position + 1)
    if kind != 0x75:
        is_escape = kind in (0x22, 0x5C, 0x2F, 0x62, 0x66, 0x6E, 0x72, 0x74)
        return position + 2 if is_escape else NOT_JSON
    for k in range(position + 2, position + 6):
        byte = byte_at(base, k)
        if not (0x30 <= byte <= 0x39 or 0x41 <= byte <= 0x46 or 0x61 <= byte <= 0x66):
            return NOT_JSON
    return position + 6


@njit(cache=True, nogil=True)
def _skip_unusual(base: int, position: int) -> int:
    """Return the position after the escape or the non-ASCII characters at `position`.

    Return NOT_JSON or NOT_UTF8 if they are not valid.
    """
    byte = byte_at(base, position)
    if byte == 0x5C:
        return _skip_escape(base, position)
    if byte < 0x20:
        return NOT_JSON
    while byte >= 0x80:
        size = utf8_sequence(base, position)
        if size == 0:
            return NOT_UTF8
        position += size
        byte = byte_at(base, position)
    return position


@njit(cache=True, nogil=True, forceinline=True)
def _skip_string(base: int, position: int) -> tuple[int, bool]:
    """Return (position of the closing quote, whether the string has an escape).

    `position` is the byte after the opening quote. If the string is not valid, the returned
    position is NOT_JSON or NOT_UTF8.
    """
    escaped = False
    while True:
        mask = string_stop_mask(base, position)
        if mask == 0:
            position += WIDTH
            continue
        position += lowest_bit(mask)
        byte = byte_at(base, position)
        if byte == 0x22:
            return position, escaped
        escaped |= byte == 0x5C
        position = _skip_unusual(base, position)
        if position < 0:
            return position, escaped


@njit(cache=True, nogil=True, forceinline=True)
def _skip_digits(base: int, position: int) -> int:
    mask = no_digit_mask(base, position)
    while mask == 0:
        position += WIDTH
        mask = no_digit_mask(base, position)
    return position + lowest_bit(mask)


@njit(cache=True, nogil=True, forceinline=True)
def _skip_number(base: int, position: int) -> int:
    """Return the position after the number at `position`, or NOT_JSON."""
    position += byte_at(base, position) == 0x2D
    first = byte_at(base, position)
    if first < 0x30 or first > 0x39:
        return NOT_JSON
    position = position + 1 if first == 0x30 else _skip_digits(base, position)
    if byte_at(base, position) == 0x2E:
        begin = position + 1
        position = _skip_digits(base, begin)
        if position == begin:
            return NOT_JSON
    if byte_at(base, position) | 0x20 == 0x65:
        sign = byte_at(base, position + 1)
        begin = position + 1 + (sign in (0x2B, 0x2D))
        position = _skip_digits(base, begin)
        if position == begin:
            return NOT_JSON
    return position


@njit(cache=True, nogil=True)
def _skip_literal(base: int, position: int) -> int:
    """Return the position after true, false or null at `position`, or NOT_JSON."""
    first = byte_at(base, position)
    word = b"true" if first == 0x74 else b"null" if first == 0x6E else b"false"
    for k in range(len(word)):
        if byte_at(base, position + k) != word[k]:
            return NOT_JSON
    return position + len(word)


@njit(cache=True, nogil=True)
def _hex(base: int, position: int) -> int:
    """Return the value of the four hexadecimal digits at `position`."""
    value = 0
    for k in range(position, position + 4):
        byte = byte_at(base, k)
        value = value * 16 + (byte & 15) + 9 * (byte >> 6)
    return value


@njit(cache=True, nogil=True)
def _put_utf8(code: int, out: Bytes, size: int) -> int:
    """Write a code point at out[size], and return the new size. A lone surrogate becomes U+FFFD."""
    if 0xD800 <= code < 0xE000:
        code = 0xFFFD
    if code < 0x80:
        out[size] = code
        return size + 1
    if code < 0x800:
        out[size] = 0xC0 | code >> 6
        out[size + 1] = 0x80 | code & 63
        return size + 2
    if code < 0x10000:
        out[size] = 0xE0 | code >> 12
        out[size + 1] = 0x80 | code >> 6 & 63
        out[size + 2] = 0x80 | code & 63
        return size + 3
    out[size] = 0xF0 | code >> 18
    out[size + 1] = 0x80 | code >> 12 & 63
    out[size + 2] = 0x80 | code >> 6 & 63
    out[size + 3] = 0x80 | code & 63
    return size + 4


@njit(cache=True, nogil=True)
def _unescape(base: int, position: int, end: int, out: Bytes, size: int) -> int:
    """Append the text of a JSON string to out[:size], and return the new size.

    The bytes [position, end) between its quotes must be valid.
    """
    while position < end:
        byte = byte_at(base, position)
        if byte != 0x5C:
            out[size] = byte
            size += 1
            position += 1
            continue
        kind = byte_at(base, position + 1)
        position += 2
        if kind == 0x75:
            code = _hex(base, position)
            position += 4
            if (
                0xD800 <= code < 0xDC00
                and position + 6 <= end
                and (byte_at(base, position) == 0x5C and byte_at(base, position + 1) == 0x75)
            ):
                low = _hex(base, position + 2)
                if 0xDC00 <= low < 0xE000:
                    code = 0x10000 + ((code - 0xD800) << 10) + (low - 0xDC00)
                    position += 6
            size = _put_utf8(code, out, size)
            continue
        for k in range(5):
            if kind == b"bfnrt"[k]:
                kind = b"\b\f\n\r\t"[k]
                break
        out[size] = kind
        size += 1
    return size


@njit(cache=True, nogil=True, forceinline=True)
def _match(base: int, begin: int, length: int, parent: int, names: int, tree: Entries) -> int:
    """Return the entry below `parent` whose name is the `length` bytes at `begin`, or NOWHERE."""
    for entry in range(tree[parent, FIRST], tree[parent, LAST]):
        if tree[entry, LENGTH] != length:
            continue
        at = tree[entry, NAME]
        k = 0
        while k < length and byte_at(base, begin + k) == byte_at(names, at + k):
            k += 1
        if k == length:
            return entry
    return NOWHERE


@njit(cache=True, nogil=True)
def _match_escaped(base: int, begin: int, end: int, parent: int, names: int, tree: Entries) -> int:
    """Return the entry for the name [begin, end), which has escapes; see `_match`."""
    plain = np.empty(end - begin + PADDING, np.uint8)
    length = _unescape(base, begin, end, plain, 0)
    return _match_text(plain, length, parent, names, tree)


@njit(cache=True, nogil=True)
def _match_text(text: Bytes, length: int, parent: int, names: int, tree: Entries) -> int:
    """Return the entry for the name `text`; see `_match`.

    It is a separate function so that the caller's reference keeps `text` alive.
    """
    return _match(text.ctypes.data, 0, length, parent, names, tree)


@njit(cache=True, nogil=True)
def _scan_text(
    base: int,
    position: int,
    end: int,
    names: int,
    tree: Entries,
    begins: Int64s,
    sizes: Int64s,
    stack: Entries,
) -> int:
    """Validate the JSON object in [position, end). Return FINE, NOT_JSON or NOT_UTF8.

    For each slot, `begins` gets the position of the value, and `sizes` its length * 8 + kind.
    """
    depth, slot, entry, in_object = 0, -1, 0, False
    position = _skip_space(base, position)
    if position >= end or byte_at(base, position) != 0x7B:
        return NOT_JSON
    while True:
        if in_object:  # read a member's name
            if byte_at(base, position) != 0x22:
                return NOT_JSON
            begin = position + 1
            position, escaped = _skip_string(base, begin)
            if position < 0:
                return position
            slot, entry = -1, NOWHERE
            parent = stack[depth - 1, 0]
            if tree[parent, FIRST] < tree[parent, LAST]:
                if escaped:
                    entry = _match_escaped(base, begin, position, parent, names, tree)
                else:
                    entry = _match(base, begin, position - begin, parent, names, tree)
                slot = tree[entry, SLOT]
                for k in range(tree[entry, LOW], tree[entry, HIGH]):
                    sizes[k] = MISSING
            position = _skip_space(base, position + 1)
            if byte_at(base, position) != 0x3A:
                return NOT_JSON
            position = _skip_space(base, position + 1)
        byte = byte_at(base, position)  # read a value
        begin, kind = position, RAW
        if byte == 0x22:
            begin += 1
            stop, escaped = _skip_string(base, begin)
            if stop < 0:
                return stop
            kind = ESCAPED if escaped else PLAIN
            position = stop + 1
        elif byte in (0x7B, 0x5B):
            if depth == MAX_DEPTH or position >= end:
                return NOT_JSON
            in_object = byte == 0x7B
            stack[depth, 0], stack[depth, 1] = entry if in_object else NOWHERE, slot
            stack[depth, 2], stack[depth, 3] = position, byte + 2
            depth += 1
            position = _skip_space(base, position + 1)
            slot = -1
            if byte_at(base, position) != byte + 2:  # the code of } is { plus 2, and ] is [ plus 2
                entry = NOWHERE
                continue
        elif byte == 0x2D or 0x30 <= byte <= 0x39:
            position = _skip_number(base, position)
        else:
            kind = NONE if byte == 0x6E else RAW
            position = _skip_literal(base, position)
        if position < 0:
            return NOT_JSON
        if slot >= 0:
            begins[slot] = begin
            sizes[slot] = (position - begin - (kind in (PLAIN, ESCAPED))) << 3 | kind
        while True:  # after a value
            position = _skip_space(base, position)
            byte = byte_at(base, position)
            if byte == 0x2C:
                position = _skip_space(base, position + 1)
                in_object = stack[depth - 1, 3] == 0x7D
                slot, entry = -1, NOWHERE
                break
            depth -= 1
            if byte != stack[depth, 3]:
                return NOT_JSON
            position += 1
            slot = stack[depth, 1]
            if slot >= 0:
                begins[slot] = stack[depth, 2]
                sizes[slot] = (position - stack[depth, 2]) << 3 | RAW
            if depth == 0:
                fine = position <= end and _skip_space(base, position) >= end
                return FINE if fine else NOT_JSON


@njit(cache=True, nogil=True)
def scan_texts(
    data: Bytes, starts: Int64s, lengths: Int32s, names: Bytes, tree: Entries, slots: int
) -> tuple[Entries, Entries, Int8s]:
    """Validate texts in padded `data`, and find the values of the requested members.

    Returns three arrays. The first two have, for each text and slot, the position of the value and
    its length * 8 + kind. The third has FINE, NOT_JSON (as for null) or NOT_UTF8 for each text.
    """
    base, names_base = data.ctypes.data, names.ctypes.data
    rows = len(starts)
    begins, sizes = np.zeros((rows, slots), np.int64), np.zeros((rows, slots), np.int64)
    stack = np.empty((MAX_DEPTH, 4), np.int64)  # entry, slot, first byte, closing bracket
    verdicts = np.empty(rows, np.int8)
    for row in range(rows):
        start = starts[row]
        verdict = _scan_text(
            base, start, start + lengths[row], names_base, tree, begins[row], sizes[row], stack
        )
        if verdict != FINE:
            sizes[row] = MISSING
        verdicts[row] = verdict
    return begins, sizes, verdicts


@njit(cache=True, nogil=True)
def unescape_all(
    data: Bytes, starts: Int64s, lengths: Int32s, kinds: Int8s
) -> tuple[Bytes, Int64s]:
    """Copy the items, with escapes resolved if the kind is ESCAPED. Return (bytes, item ends)."""
    total = 0
    for row in range(len(starts)):
        total += max(lengths[row], 0)
    out = np.empty(total + PADDING, np.uint8)
    ends = np.empty(len(starts), np.int64)
    base, size = data.ctypes.data, 0
    for row in range(len(starts)):
        start, end = starts[row], starts[row] + max(lengths[row], 0)
        if kinds[row] == ESCAPED:
            size = _unescape(base, start, end, out, size)
        else:
            for k in range(start, end):
                out[size] = byte_at(base, k)
                size += 1
        ends[row] = size
    return out, ends


@njit(cache=True, nogil=True)
def elements(
    data: Bytes, starts: Int64s, lengths: Int32s, rows: Int64s, begins: Int64s, sizes: Int64s
) -> int:
    """Find the elements of valid JSON arrays, and return their number.

    For each element, `rows` gets the number of its JSON array, `begins` its position, and `sizes`
    its length * 8 + kind. These buffers need room for all commas of the arrays, and one more item
    for each array.
    """
    base, n = data.ctypes.data, 0
    for row in range(len(starts)):
        end = starts[row] + lengths[row] - 1  # position of the closing bracket
        position = _skip_space(base, starts[row] + 1)
        while position < end:
            begin, kind, depth = position, RAW, 0
            if byte_at(base, position) == 0x22:
                begin += 1
                position, escaped = _skip_string(base, begin)
                kind = ESCAPED if escaped else PLAIN
                stop = position
                position += 1
            else:
                kind = NONE if byte_at(base, position) == 0x6E else RAW
                while position < end:
                    byte = byte_at(base, position)
                    if byte == 0x22:
                        position = _skip_string(base, position + 1)[0]
                    elif byte in (0x5B, 0x7B):
                        depth += 1
                    elif byte in (0x5D, 0x7D):
                        depth -= 1
                    elif depth == 0 and (byte == 0x2C or byte <= 0x20):
                        break
                    position += 1
                stop = position
            rows[n], begins[n], sizes[n] = row, begin, (stop - begin) << 3 | kind
            n += 1
            position = _skip_space(base, position)
            if position < end:  # skip a comma
                position = _skip_space(base, position + 1)
    return n


# ---------------- events
# Find the events in the arrays of JSON documents. Only a part of a document may be in memory.
#
# A path such as resourceLogs[].scopeLogs[].logRecords[] is a sequence of containers: `arrays[d]` is
# set if the container at depth d is an array, and events are at depth len(arrays). Entry
# CONTAINERS + d of the tree is the container at depth d. Below it are the entries of the member
# that leads to depth d + 1 (slot 0), and of the members that events inherit (slots from 1).
#
# Events and other values are skipped by their brackets and quotes, and are validated later. So an
# invalid event does not affect others as long as its brackets and quotes match. A null in place of
# an array on the path is treated as an empty array.

CONTAINERS = 2
# Phases. The next token is: a value; the first item of a container or its end; a comma or the end.
VALUE, OPENED, NEXT = range(3)
# Why a scan ended: enough rows, no more bytes, wrong brackets, too many rows in an outermost object
FULL, MORE, BROKEN, MANY = 0, -1, -2, -3
MOST_INHERITING = 1 << 20
EVENT, EMPTY, STRAY = range(3)  # kinds of rows; EMPTY is the event {}, STRAY is not in an array
START, SIZE, KIND, OWNER = range(4)  # columns of rows
# The state between two scans. FOUND: whether the document has the first member of the path.
DEPTH, PHASE, FOUND, DOCUMENT, DOCUMENTS = range(5)


@njit(cache=True, nogil=True)
def _skip_text(base: int, position: int, end: int) -> int:
    """Return the position after the closing quote of a string, without validating it.

    `position` is the byte after the opening quote. Return MORE if the string continues after `end`,
    or BROKEN if it contains a line feed.
    """
    while True:
        mask = string_stop_mask(base, position)
        if mask == 0:
            position += WIDTH
            continue
        position += lowest_bit(mask)
        if position >= end:
            return MORE
        byte = byte_at(base, position)
        if byte == 0x22:
            return position + 1
        if byte == 0x0A:
            return BROKEN
        position += 1 + (byte == 0x5C)
        while byte_at(base, position) >= 0x80:
            position += 1


@njit(cache=True, nogil=True)
def _skip_value(base: int, position: int, end: int) -> int:
    """Return the position after the value at `position`, without validating the value.

    A value without brackets and quotes ends at a comma, a closing bracket or a blank. Return MORE
    if the value continues after `end`, or BROKEN if a string contains a line feed.
    """
    depth = 0
    while position < end:
        byte = byte_at(base, position)
        if byte == 0x22:
            position = _skip_text(base, position + 1, end)
            if position < 0:
                return position
        elif byte in (0x5B, 0x7B):
            depth += 1
            position += 1
        elif byte in (0x5D, 0x7D):
            position += depth > 0
            depth -= 1
        elif depth > 0:
            position += 1
        else:
            while byte > 0x20 and byte not in (0x2C, 0x5D, 0x7D):
                position += 1
                byte = byte_at(base, position)
            return position if position < end else MORE
        if depth <= 0:
            return position
    return MORE


@njit(cache=True, nogil=True)
def _with_room(table: Entries, n: int) -> Entries:
    """Return a table that has a row `n`: the same table, or a larger copy of it."""
    if n < len(table):
        return table
    wider = np.empty((2 * n, table.shape[1]), np.int64)
    # A loop and not an assignment of arrays, see `seglake.compile.jit`.
    for row in range(n):
        for column in range(table.shape[1]):
            wider[row, column] = table[row, column]
    return wider


@njit(cache=True, nogil=True)
def _with_row(table: Entries, n: int, start: int, size: int, kind: int, owner: int) -> Entries:
    """Write row `n` of a table, and return the table, which may be a larger copy."""
    table = _with_room(table, n)
    table[n, START], table[n, SIZE], table[n, KIND], table[n, OWNER] = start, size, kind, owner
    return table


@njit(cache=True, nogil=True)
def _match_name(base: int, begin: int, end: int, parent: int, names: int, tree: Entries) -> int:
    """Return the entry below `parent` whose name is the text [begin, end), or NOWHERE."""
    stop, escaped = _skip_string(base, begin)
    if stop != end:  # not a valid name
        return NOWHERE
    if escaped:
        return _match_escaped(base, begin, end, parent, names, tree)
    return _match(base, begin, end - begin, parent, names, tree)


@njit(cache=True, nogil=True)
def find_events(
    data: Bytes,
    begin: int,
    end: int,
    final: bool,
    most: int,
    arrays: Flags,
    names: Bytes,
    tree: Entries,
    inherited: int,
    state: Int64s,
) -> tuple[int, int, int, Entries, Entries]:
    """Find the next events in data[begin:end]. `state` continues the previous scan.

    `data` must be padded. If `final`, the text ends at `end`. A scan ends after about `most` rows.

    Returns (reason, end, complete, events, owners). The scan ended at `end` because it was FULL,
    MORE, BROKEN or MANY. All events before `complete` were found, and `state` continues from there.
    `events` has a row for each event, and `owners` a row for each object that contains events, with
    positions and sizes of inherited members. If events inherit members, only whole outermost
    objects are complete, and there may be more rows than `most`.
    """
    base, names_base = data.ctypes.data, names.ctypes.data
    levels = len(arrays)
    unit = levels
    if inherited:
        unit = 0
        while arrays[unit]:
            unit += 1
    rows, n = np.empty((256, 4), np.int64), 0
    owners, m = np.empty((16, 1 + 2 * inherited), np.int64), 1
    owners[0] = -1  # owner 0 has no members
    owner = np.zeros(levels + 1, np.int64)  # for each open container, the innermost open object
    depth, phase, found, document, documents = state[0], state[1], state[2], state[3], state[4]
    position, complete, complete_rows, verdict = begin, begin, 0, BROKEN
    while True:
        if depth <= unit:
            complete, complete_rows = position, n
            state[DEPTH], state[PHASE], state[FOUND] = depth, phase, found
            state[DOCUMENT], state[DOCUMENTS] = document, documents
            if n + m > most:
                verdict = FULL
                break
        elif n + m > most + MOST_INHERITING:
            verdict = MANY
            break
        position = _skip_space(base, position)
        if depth == 0:  # files may be joined
            position += mark_length(base, position)
            complete = position
        if position >= end:
            break
        byte = byte_at(base, position)
        if phase != VALUE:
            closing = 0x5D if arrays[depth - 1] else 0x7D
            if byte == closing:
                position += 1
                depth -= 1
                phase = NEXT
                if depth == 0:
                    phase = VALUE
                    documents += 1
                    if not found:
                        rows = _with_row(rows, n, document, position - document, STRAY, 0)
                        n += 1
                continue
            if phase == NEXT:
                if byte != 0x2C:
                    break
                position = _skip_space(base, position + 1)
            if closing == 0x7D:  # a member: its name first
                if byte_at(base, position) != 0x22:
                    break
                name = position + 1
                stop = _skip_text(base, name, end)
                if stop < 0:
                    verdict = stop
                    break
                entry = _match_name(base, name, stop - 1, CONTAINERS + depth - 1, names_base, tree)
                position = _skip_space(base, stop)
                if byte_at(base, position) != 0x3A:
                    break
                position = _skip_space(base, position + 1)
                slot = tree[entry, SLOT]
                found |= np.int64(slot == 0 and depth == 1)
                if slot != 0:
                    stop = _skip_value(base, position, end)
                    if stop < 0:
                        verdict = stop
                        break
                    if slot > 0:
                        owners[owner[depth], 2 * slot - 1] = position
                        owners[owner[depth], 2 * slot] = stop - position
                    position, phase = stop, NEXT
                    continue
            if position >= end:
                break
            byte = byte_at(base, position)
        if depth < levels and byte == (0x5B if arrays[depth] else 0x7B):
            if depth == 0:
                document, found = position, np.int64(arrays[0])
            owner[depth + 1] = owner[depth]
            if inherited and not arrays[depth]:
                owners = _with_room(owners, m)
                owners[m] = -1
                owners[m, 0] = owner[depth]
                owner[depth + 1] = m
                m += 1
            depth += 1
            position, phase = position + 1, OPENED
            continue
        if levels == 0 and byte == 0x2C:  # between whole documents
            position += 1
            continue
        is_event = depth == levels and (depth > 0 or byte == 0x7B)
        if depth == 0 and not is_event:  # a line that is not a document
            stop = first_newline(data, position, end)
            if stop == end and not final:
                verdict = MORE
                break
            rows = _with_row(rows, n, position, stop - position, STRAY, 0)
            n += 1
            position = stop
            continue
        stop = _skip_value(base, position, end)
        if stop < 0:
            verdict = stop
            break
        kind = EVENT if is_event else STRAY
        if is_event and byte == 0x7B and byte_at(base, _skip_space(base, position + 1)) == 0x7D:
            kind = EMPTY
        if kind != STRAY or byte != 0x6E or _skip_literal(base, position) != stop:
            rows = _with_row(rows, n, position, stop - position, kind, owner[depth])
            n += 1
        position, phase = stop, NEXT if depth else VALUE
        documents += depth == 0
    if position >= end:  # the scan stopped at the zeros after the text
        verdict = MORE
    for k in range(1, m):  # an owner comes after the object that contains it
        for column in range(1, owners.shape[1]):
            if owners[k, column] < 0:
                owners[k, column] = owners[owners[k, 0], column]
    return verdict, position, complete, rows[:complete_rows], owners[:m]
