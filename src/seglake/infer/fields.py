"""Choose the fields for the time and the key of events, from the values in a sample."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Sequence
from typing import Any, NamedTuple

import numpy as np

from seglake.advice.finding import Finding
from seglake.advice.observe import PLAUSIBLE_MS
from seglake.clock import now_ms
from seglake.format.records import Spans
from seglake.infer.recognise import Sample
from seglake.times.candidates import (
    candidate_formats,
    date_orders,
    is_region,
    with_optional_fraction,
    without_fraction,
    zone_in,
)
from seglake.times.grammar import EPOCH_POWERS, ISO, TimeFormat
from seglake.times.instants import format_ms
from seglake.times.readers import read_times
from seglake.times.time_kernels import OUT_OF_RANGE, READ

_DAY_MS = 86_400_000
_MOST = 0.95  # share of values that must be times
_SOME = 0.5  # if several formats occur: share of values that the chosen format must read
_SAMPLED_TEXTS = 20  # number of texts, with different shapes, whose formats are tried
_PADDING = b"\0" * 64  # kernels read some bytes after a text
_NO_VALUE = {"NULL", "null", "None", "N/A", "n/a", "NA", "NaN", "nan", "-", "--", "\\N"}
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")
_SCORES = {  # by word: a name has the smallest score of its words
    "timestamp": 0, "datetime": 1, "time": 2, "ts": 2, "date": 3, "at": 4, "when": 4, "t": 4,
    "created": 5, "occurred": 5, "start": 6, "started": 6, "begin": 6, "epoch": 6, "day": 7,
    "updated": 8, "modified": 8, "received": 8, "end": 9, "ended": 9,
}  # fmt: skip
_UNTOLD = 20  # the score of a name without any of these words
_NO_TIMES = {  # words in the names of numbers that are not times
    "id", "uid", "phone", "number", "no", "nr", "code", "zip", "account", "serial", "sequence",
    "size", "bytes", "count", "amount", "duration", "elapsed", "age", "total",
}  # fmt: skip
_CLOCK = re.compile(r"\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?")
_NUMBERS = {*EPOCH_POWERS, "%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d%H", "%Y%m%d", "%y%m%d"}
_ZONED = re.compile(  # 20-11-2026 and 20-Nov-2026 end with a year, not with an offset
    r"(?:(?<![A-Za-z])[Zz]|UTC|GMT|(?:\+|(?<!-\d{2})(?<!-[A-Za-z]{3})-)\d{2}:?\d{2}"
    r"|:\d{2}(?:[.,]\d+)?[+-]\d{2})$"
)


class TimeChoice(NamedTuple):
    """The fields with the event time, and the other keys of `[timestamp]`.

    `fields` has one name, or two names if the date and the time of day are in different fields.
    """

    fields: tuple[str, ...]
    settings: dict[str, Any]
    reason: str
    findings: list[Finding]


class _Fit(NamedTuple):
    """A time format that reads values of a field, and the range of these times."""

    form: str | None  # None for a time type
    year: int | None
    first_ms: int
    last_ms: int
    read: int  # the number of values that are times
    early: int = 0  # the number of times before 1970

    @property
    def is_ahead(self) -> bool:
        return self.last_ms > now_ms() + _DAY_MS

    @property
    def has_whole_days(self) -> bool:
        are_midnights = self.first_ms % _DAY_MS == self.last_ms % _DAY_MS == 0
        return are_midnights and self.form not in EPOCH_POWERS


def choose_time(sample: Sample) -> tuple[TimeChoice | None, list[str]]:
    """Choose the field with the event time. Also return the names of other fields with times.

    The chosen field has the lowest score (see `_score`) of the fields that have a time in nearly
    all rows. If there is no such field, return None instead.
    """
    fits = dict[str, _Fit]()
    partial = list[str]()
    for name in sample.fields:
        values = _values(sample.fields[name])
        fit = _fit_typed(values) if name in sample.typed else _fit(name, values)
        if fit is not None and len(values) >= _MOST * sample.rows:
            fits[name] = fit
        elif fit is not None and not _is_doubtful(name, fit):
            partial.append(name)
    names = sorted(fits, key=lambda name: _score(name, fits[name], [*fits].index(name)))
    if not names:
        return None, partial
    first = names[0]
    certain = [name for name in names[1:] if not _is_doubtful(name, fits[name])]
    both = _with_clock(sample, first) if fits[first].has_whole_days else None
    fields, fit = both or ((first,), fits[first])
    others = [name for name in certain if name not in fields]
    return _choice(sample, fields, fit), [*others, *partial]


def _score(name: str, fit: _Fit, position: int) -> tuple[int, ...]:
    """Return the score of a field with times. The smallest score is the best.

    It depends on the values, the words in the name, the depth, the number of words (load_timestamp
    ranks after timestamp), and the position among the fields.
    """
    words = _words(name)
    best = min((_SCORES.get(word, _UNTOLD) for word in words), default=_UNTOLD)
    doubtful = int(_is_doubtful(name, fit))
    return doubtful, best - ("utc" in words), name.count("."), len(words), position


def _is_doubtful(name: str, fit: _Fit) -> bool:
    """Return whether a field has numbers, which may be times, but no name that suggests times."""
    return fit.form in _NUMBERS and not any(word in _SCORES for word in _words(name))


def _words(name: str) -> list[str]:
    return [word.lower() for word in _WORDS.findall(name.rpartition(".")[2])]


def _values(column: Iterable[str | None]) -> list[str]:
    return [value for value in column if value and value not in _NO_VALUE]


def _fit(name: str, values: list[str]) -> _Fit | None:
    """Return the most plausible format that reads nearly all values, or None.

    If formats differ only in the order of days and months, prefer a format without times in the
    future, then the format with the smallest range of times. If only several formats together read
    nearly all values, return the format that reads the most values, provided that it reads half.
    """
    shapes = {re.sub(r"\d", "0", value): value for value in reversed(values)}
    texts = [*reversed(shapes.values())][:_SAMPLED_TEXTS]
    forms = dict.fromkeys(form for text in texts for form in candidate_formats(text))
    if not _NO_TIMES.isdisjoint(_words(name)):
        forms = {form: None for form in forms if form not in _NUMBERS}
    # Some writers leave out a fraction of zero.
    forms |= {
        with_optional_fraction(form): None
        for form in forms
        if without_fraction(form) in {*forms} - {form}
    }
    fits = [fit for form in forms if (fit := _read(values, form)) is not None]
    whole = [fit for fit in fits if fit.read + fit.early >= _MOST * len(values)]
    if whole:
        orders = date_orders(whole[0].form or "")
        swapped = [fit for fit in whole if fit.form in orders]
        return min(swapped, key=_unlikeliness)
    mixed = max(fits, key=lambda fit: fit.read, default=None)
    is_mixed = sum(fit.read for fit in fits) >= _MOST * len(values)
    return mixed if mixed and is_mixed and mixed.read >= _SOME * len(values) else None


def _unlikeliness(fit: _Fit) -> tuple[bool, int, bool]:
    """Return a score for formats that differ only in the order of day and month. Lowest is best.

    Formats with AM or PM get a better score if the month is first.
    """
    is_american = "%I" in (fit.form or "") and not (fit.form or "").startswith("%m")
    return fit.is_ahead, fit.last_ms - fit.first_ms, is_american


def _read(values: Sequence[str], form: str, zone: str = "UTC") -> _Fit | None:
    """Read values in the format `form`. Return None if no value is a plausible time."""
    year = None
    if "%" in form and not re.search("%[Yy]", form):
        year = dt.datetime.fromtimestamp(now_ms() / 1000, dt.UTC).year
    texts = Spans.from_list([*(value.encode() for value in values), _PADDING])
    texts = texts.take(np.arange(len(values)))
    ms, codes, _ = read_times(texts, TimeFormat(form, zone, year))
    good = (codes == READ) & (ms < PLAUSIBLE_MS.stop)
    if form in EPOCH_POWERS:
        good &= ms >= PLAUSIBLE_MS.start
    if not good.any():
        return None
    # In January, a log of December has the previous year.
    if year is not None and ms[good].max() > now_ms() + _DAY_MS:
        year -= 1
        ms, codes, _ = read_times(texts, TimeFormat(form, zone, year))
        good = codes == READ
        if not good.any():
            return None
    early = int(((codes == OUT_OF_RANGE) & (ms < 0)).sum()) if form not in EPOCH_POWERS else 0
    return _Fit(form, year, int(ms[good].min()), int(ms[good].max()), int(good.sum()), early)


def _fit_typed(values: Sequence[str]) -> _Fit | None:
    fit = _read(values, ISO) if values else None
    return None if fit is None else fit._replace(form=None)


def _with_clock(sample: Sample, date: str) -> tuple[tuple[str, str], _Fit] | None:
    """Find the field with the time of day for the field `date`, which has only dates.

    It is the field after `date`, or a field whose name suggests times. Return the names of `date`
    and of this field, and the format of their texts joined by a blank. Return None if there is no
    such field.
    """
    names = [*sample.fields]
    after = names[names.index(date) + 1 :][:1]
    timed = [name for name in names if any(word in _SCORES for word in _words(name))]
    for clock in dict.fromkeys([*after, *timed]):
        pairs = zip(sample.fields[date], sample.fields[clock], strict=True)
        rows = [f"{day} {time}" for day, time in pairs if day and time and _CLOCK.fullmatch(time)]
        if clock != date and len(rows) >= _MOST * sample.rows and (fit := _fit(date, rows)):
            # Two fields are joined with a blank. Set a pattern that describes the joined text.
            form = fit.form
            if form == ISO:
                texts = [each for each in candidate_formats(rows[0]) if each != ISO]
                form = texts[0] if texts else form
            return (date, clock), fit._replace(form=form)
    return None


def _choice(sample: Sample, fields: tuple[str, ...], fit: _Fit) -> TimeChoice:
    rows = zip(*(sample.fields[name] for name in fields), strict=True)
    values = _values(" ".join(map(str, row)) if all(row) else None for row in rows)
    name = " ".join(fields)
    settings: dict[str, Any] = {} if fit.form is None else {"format": fit.form}
    found = list[Finding]()
    if fit.read + fit.early < _MOST * len(values):
        facts = {"format": fit.form, "rows": len(values)}
        found.append(Finding("mixed-formats", name, facts, len(values) - fit.read))
    if fit.year is not None:
        settings["year"] = fit.year
        found.append(Finding("no-year", name, {"year": fit.year}))
    zone, zone_findings = _zone(name, values, fit.form)
    settings |= zone
    found += zone_findings
    for other in date_orders(fit.form) if fit.form else ():
        swapped = _read(values, other) if other != fit.form else None
        if swapped is not None and swapped.read >= _MOST * len(values):
            found.append(Finding("date-order", name, {"other": other}))
    if fit.has_whole_days:
        found.append(Finding("whole-days", name))
    if fit.is_ahead:
        found.append(Finding("times-ahead", name, {"last": format_ms(fit.last_ms)}))
    if fit.early:
        found.append(Finding("before-1970", name, {"rows": len(values)}, fit.early))
    if _is_doubtful(name, fit):
        found.append(Finding("doubtful-number", name, {"format": fit.form}))
    if settings.get("zone", "UTC") != "UTC" and fit.form:
        fit = _read(values, fit.form, settings["zone"]) or fit
    span = f"{format_ms(fit.first_ms)} to {format_ms(fit.last_ms)}"
    return TimeChoice(fields, settings, f"times from {span}", found)


def _zone(name: str, values: list[str], form: str | None) -> tuple[dict[str, Any], list[Finding]]:
    """Return (settings, findings). The settings have a `zone` if the times need one.

    Times need a zone if their texts have no zone, or have the name of a zone as literal text.
    """
    if form in EPOCH_POWERS or (form and re.search("%[zZ]", form)):
        return {}, []
    written = zone_in(form or "")
    if written:
        zone = written if is_region(written) else "UTC"
        found = [] if is_region(written) else [Finding("zone-name", name, {"zone": written})]
        return {"zone": zone}, found
    bare = sum(not _ZONED.search(value) for value in values)
    if not bare:
        return {}, []
    return {"zone": "UTC"}, [Finding("no-zone", name, {"rows": len(values)}, bare)]


# ---------------------------------------------------------------- the key

_KEY_WORDS = (  # words in the names of keys, the most likely first
    "key", "user", "customer", "client", "account", "member", "session", "device", "sensor",
    "vehicle", "tenant", "order", "invoice", "cart", "trace", "host", "server", "node", "station",
    "ip", "service", "process", "source", "id",
)  # fmt: skip
_AFTER = re.compile(r"^(payload\.)?after\.")  # Debezium: the fields of a row after a change
_KEY_SUFFIXES = {"id", "oid", "key", "uuid", "no", "number", "name", "code"}
_MOST_DISTINCT = 0.95  # largest share of distinct values, because a key occurs in several events
_MOST_KEY_LETTERS = 200


class KeyChoice(NamedTuple):
    """The field for the key, and the reason for the choice.

    If `field` is a list, it becomes an inner list of `key.fields`. Then the first field of the list
    that is not null is the key.
    """

    field: str | list[str]
    reason: str
    findings: list[Finding]


def choose_key(sample: Sample, times: Collection[str]) -> tuple[KeyChoice | None, list[str]]:
    """Choose the field for the key. Also return the names of other fields that could be keys.

    `times` are the fields with the time. The field for a key has a name with a word such as "user",
    a value in at least half of the rows, and repeated values. If there is no such field, return
    None.
    """
    ranked = sorted(
        (rank, at, name)
        for at, name in enumerate(sample.fields)
        if name not in times and (rank := _key_rank(name)) is not None
        and _may_be_key(name, sample.fields[name])
    )  # fmt: skip
    if not ranked:
        return None, []
    first, *others = [name for _, _, name in ranked]
    # Debezium: a deleted row has only `before`, which may be null in all sampled rows.
    before = _AFTER.sub(r"\1before.", first)
    is_change = before != first and any(f"{before}.".startswith(f"{n}.") for n in sample.fields)
    names = [first, before] if is_change else [first]
    columns = [sample.fields[name] for name in names if name in sample.fields]
    rows = zip(*columns, strict=True)
    firsts = (next((cell for cell in row if cell is not None), None) for row in rows)
    values = [value for value in firsts if value is not None]
    found = []
    if absent := sample.rows - len(values):
        found.append(Finding("no-key", first, {"rows": sample.rows}, absent))
    reason = f"{len({*values}):,} values in {sample.rows:,} sampled rows"
    others = [name for name in others if name not in names]
    return KeyChoice(names if is_change else first, reason, found), others


def _key_rank(name: str) -> tuple[int, ...] | None:
    """Return the rank of a field's name as a key, or None if it does not look like a key's name.

    The smallest rank is the best. It depends on the word for a key, on whether the field is an id
    or a name, and on the depth.
    """
    name = _AFTER.sub("", name)
    words = _words(name)
    if "." in name and _KEY_SUFFIXES.issuperset(words):  # user.id
        words = [*_words(name.rpartition(".")[0]), *words]
    rest = {*words} - {*_KEY_WORDS} - _KEY_SUFFIXES
    known = [_KEY_WORDS.index(word) for word in words if word in _KEY_WORDS]
    if rest or not known:
        return None
    return min(known), int("name" in words), name.count(".")


def _may_be_key(name: str, column: list[str | None]) -> bool:
    values = [value for value in column if value is not None and value != "-"]
    distinct = len({*values})
    if 2 * len(values) < len(column) or distinct < 2:
        return False
    is_repeated = name == "key" or distinct < _MOST_DISTINCT * len(values)
    return is_repeated and max(map(len, values)) <= _MOST_KEY_LETTERS
