"""Lines of text: fields are the named groups of a pattern (RE2) that begins where a line does."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow.compute as pc

from seglake.config import Pipeline
from seglake.format.records import Spans
from seglake.text.spans import (
    Reason,
    from_arrow,
    json_objects,
    quoted,
    to_arrow,
    where_null,
)
from seglake.times.directives import TimeFormat
from seglake.times.kernels import UNREADABLE
from seglake.times.readers import Times, read_times
from seglake.write.rows.line_chunks import Chunk, Lines, invalid_utf8, split_lines


class TextRows(Lines):
    """The lines of a chunk. With a pattern, a line must be UTF-8 and match it."""

    def __init__(self, chunk: Chunk, pipeline: Pipeline) -> None:
        lines = split_lines(chunk.data, chunk.start, chunk.end)
        starts, lengths, self.numbers, self.line_count = lines
        self.raw = Spans(chunk.data, starts, lengths)
        self.reasons = np.zeros(len(starts), np.int8)
        self._groups = pipeline.input.groups()
        if pipeline.input.pattern is not None:
            self._match(pipeline.input.pattern)

    def _match(self, pattern: str) -> None:
        invalid = invalid_utf8(*self.raw)
        found = pc.extract_regex(to_arrow(where_null(self.raw, invalid)), f"^(?:{pattern})")
        self._found = found
        unmatched = found.is_null().to_numpy(zero_copy_only=False)
        self.reasons[unmatched] = Reason.NOT_PARSEABLE
        self.reasons[invalid] = Reason.INVALID_UTF8

    def field(self, name: str) -> Spans:
        """The text of a group; null if it is empty or took no part in the match."""
        spans = from_arrow(pc.struct_field(self._found, name))
        return where_null(spans, spans.lengths <= 0)

    def times(self, name: str, form: TimeFormat) -> Times:
        """The values of a field as times."""
        return read_times(self.field(name), form)

    def objects(self, names: Sequence[str]) -> Spans:
        """All values are JSON strings or null; no names: every group."""
        names = names or self._groups
        return json_objects(names, [quoted(self.field(n)) for n in names], len(self.numbers))


class LongRow(Lines):
    """The beginning of one line that is longer than a chunk: always rejected."""

    def __init__(self, chunk: Chunk) -> None:
        self.numbers, self.line_count = np.zeros(1, np.int64), 1
        self.reasons = np.array([Reason.TOO_LARGE], np.int8)
        size = np.array([chunk.end - chunk.start], np.int32)
        self.raw = Spans(chunk.data, np.array([chunk.start], np.int64), size)

    def field(self, _name: str) -> Spans:
        """Nothing is looked for in such a line."""
        return Spans.nulls(1)

    def times(self, _name: str, _form: TimeFormat) -> Times:
        """The values of a field as times."""
        return Times(np.zeros(1, np.int64), np.array([UNREADABLE], np.int8))

    def objects(self, _names: Sequence[str]) -> Spans:
        """One JSON object per row."""
        return Spans.nulls(1)
