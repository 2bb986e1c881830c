"""Read JSON lines: one scan finds the fields that the pipeline names, without building a tree.

A line must be one JSON object. It is rejected if RFC 8259 forbids it, if its bytes are not UTF-8,
or if it is nested deeper than 512 levels.
"""

from collections.abc import Callable, Iterable

import numpy as np

from seglake.config import Pipeline
from seglake.format.records import Spans
from seglake.text.json_fields import FieldNames, JsonFields
from seglake.text.newlines import split_lines
from seglake.times.grammar import ISO, TimeFormat
from seglake.times.readers import Times, read_times
from seglake.times.time_kernels import READ
from seglake.write.rows.lines import LineChunk, LineFormat, LineRows
from seglake.write.rows.rows import MissingFields, Reason, Rows

_REASONS = np.array([Reason.NONE, Reason.NOT_PARSEABLE, Reason.INVALID_UTF8], np.int8)

# MongoDB's Extended JSON: {"$date": "2026-01-31T12:00:00Z"}, or milliseconds since 1970.
_DATES = (("$date.$numberLong", "epoch_ms"), ("$date", "epoch_ms"), ("$date", ISO))
_DATE_NAMES = FieldNames({date for date, _ in _DATES})


class Jsonl(LineFormat):
    """One JSON object per line."""

    def row_maker(self, pipeline: Pipeline) -> Callable[[LineChunk], Rows]:
        """Return a function from a chunk to its rows, with the fields that the pipeline names."""
        names = FieldNames(pipeline.fields())
        return lambda chunk: JsonRows(chunk, names)


class JsonRows(LineRows):
    """The rows of a chunk of JSON lines."""

    def __init__(self, chunk: LineChunk, names: FieldNames) -> None:
        lines = split_lines(chunk.data, chunk.start, chunk.end)
        starts, lengths, self.numbers, self.line_count = lines
        self.raw = Spans(chunk.data, starts, lengths)
        self._fields = JsonFields(self.raw, names)
        self.reasons = _REASONS[-self._fields.verdicts]

    def field(self, name: str) -> Spans:
        """Return strings without quotes and escapes, other values unchanged; null if missing."""
        return self._fields.text(name)

    def json(self, name: str) -> Spans:
        """Return the values of a field as JSON, as they are in the file; null if missing."""
        return self._fields.json(name)

    def times(self, name: str, form: TimeFormat) -> Times:
        """Return the values of a field as times. MongoDB's {"$date": …} is a time in any format."""
        texts = self.field(name)
        times = read_times(texts, form)
        first = texts.data[np.where(texts.lengths > 0, texts.starts, 0)]
        objects = np.flatnonzero((texts.lengths > 0) & (first == ord("{")))
        if len(objects):
            dates = JsonFields(texts.take(objects), _DATE_NAMES)
            for date, text in _DATES:
                found = read_times(dates.text(date), form._replace(text=text))
                good = found.codes == READ
                at = objects[good]
                times.ms[at], times.codes[at] = found.ms[good], found.codes[good]
                times.local[at] = found.local[good]
        return times

    def absent(self, names: Iterable[str]) -> MissingFields | None:
        """Return the fields that no row has, not even as null; None if no row can be parsed."""
        parsed = np.flatnonzero(self.reasons == Reason.NONE)
        if not len(parsed):
            return None
        fields = [name for name in names if not self._fields.has(name)]
        return MissingFields(
            fields, self.take_raw(parsed[:1]).tolist()[0] or b"" if fields else b""
        )
