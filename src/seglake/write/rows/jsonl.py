"""JSON lines: fields by name out of lines that were scanned, not parsed: no tree is built.

A line must be one JSON object; anything that RFC 8259 forbids, bytes that are not UTF-8 and nesting
beyond 512 levels make it a rejected line.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from seglake.format.records import NULL, Int32s, Int64s, Spans
from seglake.text.simd import PADDING
from seglake.text.spans import Reason, from_ends, json_objects, where_null
from seglake.times.directives import TimeFormat
from seglake.times.readers import Times, read_times
from seglake.write.rows.jsonl_kernels import (
    ESCAPED,
    MISSING,
    NONE,
    PLAIN,
    Int8s,
    scan_lines,
    unescape_all,
)
from seglake.write.rows.line_chunks import Chunk, Lines, split_lines

_REASONS = np.array([Reason.NONE, Reason.NOT_PARSEABLE, Reason.INVALID_UTF8], np.int8)

Path = tuple[str, ...]


class Wanted:
    """The fields to look for. "a.b" is the key "b" inside the object at "a", or a key "a.b".

    Where a line has both, the key that is literally so named wins. Of repeated keys the last
    counts.
    """

    def __init__(self, names: Iterable[str]) -> None:
        both = {path for name in names for path in ((name,), tuple(name.split(".")))}
        paths = sorted(both)
        self.slots = {path: slot for slot, path in enumerate(paths)}
        prefixes = {path[:size] for path in paths for size in range(1, len(path) + 1)}
        entries = [(), None, *sorted(prefixes, key=lambda path: (len(path), path))]
        texts = [b"" if entry is None else (entry[-1:] or ("",))[0].encode() for entry in entries]
        ends = np.cumsum([len(text) for text in texts])
        self.keys = np.frombuffer(b"".join(texts) + bytes(PADDING), np.uint8)
        self.tree = np.array(
            [
                [end - len(text), len(text), *self._entry(entry, entries)]
                for entry, text, end in zip(entries, texts, ends.tolist(), strict=True)
            ],
            np.int64,
        )

    def _entry(self, path: Path | None, entries: Sequence[Path | None]) -> list[int]:
        """Slot, range of entries below, range of slots at or below a path."""
        if path is None:
            return [-1, 0, 0, 0, 0]
        size = len(path)
        below = [k for k, e in enumerate(entries) if e and len(e) == size + 1 and e[:size] == path]
        slots = [slot for other, slot in self.slots.items() if other[:size] == path]
        first, last = (below[0], below[-1] + 1) if below else (0, 0)
        low, high = (slots[0], slots[-1] + 1) if slots else (0, 0)
        return [self.slots.get(path, -1), first, last, low, high]


class JsonRows(Lines):
    """The rows of a chunk of JSON lines."""

    def __init__(self, chunk: Chunk, wanted: Wanted) -> None:
        lines = split_lines(chunk.data, chunk.start, chunk.end)
        starts, lengths, self.numbers, self.line_count = lines
        self.raw = Spans(chunk.data, starts, lengths)
        self._slots = wanted.slots
        self._places, self._sizes, verdicts = scan_lines(
            chunk.data, starts, lengths, wanted.keys, wanted.tree, len(wanted.slots)
        )
        self.reasons = _REASONS[-verdicts]

    def field(self, name: str) -> Spans:
        """Strings without quotes and escapes, anything else as it is written; null if missing."""
        starts, lengths, kinds = self._found(name)
        if np.any(kinds == ESCAPED):
            return where_null(
                from_ends(*unescape_all(self.raw.data, starts, lengths, kinds)), lengths < 0
            )
        return Spans(self.raw.data, starts, lengths)

    def text(self, name: str) -> Spans:
        """The value as JSON; null if missing."""
        starts, lengths, kinds = self._found(name)
        string = (kinds == PLAIN) | (kinds == ESCAPED)
        return Spans(self.raw.data, starts - string, (lengths + 2 * string).astype(np.int32))

    def times(self, name: str, form: TimeFormat) -> Times:
        """The values of a field as times."""
        return read_times(self.field(name), form)

    def objects(self, names: Sequence[str]) -> Spans:
        """One JSON object per row."""
        return json_objects(names, [self.text(name) for name in names], len(self.numbers))

    def _found(self, name: str) -> tuple[Int64s, Int32s, Int8s]:
        """Starts, lengths (null if missing) and kinds of the values of a field."""
        literal, nested = self._slots[(name,)], self._slots[tuple(name.split("."))]
        places, sizes = self._places[:, literal], self._sizes[:, literal]
        if nested != literal:
            absent = sizes & 7 == MISSING
            places = np.where(absent, self._places[:, nested], places)
            sizes = np.where(absent, self._sizes[:, nested], sizes)
        kinds = (sizes & 7).astype(np.int8)
        missing = (kinds == MISSING) | (kinds == NONE)
        lengths = np.where(missing, NULL, sizes >> 3).astype(np.int32)
        return np.ascontiguousarray(places), lengths, kinds
