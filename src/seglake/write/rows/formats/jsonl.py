"""Read JSON: one object per line, or the events in arrays of documents.

One scan finds the fields that the pipeline names, without building a tree. A row must be one JSON
object. It is rejected if RFC 8259 forbids it, if its bytes are not UTF-8, or if it is nested deeper
than 512 levels.
"""

from seglake.config import Pipeline
from seglake.format.records import Spans
from seglake.text.json_fields import FieldNames
from seglake.text.newlines import split_lines
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile, Split
from seglake.write.rows.json_rows import JsonRows, event_rows
from seglake.write.rows.lines import LineChunk, LineFormat, open_streams
from seglake.write.rows.rows import RowChunks, Rows


class Jsonl(LineFormat):
    """The input format "jsonl": JSON objects in lines or, with `input.records`, in arrays."""

    def can_split(self, file: SourceFile, store: InputStore, pipeline: Pipeline) -> bool:
        """Return whether each row is one line and the file can be read in independent parts."""
        return pipeline.input.records is None and super().can_split(file, store, pipeline)

    def read(self, split: Split, store: InputStore, pipeline: Pipeline) -> RowChunks:
        """Yield the rows of a split; see `Format.read`."""
        if pipeline.input.records is None:
            yield from super().read(split, store, pipeline)
            return
        for part in open_streams(split, store):
            for rows in event_rows(part, pipeline):
                yield part.path, rows

    def rows(self, chunk: LineChunk, pipeline: Pipeline) -> Rows:
        """Return the lines of a chunk, parsed as JSON."""
        starts, lengths, numbers, count = split_lines(chunk.data, chunk.start, chunk.end)
        raw = Spans(chunk.data, starts, lengths)
        return JsonRows(raw, numbers, count, FieldNames(pipeline.fields()))
