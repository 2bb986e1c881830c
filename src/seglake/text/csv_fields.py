"""Fields of CSV records: their texts, from where the scanner found them."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

import numpy as np

from seglake.format.records import NULL, Flags, Int64s, Spans
from seglake.text.csv_kernels import scan_values, undouble
from seglake.text.spans import from_ends, where_null
from seglake.text.untyped_fields import UntypedFields
from seglake.text.utf8 import invalid_utf8


def texts_of(data: Spans, places: Int64s, quote: int) -> Spans:
    """The texts of one field without quotes; null if empty.

    `places` has for each record the start, the length and the number of doubled quotes.
    """
    start, length, doubled = places.T
    spans = Spans(data.data, start.copy(), length.astype(np.int32))
    if doubled.any():
        spans = from_ends(*undouble(*spans, np.ascontiguousarray(doubled), quote))
    return Spans(spans.data, spans.starts, np.where(length == 0, np.int32(NULL), spans.lengths))


class CsvColumns:
    """The columns of CSV records, of which those with one of `names` are wanted."""

    def __init__(
        self, columns: Sequence[str], delimiter: str, quote: str, names: Iterable[str]
    ) -> None:
        fields = [name for name in dict.fromkeys(names) if name and name in columns]
        self.slots = {name: slot for slot, name in enumerate(fields)}
        self.by_column = np.array([self.slots.get(name, -1) for name in columns], np.int64)
        self.marks = np.array([ord(delimiter), ord(quote), True], np.int64)


class CsvFields(UntypedFields):
    """The fields of values that are a CSV record each, in a padded buffer.

    A value is fine if it is UTF-8 and one record with as many fields as there are columns. Its last
    line end, LF, CR LF or CR, belongs to no field.
    """

    def __init__(self, values: Spans, columns: CsvColumns) -> None:
        self._values, self._columns = values, columns
        read = where_null(values, invalid_utf8(*values))
        self.fine: Flags
        self.fine, self._places = scan_values(
            *read, columns.marks, columns.by_column, len(columns.slots)
        )

    def text(self, name: str) -> Spans:
        """The texts of a column; null if empty, or if there is no such column."""
        slot = self._columns.slots.get(name)
        if slot is None:
            return Spans.nulls(len(self.fine))
        return texts_of(self._values, self._places[:, slot], int(self._columns.marks[1]))
