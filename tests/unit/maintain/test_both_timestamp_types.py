"""Topics whose segments have both timestamp types, as imports of a changed setting leave them.

Whatever maintains such a topic keeps each record with its own timestamp and type.
"""

import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path

from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.kafka.exporting import export_logs
from seglake.kafka.importing import import_logs
from seglake.maintain.compaction.compact import compact
from seglake.maintain.erasure.erase import erase
from seglake.maintain.expiry.retention import delete_records
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from seglake.maintain.undo import undo
from tests.judges.oracle import as_written
from tests.makers.broker_folders import batch
from tests.makers.compacted import set_topic
from tests.makers.lakes import Event, LakeMaker, Shape, Written
from tests.makers.strategies import T, examples
from tests.unit.log.test_segments import MEMORY

Batch = tuple[list[Event], int | None]  # its records, and the append time if it has one

KEYS = st.sampled_from([None, b"a", b"b", b"c"])
EVENTS = st.tuples(st.integers(T, T + 300), KEYS, st.sampled_from([None, b"", b"v" * 30])).map(
    lambda drawn: Event(*drawn)
)
BATCHES = st.tuples(
    st.lists(EVENTS, min_size=1, max_size=4), st.sampled_from([None, None, T + 7, T + 400])
)
SEGMENTS = st.lists(st.lists(BATCHES, min_size=1, max_size=4), min_size=2, max_size=6)


class Lake:
    """An imported topic, and the records that its readers are to see."""

    def __init__(self, folder: Path, segments: Sequence[Sequence[Batch]]) -> None:
        self.root, self.dest = folder / "lake", folder / "out"
        self.records, self.runs, self.start = list[Written](), 0, 0
        self._write(folder / "events-0", segments)
        import_logs(str(self.root), [str(folder / "events-0")])
        self.maker = LakeMaker(self.root)
        set_topic(self.maker.catalog, "events", {"cleanup.policy": "compact,delete"})

    def _write(self, folder: Path, segments: Sequence[Sequence[Batch]]) -> None:
        folder.mkdir()
        at = 0
        for segment in segments:
            data, base = b"", at
            for events, append_ms in segment:
                data += batch(events, at, -1, Shape("zstd", append_time_ms=append_ms))
                self.records += _written(events, at, append_ms)
                at += len(events)
            (folder / f"{base:020d}.log").write_bytes(data)

    def read(self, root: Path | None = None) -> list[Written]:
        log = seglake.open(str(root or self.root)).topic("events")
        return as_written(log.plan_offsets({0: (self.start, log.end_offsets()[0])}).execute()
                          .read_all())  # fmt: skip

    def compact(self) -> None:
        compact(str(self.root), "events", force=True, now_ms=T + 500)  # keeps all tombstones
        last = {record.key: record.offset for record in self.records}
        self.records = [r for r in self.records if r.key is not None and last[r.key] == r.offset]

    def merge(self) -> None:
        merge(str(self.root), "events", everything=True)

    def rebatch(self) -> None:
        merge(str(self.root), "events", everything=True, rebatch=True)

    def erase(self) -> None:
        erase(str(self.root), "events", ["b"], grace_hours=0)
        self.records = [record for record in self.records if record.key != b"b"]

    def reindex(self) -> None:
        reindex(str(self.root), "events")

    def undo(self) -> None:
        self.maker.run({0: [Event(T + 9, b"a"), Event(T + 8, None)]}, Shape(batch_bytes=1))
        run_id = f"run {len(self.maker.versions) - 1}"
        assert undo(str(self.root), "events", run_id).records == 2

    def delete(self) -> None:
        end = seglake.open(str(self.root)).topic("events").end_offsets()[0]
        self.start = min(self.start + 2, end)
        delete_records(str(self.root), "events", {0: self.start})
        self.records = [record for record in self.records if record.offset >= self.start]

    def export(self) -> None:
        dest = Path(tempfile.mkdtemp(dir=self.root.parent)) / "out"
        export_logs(str(self.root), "events", str(dest))
        again = dest.with_name("again")
        import_logs(str(again), [str(dest)])
        assert self.read(again) == self.records


def _written(events: Sequence[Event], base: int, append_ms: int | None) -> list[Written]:
    kind = int(append_ms is not None)
    return [
        Written(0, base + n, append_ms or event.timestamp, kind, event.key, event.value, [])
        for n, event in enumerate(events)
    ]


VERBS: list[Callable[[Lake], None]] = [
    Lake.compact, Lake.merge, Lake.rebatch, Lake.erase, Lake.reindex, Lake.undo, Lake.delete,
    Lake.export,
]  # fmt: skip


@given(SEGMENTS, st.lists(st.sampled_from(VERBS), max_size=4), st.sampled_from(VERBS))
@examples(10)
def test_whatever_maintains_it__each_record_keeps_its_time_and_type(
    segments: list[list[Batch]], verbs: list[Callable[[Lake], None]], last: Callable[[Lake], None]
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY) as name:
        lake = Lake(Path(name), segments)
        for verb in [*verbs, last]:
            verb(lake)
            assert lake.read() == lake.records
        assert verify(str(lake.root), deep=True).findings == []
