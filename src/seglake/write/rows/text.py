"""Lines of text: fields are the named groups of a pattern (RE2) that begins where a line does."""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import pyarrow.compute as pc

from seglake.config import Input, Pipeline
from seglake.format.records import Spans
from seglake.text.json import json_objects, quoted
from seglake.text.newlines import split_lines
from seglake.text.spans import from_arrow, to_arrow, where_null
from seglake.text.utf8 import invalid_utf8
from seglake.write.rows.lines import LineChunk, LineFormat, LineRows
from seglake.write.rows.rows import Reason, Rows


class Text(LineFormat):
    """One event per line."""

    def row_maker(self, pipeline: Pipeline) -> Callable[[LineChunk], Rows]:
        """Rows whose fields are the groups of `input.pattern`."""
        return lambda chunk: TextRows(chunk, pipeline.input)


class TextRows(LineRows):
    """The lines of a chunk. With a pattern, a line must be UTF-8 and match it."""

    def __init__(self, chunk: LineChunk, settings: Input) -> None:
        lines = split_lines(chunk.data, chunk.start, chunk.end)
        starts, lengths, self.numbers, self.line_count = lines
        self.raw = Spans(chunk.data, starts, lengths)
        self.reasons = np.zeros(len(starts), np.int8)
        self._groups = settings.groups()
        if settings.pattern is not None:
            self._match(settings.pattern)

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

    def objects(self, names: Sequence[str]) -> Spans:
        """All values are JSON strings or null; no names: every group."""
        names = names or self._groups
        return json_objects(names, [quoted(self.field(n)) for n in names], len(self.numbers))
