"""Read JSON objects as rows, from lines or from the arrays of events in larger documents."""

from __future__ import annotations

import json
from collections.abc import Iterable, Iterator, Sequence
from itertools import pairwise
from typing import NamedTuple

import numpy as np

from seglake.advice.conclude import AbsentFields
from seglake.config import Pipeline
from seglake.errors import InputError
from seglake.format.records import Bytes, Int32s, Int64s, Spans
from seglake.terminal.wording import short_bytes
from seglake.text import json_kernels as kernels
from seglake.text.json_fields import FieldNames, JsonFields
from seglake.text.simd import PADDING, padded
from seglake.text.spans import constant, join_rows, where_null
from seglake.times.grammar import ISO, TimeFormat
from seglake.times.readers import Times, read_times
from seglake.times.time_kernels import READ
from seglake.write.rows.lines import ChunkBounds, LineBuffer, SplitStream
from seglake.write.rows.rows import Reason, Rows

_REASONS = np.array([Reason.NONE, Reason.NOT_PARSEABLE, Reason.INVALID_UTF8], np.int8)
# MongoDB's Extended JSON: {"$date": "2026-01-31T12:00:00Z"}, or milliseconds since 1970.
_DATES = (("$date.$numberLong", "epoch_ms"), ("$date", "epoch_ms"), ("$date", ISO))
_DATE_NAMES = FieldNames({date for date, _ in _DATES})

_CORRECT = "Correct the file, or leave it out with input.exclude"


class JsonRows(Rows):
    """The rows of a chunk, parsed as JSON. A row that is not a valid JSON object is rejected."""

    documents = 0  # number of documents that end in the chunk; 0 if rows are lines

    def __init__(self, raw: Spans, numbers: Int64s, line_count: int, names: FieldNames) -> None:
        self.raw, self.numbers, self.line_count = raw, numbers, line_count
        self._fields = JsonFields(self.raw, names)
        self.reasons = _REASONS[-self._fields.verdicts]

    def field(self, name: str) -> Spans:
        """Return the values of a field, or null in rows without it.

        Strings have no quotes and escapes, and other values are unchanged.
        """
        return self._fields.text(name)

    def json(self, name: str) -> Spans:
        """Return the JSON of a field, unchanged from the file, or null in rows without it."""
        return self._fields.json(name)

    def times(self, name: str, form: TimeFormat) -> Times:
        """Return the values of a field as times, read in the format `form`.

        MongoDB's {"$date": …} is read as a time, whatever the format.
        """
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

    def absent(self, names: Iterable[str]) -> AbsentFields:
        """Return the fields that no row has, not even as null.

        No field is checked if no row is valid.
        """
        parsed = np.flatnonzero(self.reasons == Reason.NONE)
        if not len(parsed):
            return AbsentFields()
        fields = [name for name in names if not self._fields.has(name)]
        return AbsentFields.from_row(fields, self.take_raw(parsed[:1]).tolist()[0] or b"")


class EventPath:
    """The path to the events in a document, and the members that events inherit.

    `records` is the path: names of members, separated by dots, with `[]` for each array. Events
    inherit the members `inherited` of the objects on the path.

    Example:
        >>> EventPath("resourceLogs[].logRecords[]", ["resource"]).arrays.tolist()
        [False, True, False, True]
    """

    def __init__(self, records: str, inherited: Sequence[str] = ()) -> None:
        steps = list[str | None]()  # the name of a member, or None for the elements of an array
        for part in records.split("."):
            steps += [*filter(None, [part.rstrip("[]")]), *[None] * part.count("[]")]
        self.arrays, self.inherited = np.array([step is None for step in steps]), inherited
        self._own = FieldNames(inherited)
        tree, names = [[0, 0, -1, 0, 0, 0, 0]] * (kernels.CONTAINERS + len(steps)), b""
        for depth, step in enumerate(steps):
            members = [] if step is None else [step, *inherited]
            below = [len(tree), len(tree) + len(members)]
            tree[kernels.CONTAINERS + depth] = [0, 0, -1, *below, 0, 0]
            for slot, member in enumerate(map(str.encode, members)):
                tree.append([len(names), len(member), slot, 0, 0, 0, 0])
                names += member
        self._tree = np.array(tree, np.int64)
        self._names = np.frombuffer(names + bytes(PADDING), np.uint8)

    def find(
        self, data: Bytes, begin: int, end: int, most: int, state: Int64s, *, final: bool
    ) -> tuple[int, int, int, Events]:
        """Find up to `most` events in data[begin:end]. Return (reason, end, complete, events).

        See `find_events` for the first three. `state` must have five zeros in the first call. If
        `final`, the text ends at `end`.
        """
        verdict, stop, complete, rows, owners = kernels.find_events(
            data, begin, end, final, most, self.arrays, self._names, self._tree,
            len(self.inherited), state,
        )  # fmt: skip
        return verdict, stop, complete, Events(data, rows, owners[rows[:, kernels.OWNER], 1:])

    def values(self, events: Events, path: str, first: int) -> Spans:
        """Return the JSON of events, with inherited members in front of their own members.

        `first` is the number of the first event in the file, from 0. Raises InputError if an event
        already has a member that it would inherit.
        """
        data, rows, members = events
        own = Spans(data, *_span(rows[:, kernels.START], rows[:, kernels.SIZE]))
        if not self.inherited:
            return own
        inherits = (rows[:, kernels.KIND] != kernels.STRAY) & (data[own.starts] == ord("{"))
        fields = JsonFields(own, self._own)
        parts, begun = [constant(b"{", len(rows))], np.zeros(len(rows), np.bool_)
        for slot, name in enumerate(self.inherited):
            starts, sizes = _span(members[:, 2 * slot], members[:, 2 * slot + 1])
            has = inherits & (sizes >= 0)
            if (twice := has & fields.present(name)).any():
                raise InputError(
                    f"{path}: event {first + int(np.argmax(twice)) + 1:,} has a member {name!r} "
                    "itself. Remove the name from input.inherit"
                )
            label = json.dumps(name, ensure_ascii=False).encode()
            commas = where_null(constant(b",", len(rows)), ~(has & begun))
            labels = where_null(constant(label + b":", len(rows)), ~has)
            parts += [commas, labels, where_null(Spans(data, starts, sizes), ~has)]
            begun |= has
        empty = rows[:, kernels.KIND] == kernels.EMPTY
        commas = where_null(constant(b",", len(rows)), ~begun | empty)
        rest = Spans(data, own.starts + inherits, own.lengths - inherits)
        parts[0] = where_null(parts[0], ~inherits)
        return join_rows([*parts, commas, rest])


class Events(NamedTuple):
    """Events in a padded buffer. `rows` has the entries of `find_events`, one for each event.

    `members` has two columns for each inherited member: its start in `data`, and its size in bytes,
    which is negative if it is missing.
    """

    data: Bytes
    rows: kernels.Entries
    members: kernels.Entries

    def parts(self, bounds: ChunkBounds) -> Iterator[Events]:
        """Divide the events into parts within the bounds. Without events, yield one empty part."""
        sizes = self.rows[:, kernels.SIZE] + np.maximum(self.members[:, 1::2], 0).sum(axis=1)
        in_size = np.cumsum(sizes) // bounds.size_bytes
        in_rows = np.arange(len(sizes)) // bounds.rows
        cuts = np.flatnonzero(np.diff(in_size) | np.diff(in_rows)) + 1
        edges = [0, *cuts.tolist(), len(sizes)]
        for start, end in pairwise(edges):
            yield Events(self.data, self.rows[start:end], self.members[start:end])


def _span(starts: Int64s, sizes: Int64s) -> tuple[Int64s, Int32s]:
    return np.ascontiguousarray(starts), sizes.astype(np.int32)


def event_rows(part: SplitStream, pipeline: Pipeline) -> Iterator[JsonRows]:
    """Yield the events of the documents in a file; see `input.records` and `input.inherit`.

    Without `input.inherit`, a document may have any size, but an event, or another value in a
    document, may have at most `task.chunk_bytes`. With `input.inherit`, this limit applies
    to whole outermost objects. Raises InputError for larger values and for unmatched brackets.
    """
    settings, size = pipeline.input, pipeline.task.chunk_bytes
    path = EventPath(settings.records or "", settings.inherit)
    fields, names = FieldNames(pipeline.fields()), [*pipeline.fields(), *settings.inherit]
    bounds = ChunkBounds.for_file(names, part.path, pipeline)
    buffer, state, count = LineBuffer(part.stream, size, part.limit), np.zeros(5, np.int64), 0
    while buffer.fill():
        verdict = kernels.FULL
        while verdict == kernels.FULL:
            verdict, stop, buffer.begin, events = path.find(
                buffer.data, buffer.begin, buffer.filled, bounds.rows, state, final=buffer.final
            )
            for some in events.parts(bounds):
                raw = path.values(some, part.path, count)
                rows = JsonRows(raw, np.arange(len(raw)), len(raw), fields)
                rows.reasons[some.rows[:, kernels.KIND] == kernels.STRAY] = Reason.NOT_IN_ARRAY
                rows.documents, state[kernels.DOCUMENTS] = int(state[kernels.DOCUMENTS]), 0
                count += len(raw)
                yield rows
        place = f"{part.path}: after event {count:,}, at byte {buffer.position + stop + 1:,}"
        if verdict == kernels.BROKEN:
            raise InputError(f"{place}, brackets or quotes do not match. {_CORRECT}")
        if verdict == kernels.MANY or (buffer.full and not buffer.final):
            limit = f"an event or another value has more than {short_bytes(size)}"
            if settings.inherit:
                limit = (
                    f"an outermost object has more than {short_bytes(size)} or a million events. "
                    "Without input.inherit, only events have this limit"
                )
            raise InputError(f"{place}, {limit}. Leave the file out with input.exclude")
        if buffer.final:
            if state[kernels.DEPTH] or buffer.data[buffer.begin : buffer.filled].tobytes().strip():
                raise InputError(f"{place}, the file ends inside a document. {_CORRECT}")
            return
        state[kernels.DOCUMENT] = max(state[kernels.DOCUMENT] - buffer.begin, 0)


def first_events(text: bytes, records: str, most: int) -> list[str]:
    """Return up to `most` events of a document as JSON. `text` may be only its beginning.

    `records` is the path to the events; see `EventPath`.
    """
    events = _find_all(text, records, most).tolist()
    return [str(event or b"", "utf-8", "replace") for event in events]


def elements_of(array: bytes) -> Spans:
    """Return the elements of a JSON array as JSON."""
    return _find_all(array, "[]", len(array))


def _find_all(text: bytes, records: str, most: int) -> Spans:
    data, state = padded(len(text)), np.zeros(5, np.int64)
    data[:-PADDING] = np.frombuffer(text, np.uint8)
    *_, events = EventPath(records).find(data, 0, len(text), most, state, final=False)
    return Spans(data, *_span(events.rows[:, kernels.START], events.rows[:, kernels.SIZE]))
