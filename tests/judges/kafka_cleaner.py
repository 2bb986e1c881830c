"""Kafka's own log cleaner, over segments that somebody else wrote."""

import json
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from tests.judges.kafka_judge import JavaJudge

MAP_BYTES = 4 * 2**20  # of the map of keys, 24 bytes each


@dataclass(frozen=True)
class CleanerRound:
    """What Kafka's cleaner says of a log partition, and did if it was asked to.

    `groups` are the base offsets of the segments that become one. `invalid` are records without a
    key, `records` all that it read; -1 if nothing was done.
    """

    first_dirty_offset: int
    first_uncleanable_offset: int
    clean_bytes: int
    dirty_bytes: int
    dirty_ratio: float
    due: bool
    groups: list[list[int]]
    end_offset: int = -1
    invalid: int = -1
    records: int = -1
    seconds: float = 0.0


class KafkaCleaner(JavaJudge):
    """`LogCleanerManager` and `Cleaner` in a JVM."""

    java_class = "Cleaning"

    def clean(
        self,
        folder: Path,
        settings: Mapping[str, Any],
        now_ms: int,
        *,
        log_start: int = 0,
        cleaned_offset: int | None = None,
        map_bytes: int = MAP_BYTES,
        act: bool = True,
    ) -> CleanerRound:
        """A round over the segments in `folder`, which is called <topic>-<partition>.

        They are replaced by the cleaned ones, unless `act` is false. `settings` are the topic's.
        `cleaned_offset` is where the last round ended.
        """
        topic, _, partition = folder.name.rpartition("-")
        noted = [] if cleaned_offset is None else [f"{topic} {partition} {cleaned_offset}"]
        checkpoint = "\n".join(["0", str(len(noted)), *noted, ""])
        (folder.parent / "cleaner-offset-checkpoint").write_text(checkpoint)
        text = {name: str(value) for name, value in settings.items()}
        told = self.call("clean", str(folder), json.dumps(text), log_start, now_ms, map_bytes, act)
        return CleanerRound(**json.loads(told))
