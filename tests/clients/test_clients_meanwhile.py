"""Clients read while commands change the lake under them: no wrong record, no stall."""

import multiprocessing
import os
import random
import threading
from collections import Counter
from collections.abc import Iterable
from concurrent.futures import ProcessPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

import pytest

import seglake
from seglake.maintain.vacuum import vacuum
from tests.clients import commands
from tests.clients.commands import Deed, Place, Record, Told
from tests.clients.followers import READERS, Again, InWindow, Member, Row
from tests.harness.server_process import ServerProcess
from tests.makers.raw_events import ingest, pipeline_of

ROUNDS = 2
ERASURES = ("erase", "erase objects")
DONE = {"ingest", "undo", "replace", "merge", "compact", "retain", "delete-records", *ERASURES}
MAY_GROW = (60, 60, 150)  # descriptors, threads and MB: caches and pools fill


class Done(NamedTuple):
    """What the commands did: their commits, and how many objects vacuums deleted."""

    deeds: list[Deed]
    deleted: int


def act(lake: str, folder: str, seed: int) -> Done:
    """Every command, one after the other, and a vacuum without grace behind each."""
    deeds, deleted, chance = list[Deed](), 0, random.Random(seed)
    for number in range(ROUNDS):
        verbs = sorted(commands.KEEPING)
        chance.shuffle(verbs)
        for verb in verbs:
            deeds += commands.write(lake, f"{folder}/{number} {verb}", f"{seed} {number} {verb}", 2)
            keys = {"keys": (chance.choice(commands.KEYS),)} if verb in ERASURES else {}
            command = partial(commands.KEEPING[verb], lake, chance, *keys.get("keys", ()))
            deeds += commands.commits_of(verb, command, **keys)
            deleted += len(vacuum(lake, dry_run=False, grace_hours=0, retention_hours=0).deleted)
    return Done(deeds, deleted)


@pytest.mark.rest
@pytest.mark.long
def test_clients_read_while_all_commands_run(tmp_path: Path) -> None:
    lake, first = str(tmp_path / "lake"), commands.some_file(tmp_path / "1.jsonl", random.Random(1))
    version = ingest(pipeline_of(lake, first, name="first", topic=commands.LAYOUT), "1").version
    seglake.alter(lake, "events", commands.LIFE)
    over = threading.Event()
    settings = "[server]\nrefresh_ms = 100\n"
    with ServerProcess(lake, tmp_path, settings=settings) as server, noting_process() as pool:
        again = [Again(each, lake, server.address, over) for each in READERS]
        members = [Member(each, lake, server.address, over) for each in READERS]
        windows = [InWindow(each, lake, server.address, over) for each in READERS]
        works, before = [*again, *members, *windows], held_by(server)
        try:
            done = pool.submit(act, lake, str(tmp_path), 1).result()
        finally:
            over.set()
            for work in works:
                work.join()
        grown = zip(held_by(server), before, MAY_GROW, strict=True)
        assert [now - then for now, then, limit in grown if now - then > limit] == []
        assert (server.stop(), "Traceback" in server.told()) == (0, False)
    assert [work.failed for work in works if work.failed] == []
    assert Counter(deed.verb for deed in done.deeds).keys() >= DONE
    assert done.deleted > 50
    told = Told([Deed(version, "ingest", {}, {}, "first 1", str(first)), *done.deeds])
    lives = Lives(told)
    for reader in again:
        for each in reader.passes:
            lives.assert_true(*each)
        assert as_records(reader.passes[-1].rows) == told.at(done.deeds[-1].version).records
    for member, beside in zip(members, again, strict=True):
        lives.assert_true(member.rows, *beside.passes[-1][1:], in_turn=False)
    for work in windows:
        assert as_records(work.rows).items() <= lives.ever.items()


def held_by(server: ServerProcess) -> tuple[int, int, float]:
    """Descriptors, threads and MB of the server now."""
    return server.descriptors(), server.threads(), server.memory_mb()


def noting_process() -> ProcessPoolExecutor:
    """A process that notes its commits."""
    context = multiprocessing.get_context("forkserver")
    return ProcessPoolExecutor(1, context, commands.note_commits, (dict(os.environ),))


class Lives:
    """Every record that ever was, and the version in which it went."""

    def __init__(self, told: Told) -> None:
        self._gone: dict[Place, int] = {}
        self.ever: dict[Place, Record] = {}
        for version, state in told.states():
            for place in self.ever.keys() - state.records.keys():
                self._gone.setdefault(place, version)
            self.ever.update(state.records)

    def assert_true(
        self, rows: list[Row], ends: dict[int, int], version: int, *, in_turn: bool = True
    ) -> None:
        """All are what was committed there, and none is left out that no command took."""
        found = as_records(rows)
        assert found.items() <= self.ever.items()
        if in_turn:
            assert len(found) == len(rows)
            assert all(offsets == sorted(offsets) for offsets in in_turn_of(rows))
        kept = {
            place
            for place in self.ever
            if place[1] < ends[place[0]] and self._gone.get(place, version + 1) > version
        }
        assert kept <= found.keys()


def in_turn_of(rows: list[Row]) -> list[list[int]]:
    """The offsets of each partition as they came."""
    return [[row.offset for row in rows if row.partition == p] for p in range(commands.PARTITIONS)]


def as_records(rows: Iterable[Row]) -> dict[Place, Record]:
    """By their places."""
    return {(p, offset): (timestamp, key, value) for p, offset, timestamp, key, value in rows}
