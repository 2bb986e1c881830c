"""Readers of times against decimal arithmetic and Python's datetime."""

import re
from collections.abc import Callable, Iterable, Sequence
from datetime import UTC, datetime, timedelta, timezone
from decimal import Decimal
from fractions import Fraction
from typing import Any
from zoneinfo import ZoneInfo

import numpy as np
import pandas as pd
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from seglake.config import Timestamp
from seglake.errors import ConfigError, UsageError
from seglake.format.records import Spans
from seglake.text.spans import join_rows
from seglake.times.grammar import SUPPORTED, TimeFormat
from seglake.times.instants import format_ms, is_open, to_epoch_ms, to_epoch_ms_array, to_past_ms
from seglake.times.intervals import Interval, common, covers, united, without
from seglake.times.readers import compile_pattern, in_range, read_times
from seglake.times.time_kernels import (
    AMBIGUOUS,
    MAX_MS,
    NONEXISTENT,
    OUT_OF_RANGE,
    READ,
    UNREADABLE,
)
from seglake.times.zones import to_utc

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)
MOMENTS = st.datetimes(datetime(1970, 1, 2), datetime(9999, 12, 30))


def times(form: str, texts: Sequence[str | bytes], **settings: object) -> list[int | str]:
    """Milliseconds, or the word for what is wrong."""
    spans = Spans.from_list([text if isinstance(text, bytes) else text.encode() for text in texts])
    made = Timestamp.model_validate({"field": "t", "format": form, **settings})
    ms, codes, _ = read_times(join_rows([spans]), made.time_format)
    words = {UNREADABLE: "unreadable", OUT_OF_RANGE: "range"}
    return [m if c == READ else words[c] for m, c in zip(ms.tolist(), codes.tolist(), strict=True)]


def ms_of(moment: datetime) -> int:
    return (moment.replace(tzinfo=UTC) - EPOCH) // timedelta(milliseconds=1)


@given(
    st.lists(st.from_regex(r"-?[0-9]{1,25}(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,2})?", fullmatch=True)),
    st.sampled_from(".,"),
    st.sampled_from([("epoch_s", 3), ("epoch_ms", 0), ("epoch_us", -3), ("epoch_ns", -6)]),
)
@example(["1446249499.322", "253402300799.9999", "253402300800", "-0"], ",", ("epoch_s", 3))
@example(["-0.0001"], ".", ("epoch_s", 3))
def test_numbers(texts: list[str], point: str, form: tuple[str, int]) -> None:
    written = [text.replace(".", point) for text in texts]
    for text, found in zip(texts, times(form[0], written), strict=True):
        exact = Decimal(text).scaleb(form[1])
        inside = 0 <= exact < 253_402_300_800_000
        assert found == (int(exact) if inside else "range"), text


@given(st.text("0123456789+-.,eE xZ", max_size=12))
@example("")
@example("1,")
@example("1,793,000,000")
@example("1,5.5")
@example("1.")
@example(".1")
@example("+1")
@example("1e")
@example("1e+")
@example(" 1")
def test_texts_that_are_no_numbers(text: str) -> None:
    grammar = r"-?[0-9]+([.,][0-9]+)?([eE][+-]?[0-9]+)?"
    assert (times("epoch_ms", [text]) == ["unreadable"]) == (re.fullmatch(grammar, text) is None)


offsets = st.integers(-1439, 1439)


@given(MOMENTS, offsets, st.sampled_from("T t"), st.integers(0, 6), st.booleans())
def test_iso_with_a_zone(
    moment: datetime, offset: int, between: str, digits: int, colon: bool
) -> None:
    shown = moment.isoformat(between, "microseconds")
    shown = shown[: 20 + digits] if digits else shown[:19]
    sign, (hours, minutes) = "+-"[offset < 0], divmod(abs(offset), 60)
    shown += f"{sign}{hours:02}{':' if colon else ''}{minutes:02}"
    wanted = datetime.fromisoformat(shown.replace("t", "T"))
    expected = (wanted - EPOCH) // timedelta(milliseconds=1)
    assert times("iso8601", [shown]) == [
        expected if 0 <= expected < 253_402_300_800_000 else "range"
    ]


@given(MOMENTS)
def test_iso_without_a_zone_is_utc_by_default(moment: datetime) -> None:
    day, minute = moment.date().isoformat(), moment.isoformat("T", "minutes")
    assert times("iso8601", [day, minute, minute + "Z"]) == [
        ms_of(datetime.fromisoformat(day)),
        ms_of(datetime.fromisoformat(minute)),
        ms_of(datetime.fromisoformat(minute)),
    ]


def assert_reads_no_more(found: int | str, read: Callable[[], datetime]) -> None:
    """A time that was read is what Python reads; what Python refuses was not read."""
    try:
        wanted = read()
    except ValueError:
        assert found in ("unreadable", "range")
        return
    if found not in ("unreadable", "range"):
        zone = wanted if wanted.tzinfo else wanted.replace(tzinfo=UTC)
        assert found == (zone - EPOCH) // timedelta(milliseconds=1)


NEARLY_ISO = (
    r"20[0-9]{2}-[0-3][0-9]-[0-3][0-9]"
    r"([T ][0-2][0-9]:[0-6][0-9](:[0-6][0-9])?(Z|[+-][0-9]{2})?)?"
)


@given(st.text("0123456789-:T .Z+", max_size=26) | st.from_regex(NEARLY_ISO, fullmatch=True))
def test_iso_reads_nothing_that_python_refuses(text: str) -> None:
    assume(":60" not in text)  # a leap second, which Python does not know
    found = times("iso8601", [text])[0]
    assert_reads_no_more(found, lambda: datetime.fromisoformat(text))


def test_iso_examples() -> None:
    texts = ["2016-12-31T23:59:60Z", "2016-01-01T10:00:00,5Z", "2016-01-01T10:00:00.123456789Z"]
    assert times("iso8601", texts) == [1483228800000, 1451642400500, 1451642400123]
    utc = ["2016-01-01 10:00 UTC", "2016-01-01 10:00:00 UTC", "2016-01-01T10:00:00.000456 UTC"]
    assert times("iso8601", utc, zone="Asia/Tokyo") == [1451642400000] * 3
    bad = [
        "2016-02-30",
        "2016-13-01",
        "2016-01-01T24:00",
        "2016-01-01T10:60",
        "2016-01-01T10:00:61",
    ]
    bad += ["20160101", "2016-1-1", "2016-01-01T10", "2016-01-01T10:00:00.", "2016-01-01Z", ""]
    bad += ["2016-01-01T10:00:00.1234567890Z", "2016-01-01T10:00+2", "2016-01-01T10:00 Z"]
    bad += ["2016-01-01 UTC", "2016-01-01T10:00UTC", "2016-01-01T10:00 UTC ", "2016-01-01T10:00 UT"]
    assert times("iso8601", bad) == ["unreadable"] * len(bad)
    assert times("iso8601", ["1969-12-31", "1970-01-01T00:30+01:00"]) == ["range", "range"]


PATTERNS = [
    "%d/%b/%Y:%H:%M:%S %z",
    "%Y-%m-%d %H:%M:%S,%f",
    "%a %b %d %H:%M:%S %Y",
    "%A, %d. %B %Y %I:%M %p",
    "%m/%d/%y %H:%M",
    "%Y/%j %H%M%S",
    "[%d.%m.%Y] %I:%M:%S%p UTC%z",
    "%%%Y%m%d%%",
    "%H:%M:%S.%f %d %b %y %Z",
]


@given(MOMENTS, st.sampled_from(PATTERNS), st.sampled_from([str.lower, str.title, str]))
def test_patterns_as_strptime(moment: datetime, pattern: str, case: object) -> None:
    text = moment.replace(tzinfo=UTC).strftime(pattern)
    if "%b" in pattern or "%B" in pattern:
        text = re.sub("[A-Z][a-z]+", lambda name: case(name[0]), text)  # type: ignore[operator]
    text = f"{text}" if moment.year > 999 else text
    wanted = datetime.strptime(text, pattern)
    expected = ms_of(wanted)
    assert times(pattern, [text]) == [expected if expected >= 0 else "range"]


@given(st.sampled_from(PATTERNS), MOMENTS, st.integers(0, 40), st.sampled_from("0139 /:xZ"))
def test_patterns_read_nothing_that_strptime_refuses(
    pattern: str, moment: datetime, at: int, other: str
) -> None:
    text = moment.replace(tzinfo=UTC).strftime(pattern)
    at %= len(text)
    text = text[:at] + other + text[at + 1 :]
    assume("60" not in text)
    assume("61" not in text)
    found = times(pattern, [text])[0]
    assert_reads_no_more(found, lambda: datetime.strptime(text, pattern))


@given(MOMENTS, st.booleans(), st.booleans(), st.sampled_from(["[{}]", "{}"]))
def test_parts_in_brackets_may_be_missing(
    moment: datetime, seconds: bool, fraction: bool, around: str
) -> None:
    written = "%Y-%m-%d %H:%M" + ":%S" * seconds + ".%f" * (seconds and fraction) + " %Z"
    text = around.format(moment.replace(tzinfo=UTC).strftime(written).replace(" UTC", " GMT"))
    exact = datetime.strptime(text, around.format(written))
    assert times(around.format("%Y-%m-%d %H:%M[:%S[.%f]] %Z"), [text]) == [ms_of(exact)]
    bare = ms_of(moment.replace(second=0, microsecond=0))
    between = moment.strftime("%Y-%m-%d [%H:%M]")  # brackets around other parts are plain text
    assert times("%Y-%m-%d [%H:%M]", [between, between[:11]]) == [bare, "unreadable"]
    in_text = moment.strftime("%Y-%m-%d %H:%M[:%S]")
    assert times("%Y-%m-%d %H:%M[:%S]", [in_text]) == [ms_of(moment.replace(microsecond=0))]


def test_every_directive_that_the_settings_allow_is_compiled() -> None:
    for directive in SUPPORTED:
        compile_pattern(f"%{directive}")
    with pytest.raises(ConfigError, match="%U"):
        compile_pattern("%Y %U")


def test_short_hands_mean_what_they_stand_for() -> None:
    text = "2016-12-19 16:32:01"
    assert times("%F %T", [text]) == times("%Y-%m-%d %H:%M:%S", [text]) == [1482165121000]
    assert times("%D %R", ["12/19/16 16:32"]) == [1482165120000]
    assert times("%Y-%m-%d%%T", ["2016-12-19%T"]) == [1482105600000]


def test_a_pattern_without_a_year() -> None:
    pattern = "%b %e %H:%M:%S"
    found = times(pattern, ["Apr  1 10:11:12", "apr 20 14:14:29", "Feb 29 00:00:00"], year=2016)
    assert found == [1459505472000, 1461161669000, 1456704000000]
    assert times(pattern, ["Feb 29 00:00:00", "Apr 1"], year=2015) == ["unreadable"] * 2


@pytest.mark.parametrize("zone", ["UTC", "Europe/Paris", "America/Lima"])
def test_what_is_out_of_range_is_so_in_every_zone(zone: str) -> None:
    ms = np.array([-(10**15), 0, 10**17])
    local = np.ones(3, np.bool_)
    found = in_range(to_utc(ms, local, zone), np.zeros(3, np.int8) + READ, local)
    assert found.codes[[0, 2]].tolist() == [OUT_OF_RANGE] * 2
    assert found.local.tolist() == [False, bool(found.codes[1] == READ), False]


@pytest.mark.parametrize(
    ("form", "text", "local"),
    [("iso8601", "2026-01-31T12:00:00", True), ("iso8601", "2026-01-31T12:00:00+01:00", False),
     ("iso8601", "2026-01-31T12:00:00Z", False), ("epoch_s", "1769860800", False),
     ("%d.%m.%Y %H:%M", "31.01.2026 12:00", True), ("iso8601", "soon", False),
     ("%d/%b/%Y:%H:%M:%S %z", "31/Jan/2026:12:00:00 +0100", False)],
)  # fmt: skip
def test_a_time_that_names_no_zone_is_local(form: str, text: str, local: bool) -> None:
    made = Timestamp(field="t", format=form)
    found = read_times(join_rows([Spans.from_list([text.encode()])]), made.time_format)
    assert found.local.tolist() == [local]


# Local times around a change of clocks, against Python's zoneinfo.

ZONES = ["Europe/Berlin", "America/New_York", "Australia/Lord_Howe", "Africa/Casablanca",
         "America/Sao_Paulo", "Asia/Kolkata", "UTC"]  # fmt: skip
ONE = timedelta(milliseconds=1)
SECONDS = st.integers(86_400, 2_200_000_000)


def _ms(time: datetime) -> int:
    return (time - datetime(1970, 1, 1, tzinfo=UTC)) // ONE


def _sides(clock: datetime, zone: str) -> tuple[int, int, bool]:
    """The instants of fold 0 and 1 of a clock time, and whether clocks show it."""
    folds = [clock.replace(tzinfo=ZoneInfo(zone), fold=fold) for fold in (0, 1)]
    first, second = (fold.astimezone(UTC) for fold in folds)
    back = first.astimezone(ZoneInfo(zone)).replace(tzinfo=None)
    return _ms(first), _ms(second), back == clock


def _read(clock: datetime, form: TimeFormat) -> tuple[int, int]:
    layout = "%Y-%m-%dT%H:%M:%S" if form.text == "iso8601" else str(form.text)
    texts = Spans.from_list([clock.strftime(layout).encode()])
    ms, codes, _ = read_times(texts, form)
    return int(ms[0]), int(codes[0])


def _near_changes(zone: str, second: int) -> datetime:
    """A clock time in the hours around a change of the zone, if one follows within a year."""
    info, low = ZoneInfo(zone), datetime.fromtimestamp(second, UTC)
    offset = low.astimezone(info).utcoffset()
    for day in range(370):
        later = low + timedelta(days=day)
        if later.astimezone(info).utcoffset() != offset:
            minutes = second % (2 * 1560) - 1560
            there = later.astimezone(info).replace(tzinfo=None, microsecond=0)
            return there + timedelta(minutes=minutes)
    return low.replace(tzinfo=None, microsecond=0)


@pytest.mark.parametrize("text", ["iso8601", "%d/%b/%Y:%H:%M:%S"])
@given(st.sampled_from(ZONES), SECONDS)
@example("Europe/Berlin", 1_792_000_000)
def test_sides_are_those_of_zoneinfo(text: str, zone: str, second: int) -> None:
    clock = _near_changes(zone, second)
    first, second_, shown = _sides(clock, zone)
    form = TimeFormat(text, zone)
    if shown:
        assert _read(clock, form._replace(ambiguous="earliest")) == (first, READ)
        assert _read(clock, form._replace(ambiguous="latest")) == (second_, READ)
        code = READ if first == second_ else AMBIGUOUS
        assert _read(clock, form._replace(ambiguous="reject"))[1] == code
        assert _read(clock, form._replace(nonexistent="reject")) == (first, READ)
    else:  # fold 1 lies before the gap, fold 0 after it
        before = _read(clock, form._replace(nonexistent="earliest"))[0]
        after = _read(clock, form._replace(nonexistent="latest"))[0]
        assert second_ < before + 1 == after <= first
        assert _read(clock, form._replace(nonexistent="reject"))[1] == NONEXISTENT
        assert _read(clock, form._replace(ambiguous="reject")) == (after, READ)


def test_a_day_that_is_skipped() -> None:
    form = TimeFormat("iso8601", "Pacific/Apia", nonexistent="reject")
    after = datetime(2011, 12, 31, 12)
    assert _read(datetime(2011, 12, 30, 12), form)[1] == NONEXISTENT
    assert _read(after, form) == (_sides(after, form.zone)[0], READ)


# Sets of intervals, against sets of whole numbers.

INTERVALS = st.lists(st.tuples(st.integers(-20, 20), st.integers(-20, 20)), max_size=8)


def points(intervals: Iterable[Interval]) -> set[int]:
    return {point for low, high in intervals for point in range(low, high)}


def assert_set(intervals: list[Interval], wanted: set[int]) -> None:
    """Disjoint, in order, and apart: so there is one way to write a set."""
    assert points(intervals) == wanted
    assert all(low < high for low, high in intervals)
    ends = [bound for interval in intervals for bound in interval]
    assert ends == sorted(set(ends))


@given(INTERVALS)
def test_united(intervals: list[Interval]) -> None:
    assert_set(united(intervals), points(intervals))


@given(INTERVALS, INTERVALS)
def test_common(left: list[Interval], right: list[Interval]) -> None:
    assert_set(common(united(left), united(right)), points(left) & points(right))


@given(INTERVALS, INTERVALS)
def test_without(left: list[Interval], right: list[Interval]) -> None:
    assert_set(without(united(left), united(right)), points(left) - points(right))


@given(INTERVALS, st.integers(-25, 25), st.integers(0, 30))
def test_a_set_covers_what_its_intervals_cover(
    intervals: list[Interval], start: int, length: int
) -> None:
    whole = set(range(start, start + length)) <= points(intervals)
    real = [interval for interval in intervals if interval[0] < interval[1]]
    assert covers(real, start, start + length) == whole
    assert covers(united(intervals), start, start + length) == whole


# Times that callers give, against Python's datetime.
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
