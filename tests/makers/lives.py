"""Lakes that live: every act of maintenance, and what each version must have by the plain list."""

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import NamedTuple

from seglake.format.index import IndexPolicy
from seglake.maintain.erasure.erase import erase
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.repair import rebuild_catalog
from seglake.maintain.merge import merge
from seglake.maintain.vacuum import vacuum
from tests.makers.lakes import Event, LakeMaker, Shape, Written
from tests.makers.strategies import T

TOPICS, KEYS, PARTITIONS, SPAN = ("events", "other"), (b"a", b"b", b"c"), 2, 60
CODECS = ("none", "zstd", "lz4", "gzip", "snappy")


class Content(NamedTuple):
    """A topic in a version: its records in order, where its partitions begin and end."""

    topic: str
    records: tuple[Written, ...]
    starts: tuple[int, ...]
    ends: tuple[int, ...]

    def of(self, partition: int) -> list[Written]:
        return [record for record in self.records if record.partition == partition]


@dataclass
class Life:
    """A lake from when it is made until another one is made at its root."""

    maker: LakeMaker
    past: dict[int, dict[str, Content]] = field(default_factory=dict)  # by version
    ends: dict[tuple[str, int], int] = field(default_factory=dict)
    retained_from: int = 0  # older versions may have lost files
    is_over: bool = False

    @property
    def root(self) -> str:
        return str(self.maker.root)

    @property
    def catalog(self) -> str:
        return self.maker.catalog.id

    @property
    def newest(self) -> int:
        return max(self.past)

    def remember(self) -> None:
        """What the newest version has."""
        version = self.maker.catalog.snapshot().version
        self.past[version] = {name: self._content(name) for name in self.maker.written}

    def _content(self, topic: str) -> Content:
        starts = tuple(self.maker.starts.get((topic, p), 0) for p in range(PARTITIONS))
        ends = tuple(self.ends.get((topic, p), 0) for p in range(PARTITIONS))
        return Content(topic, tuple(self.maker.records(topic=topic)), starts, ends)


def append(life: Life, chance: random.Random) -> None:
    maker, name = life.maker, life.maker.root.name
    maker.topic = chance.choice(TOPICS) if life.past else TOPICS[0]
    rows = {p: events(chance, name) for p in range(PARTITIONS)}
    for p, given_rows in rows.items():
        more = sum(1 + row.gap for row in given_rows)
        life.ends[maker.topic, p] = life.ends.get((maker.topic, p), 0) + more
    policy = chance.choice([IndexPolicy(1), IndexPolicy(300), IndexPolicy()])
    sizes = chance.choice([(100, 900), (300, 2000), (300, 2**30), (16_384, 2**30)])
    maker.run(rows, Shape(chance.choice(CODECS), *sizes, policy))


def events(chance: random.Random, name: str) -> list[Event]:
    """Much alike in all lakes: in each, the same offset has another record."""
    return [
        Event(
            T + chance.randrange(SPAN), chance.choice(KEYS), b"%s %d" % (name.encode(), number),
            (("from", name.encode()),) if number == 7 and chance.random() < 0.5 else (),
            3 if chance.random() < 0.05 else 0,
        )
        for number in range(chance.choice([5, 40, 40, 120]))
    ]  # fmt: skip


def delete_beginning(life: Life, chance: random.Random) -> None:
    maker, p = life.maker, chance.randrange(PARTITIONS)
    maker.topic = chance.choice([*maker.written])
    end = life.ends[maker.topic, p]
    maker.delete_records(p, chance.randrange(end + 1))


def index_anew(life: Life, chance: random.Random) -> None:
    reindex(life.root, chance.choice([*life.maker.written]), IndexPolicy(180))


def merge_all(life: Life, chance: random.Random) -> None:
    merge(life.root, chance.choice([*life.maker.written]), everything=True)


def erase_key(life: Life, chance: random.Random) -> None:
    maker, topic, key = life.maker, chance.choice([*life.maker.written]), chance.choice(KEYS)
    deleted = chance.random() < 0.5
    erase(life.root, topic, [key], vacuum=deleted, grace_hours=0)
    maker.written[topic] = [each for each in maker.written[topic] if each.key != key]
    if deleted:
        life.retained_from = maker.catalog.snapshot().version


def vacuum_all(life: Life, _chance: random.Random) -> None:
    vacuum(life.root, dry_run=False, retention_hours=0, grace_hours=0)
    life.retained_from = life.maker.catalog.snapshot().version


def rebuild(life: Life, _chance: random.Random) -> None:
    """All versions go, and none has a number that was used before."""
    rebuild_catalog(life.root, dry_run=False, force=True)
    before = life.maker
    life.maker = LakeMaker(before.root, TOPICS[0], PARTITIONS, before.written, before.starts)
    life.retained_from = life.maker.catalog.snapshot().version


ACTS: list[Callable[[Life, random.Random], None]] = [
    append, append, append, delete_beginning, index_anew, merge_all, erase_key, erase_key,
    vacuum_all, rebuild,
]  # fmt: skip
