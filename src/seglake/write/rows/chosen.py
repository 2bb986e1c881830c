"""Chosen rows: the rejects of an earlier run, found again in their file or made of their raw bytes.

A reject is known by the line at which it begins. It counts as found only if the row that begins
there now has the bytes that the quarantine has. Other settings may divide a file into other rows,
and such a row could hold lines that are records already.
"""

from collections.abc import Iterable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from seglake.config import Pipeline
from seglake.format.records import Flags, Headers, Int64s, Spans
from seglake.text.spans import constant, fnv_hashes, join_rows, with_line_feed
from seglake.times.grammar import TimeFormat
from seglake.times.readers import Times
from seglake.write.input.content import InputStore
from seglake.write.input.encodings import UTF_8, from_encoding, in_encoding
from seglake.write.input.files import Split
from seglake.write.rows.formats.registry import FORMATS
from seglake.write.rows.lines import REJECTED_BYTES, LineChunk, LineFormat
from seglake.write.rows.records import Extracted, RowLimits, extract, rows_of_split
from seglake.write.rows.rows import LackedFields, Reason, Rows

# One reject without its raw bytes: where it begins, counted from 1, the length and hash of the raw
# bytes, whether the row may be longer than they are, and whether they have a line feed.
REJECT = np.dtype(
    [("line", "i8"), ("hash", "i8"), ("length", "i4"), ("cut", "?"), ("line_feed", "?")]
)
# reasons of rows that the quarantine may cut before 64 KiB
_CUT = [reason.text for reason in Reason if reason.name.endswith(("TOO_LARGE", "TOO_LONG"))]

Rejected = npt.NDArray[np.void]  # of REJECT, in the order of lines
RejectFlags = npt.NDArray[np.bool_]  # which of the rejects are found


def rejected(lines: Int64s, reasons: npt.NDArray[Any], raw: Spans) -> Rejected:
    """Quarantined rows without their raw bytes, in the given order."""
    rows = np.zeros(len(lines), REJECT)
    rows["line"], rows["length"] = lines, np.maximum(raw.lengths, 0)
    rows["hash"], rows["line_feed"] = fnv_hashes(*raw.fixed()), with_line_feed(*raw.fixed())
    rows["cut"] = (raw.lengths >= REJECTED_BYTES) | np.isin(reasons, _CUT)
    return rows


def keeps_whole_rows(pipeline: Pipeline) -> bool:
    """Whether a row of the input format can be made of its raw bytes alone."""
    return isinstance(FORMATS[pipeline.input.format], LineFormat)


def read_chosen(
    split: Split,
    store: InputStore,
    pipeline: Pipeline,
    limits: RowLimits,
    rejects: Rejected,
    hits: RejectFlags,
) -> Iterator[Extracted]:
    """The records and rejects of the chosen rows of a file, read once; sets `hits`.

    Lines of the rejects count from 0 in the file. Raises InputError as `read_split` does.
    """
    for path, rows, first_line, path_line in rows_of_split(split, store, pipeline):
        numbers = rows.numbers + first_line
        chosen = _choose(rows, numbers, rejects, hits, pipeline.input.encoding)
        if len(chosen.numbers):
            yield extract(chosen, pipeline, limits, path, 0, path_line)


def read_raw(
    path: str,
    lines: Int64s,
    raw: Spans,
    pipeline: Pipeline,
    limits: RowLimits,
    rejects: Rejected,
    hits: RejectFlags,
) -> Extracted:
    """The records and rejects of rows made of their raw bytes, which begin at `lines` (from 1)."""
    form = FORMATS[pipeline.input.format]
    assert isinstance(form, LineFormat)  # noqa: S101  # see `keeps_whole_rows`
    encoding = pipeline.input.encoding
    raw = raw if encoding == UTF_8 else from_encoding(raw, encoding)
    text = join_rows([raw, constant(b"\n", len(raw))])
    end = int(np.sum(text.lengths, dtype=np.int64))
    rows = form.row_maker(pipeline)(LineChunk(text.data, 0, end, False))
    chosen = _choose(rows, lines[rows.numbers] - 1, rejects, hits, encoding)
    return extract(chosen, pipeline, limits, path, 0)


def _choose(
    rows: Rows, lines: Int64s, rejects: Rejected, hits: RejectFlags, encoding: str
) -> "ChosenRows":
    """The rejects among rows that begin at `lines` (from 0); marks them in `hits`."""
    at = np.searchsorted(rejects["line"], lines + 1)
    at[at == len(rejects)] = 0
    begun = np.flatnonzero(rejects["line"][at] == lines + 1)
    if len(begun):
        raw, ours = rows.take_raw(begun), rejects[at[begun]]
        same = _same(raw, ours)
        if encoding != UTF_8:  # bytes that an earlier encoding did not have stand as they are
            same |= _same(in_encoding(raw, encoding), ours)
        begun = begun[same]
    hits[at[begun]] = True
    return ChosenRows(rows, begun, lines[begun])


def _same(raw: Spans, rejects: Rejected) -> RejectFlags:
    """Whether each row is its reject; if the reject is cut, whether a line begins with its bytes.

    A row of several lines may have ended elsewhere, so its beginning is not enough.
    """
    sizes = np.minimum(raw.lengths, rejects["length"])
    alike = fnv_hashes(*Spans(raw.data, raw.starts, sizes).fixed()) == rejects["hash"]
    line = rejects["cut"] & (raw.lengths >= rejects["length"])
    if line.any():
        line &= ~with_line_feed(*raw.fixed())
    whole = (raw.lengths == rejects["length"]) & (sizes < REJECTED_BYTES)
    same: RejectFlags = alike & (line | whole)
    return same


class ChosenRows:
    """Some rows of a chunk, which begin at the lines `numbers`."""

    line_count = 0

    def __init__(self, rows: Rows, at: Int64s, numbers: Int64s) -> None:
        self._rows, self._at = rows, at
        self.numbers, self.reasons = numbers, rows.reasons[at]

    @property
    def raw(self) -> Spans:
        """The bytes of the rows in the file."""
        return self._rows.raw.take(self._at)

    def take_raw(self, rows: Int64s) -> Spans:
        """The raw bytes of the rows at these positions."""
        return self._rows.take_raw(self._at[rows])

    def field(self, name: str) -> Spans:
        """The values of a field as bytes; null if a row has no value."""
        return self._rows.field(name).take(self._at)

    def times(self, name: str, form: TimeFormat) -> Times:
        """The values of a field as times."""
        ms, codes, local = self._rows.times(name, form)
        return Times(ms[self._at], codes[self._at], local[self._at])

    def headers(self, name: str) -> tuple[Headers, Flags]:
        """The values of a field as record headers, and which cannot be read."""
        headers, unreadable = self._rows.headers(name)
        return headers.take(self._at), unreadable[self._at]

    def objects(self, names: Sequence[str]) -> Spans:
        """One JSON object per row, of these fields; without names, of every field."""
        return self._rows.objects(names).take(self._at)

    def absent(self, names: Iterable[str]) -> LackedFields | None:
        """None: some rows of a chunk do not show which fields no row has."""
        del names
        return None
