"""Build the key index of a segment while its batches are written or read.

A field's values are found like a search finds them (`value_fields.field_finder`), so an index
excludes a block only if a search would not match there. Each text is hashed without its type. A
JSON number that is written in an unusual way, such as 2e2 or 200.0, has a second hash: the hash of
its value. A value that is not a record of the topic's CSV, or does not match its pattern, has one
hash in each field, `UNREAD`. Every search also looks for this hash, because the block may contain
anything.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import pyarrow as pa
import pyarrow.compute

from seglake.format import keyindex
from seglake.format.batch import BatchTable
from seglake.format.codecs.payload import Payload, payload_of
from seglake.format.decode import Decoded, decode
from seglake.format.index import (
    FIELDS,
    HEADERS,
    RECORD_KEYS,
    IndexPolicy,
    Subject,
    format_of_fields,
)
from seglake.format.key_hashes import (
    Hashes,
    KeyHashes,
    hashes_of,
    hashes_of_numbers,
    hashes_of_spans,
)
from seglake.format.records import Headers, Int32s, Int64s, Spans, copy_rows, read_only
from seglake.format.segment import Roller, SegmentLimits
from seglake.limits import INT64_MAX
from seglake.text.json_fields import Scalars
from seglake.text.spans import join_rows, to_arrow, where_null
from seglake.text.value_fields import field_finder

_DECODE_BYTES = 2**20  # decompressed records at a time
_NO_LIMITS = SegmentLimits(INT64_MAX, INT64_MAX, INT64_MAX)
SHORT = 18  # characters of a number: a longer number has a second hash, too
UNREAD = b"\xff"  # hashed for a value without fields; it occurs in no text
_USUAL = r"^(0|-?[1-9][0-9]*|-?(0|[1-9][0-9]*)\.[0-9]*[1-9])$"  # one such text per number

pc: Any = pyarrow.compute  # its stubs require the type of each item


class Hashed(NamedTuple):
    """Hashes of a subject's values in record batches, and the batch of each hash, ascending."""

    hashes: Hashes
    batches: npt.NDArray[Any]


_NONE = Hashed(np.empty(0, np.uint64), np.empty(0, np.int64))


class KeyIndexBuilder:
    """The key index of a segment whose batches are added one after another.

    It covers the subjects of `policy`. Memory contains the finished pages, and the hashes of one
    page.
    """

    def __init__(self, base_offset: int, policy: IndexPolicy) -> None:
        self._roller = Roller(base_offset, _NO_LIMITS, policy)
        self._pages = {subject: keyindex.Pages() for subject in policy.subjects}
        self._fields = [each for each in policy.subjects if each.kind == FIELDS]
        self._headers = [each for each in policy.subjects if each.kind == HEADERS]
        self._value_format = format_of_fields(self._fields)
        self._find = field_finder(self._value_format, [each.name for each in self._fields])
        self._block = -1

    def add(self, table: BatchTable, data: Any, keys: KeyHashes | None = None) -> None:
        """Add batches that follow one another in `data` without a gap, whatever their positions.

        With `keys`, the hashes of all their records, nothing is decompressed if the index covers
        only record keys.
        """
        if keys is not None and [*self._pages] == [RECORD_KEYS]:
            batches = np.repeat(np.arange(len(table)), table["count"])
            hashed = Hashed(keys.hashes[keys.has_key], batches[keys.has_key])
            self._add(table, {RECORD_KEYS: hashed})
            return
        table = copy_rows(table)
        table["position"] = np.cumsum(table["size"], dtype=np.int64) - table["size"]
        done = 0
        while done < len(table):
            payload = payload_of(read_only(data), table[done:], enough_bytes=_DECODE_BYTES)
            self.add_payload(table[done : done + len(payload.ends)], payload)
            done += len(payload.ends)

    def add_payload(self, table: BatchTable, payload: Payload) -> None:
        """Add batches with their decompressed records. Raises CorruptData."""
        hashed: dict[Subject, Hashed] = {}
        if RECORD_KEYS in self._pages:
            hashed[RECORD_KEYS] = Hashed(*hashes_of(table, payload))
        if self._fields or self._headers:
            decoded = decode(table, payload)
            hashed |= self._of_fields(decoded) | self._of_headers(decoded)
        self._add(table, hashed)

    def finish(self, log_bytes: int) -> bytes:
        """Return the bytes of the .keyindex file of a log of this size."""
        for pages in self._pages.values():
            pages.finish()
        return keyindex.encode(self._pages, self._block + 1, log_bytes)

    def _of_fields(self, decoded: Decoded) -> dict[Subject, Hashed]:
        """Return the hashes of the values of the policy's fields."""
        if not self._fields:
            return {}
        values = decoded.records.values
        found = self._find(where_null(join_rows([values]), values.lengths < 0))
        unread = np.flatnonzero(~found.fine & (values.lengths >= 0) & bool(self._value_format))
        return {
            each: _of_scalars(found.scalars(each.name), unread, decoded.batch)
            for each in self._fields
        }

    def _of_headers(self, decoded: Decoded) -> dict[Subject, Hashed]:
        """Return the hashes of the values of the policy's headers."""
        headers = decoded.records.headers
        if headers is None:
            return {}
        items = np.repeat(decoded.batch, np.diff(headers.firsts))
        keys = to_arrow(headers.keys).cast(pa.large_binary())
        return {each: _of_header(keys, headers, items, each) for each in self._headers}

    def _add(self, table: BatchTable, hashed: Mapping[Subject, Hashed]) -> None:
        """Add batches with the hashes of their subjects."""
        if not len(table):
            return
        begins = np.zeros(len(table), np.bool_)
        taken = self._roller.append(table)  # all, unless the log is damaged, which is raised later
        begins[:taken] = self._roller.newly_indexed
        begins[0] |= self._block < 0
        blocks = self._block + np.cumsum(begins)  # of each batch
        self._block = int(blocks[-1])
        for subject, pages in self._pages.items():
            own: Hashed = hashed.get(subject, _NONE)
            pages.add(own.hashes, blocks[own.batches], self._block)


def _of_scalars(scalars: Scalars, unread: Int64s, batch_of: Int32s) -> Hashed:
    """Return the hashes of scalar values and `unread` records.

    `batch_of` has the batch of each record.
    """
    texts, rows = scalars.texts, scalars.rows
    numbers = _with_two_hashes(scalars)
    unread = unread[np.append(True, np.diff(batch_of[unread]) > 0)[: len(unread)]]
    none = hashes_of_spans(Spans.of([UNREAD] * len(unread)))
    hashes = np.concatenate([hashes_of_spans(texts), hashes_of_numbers(texts.take(numbers)), none])
    return _in_order(hashes, batch_of[np.concatenate([rows, rows[numbers], unread])])


def _with_two_hashes(scalars: Scalars) -> Int64s:
    """Return the positions of scalars with two hashes: numbers in a long or unusual notation."""
    raw = np.flatnonzero(scalars.raw)
    texts = to_arrow(scalars.texts.take(raw))
    short = pc.less_equal(pc.binary_length(texts), SHORT)
    usual = pc.and_(short, pc.match_substring_regex(texts, _USUAL))
    number = pc.match_substring_regex(texts, "^[-0-9]")  # not true and false
    rows: Int64s = raw[pc.and_not(number, usual).to_numpy(zero_copy_only=False)]
    return rows


def _of_header(keys: Any, headers: Headers, batch_of: Int32s, subject: Subject) -> Hashed:
    """Return the hashes of a header's values. `batch_of` has the batch of each header."""
    named = pc.equal(keys, subject.name.encode()).to_numpy(zero_copy_only=False)
    chosen = np.flatnonzero(named & (headers.values.lengths >= 0))
    return Hashed(hashes_of_spans(headers.values.take(chosen)), batch_of[chosen])


def _in_order(hashes: Hashes, batches: Int32s) -> Hashed:
    order = np.argsort(batches, kind="stable")
    return Hashed(hashes[order], batches[order])
