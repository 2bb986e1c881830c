"""Formats of lines: a stream becomes chunks of whole lines, and each line a row.

A line ends at LF, and one CR before it is not part of it. A chunk is a function of the file's
bytes, the split and `task.chunk_bytes` alone, however the bytes arrive. A line longer than a chunk
is not held in memory: its beginning is a rejected row, and the rest is skipped.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seglake.config import Pipeline
from seglake.format.records import Bytes, Int64s, Spans
from seglake.text.newlines import first_newline, last_newline
from seglake.text.simd import PADDING, padded
from seglake.times.directives import TimeFormat
from seglake.times.kernels import UNREADABLE
from seglake.times.readers import Times, read_times
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile, Split
from seglake.write.input.streams import Stream
from seglake.write.rows.rows import Codes, Reason, Rows

REJECTED_BYTES = 64 * 1024  # of a rejected row, at most, go to the quarantine
_TAIL_BYTES = 64 * 1024  # read at once to find the end of a split's last line
_BYTE_ORDER_MARK = b"\xef\xbb\xbf"
_WHOLE_FILE = 2**62


class LineFormat(ABC):
    """A format whose rows are single lines."""

    def check(self, files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline) -> None:
        """Do nothing: files of lines need not agree with each other."""
        del files, store, pipeline

    def can_split(self, file: SourceFile, store: InputStore, pipeline: Pipeline) -> bool:
        """Whether the file is neither compressed nor an archive."""
        del pipeline
        return store.is_plain(file)

    def read(
        self, split: Split, store: InputStore, pipeline: Pipeline
    ) -> Iterator[tuple[str, Rows]]:
        """The rows of a split; see `Format.read`."""
        rows_of, size = self.row_maker(pipeline), pipeline.task.chunk_bytes
        for part in parts_of(split, store):
            for chunk in line_chunks(part.stream, size, part.limit, partial=part.partial):
                yield part.path, TooLongRow(chunk) if chunk.too_long else rows_of(chunk)

    @abstractmethod
    def row_maker(self, pipeline: Pipeline) -> Callable[[LineChunk], Rows]:
        """A function from a chunk of whole lines to its rows."""


class LineRows(ABC):
    """Rows whose `raw` bytes are those of the file."""

    numbers: Int64s
    line_count: int
    reasons: Codes
    raw: Spans

    def take_raw(self, rows: Int64s) -> Spans:
        """The raw bytes of the rows at some positions."""
        return self.raw.take(rows)

    @abstractmethod
    def field(self, name: str) -> Spans:
        """The values of a field as bytes; null where a row has none."""

    def times(self, name: str, form: TimeFormat) -> Times:
        """The values of a field as times."""
        return read_times(self.field(name), form)


class TooLongRow(LineRows):
    """The beginning of one line that is longer than a chunk: a rejected row without fields."""

    def __init__(self, chunk: LineChunk) -> None:
        self.numbers, self.line_count = np.zeros(1, np.int64), 1
        self.reasons = np.array([Reason.TOO_LARGE], np.int8)
        size = np.array([chunk.end - chunk.start], np.int32)
        self.raw = Spans(chunk.data, np.array([chunk.start], np.int64), size)

    def field(self, _name: str) -> Spans:
        """One null."""
        return Spans.nulls(1)

    def times(self, _name: str, _form: TimeFormat) -> Times:
        """One unreadable time."""
        return Times(np.zeros(1, np.int64), np.array([UNREADABLE], np.int8))

    def objects(self, _names: Sequence[str]) -> Spans:
        """One null."""
        return Spans.nulls(1)


class Part(NamedTuple):
    """A stream of a split: its first `limit` bytes; if `partial`, it begins inside a line."""

    path: str
    stream: Stream
    limit: int
    partial: bool


def parts_of(split: Split, store: InputStore) -> Iterator[Part]:
    """The streams of a split: one, or the members of an archive. Raises InputError."""
    if split.is_whole:
        for path, stream in store.parts(split.file):
            yield Part(path, stream, _WHOLE_FILE, False)
    else:
        begin = max(split.start - 1, 0)
        raw = store.raw(split.file, begin)
        yield Part(split.file.path, raw, split.end - begin, split.start > 0)


class LineBuffer:
    """The part of a stream that is in memory: data[begin:filled] is not used yet.

    data[0] stands at `position` in the stream. If `final`, the stream ends at `filled`.
    """

    def __init__(self, stream: Stream, size: int, limit: int) -> None:
        self._stream, self._size, self._limit = stream, size, limit
        self.data = padded(0)
        self.position = self.begin = self.filled = 0
        self.final = False

    def fill(self) -> bool:
        """Move the unused bytes to a new buffer and read on; False at the end of the stream."""
        if self.final:
            return self.begin < self.filled
        kept = self.data[self.begin : self.filled]
        self.position += self.begin
        fresh = padded(self._wanted(len(kept)) + len(kept))
        fresh[: len(kept)] = kept
        self.begin, self.filled, target = 0, len(kept), len(fresh) - PADDING
        while self.filled < target and not self.final:
            size = self._stream.readinto(memoryview(fresh.data)[self.filled : target])
            self.final = size == 0
            self.filled += size
        self.data = fresh[: self.filled + PADDING]
        self.data[self.filled :] = 0
        return self.filled > 0

    def _wanted(self, kept: int) -> int:
        """How many bytes to read: up to the limit at once, then in steps that grow."""
        ahead = self._limit - self.position - kept
        return min(self._size - kept, max(ahead, kept, _TAIL_BYTES))

    @property
    def full(self) -> bool:
        """Whether the buffer has its full size and every byte is unused."""
        return self.begin == 0 and self.filled == self._size

    @property
    def has_line(self) -> bool:
        """Whether a line ends among the unused bytes."""
        return first_newline(self.data, self.begin, self.filled) < self.filled

    @property
    def done(self) -> bool:
        """Whether every line that begins before the limit is used."""
        return self.position + self.begin >= self._limit

    def line_end(self) -> int:
        """The end of the last whole line of the split, or `begin` without a whole line.

        The last line of a split is the one that holds the byte before the limit.
        """
        target = max(self._limit - 1 - self.position, self.begin)
        if target < self.filled:
            stop = first_newline(self.data, target, self.filled)
            if stop < self.filled:
                return stop + 1
        if self.final:
            return self.filled
        return max(last_newline(self.data, self.begin, self.filled) + 1, self.begin)

    def skip_line(self) -> bool:
        """Use the bytes through the next LF; False if the buffer has none."""
        stop = first_newline(self.data, self.begin, self.filled)
        self.begin = min(stop + 1, self.filled)
        return stop < self.filled

    def skip_mark(self) -> None:
        """Use the byte order mark, if the buffer begins with one."""
        if self.data[self.begin : self.begin + 3].tobytes() == _BYTE_ORDER_MARK:
            self.begin += 3


class LineChunk(NamedTuple):
    """Whole lines, data[start:end] of a padded buffer; or the beginning of a line too long."""

    data: Bytes
    start: int
    end: int
    too_long: bool


def line_chunks(stream: Stream, size: int, limit: int, *, partial: bool) -> Iterator[LineChunk]:
    """The lines that begin in the first `limit` bytes of `stream`, at most `size` bytes a chunk.

    If `partial`, the stream begins inside a line of the split before, or with its LF. Of a line
    longer than `size` only the beginning comes out.
    """
    buffer = LineBuffer(stream, size, limit)
    skipping, at_start = partial, not partial
    while not buffer.done and buffer.fill():
        if at_start:
            buffer.skip_mark()
            at_start = False
        if skipping:
            skipping = not buffer.skip_line()
            if skipping or buffer.done:
                continue
        end = buffer.line_end()
        if end > buffer.begin:
            yield LineChunk(buffer.data, buffer.begin, end, False)
            buffer.begin = end
        elif buffer.full:
            end = min(buffer.filled, REJECTED_BYTES)
            yield LineChunk(buffer.data, 0, end, True)
            skipping = True
