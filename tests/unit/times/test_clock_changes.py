"""Local times around a change of clocks, against Python's zoneinfo."""

from datetime import UTC, datetime, timedelta
from zoneinfo import ZoneInfo

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from seglake.format.records import Spans
from seglake.times.grammar import TimeFormat
from seglake.times.readers import read_times
from seglake.times.time_kernels import AMBIGUOUS, NONEXISTENT, READ

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
