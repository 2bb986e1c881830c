"""Questions to a log, with the answers by the plain list of its records."""

import random
from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa

from seglake.errors import OffsetNotFound, OffsetOutOfRange, SeglakeError
from seglake.log.execute import SCHEMA
from seglake.read.log import Log
from tests.makers.lakes import Written
from tests.makers.lives import PARTITIONS, SPAN, Content
from tests.makers.strategies import T
from tests.makers.versions import first_reaching, in_window

Row = dict[str, Any]


class Question(NamedTuple):
    """What to ask a log, and the answer by the model."""

    ask: Callable[[Log], Any]
    answer: Any


def shown(table: pa.Table) -> list[Row]:
    if "timestamp" in table.column_names:
        at = table.column_names.index("timestamp")
        table = table.set_column(at, "timestamp", table["timestamp"].cast(pa.int64()))
    return table.to_pylist()


def expected(topic: str, records: Sequence[Written], names: Sequence[str]) -> list[Row]:
    return [{name: _value(topic, record, name) for name in names} for record in records]


def _value(topic: str, record: Written, name: str) -> Any:
    if name == "topic":
        return topic
    if name == "headers":
        return [{"key": key, "value": value} for key, value in record.headers]
    return getattr(record, name)


def some_columns(chance: random.Random) -> list[str]:
    names = chance.sample(SCHEMA.names, chance.randrange(1, len(SCHEMA.names) + 1))
    return chance.choice([SCHEMA.names, names, ["offset"], ["key", "value", "timestamp"]])


def a_window(content: Content, chance: random.Random) -> Question:
    bounds = chance.choices(range(T - 1, T + SPAN + 2), k=2)
    start, end = sorted(chance.choice([bounds, bounds, [0, T + SPAN]]))
    names, order = some_columns(chance), "time" if chance.random() < 0.1 else "offset"
    chosen = chance.choice([None, [0], [1], [1, 0]])
    memory, planned = chance.choice([5_000, 2**25]), chance.random() < 0.3
    found = in_window(list(content.records), start, end)
    found = [r for p in chosen or range(PARTITIONS) for r in found if r.partition == p]
    if order == "time" and not planned:
        found.sort(key=lambda record: (record.timestamp, *record[:2]))

    def ask(log: Log) -> list[Row]:
        if planned:
            plan = log.plan_range(start, end, partitions=chosen, columns=names)
            return shown(plan.execute(memory_bytes=memory).read_all())
        stream = log.read_range(
            start, end, partitions=chosen, columns=names, order=order, memory_bytes=memory
        )
        return shown(stream.read_all())

    return Question(ask, expected(content.topic, found, names))


def some_offsets(content: Content, chance: random.Random) -> Question:
    p, names = chance.randrange(PARTITIONS), some_columns(chance)
    records = content.of(p)
    chosen = chance.choices(records, k=min(len(records), 6))
    found = expected(content.topic, chosen, names)
    wanted = np.array([record.offset for record in chosen], np.int64)
    return Question(lambda log: shown(log.records_at(p, wanted, columns=names)), found)


def offset_by_offset(content: Content, chance: random.Random) -> Question:
    places, answers = list[tuple[int, int]](), list[Any]()
    for p in range(PARTITIONS):
        start, end = content.starts[p], content.ends[p]
        there = {record.offset: record for record in content.of(p)}
        for offset in chance.choices([start, *range(end + 2)], k=3):
            missing: Any = OffsetNotFound if start <= offset < end else OffsetOutOfRange
            places.append((p, offset))
            answers.append(there.get(offset, missing))
    return Question(lambda log: [_record_at(log, *place) for place in places], answers)


def _record_at(log: Log, p: int, offset: int) -> Any:
    try:
        return log.record_at(p, offset)[1:]
    except (OffsetNotFound, OffsetOutOfRange) as error:
        return type(error)


def a_fetch(content: Content, chance: random.Random) -> Question:
    p, names, most = chance.randrange(PARTITIONS), some_columns(chance), chance.choice([1, 7, 500])
    offset = chance.randint(content.starts[p], content.ends[p])
    found = [record for record in content.of(p) if record.offset >= offset][:most]
    ask = lambda log: shown(log.read(p, offset, max_records=most, columns=names))  # noqa: E731
    return Question(ask, expected(content.topic, found, names))


def some_times(content: Content, chance: random.Random) -> Question:
    p, times = chance.randrange(PARTITIONS), chance.choices(range(T - 1, T + SPAN + 2), k=4)
    answers = [first_reaching(content.of(p), time) for time in times]
    if chance.random() < 0.5:
        one_by_one = lambda log: [log.offsets_for_times({p: t})[p] for t in times]  # noqa: E731
        return Question(one_by_one, answers)

    def ask(log: Log) -> list[tuple[int, int]]:
        offsets, stamps = log.offsets_for_times_array(p, np.array(times))
        return list(zip(offsets.tolist(), stamps.tolist(), strict=True))

    return Question(ask, [answer or (-1, -1) for answer in answers])


def newest_times(content: Content, _chance: random.Random) -> Question:
    answers = dict[int, Any]()
    for p in range(PARTITIONS):
        largest = max((record.timestamp for record in content.of(p)), default=-1)
        answers[p] = first_reaching(content.of(p), largest) if largest >= 0 else None
    return Question(lambda log: log.max_timestamps(), answers)


def around(content: Content, chance: random.Random) -> Question:
    moments = chance.choices(range(T, T + SPAN), k=3)
    found = sorted(
        (at, r.partition, r.offset)
        for at in moments for r in content.records if at - 2 <= r.timestamp < at + 3
    )  # fmt: skip

    def ask(log: Log) -> list[tuple[int, ...]]:
        rows, names = pa.table({"at": pa.array(moments, pa.int64())}), ["partition", "offset"]
        stream = log.read_around(rows, "at", before_ms=2, after_ms=3, columns=names)
        return sorted(tuple(row.values()) for row in stream.read_all().to_pylist())

    return Question(ask, found)


def the_ends(content: Content, _chance: random.Random) -> Question:
    ends = dict(enumerate(content.starts)), dict(enumerate(content.ends))
    return Question(lambda log: (log.beginning_offsets(), log.end_offsets()), ends)


ASKED = [
    a_window, a_window, a_window, some_offsets, offset_by_offset, offset_by_offset, a_fetch,
    some_times, newest_times, around, the_ends,
]  # fmt: skip


def outcome(question: Question, log: Log) -> Any:
    try:
        return question.ask(log)
    except SeglakeError as error:
        return type(error)
