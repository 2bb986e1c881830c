"""Times of typed columns, in any unit and far out of range, against Python's big integers."""

import datetime as dt
import json
import tempfile
from decimal import Decimal
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from hypothesis import given
from hypothesis import strategies as st

from seglake.config import Pipeline
from seglake.limits import INT32_MAX, INT64_MAX
from seglake.write.rows.arrow import ArrowRows, column_text
from seglake.write.rows.records import ExtractedChunk, RowLimits, extract
from seglake.write.rows.rows import REASON_TEXTS, Reason
from tests.makers.files import pipeline, read
from tests.makers.strategies import examples

LAST_MS = 253_402_300_799_999
PER_SECOND = {"s": 1, "ms": 10**3, "us": 10**6, "ns": 10**9}
EPOCH = {"s": "epoch_s", "ms": "epoch_ms", "us": "epoch_us", "ns": "epoch_ns"}
ZONES = {None: 9 * 3_600_000, "UTC": 0, "Europe/Berlin": 0}  # Etc/GMT-9 is the zone of the settings
WRAP = 2**64 // 1000  # so many seconds are 0 ms in 64 bits, so 10^9 more are a plausible time


def near(*centres: int) -> st.SearchStrategy[int]:
    """Any 64 bit integer, and those near to some."""
    edges = [0, -INT64_MAX - 1, INT64_MAX, *centres]
    close = st.tuples(st.sampled_from(edges), st.integers(-(10**6), 10**6)).map(sum)
    return st.one_of(st.integers(-INT64_MAX - 1, INT64_MAX), close).filter(
        lambda value: -INT64_MAX - 1 <= value <= INT64_MAX
    )


def settings_of(**timestamp: str) -> Pipeline:
    return Pipeline.model_validate(
        {
            "name": "a", "root": "b", "input": {"format": "dataframe", "order_column": "n"},
            "timestamp": {"field": "t", "zone": "Etc/GMT-9", **timestamp},
            "topic": {"name": "c"},
        }
    )  # fmt: skip


def extracted(column: Any, **timestamp: str) -> ExtractedChunk:
    batch = pa.record_batch({"t": column, "n": pa.array(range(len(column)))})
    return extract(ArrowRows("x", batch), settings_of(**timestamp), RowLimits(), "x", 0)


def outside(ms: int) -> Reason:
    return Reason.TIMESTAMP_BEFORE_1970 if ms < 0 else Reason.TIMESTAMP_OUT_OF_RANGE


def assert_times(found: ExtractedChunk, wanted_ms: list[int]) -> None:
    good = [ms for ms in wanted_ms if 0 <= ms <= LAST_MS]
    assert found.records.timestamps.tolist() == good
    bad = [at for at, ms in enumerate(wanted_ms) if not 0 <= ms <= LAST_MS]
    assert found.rejects.lines.tolist() == bad
    assert found.rejects.reasons.tolist() == [outside(wanted_ms[at]) for at in bad]


@given(st.sampled_from(list(PER_SECOND)), st.sampled_from(list(ZONES)), st.data())
@examples(200)
def test_an_instant_of_any_unit_is_a_time_or_a_reject_never_another_instant(
    unit: str, zone: str | None, data: st.DataObject
) -> None:
    centre = LAST_MS * PER_SECOND[unit] // 1000
    values = data.draw(st.lists(near(centre, WRAP, WRAP + 10**9), min_size=1, max_size=9))
    column = pa.array(values, pa.int64()).cast(pa.timestamp(unit, zone))
    found = extracted(column)
    assert_times(found, [at_zone(value * 1000 // PER_SECOND[unit], zone) for value in values])
    for line, raw in zip(found.rejects.lines.tolist(), found.rejects.raw.tolist(), strict=True):
        assert_shown(json.loads(raw or b"")["t"], values[line], unit)


def at_zone(ms: int, zone: str | None) -> int:
    """The instant; a clock that shows the year 10000 is out of range wherever it stands."""
    return ms if ms > LAST_MS else ms - ZONES[zone]


def assert_shown(text: str, value: int, unit: str) -> None:
    """The text names this instant: as ISO 8601, or as the number of the column."""
    if text.startswith("<"):
        assert text == f"<value out of range: {value}>"
        return
    years, rest = text[0] == "-", text.removeprefix("-").removesuffix("Z")
    year, month_on = rest.split("-", 1)
    number = -int(year) if years else int(year)
    clock, _, fraction = month_on.partition(".")
    same_year = 2000 + number % 400  # the calendar repeats itself after 400 years
    moment = dt.datetime.fromisoformat(f"{same_year}-{clock}+00:00")
    seconds = int(moment.timestamp()) + (number - same_year) // 400 * 146_097 * 86_400
    assert seconds == value // PER_SECOND[unit]
    assert int(fraction or 0) == value % PER_SECOND[unit]


@given(st.lists(st.integers(-INT32_MAX - 1, INT32_MAX), min_size=1, max_size=9))
@examples(60)
def test_a_day_is_a_time_or_a_reject(days: list[int]) -> None:
    zone_ms = ZONES[None]
    found = extracted(pa.array(days, pa.int32()).cast(pa.date32()))
    assert_times(found, [day * 86_400_000 - zone_ms for day in days])
    longest = INT64_MAX // 86_400_000
    ms = [max(-longest, min(day * 50, longest)) * 86_400_000 for day in days]
    found = extracted(pa.array(ms, pa.int64()).cast(pa.date64()))
    assert_times(found, [each - zone_ms for each in ms])


@given(st.sampled_from(list(PER_SECOND)), st.data())
@examples(60)
def test_numbers_of_any_width_are_times_or_rejects(unit: str, data: st.DataObject) -> None:
    centre = LAST_MS * PER_SECOND[unit] // 1000
    values = data.draw(st.lists(near(centre, WRAP, WRAP + 10**9), min_size=1, max_size=9))
    wanted = [value * 1000 // PER_SECOND[unit] for value in values]
    assert_times(extracted(pa.array(values, pa.int64()), format=EPOCH[unit]), wanted)
    decimals = pa.array(list(map(Decimal, values)), pa.decimal128(30, 3))
    assert_times(extracted(decimals, format=EPOCH[unit]), wanted)
    large = [2**63 + (value & INT64_MAX) for value in values]
    assert_times(extracted(pa.array(large, pa.uint64()), format=EPOCH[unit]), [
        value * 1000 // PER_SECOND[unit] for value in large
    ])  # fmt: skip
    huge = pa.array([Decimal(value) * 10**40 for value in values], pa.decimal256(76, 0))
    wanted = [value * 10**43 // PER_SECOND[unit] for value in values]
    assert_times(extracted(huge, format=EPOCH[unit]), wanted)


def test_nulls_stay_missing_beside_them() -> None:
    column = pa.array([None, INT64_MAX, 1], pa.int64()).cast(pa.timestamp("s"))
    found = extracted(column, zone="UTC")
    assert found.records.timestamps.tolist() == [1000]
    reasons = REASON_TEXTS[found.rejects.reasons].tolist()
    assert reasons == ["timestamp missing", "timestamp out of range"]
    assert column_text(column, "").tolist()[0] is None


# ------------------------------------------------------------------ Parquet

# INT96 counts Julian days from 4713 BC. pyarrow reads day 0 as 1970-01-01, and has no earlier days.
DAY_1_US = -210_866_716_800_000_000
INT96_VALUES = st.lists(
    near(LAST_MS * 1000, 2**63 // 1000).filter(lambda us: us >= DAY_1_US), min_size=1, max_size=9
)


@given(INT96_VALUES, st.integers(1, 4))
@examples(25)
def test_a_time_of_twelve_bytes_is_not_bent_to_nanoseconds(values: list[int], group: int) -> None:
    """INT96, as old Spark, Hive and Impala write it, reaches farther than 64 bits do."""
    column = pa.array(values, pa.int64()).cast(pa.timestamp("us"))
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder, "file.parquet")
        pq.write_table(
            pa.table({"t": column, "n": pa.array([[each] for each in column])}), path,
            use_deprecated_int96_timestamps=True, row_group_size=group,
        )  # fmt: skip
        found = read(pipeline(path, "parquet", timestamp={"field": "t"}))
    wanted = [value // 1000 for value in values]
    assert [row.timestamp for row in found.rows] == sorted_good(wanted)
    bad = [value for value in values if not 0 <= value // 1000 <= LAST_MS]
    for reject, value in zip(found.rejects, bad, strict=True):
        assert reject.reason == outside(value).text
        row = json.loads(reject.raw)
        for text in (row["t"], row["n"][0]):
            digits = len(text.partition(".")[2])
            unit = {3: "ms", 6: "us", 9: "ns"}[digits] if text[0] != "<" else None
            if unit is not None:
                assert_shown(text, value * PER_SECOND[unit] // 10**6, unit)


def sorted_good(wanted: list[int]) -> list[int]:
    return [ms for ms in wanted if 0 <= ms <= LAST_MS]
