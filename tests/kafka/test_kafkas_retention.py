"""Retention against Kafka's own `UnifiedLog.deleteOldSegments`, over the same segment files."""

import json
import os
import shutil
import tempfile
from pathlib import Path
from typing import Any

from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.maintain.commit import Clock
from seglake.maintain.expiry.retention import retain_topic
from tests.judges.kafka_judge import Kafka
from tests.makers.lakes import Event, LakeMaker, Shape
from tests.makers.strategies import examples

NOW = 1_700_000_000_000

ages = st.one_of(st.integers(-3, 30), st.sampled_from([10, 11, -(10**9)]))
runs = st.lists(
    st.lists(st.tuples(ages, st.integers(0, 9)), min_size=1, max_size=12), min_size=1, max_size=5
)
settings = st.fixed_dictionaries(
    {
        "cleanup.policy": st.sampled_from(["delete", "delete", "compact", "compact,delete"]),
        "retention.ms": st.sampled_from([-1, 0, 10, 10**6]),
        "retention.bytes": st.sampled_from([-1, 0, 300, 800, 10**6]),
    }
)


def copied(maker: LakeMaker, folder: Path) -> Path:
    """The partition's segments as a broker has them; files without timestamps are of NOW - 11."""
    log = folder / "events-0"
    log.mkdir()
    for row in maker.catalog.segments(maker.catalog.snapshot(), "events"):
        for suffix in ("log", "index", "timeindex"):
            shutil.copy(maker.root / row.key(suffix), log / f"{row.base_offset:020d}.{suffix}")
    return log


@examples(25)
@given(runs, settings, st.data())
def test_what_goes_is_what_kafka_removes(
    kafka: Kafka, made: list[list[tuple[int, int]]], chosen: dict[str, Any], data: st.DataObject
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        maker = LakeMaker(Path(folder) / "lake")
        for rows in made:
            events = [Event(NOW - age if roll else -1, None, b"v" * 40) for age, roll in rows]
            maker.run({0: events}, Shape(batch_bytes=80, segment_bytes=300))
        root, count = str(maker.root), sum(map(len, made))
        log_start = data.draw(st.integers(0, count))
        theirs = copied(maker, Path(folder))
        for file in theirs.glob("*.log"):
            os.utime(file, (0, 0))  # as the rows say that the segments were made
        seglake.delete_records(root, "events", {0: log_start})
        seglake.alter(root, "events", {**chosen})
        retain_topic(maker.catalog, "events", Clock(None, NOW), dry_run=False)
        answer = kafka.instance("Retention").retain(str(theirs), log_start, json.dumps(chosen), NOW)
        left = json.loads(answer)
        (view,) = maker.catalog.snapshot().partitions("events")
        assert view.segments.base_offsets.tolist() == left["bases"]
        assert (view.log_start_offset, view.end_offset) == (left["log_start"], left["end"])
