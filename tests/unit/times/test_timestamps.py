"""Readers of times against decimal arithmetic and Python's datetime."""

import re
from collections.abc import Callable, Sequence
from datetime import UTC, datetime, timedelta
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from seglake.config import Timestamp
from seglake.errors import ConfigError
from seglake.format.records import Spans
from seglake.text.spans import join_rows
from seglake.times.grammar import SUPPORTED
from seglake.times.readers import compile_pattern, in_range, read_times
from seglake.times.time_kernels import OUT_OF_RANGE, READ, UNREADABLE
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
