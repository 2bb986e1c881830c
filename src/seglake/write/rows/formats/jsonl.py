"""JSON lines: one scan finds the fields that the pipeline names, and builds no tree.

A line must be one JSON object. It is rejected if RFC 8259 forbids it, if its bytes are not UTF-8,
or if it nests deeper than 512 levels.
"""

from collections.abc import Callable, Iterable, Sequence

import numpy as np

from seglake.config import Pipeline
from seglake.format.records import NULL, Int32s, Int64s, Spans
from seglake.text.newlines import split_lines
from seglake.text.simd import PADDING
from seglake.text.spans import from_ends, where_null
from seglake.write.rows.formats.jsonl_kernels import (
    ESCAPED,
    MISSING,
    NONE,
    PLAIN,
    Int8s,
    scan_lines,
    unescape_all,
)
from seglake.write.rows.lines import LineChunk, LineFormat, LineRows
from seglake.write.rows.rows import Absent, Reason, Rows

_REASONS = np.array([Reason.NONE, Reason.NOT_PARSEABLE, Reason.INVALID_UTF8], np.int8)

FieldPath = tuple[str, ...]


class Jsonl(LineFormat):
    """One JSON object per line."""

    def row_maker(self, pipeline: Pipeline) -> Callable[[LineChunk], Rows]:
        """Rows with the fields that the pipeline names."""
        wanted = FieldNames(pipeline.fields())
        return lambda chunk: JsonRows(chunk, wanted)


class FieldNames:
    """The fields to find. "a.b" is the member "b" of the object at "a", or a member "a.b".

    If a line has both, the member "a.b" counts. If a member is repeated, the last one counts.
    """

    def __init__(self, names: Iterable[str]) -> None:
        both = {path for name in names for path in ((name,), tuple(name.split(".")))}
        paths = sorted(both)
        self.slots = {path: slot for slot, path in enumerate(paths)}
        prefixes = {path[:size] for path in paths for size in range(1, len(path) + 1)}
        entries = [(), None, *sorted(prefixes, key=lambda path: (len(path), path))]
        texts = [b"" if entry is None else (entry[-1:] or ("",))[0].encode() for entry in entries]
        ends = np.cumsum([len(text) for text in texts])
        self.names = np.frombuffer(b"".join(texts) + bytes(PADDING), np.uint8)
        self.tree = np.array(
            [
                [end - len(text), len(text), *self._entry(entry, entries)]
                for entry, text, end in zip(entries, texts, ends.tolist(), strict=True)
            ],
            np.int64,
        )

    def _entry(self, path: FieldPath | None, entries: Sequence[FieldPath | None]) -> list[int]:
        """The slot of a path, the range of entries below it, the range of slots at or below it."""
        if path is None:
            return [-1, 0, 0, 0, 0]
        size = len(path)
        below = [at for at, entry in enumerate(entries) if entry and entry[:-1] == path]
        slots = [slot for other, slot in self.slots.items() if other[:size] == path]
        first, last = (below[0], below[-1] + 1) if below else (0, 0)
        low, high = (slots[0], slots[-1] + 1) if slots else (0, 0)
        return [self.slots.get(path, -1), first, last, low, high]


class JsonRows(LineRows):
    """The rows of a chunk of JSON lines."""

    def __init__(self, chunk: LineChunk, wanted: FieldNames) -> None:
        lines = split_lines(chunk.data, chunk.start, chunk.end)
        starts, lengths, self.numbers, self.line_count = lines
        self.raw = Spans(chunk.data, starts, lengths)
        self._slots = wanted.slots
        self._begins, self._sizes, verdicts = scan_lines(
            chunk.data, starts, lengths, wanted.names, wanted.tree, len(wanted.slots)
        )
        self.reasons = _REASONS[-verdicts]

    def field(self, name: str) -> Spans:
        """Strings without quotes and escapes, other values as they stand; null if missing."""
        starts, lengths, kinds = self._values(name)
        if np.any(kinds == ESCAPED):
            return where_null(
                from_ends(*unescape_all(self.raw.data, starts, lengths, kinds)), lengths < 0
            )
        return Spans(self.raw.data, starts, lengths)

    def json(self, name: str) -> Spans:
        """The values of a field as JSON, as they stand; null if missing."""
        starts, lengths, kinds = self._values(name)
        string = (kinds == PLAIN) | (kinds == ESCAPED)
        return Spans(self.raw.data, starts - string, (lengths + 2 * string).astype(np.int32))

    def absent(self, names: Iterable[str]) -> Absent | None:
        """The fields that no row has, not even as null; None if no row can be parsed."""
        parsed = np.flatnonzero(self.reasons == Reason.NONE)
        if not len(parsed):
            return None
        fields = [name for name in names if not self._has(name)]
        return Absent(fields, self.take_raw(parsed[:1]).tolist()[0] or b"" if fields else b"")

    def _has(self, name: str) -> bool:
        slots = [self._slots[(name,)], self._slots[tuple(name.split("."))]]
        # most often one of the first rows has the field
        parts = (sizes[:, slot] for sizes in (self._sizes[:64], self._sizes) for slot in slots)
        return any((part & 7 != MISSING).any() for part in parts)

    def _values(self, name: str) -> tuple[Int64s, Int32s, Int8s]:
        """Starts, lengths (null if missing) and kinds of the values of a field."""
        literal, nested = self._slots[(name,)], self._slots[tuple(name.split("."))]
        begins, sizes = self._begins[:, literal], self._sizes[:, literal]
        if nested != literal:
            absent = sizes & 7 == MISSING
            begins = np.where(absent, self._begins[:, nested], begins)
            sizes = np.where(absent, self._sizes[:, nested], sizes)
        kinds = (sizes & 7).astype(np.int8)
        missing = (kinds == MISSING) | (kinds == NONE)
        lengths = np.where(missing, NULL, sizes >> 3).astype(np.int32)
        return np.ascontiguousarray(begins), lengths, kinds
