"""`seglake serve` on S3: the same records, windows and damage as from a local disk."""

from pathlib import Path

from seglake.store import open_store
from tests.harness.lake_server import Wire, serving
from tests.harness.observed import copy_lake
from tests.makers.fetches import Wanted, everything, fetch, offset_at, records_in
from tests.makers.served import SPAN_MS, T, rich_lake, time_name, window_of

CORRUPT = 2


def test_a_lake_on_s3(place: str, tmp_path: Path) -> None:
    maker = rich_lake(tmp_path / "lake")
    copy_lake(str(maker.root), place)
    start, end = T + 1234, T + 3 * SPAN_MS + 17
    with serving(place) as server, Wire(server.address) as wire:
        for partition in range(3):
            records = maker.records(partition)
            for size in (700, 2**20):
                data = b"".join(everything(wire, "events", partition, 12, size))
                assert records_in(data, partition) == records
            name = f"events.{time_name(start)}.{time_name(end)}"
            data = b"".join(everything(wire, name, partition))
            assert records_in(data, partition) == window_of(records, start, end)
        records = maker.records(0)
        for time in range(T, T + 4 * SPAN_MS, 50_021):
            found = next((r.offset, r.timestamp) for r in records if r.timestamp >= time)
            assert offset_at(wire, "events", 0, time) == (0, *found)


def test_damage_on_s3(place: str, tmp_path: Path) -> None:
    maker = rich_lake(tmp_path / "lake")
    copy_lake(str(maker.root), place)
    rows = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
    first = min((row for row in rows if row.partition == 0), key=lambda row: row.base_offset)
    store = open_store(place)
    data = bytearray(memoryview(store.read_all(first.key("log"))))
    data[100] ^= 1
    store.put(first.key("log"), bytes(data))
    with serving(place) as server, Wire(server.address) as wire:
        (got,) = fetch(wire, "events", [Wanted(0, 0)])
        assert (got.code, got.data) == (CORRUPT, b"")
        (got,) = fetch(wire, "events", [Wanted(0, first.end_offset)])
        behind = [r for r in maker.records(0) if r.offset >= first.end_offset]
        assert records_in(got.data, 0) == behind[: len(records_in(got.data, 0))] != []
