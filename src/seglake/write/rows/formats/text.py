"""Text: fields are the named groups of a pattern (RE2), matched from the start of an event."""

from collections.abc import Callable, Iterator

import numpy as np
import pyarrow.compute as pc

from seglake.config import Input, Pipeline
from seglake.format.records import Spans
from seglake.text.newlines import split_lines
from seglake.text.spans import from_arrow, to_arrow, where_null
from seglake.text.utf8 import invalid_utf8
from seglake.write.input.content import InputStore
from seglake.write.input.files import Split
from seglake.write.rows.events import EventChunk, event_chunks
from seglake.write.rows.lines import LineChunk, LineFormat, LineRows, streams_of
from seglake.write.rows.rows import Reason, Rows


class Text(LineFormat):
    """One event per line, or per line and the lines that continue it."""

    def read(
        self, split: Split, store: InputStore, pipeline: Pipeline
    ) -> Iterator[tuple[str, Rows]]:
        """The rows of a split; see `Format.read`."""
        settings = pipeline.input
        if settings.multiline_start_pattern is None:
            yield from super().read(split, store, pipeline)
            return
        for part in streams_of(split, store):
            for chunk in event_chunks(part, pipeline.task.chunk_bytes, settings):
                yield part.path, TextRows(chunk, settings)

    def row_maker(self, pipeline: Pipeline) -> Callable[[LineChunk], Rows]:
        """Rows whose fields are the groups of `input.pattern`."""
        return lambda chunk: TextRows(_one_line_events(chunk), pipeline.input)


def _one_line_events(chunk: LineChunk) -> EventChunk:
    starts, lengths, numbers, count = split_lines(chunk.data, chunk.start, chunk.end)
    return EventChunk(
        Spans(chunk.data, starts, lengths), numbers, np.zeros(len(starts), np.bool_), count
    )


class TextRows(LineRows):
    """The events of a chunk. With a pattern, an event must be UTF-8 and match it."""

    def __init__(self, events: EventChunk, settings: Input) -> None:
        self.raw, self.numbers, too_long, self.line_count = events
        self.reasons = np.zeros(len(self.numbers), np.int8)
        self.all_names = settings.groups()
        if settings.pattern is not None:
            self._match(settings.pattern)
        self.reasons[too_long] = Reason.EVENT_TOO_LONG

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
