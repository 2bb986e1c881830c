"""Find fields of JSON objects. One scan finds the values of all requested fields.

An ingest uses this module for keys and times, and readers use it for columns and searches.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import NamedTuple

import numpy as np

from seglake.format.records import NULL, Flags, Int32s, Int64s, Spans
from seglake.text import json_kernels as kernels
from seglake.text.simd import PADDING
from seglake.text.spans import from_ends, join_rows, where_null

_COMMA, _ARRAY, _NESTED = 0x2C, 0x5B, np.array([0x5B, 0x7B], np.uint8)  # , and [ and {

FieldPath = tuple[str, ...]


def paths_of(name: str) -> list[FieldPath]:
    """Return the paths of a field name with dots. The first path that exists in a text is used.

    "a.b" is the member "a.b", or else the member "b" of the object at "a". The last name of a path
    may have dots, as in {"attributes": {"user.id": …}}, but not the names of the outer objects.
    """
    parts = name.split(".")
    return [(*parts[:at], ".".join(parts[at:])) for at in range(len(parts))]


class FieldNames:
    """The names of the fields to find, in the form that `scan_texts` needs.

    `slots` maps each path of a name (see `paths_of`) to the number of the value at that path. If a
    text repeats a member, the last one is used.
    """

    def __init__(self, names: Iterable[str]) -> None:
        paths = sorted({path for name in names for path in paths_of(name)})
        self.slots = {path: slot for slot, path in enumerate(paths)}
        prefixes = {path[:size] for path in paths for size in range(1, len(path) + 1)}
        entries = [(), None, *sorted(prefixes, key=lambda path: (len(path), path))]
        texts = [b"" if entry is None else (entry[-1:] or ("",))[0].encode() for entry in entries]
        ends = np.cumsum([len(text) for text in texts])
        self.names = np.frombuffer(b"".join(texts) + bytes(PADDING), np.uint8)
        rows = zip(entries, texts, ends.tolist(), strict=True)
        tree = [[end - len(t), len(t), *self._entry(entry, entries)] for entry, t, end in rows]
        self.tree = np.array(tree, np.int64)

    def _entry(self, path: FieldPath | None, entries: Sequence[FieldPath | None]) -> list[int]:
        """Return the columns of a path's tree entry, from SLOT to HIGH; see `json_kernels`."""
        if path is None:
            return [-1, 0, 0, 0, 0]
        size = len(path)
        below = [at for at, entry in enumerate(entries) if entry and entry[:-1] == path]
        slots = [slot for other, slot in self.slots.items() if other[:size] == path]
        first, last = (below[0], below[-1] + 1) if below else (0, 0)
        low, high = (slots[0], slots[-1] + 1) if slots else (0, 0)
        return [self.slots.get(path, -1), first, last, low, high]


class Scalars(NamedTuple):
    """Values that are neither objects nor arrays. A row may have several of them.

    `rows` has the row of each value. `texts` are without quotes and escapes. `raw` is true for a
    number, true or false, and false for a string.
    """

    rows: Int64s
    texts: Spans
    raw: Flags

    @staticmethod
    def joined(one: Scalars, other: Scalars) -> Scalars:
        """Return the values of `one`, followed by the values of `other`."""
        parts = [join_rows([each.texts]) for each in (one, other)]
        data = np.concatenate([part.data for part in parts])
        starts = [parts[0].starts, parts[1].starts + len(parts[0].data)]
        lengths = np.concatenate([each.texts.lengths for each in (one, other)])
        texts = Spans(data, np.concatenate(starts), lengths)
        rows = np.concatenate([one.rows, other.rows])
        return Scalars(rows, texts, np.concatenate([one.raw, other.raw]))


class JsonFields:
    """The fields of a column of JSON texts, which must be in a padded buffer.

    `verdicts` has FINE, NOT_JSON or NOT_UTF8 for each text. `fine` marks the JSON objects.
    """

    def __init__(self, texts: Spans, fields: FieldNames) -> None:
        self._data, self._slots = texts.data, fields.slots
        self._begins, self._sizes, self.verdicts = kernels.scan_texts(
            texts.data, texts.starts, texts.lengths, fields.names, fields.tree, len(fields.slots)
        )
        self.fine: Flags = self.verdicts == kernels.FINE

    def text(self, name: str) -> Spans:
        """Return, for each text, the value of a field, or null if it is missing or null.

        Strings have no quotes and escapes, and other values are unchanged.
        """
        return self._resolved(*self._values(name))

    def scalars(self, name: str) -> Scalars:
        """Return the strings, numbers, true and false that a field has as its value.

        If the value is an array, its elements are returned instead.
        """
        starts, lengths, kinds = self._values(name)
        first = self._data[np.where(lengths > 0, starts, 0)]
        nested = (kinds == kernels.RAW) & np.isin(first, _NESTED)
        plain = np.flatnonzero((lengths >= 0) & ~nested)
        texts = self._resolved(starts[plain], lengths[plain], kinds[plain])
        single = Scalars(plain, texts, kinds[plain] == kernels.RAW)
        arrays = np.flatnonzero(nested & (first == _ARRAY))
        if not len(arrays):
            return single
        return Scalars.joined(single, self._elements(starts, lengths, arrays))

    def is_null(self, name: str) -> Flags:
        """Return, for each text, whether it is an object in which the field is missing or null."""
        null: Flags = (self._values(name)[1] < 0) & self.fine
        return null

    def _elements(self, starts: Int64s, lengths: Int32s, arrays: Int64s) -> Scalars:
        starts, lengths = starts[arrays], lengths[arrays]
        # An array has at most one element more than it has commas.
        between = self._data[starts.min() : (starts + lengths).max()]
        room = len(arrays) + np.count_nonzero(between == _COMMA)
        rows, begins, sizes = (np.empty(room, np.int64) for _ in range(3))
        count = kernels.elements(self._data, starts, lengths, rows, begins, sizes)
        rows, begins, kinds = rows[:count], begins[:count], (sizes[:count] & 7).astype(np.int8)
        nested = (kinds == kernels.RAW) & np.isin(self._data[begins], _NESTED)
        chosen = np.flatnonzero((kinds != kernels.NONE) & ~nested)
        lengths = (sizes[:count] >> 3).astype(np.int32)
        texts = self._resolved(begins[chosen], lengths[chosen], kinds[chosen])
        return Scalars(arrays[rows[chosen]], texts, kinds[chosen] == kernels.RAW)

    def _resolved(self, starts: Int64s, lengths: Int32s, kinds: kernels.Int8s) -> Spans:
        if np.any(kinds == kernels.ESCAPED):
            resolved = from_ends(*kernels.unescape_all(self._data, starts, lengths, kinds))
            return where_null(resolved, lengths < 0)
        return Spans(self._data, starts, lengths)

    def json(self, name: str) -> Spans:
        """Return, for each text, the unchanged JSON of a field, or null if missing or null."""
        starts, lengths, kinds = self._values(name)
        string = (kinds == kernels.PLAIN) | (kinds == kernels.ESCAPED)
        return Spans(self._data, starts - string, (lengths + 2 * string).astype(np.int32))

    def has(self, name: str) -> bool:
        """Return whether any text has the field, even as null."""
        slots = [self._slots[path] for path in paths_of(name)]
        # Usually one of the first texts has the field.
        parts = (sizes[:, slot] for sizes in (self._sizes[:64], self._sizes) for slot in slots)
        return any((part & 7 != kernels.MISSING).any() for part in parts)

    def present(self, name: str) -> Flags:
        """Return, for each text, whether it has the field, even as null."""
        slots = [self._slots[path] for path in paths_of(name)]
        present: Flags = (self._sizes[:, slots] & 7 != kernels.MISSING).any(axis=1)
        return present

    def _values(self, name: str) -> tuple[Int64s, Int32s, kernels.Int8s]:
        """Return the start, length and kind of a field's value in each text.

        The length is NULL if the field is missing or null.
        """
        first, *others = (self._slots[path] for path in paths_of(name))
        begins, sizes = self._begins[:, first], self._sizes[:, first]
        for slot in others:
            absent = sizes & 7 == kernels.MISSING
            begins = np.where(absent, self._begins[:, slot], begins)
            sizes = np.where(absent, self._sizes[:, slot], sizes)
        kinds = (sizes & 7).astype(np.int8)
        missing = (kinds == kernels.MISSING) | (kinds == kernels.NONE)
        lengths = np.where(missing, NULL, sizes >> 3).astype(np.int32)
        return np.ascontiguousarray(begins), lengths, kinds
