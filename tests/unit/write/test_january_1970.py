"""Times in another unit than the pipeline says lie in January 1970, or after the year 9999."""

import json
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.config import Pipeline
from seglake.errors import InputError, QuarantineLimit
from tests.makers.raw_events import T, ingest, pipeline_of

FEBRUARY = 31 * 86_400_000
TINY_SPLITS = {"split_bytes": 100, "chunk_bytes": 100}
NOW_IN = {"epoch_s": T // 1000, "epoch_ms": T, "epoch_us": T * 1000, "epoch_ns": T * 10**6}
JANUARY = [("epoch_s", "epoch_ms"), ("epoch_ms", "epoch_us"), ("epoch_us", "epoch_ns"),
           ("epoch_s", "epoch_us"), ("epoch_ms", "epoch_ns"), ("epoch_s", "epoch_ns")]  # fmt: skip
BEYOND = [("epoch_ms", "epoch_s"), ("epoch_us", "epoch_s"), ("epoch_us", "epoch_ms"),
          ("epoch_ns", "epoch_ms")]  # fmt: skip


def write(path: Path, times: list[object]) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(
        "".join(f"{json.dumps({'ts': time, 'n': n})}\n" for n, time in enumerate(times))
    )
    return path


def settings(lake: Path, paths: Any, form: str = "epoch_ms", **changes: Any) -> Pipeline:
    timestamp = {"format": form, "allow_1970": False, **changes.pop("timestamp", {})}
    return pipeline_of(lake, paths, timestamp=timestamp, **changes)


@pytest.fixture
def lake(tmp_path: Path) -> Path:
    return tmp_path / "lake"


@pytest.mark.parametrize(("given", "said"), JANUARY)
def test_a_unit_that_is_too_small_stops_the_run_with_the_right_one(
    tmp_path: Path, lake: Path, given: str, said: str
) -> None:
    path = write(tmp_path / "in" / "a.jsonl", [NOW_IN[given]] * 9)
    with pytest.raises(InputError) as caught:
        ingest(settings(lake, path, said))
    told = str(caught.value)
    assert str(path) in told
    assert f"timestamp.format = {given!r}" in told
    assert "timestamp.allow_1970 = true" in told
    assert seglake.open(str(lake)).topics() == []
    assert ingest(settings(lake, path, given)).records == 9


@pytest.mark.parametrize(("given", "said"), BEYOND)
def test_a_unit_that_is_too_large_makes_rejects_which_stop_the_run(
    tmp_path: Path, lake: Path, given: str, said: str
) -> None:
    path = write(tmp_path / "in" / "a.jsonl", [NOW_IN[given]] * 9)
    with pytest.raises(QuarantineLimit, match="timestamp out of range: 9"):
        ingest(settings(lake, path, said))


def test_one_file_of_many_is_enough_however_it_is_cut(tmp_path: Path, lake: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", [T] * 40)
    write(tmp_path / "in" / "b.jsonl", [T // 1000] * 40)
    with pytest.raises(InputError, match=r"in/b\.jsonl: "):
        ingest(settings(lake, tmp_path / "in", task=TINY_SPLITS))


def test_one_later_time_in_a_file_is_enough_however_it_is_cut(tmp_path: Path, lake: Path) -> None:
    write(tmp_path / "in" / "a.jsonl", [*[0] * 40, FEBRUARY])
    write(tmp_path / "in" / "b.jsonl", [FEBRUARY, *range(40)])
    write(tmp_path / "in" / "empty.jsonl", [])
    write(tmp_path / "in" / "rejected.jsonl", ["soon", -5])
    assert ingest(settings(lake, tmp_path / "in", task=TINY_SPLITS)).records == 82


@pytest.mark.parametrize(("time", "stops"), [(0, True), (FEBRUARY - 1, True), (FEBRUARY, False)])
def test_where_january_ends(tmp_path: Path, lake: Path, time: int, *, stops: bool) -> None:
    path = write(tmp_path / "in" / "a.jsonl", [time, "soon"])
    if stops:
        with pytest.raises(InputError, match="January 1970"):
            ingest(settings(lake, path))
    else:
        assert ingest(settings(lake, path)).records == 1


def test_it_can_be_meant(tmp_path: Path, lake: Path) -> None:
    path = write(tmp_path / "in" / "a.jsonl", [5, 7])
    meant = settings(lake, path, timestamp={"allow_1970": True})
    report = ingest(meant)
    assert (report.records, report.min_timestamp, report.max_timestamp) == (2, 5, 7)
    assert meant.fingerprint() == settings(lake, path).fingerprint()
    assert ingest(settings(lake, path)).status == "already done"


def test_records_that_keep_their_offsets_keep_their_times(tmp_path: Path, lake: Path) -> None:
    """A broker took them, and what is not archived in time is lost."""
    path = tmp_path / "in.jsonl"
    path.write_text('{"ts":5,"p":0,"o":3}\n')
    topic = {"partition_field": "p", "offset_field": "o"}
    assert ingest(settings(lake, path, topic=topic, order="arrival", key={"fields": []})).records


def test_limits_of_event_time_reject_them_before(tmp_path: Path, lake: Path) -> None:
    path = write(tmp_path / "in" / "a.jsonl", [T // 1000] * 3)
    limited = {"message.timestamp.before.max.ms": 86_400_000}
    with pytest.raises(QuarantineLimit, match="timestamp too old for message"):
        ingest(settings(lake, path, topic=limited))
