"""Split a stream of text into chunks of whole lines, for formats in which each line is a row.

A line ends at LF. If there is a CR in front of the LF, it belongs to the line end. Chunks depend
only on the file's bytes, the split and the settings, not on how many bytes a read returns. If a
line is longer than `chunk_bytes`, its beginning is a rejected row, and its rest is skipped.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterator, Sequence
from typing import NamedTuple

import numpy as np

from seglake.config import Pipeline
from seglake.format.records import Bytes, Spans
from seglake.text.newlines import first_newline, last_newline, skip_lines
from seglake.text.simd import PADDING, padded
from seglake.write.input.content import InputStore
from seglake.write.input.files import Split
from seglake.write.input.streams import ByteStream
from seglake.write.rows.rows import Format, Reason, RowChunks, Rows, most_rows

REJECTED_BYTES = 64 * 1024  # the quarantine stores at most this much of a rejected row
_TAIL_BYTES = 64 * 1024  # first step when reading on to the end of a split's last line
_COPIED_BYTES = 8 << 20  # size of a chunk whose rows become JSON objects
_WHOLE_FILE = 2**62


class LineFormat(Format):
    """A format whose rows are single lines."""

    def read(self, split: Split, store: InputStore, pipeline: Pipeline) -> RowChunks:
        """Yield the rows of a split; see `Format.read`."""
        names = [*pipeline.fields(), *pipeline.input.groups()]
        for part in open_streams(split, store):
            bounds = ChunkBounds.for_file(names, part.path, pipeline)
            for whole in line_chunks(part, pipeline.task.chunk_bytes):
                for chunk in bounds.parts(whole):
                    too_long = chunk.too_long
                    yield part.path, TooLongRow(chunk) if too_long else self.rows(chunk, pipeline)

    @abstractmethod
    def rows(self, chunk: LineChunk, pipeline: Pipeline) -> Rows:
        """Return the rows of a chunk of whole lines."""


class TooLongRow(Rows):
    """The beginning of a line that is longer than a chunk, as a rejected row without fields."""

    def __init__(self, chunk: LineChunk) -> None:
        self.numbers, self.line_count = np.zeros(1, np.int64), 1
        self.reasons = np.array([Reason.TOO_LARGE], np.int8)
        size = np.array([chunk.end - chunk.start], np.int32)
        self.raw = Spans(chunk.data, np.array([chunk.start], np.int64), size)

    def field(self, _name: str) -> Spans:
        """Return one null, because the line is not parsed."""
        return Spans.nulls(1)


class SplitStream(NamedTuple):
    """A stream of a split's text. Only lines that begin before byte `limit` of it are read.

    If `partial`, the stream begins inside a line, which is not read. `path` is the path of the file
    or of an archive's member.
    """

    path: str
    stream: ByteStream
    limit: int
    partial: bool


def open_streams(split: Split, store: InputStore) -> Iterator[SplitStream]:
    """Yield the stream of a split, or one stream for each member of an archive.

    Raises InputError.
    """
    if split.is_whole:
        for path, stream in store.texts(split.file):
            yield SplitStream(path, stream, _WHOLE_FILE, False)
    else:
        begin = max(split.start - 1, 0)
        text, size = store.text_part(split.file, begin, split.end)
        yield SplitStream(split.file.path, text, size, split.start > 0)


class ChunkBounds(NamedTuple):
    """The largest number of rows in a chunk, and the size in bytes after which a chunk ends.

    A chunk includes the row that reaches `size_bytes`.
    """

    rows: int
    size_bytes: int

    @staticmethod
    def for_file(names: Sequence[str], path: str, pipeline: Pipeline) -> ChunkBounds:
        """Return the bounds for the file or archive member at `path`.

        `names` are the fields that the pipeline uses.
        """
        headers = [path] if pipeline.headers.source else []
        size = pipeline.task.chunk_bytes
        copied = pipeline.value_source == "columns"  # escapes may make it six times as long
        most = most_rows([*names, *headers])
        return ChunkBounds(most, min(size, _COPIED_BYTES) if copied else size)

    def parts(self, chunk: LineChunk) -> Iterator[LineChunk]:
        """Divide a chunk at the ends of the lines that reach a bound."""
        data, start, end, too_long = chunk
        while start < chunk.end:
            if not too_long and chunk.end - start > self.size_bytes:
                end = min(first_newline(data, start + self.size_bytes, chunk.end) + 1, chunk.end)
            if not too_long:
                end = skip_lines(data, start, end, self.rows)
            yield LineChunk(data, start, end, too_long)
            start, end = end, chunk.end


class LineBuffer:
    """The part of a stream that is in memory. data[begin:filled] is not consumed yet.

    `size` is the largest number of bytes in memory, and lines that begin before byte `limit` of the
    stream are read. data[0] is byte `position` of the stream. If `final`, the stream ends at
    `filled`.
    """

    def __init__(self, stream: ByteStream, size: int, limit: int) -> None:
        self._stream, self._size, self._limit = stream, size, limit
        self.data = padded(0)
        self.position = self.begin = self.filled = 0
        self.final = False

    def fill(self) -> bool:
        """Move the bytes that are not consumed to a new buffer, and read more bytes after them.

        Return False if the stream has ended and all bytes are consumed.
        """
        if self.final:
            return self.begin < self.filled
        unread = self.data[self.begin : self.filled]
        self.position += self.begin
        # Read up to the limit in one step, then in growing steps.
        ahead = self._limit - self.position - len(unread)
        room = min(self._size - len(unread), max(ahead, len(unread), _TAIL_BYTES))
        fresh = padded(room + len(unread))
        fresh[: len(unread)] = unread
        self.begin, self.filled, target = 0, len(unread), len(fresh) - PADDING
        while self.filled < target and not self.final:
            size = self._stream.readinto(memoryview(fresh.data)[self.filled : target])
            self.final = size == 0
            self.filled += size
        self.data = fresh[: self.filled + PADDING]
        self.data[self.filled :] = 0
        return self.filled > 0

    @property
    def full(self) -> bool:
        """Return whether the buffer is full and none of its bytes is consumed."""
        return self.begin == 0 and self.filled == self._size

    @property
    def done(self) -> bool:
        """Return whether every line that begins before the limit is consumed."""
        return self.position + self.begin >= self._limit

    def line_end(self) -> int:
        """Return the end of the last complete line of the split that is in the buffer.

        If there is no complete line, return `begin`. The last line of a split contains the last
        byte before `limit`.
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
        """Consume the bytes up to and including the next LF. Return False if there is no LF."""
        stop = first_newline(self.data, self.begin, self.filled)
        self.begin = min(stop + 1, self.filled)
        return stop < self.filled


class LineChunk(NamedTuple):
    """Complete lines in data[start:end], where `data` is a padded buffer.

    If `too_long`, the chunk has only the beginning of one line.
    """

    data: Bytes
    start: int
    end: int
    too_long: bool


def line_chunks(part: SplitStream, size: int) -> Iterator[LineChunk]:
    """Yield the lines that begin in the first `part.limit` bytes, as chunks of whole lines.

    A chunk has at most `size` bytes. If a line is longer, a chunk has only its beginning. If
    `part.partial`, the stream begins inside the last line of the previous split, or with the LF of
    that line, and the line is skipped.
    """
    buffer = LineBuffer(part.stream, size, part.limit)
    skipping = part.partial
    while not buffer.done and buffer.fill():
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
