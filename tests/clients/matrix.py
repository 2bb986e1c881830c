"""The checks that every client of Kafka stands on `seglake serve`: one function each."""

import random
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

from tests.clients.program import Program, Record
from tests.clients.stage import (
    LOSSY,
    MECHANISMS,
    OUR_TAGS,
    OUR_VERSIONS,
    OUR_WINDOWS,
    OURS,
    PASSWORD,
    THEIR_WINDOW,
    USER,
    Served,
    Stage,
    told,
)

LOOKUPS = 250  # of each lake
Records = dict[int, list[Record]]


def read(program: Program, lake: Served, name: str, records: Records) -> None:
    """A whole topic, read from its start to its end, in each isolation that the client has."""
    for committed in {False, program.reads_committed}:
        read_once(program, lake, name, records, committed)


def read_once(program: Program, lake: Served, name: str, records: Records, committed: bool) -> None:
    """A whole topic in one isolation; an error if the client refuses one of its records."""
    ends = lake.ends(name, len(records))
    answer = program.ask("read", lake.address, topic=name, committed=committed, ends=ends)
    if refuses(program, records):
        assert list(answer) == ["error"], (name, committed)
    else:
        assert answer == {"partitions": told(program, records)}, (name, committed)


def refuses(program: Program, records: Records) -> bool:
    """Whether a topic has a record that the client cannot read."""
    return any(program.refuses(each) for some in records.values() for each in some)


# ------------------------------------------------------------------ the checks


def check_topics(program: Program, stage: Stage) -> None:
    """The server lists what the lakes have."""
    for lake in (stage.ours, stage.theirs):
        assert program.ask("topics", lake.address) == {"topics": lake.topics()}


def check_ours(program: Program, stage: Stage) -> None:
    """A lake that Seglake wrote."""
    for topic in stage.ours.topics():
        read(program, stage.ours, topic, stage.ours.records(topic))


def check_theirs(program: Program, stage: Stage) -> None:
    """A lake imported from a broker; all topics are tried before one fails."""
    failed = dict[str, str]()
    for topic in stage.theirs.topics():
        if stage.theirs.stamps(topic) and not program.knows_append_time:
            continue
        try:
            read(program, stage.theirs, topic, stage.theirs.records(topic))
        except AssertionError as error:
            failed[topic] = str(error)[:2000]
    assert not failed


def check_window(program: Program, stage: Stage) -> None:
    """Windows of both lakes, which end by themselves."""
    ours = [(stage.ours, window) for window in OUR_WINDOWS]
    for lake, window in (*ours, (stage.theirs, THEIR_WINDOW)):
        read(program, lake, window.name, lake.window(window))


def check_version(program: Program, stage: Stage) -> None:
    """Older versions."""
    for version in OUR_VERSIONS:
        read(program, stage.ours, version.name, stage.ours.records(*version))


def check_tag(program: Program, stage: Stage) -> None:
    """A version by its tag."""
    for tag in OUR_TAGS:
        read(program, stage.ours, tag.name, stage.ours.records(*tag))


def check_lossy(program: Program, stage: Stage) -> None:
    """Logs with gaps, with batches that lost all of their records, and with nothing behind these.

    The client must come to the end of the log, or to its last record if it counts records.
    """
    for topic in LOSSY:
        records = stage.lossy.records(topic)
        read_once(program, stage.lossy, topic, records, program.reads_committed)


def check_lookup(program: Program, stage: Stage) -> None:
    """Times of both lakes, by brute force."""
    for lake, topic in ((stage.ours, OURS), (stage.theirs, "transactions")):
        records = lake.records(topic)
        asked = list(times_of(random.Random(program.name), records))
        expected = [first_at(records[partition], time_ms) for partition, time_ms in asked]
        answer = program.ask("lookup", lake.address, topic=topic, asked=asked)
        assert answer == {"offsets": expected}


def times_of(chance: random.Random, records: Records) -> list[tuple[int, int]]:
    """Times of records, beside them, and beyond all of them, of every partition."""
    times = [each.timestamp_ms for some in records.values() for each in some]
    known = [chance.choice(times) + chance.choice((0, 0, -1, 1)) for _ in range(LOOKUPS - 4)]
    beyond = [0, min(times) - 1, max(times) + 1, 2**45]
    return [(chance.choice(list(records)), time_ms) for time_ms in known + beyond]


def first_at(records: list[Record], time_ms: int) -> int:
    """The offset of the first record that is so late, or -1."""
    return next((each.offset for each in records if each.timestamp_ms >= time_ms), -1)


def check_group(program: Program, stage: Stage) -> None:
    """A member leaves in the middle, the server is killed; the next one goes on exactly there."""
    for lake, topic in ((stage.ours, OURS), (stage.theirs, "transactions")):
        left, group = lake.records(topic), f"matrix-{random.randbytes(6).hex()}"
        for parts in (2, 1):
            wanted = sum(map(len, left.values())) // parts
            asked = {"topic": topic, "group": group, "committed": program.reads_committed}
            answer = program.ask("group", lake.address, stop_after=wanted, **asked)
            left = behind(left, answer, wanted)
            if any(left.values()):
                lake.restart()
        assert not any(left.values())


def behind(records: Records, answer: dict[str, Any], wanted: int) -> Records:
    """What is left of records, where a member has begun with the first of each partition."""
    assert "partitions" in answer, answer
    counts = {int(p): count for p, (count, _, _) in answer["partitions"].items()}
    assert sum(counts.values()) >= wanted
    for p, (count, first, last) in answer["partitions"].items():
        some = records[int(p)][:count]
        if count:
            assert [len(some), some[0].offset, some[-1].offset] == [count, first, last]
    return {p: some[counts.get(p, 0) :] for p, some in records.items()}


def check_login(mechanism: str, program: Program, stage: Stage) -> None:
    """A password that is right reads a window; a wrong one is told so."""
    lake, window = stage.closed, OUR_WINDOWS[1]
    security = {"ca": str(stage.ca), "mechanism": mechanism, "user": USER, "password": PASSWORD}
    # Their ends are those of the open server: it has the same lake.
    asked = {"topic": window.name, "committed": False, "ends": stage.ours.ends(window.name, 3)}
    answer = program.ask("read", lake.address, security=security, **asked)
    assert answer == {"partitions": told(program, stage.ours.window(window))}
    security["password"] = "wrong"
    assert list(program.ask("read", lake.address, security=security, **asked)) == ["error"]


class Check(NamedTuple):
    """A column of the table: what a client does for it, or how it logs in."""

    name: str
    run: Callable[[Program, Stage], None]
    action: str = "read"
    mechanism: str = ""

    def is_for(self, program: Program) -> bool:
        """Whether a program has what the check asks."""
        if self.name in program.fails:
            return False
        return self.action in program.actions and (
            not self.mechanism or self.mechanism in program.mechanisms
        )


CHECKS = [
    Check("topics", check_topics, "topics"),
    Check("ours", check_ours),
    Check("imported", check_theirs),
    Check("window", check_window),
    Check("version", check_version),
    Check("tag", check_tag),
    Check("lossy", check_lossy),
    Check("times", check_lookup, "lookup"),
    Check("group", check_group, "group"),
    *(Check(each, partial(check_login, each), mechanism=each) for each in MECHANISMS),
]
