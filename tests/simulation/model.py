"""What a lake must hold, on plain lists: each commit says what it was meant to do, in its turn.

Nothing here is Seglake's. A commit is told by its version, by what its process was asked to do, and
by the rows that it added: only names, states and bounds are taken from these, never a record.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple

from tests.makers.murmur2 import murmur2

EVENTS, IMPORTED = "events", "imported"
PARTITIONS = 2

Place = tuple[int, int]  # a partition and an offset
Rows = Mapping[str, Sequence[Mapping[str, Any]]]  # by kind


class Wrong(AssertionError):
    """The lake is not as it must be."""


class Line(NamedTuple):
    """A row of an input. It is a record if it has the time that is asked for."""

    path: str
    number: int  # from 1
    times: Mapping[str, int]  # by field
    key: bytes
    value: bytes
    raw: bytes  # what a reject of it holds; empty: unknown


class Record(NamedTuple):
    timestamp: int
    key: bytes | None
    value: bytes | None


class Meant(NamedTuple):
    """What a command was asked to do, as far as its commits depend on it."""

    verb: str
    run_id: str = ""
    paths: tuple[str, ...] = ()
    rows: tuple[Line, ...] = ()  # of a DataFrame
    time: str = "ts"
    keys: tuple[bytes, ...] = ()
    starts: Mapping[int, int] = {}
    logs: Mapping[int, Mapping[int, Record]] = {}  # of a broker, by partition and offset
    ends: Mapping[int, int] = {}


class Run(NamedTuple):
    """A committed run: its attempt, whose rejects it took over, and the rejects it has itself."""

    attempt_id: str
    taken: str  # the attempt; "" for a run of its own
    rejects: tuple[Line, ...]
    places: frozenset[tuple[str, Place]]


@dataclass(frozen=True)
class State:
    """All that a version holds."""

    records: Mapping[str, Mapping[Place, Record]] = field(default_factory=dict)
    starts: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    ends: Mapping[str, Mapping[int, int]] = field(default_factory=dict)
    runs: Mapping[tuple[str, str], Run] = field(default_factory=dict)
    sources: Mapping[str, str] = field(default_factory=dict)  # path: attempt
    gone: Mapping[str, frozenset[bytes]] = field(default_factory=dict)  # attempt: keys


class Model:
    """The states of all versions, and the inputs that there are."""

    def __init__(self, lines: Mapping[str, Sequence[Line]]) -> None:
        self._lines = lines
        self.states: dict[int, State] = {-1: State()}
        self.newest = -1
        self.left: dict[tuple[str, str], str] = {}  # run: the verb that took it out last

    @property
    def state(self) -> State:
        return self.states[self.newest]

    def copy(self) -> Model:
        """Another one that goes on from here."""
        other = Model(self._lines)
        other.states, other.newest, other.left = dict(self.states), self.newest, dict(self.left)
        return other

    def same_again(self, version: int) -> None:
        """A version that changes nothing."""
        self.states[version], self.newest = self.state, version

    def commit(self, version: int, rows: Rows, meant: Meant) -> None:
        """A commit of rows; raises Wrong if it cannot have been meant so."""
        if version <= self.newest:
            raise Wrong(f"version {version} was made after version {self.newest}")
        state = _Changing(self.state)
        gone = [row for row in rows.get("run", ()) if row["state"] in ("undone", "replaced")]
        self._remove(state, gone, meant)
        for row in rows.get("run", ()):
            if row["state"] not in ("undone", "replaced"):
                self._run(state, row, meant)
        for row in rows.get("maintenance", ()):
            self._maintain(state, row, rows.get("partition", ()), meant)
        self.states[version], self.newest = state.frozen(), version

    # ------------------------------------------------------------------ runs

    def _remove(self, state: _Changing, rows: Sequence[Mapping[str, Any]], meant: Meant) -> None:
        if not rows:
            return
        names = {(row["pipeline"], row["run_id"]) for row in rows}
        if missing := names - state.runs.keys():
            raise Wrong(f"{meant.verb} took out {missing}, which are not committed")
        first = next((name for name in state.runs if name[1] == meant.run_id), None)
        if first is None or names != set(state.chain(first)):
            raise Wrong(f"{meant.verb} of {meant.run_id} took out {sorted(names)}")
        for name in names:
            state.drop(name)
            self.left[name] = meant.verb

    def _run(self, state: _Changing, row: Mapping[str, Any], meant: Meant) -> None:
        name, attempt_id = (row["pipeline"], row["run_id"]), row["attempt_id"]
        if name in state.runs:
            raise Wrong(f"run {name} was committed twice")
        taken = ""
        if meant.verb == "redrive":
            taken, given = self._rejects(state, row, meant)
        elif meant.rows:
            given = list(meant.rows)
        else:
            paths = [path for path in meant.paths if path not in state.sources]
            given = [line for path in sorted(paths) for line in self._lines[path]]
            state.sources |= dict.fromkeys(paths, attempt_id)
        good = [line for line in given if meant.time in line.times]
        bad = tuple(line for line in given if meant.time not in line.times)
        if (row["records"], row["quarantined"]) != (len(good), len(bad)):
            found = f"{row['records']} records and {row['quarantined']} rejects"
            raise Wrong(f"run {name} says {found}, not {len(good)} and {len(bad)}")
        good.sort(key=lambda line: (line.times[meant.time], line.path, line.number))
        ranges = json.loads(row["offset_ranges"])
        _skip_room(state, ranges, Counter(map(_partition, good)))
        places = state.append(EVENTS, [_record(line, meant.time) for line in good])
        left = tuple(line for line in bad if line.key not in state.gone.get(attempt_id, ()))
        state.runs[name] = Run(attempt_id, taken, left, frozenset((EVENTS, p) for p in places))

    def _rejects(
        self, state: _Changing, row: Mapping[str, Any], meant: Meant
    ) -> tuple[str, list[Line]]:
        taken = json.loads(row["report"])["redrives"]["attempt_id"]
        owner = [name for name, run in state.runs.items() if run.attempt_id == taken]
        if not owner:
            raise Wrong(f"a redrive of {meant.run_id} took over rejects of a run that is not there")
        if any(run.taken == taken for run in state.runs.values()):
            raise Wrong(f"a redrive of {meant.run_id} took over rejects that another one has")
        return taken, list(state.runs[owner[0]].rejects)

    # ------------------------------------------------------------------ maintenance

    def _maintain(
        self,
        state: _Changing,
        row: Mapping[str, Any],
        bounds: Sequence[Mapping[str, Any]],
        meant: Meant,
    ) -> None:
        operation, topic = row["operation"], row["topic"]
        if operation == "erase":
            state.erase(topic, meant.keys)
            self._early(state, json.loads(row["report"])["rejects_left"], meant)
        elif operation == "expire-rejects":
            state.expire(json.loads(row["report"])["attempts"])
        elif operation == "import":
            self._import(state, meant)
        for each in bounds:
            self._bound(state, operation, topic, each, meant)

    def _early(self, state: _Changing, attempts: Iterable[str], meant: Meant) -> None:
        """An erasure takes rejects of attempts that have not committed yet, and may do so later."""
        for attempt_id in {*attempts} - {run.attempt_id for run in state.runs.values()}:
            state.gone[attempt_id] = state.gone.get(attempt_id, frozenset()) | {*meant.keys}

    def _bound(
        self, state: _Changing, operation: str, topic: str, row: Mapping[str, Any], meant: Meant
    ) -> None:
        """What a command says of a log partition."""
        partition, start = row["partition"], row["log_start_offset"]
        if operation == "compact":
            state.compact(topic, partition, row["cleaned_offset"] or 0)
        elif operation == "delete-records":
            wanted = meant.starts[partition]
            if start != (wanted if wanted >= 0 else state.ends[topic][partition]):
                raise Wrong(f"delete-records began the log at {start}, not at {wanted}")
            state.begin(topic, partition, start)
        elif operation == "retain":
            state.begin(topic, partition, start)

    def _import(self, state: _Changing, meant: Meant) -> None:
        for partition, log in meant.logs.items():
            end = state.ends[IMPORTED].get(partition, 0)
            new = {(partition, o): record for o, record in log.items() if o >= end}
            state.records[IMPORTED].update(new)
            state.starts[IMPORTED].setdefault(partition, 0)
            state.ends[IMPORTED][partition] = max(end, meant.ends[partition])


def _partition(item: Line | Record) -> int:
    return murmur2(item.key or b"") % PARTITIONS


def _skip_room(
    state: _Changing, ranges: Mapping[str, list[list[int]]], counts: Mapping[int, int]
) -> None:
    """A run goes on where the log ends, and its records are the last of its offsets.

    Those in front of them it left to others, see `placement`.
    """
    for number, ((start, end),) in ranges.items():
        at = state.ends[EVENTS].get(int(number), 0)
        if start != at or end - counts[int(number)] < at:
            raise Wrong(f"a run has offsets {start} to {end} of partition {number}, not from {at}")
        state.ends[EVENTS][int(number)] = end - counts[int(number)]


class _Changing:
    """A state that a commit is changing."""

    def __init__(self, before: State) -> None:
        topics = (EVENTS, IMPORTED)
        self.records = {topic: dict(before.records.get(topic, {})) for topic in topics}
        self.starts = {topic: dict(before.starts.get(topic, {})) for topic in topics}
        self.ends = {topic: dict(before.ends.get(topic, {})) for topic in topics}
        self.runs, self.sources = dict(before.runs), dict(before.sources)
        self.gone = dict(before.gone)

    def frozen(self) -> State:
        return State(self.records, self.starts, self.ends, self.runs, self.sources, self.gone)

    def append(self, topic: str, records: Iterable[Record]) -> list[Place]:
        places = []
        for number in range(PARTITIONS):
            self.starts[topic].setdefault(number, 0)
            self.ends[topic].setdefault(number, 0)
        for record in records:
            partition = _partition(record)
            places.append((partition, self.ends[topic][partition]))
            self.records[topic][places[-1]] = record
            self.ends[topic][partition] += 1
        return places

    def chain(self, first: tuple[str, str]) -> list[tuple[str, str]]:
        """A run and those that took over its rejects, one after another."""
        found, after = [first], {run.taken: name for name, run in self.runs.items() if run.taken}
        while (last := self.runs[found[-1]].attempt_id) in after:
            found.append(after[last])
        return found

    def drop(self, name: tuple[str, str]) -> None:
        run = self.runs.pop(name)
        for topic, place in run.places:
            self.records[topic].pop(place, None)
        self.sources = {p: a for p, a in self.sources.items() if a != run.attempt_id}

    def erase(self, topic: str, keys: Sequence[bytes]) -> None:
        log = self.records[topic]
        for place in [place for place, record in log.items() if record.key in keys]:
            del log[place]
        for name, run in self.runs.items() if topic == EVENTS else ():
            left = tuple(line for line in run.rejects if line.key not in keys)
            self.runs[name] = run._replace(rejects=left)

    def expire(self, attempts: Sequence[str]) -> None:
        for name, run in self.runs.items():
            if run.attempt_id in attempts:
                self.runs[name] = run._replace(rejects=())

    def compact(self, topic: str, partition: int, end: int) -> None:
        log = self.records[topic]
        places = sorted(p for p in log if p[0] == partition and p[1] < end)
        latest = {log[place].key: place for place in places}
        for place in places:
            if latest[log[place].key] != place:
                del log[place]

    def begin(self, topic: str, partition: int, start: int) -> None:
        self.starts[topic][partition] = start
        log = self.records[topic]
        for place in [each for each in log if each[0] == partition and each[1] < start]:
            del log[place]


def _record(line: Line, time: str) -> Record:
    return Record(line.times[time], line.key, line.value)
