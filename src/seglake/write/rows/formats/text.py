"""Text: fields are the named groups of a pattern (RE2), matched from the start of an event."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from seglake.config import Input, Pipeline
from seglake.format.records import Spans
from seglake.text.newlines import split_lines
from seglake.text.text_fields import TextFields
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile, Split
from seglake.write.rows.events import EventChunk, event_chunks
from seglake.write.rows.lines import LineChunk, LineFormat, LineRows, streams_of
from seglake.write.rows.rows import Reason, Rows


class Text(LineFormat):
    """One event per line, or per line and the lines that continue it."""

    def value_settings(
        self, files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline
    ) -> dict[str, Any]:
        """The pattern of the events, if it has a group."""
        del files, store
        if not pipeline.input.groups():
            return {}
        return {"value.format": "text", "value.pattern": pipeline.input.pattern}

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
        self._fields = TextFields(self.raw, pattern)
        self.reasons[~self._fields.fine] = Reason.NOT_PARSEABLE
        self.reasons[self._fields.invalid] = Reason.INVALID_UTF8

    def field(self, name: str) -> Spans:
        """The text of a group; null if the group is empty or not part of the match."""
        return self._fields.text(name)
