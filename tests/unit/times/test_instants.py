"""Times that callers give, against Python's datetime."""

from datetime import UTC, datetime, timedelta, timezone
from fractions import Fraction
from typing import Any

import numpy as np
import pandas as pd
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seglake.errors import UsageError
from seglake.times.instants import format_ms, is_open, to_epoch_ms, to_epoch_ms_array, to_past_ms
from seglake.times.time_kernels import MAX_MS

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
zones = st.integers(-1439, 1439).map(lambda minutes: timezone(timedelta(minutes=minutes)))
moments = st.datetimes(datetime(2, 1, 1), datetime(9998, 12, 31), timezones=zones)
numbers = st.integers(-(2**63) + 1, 2**63 - 1)


def ceiling(moment: datetime, more: Fraction = Fraction(0)) -> int:
    """The first whole millisecond at or after a moment."""
    exact = Fraction((moment - EPOCH) // timedelta(microseconds=1), 1000) + more
    return -(-exact.numerator // exact.denominator)


@given(moments)
def test_datetimes_are_rounded_up(moment: datetime) -> None:
    assert to_epoch_ms(moment) == ceiling(moment)
    assert to_epoch_ms(moment.isoformat()) == ceiling(moment)


class Moment(datetime):
    """A datetime with differences of its own, as pendulum's, which cannot be divided."""

    def __rsub__(self, other: Any) -> Any:
        raise AssertionError("a difference of its own")

    __sub__ = __rsub__


@given(moments)
def test_any_class_of_datetimes(moment: datetime) -> None:
    own = Moment.combine(moment.date(), moment.timetz())
    assert type(own) is Moment
    assert to_epoch_ms(own) == ceiling(moment)


@given(st.integers(0, 2**62))
def test_nanoseconds_of_pandas_are_rounded_up(nanoseconds: int) -> None:
    moment = pd.Timestamp(nanoseconds, unit="ns", tz="UTC")
    assert to_epoch_ms(moment) == -(-nanoseconds // 10**6)


@given(moments, st.integers(0, 10**9 - 1))
@example(datetime(2026, 12, 31, 23, 59, 59, tzinfo=UTC), 999_999_999)
@example(datetime(2026, 1, 1, tzinfo=UTC), 1)
@example(datetime(2026, 1, 1, tzinfo=UTC), 123_000_000)
def test_nanoseconds_are_rounded_up(moment: datetime, nanoseconds: int) -> None:
    whole = moment.replace(microsecond=0)
    text = whole.isoformat()
    text = f"{text[:19]}.{nanoseconds:09}{text[19:]}"
    assert to_epoch_ms(text) == ceiling(whole, Fraction(nanoseconds, 10**6))


def unit_of(value: int) -> str | None:
    """The unit that a number is in by its size; None for milliseconds of the years to 9999."""
    size = abs(value)
    if 10**8 <= size < 10**11:
        return "seconds"
    if size <= MAX_MS or size >= 2**62:
        return None
    return "microseconds" if size // 1000 <= MAX_MS else "nanoseconds"


@given(numbers | st.integers(-(10**12), 10**12) | st.integers(MAX_MS - 1000, MAX_MS * 1000 + 9999))
@example(10**8)
@example(10**11 - 1)
@example(10**11)
@example(-(10**8))
@example(0)
@example(MAX_MS)
@example(MAX_MS + 1)
@example(MAX_MS * 1000 + 999)
@example(MAX_MS * 1000 + 1000)
@example(2**63 - 1)
@example(1 - 2**63)
@example(2**62)
@example(2**62 - 1)
def test_integers_are_milliseconds_unless_they_look_like_another_unit(value: int) -> None:
    unit = unit_of(value)
    if unit is None:
        assert to_epoch_ms(value) == to_epoch_ms(str(value)) == value
        return
    for each in (value, str(value)):
        with pytest.raises(UsageError, match=f"looks like {unit}. Give milliseconds"):
            to_epoch_ms(each)


@pytest.mark.parametrize("given", [1764000000, 1764000000000000, 1764000000000000000])
def test_the_remedy_is_the_same_time_in_milliseconds(given: int) -> None:
    with pytest.raises(UsageError, match=r". Give milliseconds: 1764000000000$"):
        to_epoch_ms(given)


def test_the_last_year_is_that_of_events() -> None:
    assert to_epoch_ms("9999-12-31T23:59:59.999Z") == MAX_MS


def test_an_open_end_is_no_time() -> None:
    assert [is_open(ms) for ms in (0, MAX_MS, 2**62, 2**63 - 1)] == [False, False, True, True]


NOW = 1_764_000_000_000


@pytest.mark.parametrize("given", [0, NOW, "2025-11-24T16:00:00Z", NOW + 3_600_000])
def test_a_time_that_is_past(given: int | str) -> None:
    assert to_past_ms(given, NOW, "wait") == to_epoch_ms(given)


@pytest.mark.parametrize("given", [NOW + 3_600_001, "2026-01-01T00:00Z", MAX_MS, 2**63 - 1])
def test_a_time_that_is_still_to_come_is_not_past(given: int | str) -> None:
    with pytest.raises(UsageError, match=r"later than now, 2025-11-24T16:00:00\.000Z: wait$"):
        to_past_ms(given, NOW, "wait")


@given(st.lists(st.integers(-(2**63), 2**63 - 1) | st.integers(-(10**12), 10**12)))
@example([])
@example([0, 10**8])
@example([10**11 - 1, 10**11])
@example([MAX_MS, MAX_MS + 1])
@example([-(2**63), 2**63 - 1])
def test_an_array_is_read_as_each_of_its_items(values: list[int]) -> None:
    try:
        wanted = [to_epoch_ms(value) for value in values]
    except UsageError as refused:
        with pytest.raises(UsageError, match=str(refused)):
            to_epoch_ms_array(values)
    else:
        assert to_epoch_ms_array(values).tolist() == wanted


@pytest.mark.parametrize(
    "values", [5, [[5]], [1.5], [True], ["5"], [2**63], np.array(["2026-01-31"], "M8[ms]")]
)
def test_what_is_no_array_of_times(values: object) -> None:
    with pytest.raises(UsageError, match="one array of integers"):
        to_epoch_ms_array(values)  # type: ignore[arg-type]


@pytest.mark.parametrize("kind", [np.int64, np.int32, np.uint16])
def test_integers_of_numpy(kind: Any) -> None:
    assert to_epoch_ms(kind(5)) == 5
    assert to_epoch_ms_array(np.array([5], kind)).tolist() == [5]


@pytest.mark.parametrize("value", ["2026-01-31T12:00:00", "2026-01-31", datetime(2026, 1, 31)])
def test_a_zone_must_be_given(value: datetime | str) -> None:
    with pytest.raises(UsageError, match=r"has no time zone. Add one, as in 2026-01-31T12:00:00Z"):
        to_epoch_ms(value)


@pytest.mark.parametrize(
    "value", ["", "soon", "2026-13-01T00:00Z", "12:00Z", "1.5", True, 1.5, None]
)
def test_what_is_no_time(value: object) -> None:
    with pytest.raises(UsageError, match="is not a time"):
        to_epoch_ms(value)  # type: ignore[arg-type]


def test_beyond_64_bits() -> None:
    with pytest.raises(UsageError, match="64 bits"):
        to_epoch_ms(2**63)


@given(moments)
def test_shown_times_are_read_again(moment: datetime) -> None:
    ms = to_epoch_ms(moment)
    assert to_epoch_ms(format_ms(ms)) == ms
    assert format_ms(ms).endswith("Z")


def test_shown_times() -> None:
    assert format_ms(0) == "1970-01-01T00:00:00.000Z"
    assert format_ms(-1) == "1969-12-31T23:59:59.999Z"
    assert format_ms(1769860800007) == "2026-01-31T12:00:00.007Z"
    assert format_ms(10**18) == "1000000000000000000"
