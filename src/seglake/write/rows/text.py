"""Lines of text: fields are the named groups of a pattern (RE2), matched from the line's start."""

from collections.abc import Callable

import numpy as np
import pyarrow.compute as pc

from seglake.config import Input, Pipeline
from seglake.format.records import Spans
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
        self.all_names = settings.groups()
        if settings.pattern is not None:
            self._match(settings.pattern)

    def _match(self, pattern: str) -> None:
        invalid = invalid_utf8(*self.raw)
        texts = to_arrow(where_null(self.raw, invalid))
        self._matches = pc.extract_regex(texts, f"^(?:{pattern})")
        unmatched = self._matches.is_null().to_numpy(zero_copy_only=False)
        self.reasons[unmatched] = Reason.NOT_PARSEABLE
        self.reasons[invalid] = Reason.INVALID_UTF8

    def field(self, name: str) -> Spans:
        """The text of a group; null if the group is empty or not part of the match."""
        spans = from_arrow(pc.struct_field(self._matches, name))
        return where_null(spans, spans.lengths <= 0)
