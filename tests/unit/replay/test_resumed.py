"""Where a replay goes on; tests/kafka/test_replay.py has a broker."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import seglake
from seglake.replay.run import replay_window
from seglake.replay.target import Target
from tests.makers.lakes import Event, LakeMaker, Shape

T = 1_700_000_000_000


class Overtaken:
    """A topic that this replay has made, and another of its name has filled up to offset 2."""

    topic, open_s = "t", 0.0

    def __init__(self) -> None:
        self.sent: list[int] = []

    def prepare(self, _partitions: int) -> bool:
        return True

    def sender(self, _name: str) -> Overtaken:
        return self

    def positions(self, _name: str, _partitions: Sequence[int]) -> dict[int, int]:
        return {0: 2}

    def send(self, _partition: int, rows: Sequence[Mapping[str, Any]]) -> None:
        self.sent += [row["offset"] for row in rows]

    def commit(self) -> None:
        pass


def test_a_topic_that_was_made_just_now_is_not_known_to_be_empty(tmp_path: Path) -> None:
    """The other replay ended between the making of the topic and the takeover."""
    maker = LakeMaker(tmp_path)
    maker.run({0: [Event(T, b"k", b"v")] * 5}, Shape())
    target = Overtaken()
    replay_window(seglake.open(str(maker.root)).topic("events"), T, T + 1, cast("Target", target))
    assert target.sent == [3, 4]
