"""Read text in which the named groups of a regular expression (RE2) are the fields of an event.

The expression must match at the beginning of the event.
"""

from __future__ import annotations

from codecs import BOM_UTF8
from collections.abc import Iterator, Sequence
from enum import Enum
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.config import Input, Pipeline
from seglake.format.records import Bytes, Flags, Int64s, Spans
from seglake.text.newlines import count_newlines, last_newline, skip_lines, split_lines
from seglake.text.spans import null_if, to_arrow, where_null
from seglake.text.utf8 import invalid_utf8
from seglake.text.value_fields import TextFields
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile, Split
from seglake.write.rows.lines import LineBuffer, LineChunk, LineFormat, SplitStream, open_streams
from seglake.write.rows.rows import Reason, RowChunks, Rows


class Text(LineFormat):
    """The input format "text": each event is one line or, if configured, several lines."""

    def value_settings(
        self, _files: Sequence[SourceFile], _store: InputStore, pipeline: Pipeline
    ) -> dict[str, Any]:
        """Return `value.*` settings with `input.pattern`, or {} if it has no named group."""
        if not pipeline.input.groups():
            return {}
        return {"value.format": "text", "value.pattern": pipeline.input.pattern}

    def read(self, split: Split, store: InputStore, pipeline: Pipeline) -> RowChunks:
        """Yield the rows of a split; see `Format.read`."""
        settings = pipeline.input
        if settings.multiline_start_pattern is None:
            yield from super().read(split, store, pipeline)
            return
        for part in open_streams(split, store):
            for chunk in event_chunks(part, pipeline.task.chunk_bytes, settings):
                yield part.path, TextRows(chunk, settings)

    def rows(self, chunk: LineChunk, pipeline: Pipeline) -> Rows:
        """Return the lines of a chunk as events, with the groups of `input.pattern` as fields."""
        lines = _split(chunk.data, chunk.start, chunk.end, pipeline.input)
        raw = Spans(chunk.data, lines.starts, (lines.ends - lines.starts).astype(np.int32))
        too_long = np.zeros(len(raw), np.bool_)
        counts = lines.total, len(lines.comments)
        return TextRows(EventChunk(raw, lines.numbers, too_long, *counts), pipeline.input)


class TextRows(Rows):
    """The events of a chunk.

    If there is an `input.pattern`, events that do not match or are not UTF-8 are rejected.
    """

    def __init__(self, events: EventChunk, settings: Input) -> None:
        self.raw, self.numbers, too_long, self.line_count, self.comment_lines = events
        self.reasons = np.zeros(len(self.numbers), np.int8)
        self.all_names = settings.groups()
        if settings.pattern is not None:
            self._null_values = settings.null_values
            self._fields = TextFields(self.raw, settings.pattern)
            self.reasons[~self._fields.fine] = Reason.NOT_PARSEABLE
            self.reasons[self._fields.invalid] = Reason.INVALID_UTF8
        self.reasons[too_long] = Reason.EVENT_TOO_LONG

    def field(self, name: str) -> Spans:
        """Return the text of a named group for each event.

        It is null if the group is empty or not matched, or if it is one of `input.null_values`.
        """
        return null_if(self._fields.text(name), self._null_values)


# ---------------- events
# Join lines to events, so that a stack trace belongs to the line in front of it.
#
# An event begins at each line that matches `input.multiline_start_pattern`, and at the first line
# of a file that is not empty. It ends where the next event begins. Its bytes include line ends, but
# not the empty lines at its end. An event belongs to the split in which it begins, and each line is
# counted by the split in which the line begins.
#
# An event is too long if it has more than `input.multiline_max_lines` lines or
# `input.multiline_max_bytes` bytes up to the next event. Its beginning becomes a rejected row. The
# pattern is matched with at most `input.multiline_max_bytes` of a line. So the rows do not depend
# on how a file is split.
#
# Comment lines are treated like empty lines: between the lines of an event they are part of the
# event.

# Lines that are scanned in one step. `input.multiline_max_lines` is always smaller.
_MOST_LINES = 1 << 16
# Bounds of a chunk, because its columns take more memory than its bytes.
_MOST_ROWS, _MOST_BYTES = 1 << 14, 8 << 20


class EventChunk(NamedTuple):
    """Consecutive events of a split. `raw` has their bytes in a padded buffer.

    If an event is `too_long`, `raw` has only its beginning. See `Rows` for the other fields.
    """

    raw: Spans
    numbers: Int64s
    too_long: Flags
    line_count: int
    comment_lines: int

    def parts(self) -> Iterator[EventChunk]:
        """Divide the chunk into parts of bounded size.

        Line numbers still count from the first line of the chunk. The last part has the line counts
        of the whole chunk, and the other parts have 0.
        """
        if not len(self.numbers):
            yield self
            return
        rows = np.arange(len(self.numbers))
        size = np.cumsum(self.raw.lengths, dtype=np.int64)
        cuts = np.flatnonzero(np.diff(rows // _MOST_ROWS) | np.diff(size // _MOST_BYTES)) + 1
        parts = np.split(rows, cuts)
        for part in parts:
            counts = (self.line_count, self.comment_lines) if part is parts[-1] else (0, 0)
            raw = self.raw.take(part)
            yield EventChunk(raw, self.numbers[part], self.too_long[part], *counts)


class _State(Enum):
    """The event that the next unread line continues, unless that line begins an event."""

    BEGIN = "none, because it is the file's first line that is not empty"
    OPEN = "an event of this split, which begins where the unread bytes begin"
    JOINED = "an event that is too long, or belongs to the previous split, so it is no row here"


class _Lines(NamedTuple):
    """The positions of lines in a part of a buffer, without empty lines and comments.

    `starts` exclude byte order marks in front of a line, and `begins` include them. `numbers` are
    line numbers from 0. `comments` are the starts of comment lines, and `total` is the number of
    all lines.
    """

    begins: Int64s
    starts: Int64s
    ends: Int64s
    numbers: Int64s
    comments: Int64s
    total: int


def _split(data: Bytes, begin: int, end: int, settings: Input) -> _Lines:
    """Find the lines in data[begin:end] of a padded buffer."""
    starts, lengths, numbers, total = split_lines(data, begin, end)
    begins = starts.copy()
    while (marked := (begins > begin) & (data[begins - 1] == BOM_UTF8[-1])).any():
        begins[marked] -= len(BOM_UTF8)
    rows, comments = np.arange(len(starts)), starts[:0]
    if settings.comment is not None:
        is_comment = data[starts] == ord(settings.comment)
        rows, comments = np.flatnonzero(~is_comment), begins[is_comment]
    ends = starts + lengths
    return _Lines(begins[rows], starts[rows], ends[rows], numbers[rows], comments, total)


def event_chunks(part: SplitStream, size: int, settings: Input) -> Iterator[EventChunk]:
    """Yield the events that begin in the first `part.limit` bytes of a stream.

    At most `size` bytes are in memory at a time. `size` must be more than twice
    `input.multiline_max_bytes`.
    """
    reader = _EventReader(part, size, settings)
    while reader.wants_more() and reader.buffer.fill():
        while (chunk := reader.advance()) is not None:
            if len(chunk.numbers) or chunk.line_count:
                yield from chunk.parts()


class _EventReader:
    """A reader of the events of a split. It fills and consumes a line buffer."""

    def __init__(self, part: SplitStream, size: int, settings: Input) -> None:
        self.buffer = LineBuffer(part.stream, size, part.limit)
        self._limit, self._pattern = part.limit, f"^(?:{settings.multiline_start_pattern})"
        self._max_lines = settings.multiline_max_lines
        self._max_bytes = settings.multiline_max_bytes
        self._settings = settings
        self._state = _State.JOINED if part.partial else _State.BEGIN
        self._in_line = part.partial  # the unread bytes begin inside a line
        self._uncounted = 0  # consumed lines that begin after the limit

    def wants_more(self) -> bool:
        """Return whether another event of the split, or more of its last event, may follow."""
        at = self.buffer.position + self.buffer.begin
        return self._state is not _State.JOINED or at < self._limit

    def advance(self) -> EventChunk | None:
        """Consume lines, and return the events that they complete.

        Return None if more bytes are needed, or if no event of the split can follow.
        """
        buffer = self.buffer
        if self._in_line:
            self._in_line = not buffer.skip_line()
        end = self._known_end()
        if self._in_line or end == buffer.begin or not self.wants_more():
            return None
        lines = _split(buffer.data, buffer.begin, end, self._settings)
        if len(lines.starts):
            return self._events(lines, end)
        self._in_line = bool(buffer.data[end - 1] != ord("\n"))  # a long comment
        counts = self._consume(end, lines)
        return EventChunk(Spans.nulls(0), lines.numbers, np.zeros(0, np.bool_), *counts)

    def _known_end(self) -> int:
        """Return the end of the lines in the buffer that can be compared with the pattern.

        An incomplete line can only be compared if it has more than `_max_bytes`.
        """
        buffer = self.buffer
        end = buffer.filled
        if not buffer.final:
            whole = max(last_newline(buffer.data, buffer.begin, end) + 1, buffer.begin)
            end = whole if end - whole <= self._max_bytes else end
        return skip_lines(buffer.data, buffer.begin, end, _MOST_LINES)

    def _events(self, lines: _Lines, end: int) -> EventChunk | None:
        """Consume `lines`, and return the events that they complete, or None if they complete none.

        The first line may continue an event.
        """
        begins = self._matches(lines)
        ours = self._state is _State.OPEN or (self._state is _State.BEGIN and not begins[0])
        begins[0] |= self._state is not _State.JOINED
        firsts = np.flatnonzero(begins)
        own = lines.begins[firsts] < self._limit - self.buffer.position
        own[:1] |= ours
        sizes = np.append(lines.begins[firsts[1:]], end) - lines.starts[firsts]
        counts = np.diff(lines.numbers[firsts], append=lines.total)
        too_long = (sizes > self._max_bytes) | (counts > self._max_lines)
        stop = self._stop(lines, firsts, own, too_long, end)
        if stop == self.buffer.begin:
            return None
        chosen = np.flatnonzero(own & (lines.begins[firsts] < stop))
        raw = self._spans(lines, firsts).take(chosen)
        numbers = lines.numbers[firsts[chosen]] + self._uncounted
        return EventChunk(raw, numbers, too_long[chosen], *self._consume(stop, lines))

    def _matches(self, lines: _Lines) -> Flags:
        """Return, for each line, whether it matches the pattern, so that an event begins there.

        Lines that are not UTF-8 are matched as bytes.
        """
        lengths = np.minimum(lines.ends - lines.starts, self._max_bytes).astype(np.int32)
        spans = Spans(self.buffer.data, lines.starts, lengths)
        invalid = invalid_utf8(*spans)
        texts = to_arrow(where_null(spans, invalid))
        matches = pc.match_substring_regex(texts, self._pattern).fill_null(False)
        matched: Flags = matches.to_numpy(zero_copy_only=False).copy()
        if invalid.any():
            raw = to_arrow(spans.take(np.flatnonzero(invalid))).view(pa.large_binary())
            matches = pc.match_substring_regex(raw, self._pattern)
            matched[invalid] = matches.to_numpy(zero_copy_only=False)
        return matched

    def _stop(self, lines: _Lines, firsts: Int64s, own: Flags, too_long: Flags, end: int) -> int:
        """Return the position up to which events are complete, and set the state for the next line.

        `firsts` are the lines at which events begin, and `own` marks the events of this split.
        """
        if not own.all():  # an event of a later split
            self._state = _State.JOINED
            return int(lines.begins[firsts[np.argmin(own)]])
        if end == self.buffer.filled and self.buffer.final:
            return end
        if len(firsts) and not too_long[-1]:
            self._state = _State.OPEN
            return int(lines.begins[firsts[-1]])
        self._state = _State.JOINED
        self._in_line = bool(self.buffer.data[end - 1] != ord("\n"))
        return end

    def _spans(self, lines: _Lines, firsts: Int64s) -> Spans:
        """Return the bytes of each event, cut after `_max_lines` lines or `_max_bytes` bytes."""
        starts = lines.starts[firsts]
        by_lines = np.searchsorted(lines.numbers, lines.numbers[firsts] + self._max_lines)
        by_bytes = np.searchsorted(lines.starts, starts + self._max_bytes)
        stops = np.minimum(np.append(firsts[1:], len(lines.starts)), by_lines)
        ends = lines.ends[np.minimum(stops, by_bytes) - 1]
        ends = np.minimum(ends, starts + self._max_bytes)
        return Spans(self.buffer.data, starts, (ends - starts).astype(np.int32))

    def _consume(self, stop: int, lines: _Lines) -> tuple[int, int]:
        """Consume the lines up to `stop`. Return (lines, comments) that begin in the split."""
        data, begin = self.buffer.data, self.buffer.begin
        end = min(stop, self._limit - self.buffer.position)
        counted = _lines_from(data, begin, end)
        self._uncounted += _lines_from(data, begin, stop) - counted
        self.buffer.begin = stop
        return counted, int((lines.comments < end).sum())


def _lines_from(data: Bytes, begin: int, end: int) -> int:
    """Return the number of lines that begin in data[begin:end]. A line must begin at `begin`."""
    return count_newlines(data, begin, end - 1) + 1 if begin < end else 0
