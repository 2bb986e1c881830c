"""Which field of a sample is the time, and which the key: each with the reason, and with doubts."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np

from seglake.clock import now_ms
from seglake.format.records import Flags, Int64s, Spans
from seglake.shown import counted
from seglake.times.grammar import EPOCH_POWERS, ISO, TimeFormat
from seglake.times.instants import format_ms
from seglake.times.readers import read_times
from seglake.times.time_kernels import OUT_OF_RANGE, READ
from seglake.write.draft.sample import Sample
from seglake.write.draft.ticks import ticks_of
from seglake.write.rows.hints import EXCEL_DAYS, OF_EXCEL, PATTERNS, PLAUSIBLE
from seglake.write.rows.zones import UTC_ZONES, zoned, zones_in

_MOST = 0.95  # of the values must be times in the same format
_FEW = 0.05  # of the rows may have a field that is worth a word
_DAY_MS = 86_400_000
_LONG_AGO_MS = 3652 * _DAY_MS  # about ten years, by which GPS counts fewer seconds than Unix
_PADDING = b"\0" * 64  # kernels read some bytes after a text
_ZONED = re.compile(  # 20-11-2026 and 20-Nov-2026 end with a year, not with an offset
    r"(?:(?<![A-Za-z])[Zz]|UTC|GMT|(?:\+|(?<!-\d{2})(?<!-[A-Za-z]{3})-)\d{2}:?\d{2}"
    r"|:\d{2}(?:[.,]\d+)?[+-]\d{2})$"
)
_WHOLE_DAYS = (
    "{} has whole days; a time of day in another field is not read: write both into one field, "
    "such as '2026-01-31 12:00:00', before the ingest"
)
_LIKE_A_TIME = re.compile(
    r"\d:\d{2}(?!\d)|\b1\d{9}(?:\d{3})?(?!\d)|\b(?:19|20)\d{2}[-/.]\d|\d[-/.](?:19|20)\d{2}\b"
    r"|\b\d{2}-[A-Za-z]{3}-\d{2}\b"
)
_ORDERS = (
    ("%d/%m/%Y", "%m/%d/%Y"), ("%d-%m-%Y", "%m-%d-%Y"), ("%y/%m/%d", "%d/%m/%y", "%m/%d/%y"),
    ("%y-%m-%d", "%d-%m-%y"),
)  # fmt: skip
_OF_ISO = ("%Y-%m-%d %H:%M:%S", "%Y-%m-%d %H:%M", "%Y-%m-%dT%H:%M:%S")
_HALF = re.compile("\\d([ \u00a0\u202f]?)[AaPp]\\.?[Mm]\\b")  # of a day
_PART = re.compile(r":\d{2}([.,])\d+|:\d{2}:\d{2}(:)\d{3}")  # of a second
_EXPONENT = re.compile(r"\d[eE]\+?\d")
_BIRTH = re.compile(r"birth.*|dob|geb|geburt.*|naissance|nacimiento|nascita|nascimento|geboorte.*")
_LONGEST_TIME = 70  # characters: longer texts have other words
_NUMBERS = {  # formats that other numbers may fit, too
    *EPOCH_POWERS, "%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d%H", "%Y%m%d",
}  # fmt: skip
_OF_A_NUMBER = {"phone", "telephone", "telefon", "tel", "mobile", "handy", "fax", "number",
                "nummer", "num", "no", "nr", "id", "uid", "code", "zip", "plz", "ean", "isbn",
                "iban", "account", "konto", "serial", "seq", "sequence"}  # fmt: skip
_SAYS_TIME = re.compile(
    r"(?:time|date|datum|epoch|zeit|fecha|heure|hora).*|.*(?:time|date|datum|stamp|zeit)|"
    r"t|day|start|end|begin|started|ended|updated|modified|logged|seen|unix"
)
_OF_A_TIME = ("timestamp", "datetime", "time", "ts", "date", "at", "when", "created", "occurred")
_OF_A_KEY = (  # the first ones also in German, French, Spanish, Italian, Portuguese and Dutch
    *("user", "benutzer", "nutzer", "utilisateur", "usuario", "utente", "gebruiker"),
    *("customer", "kunde", "kunden", "kundennummer", "kundennr", "kundenid", "cliente", "klant"),
    *("client", "account", "konto", "compte", "cuenta", "conto", "conta", "member", "mitglied"),
    *("session", "sitzung", "sesion", "sessione", "sessao", "sessie"),
    *("device", "geraet", "sensor", "vehicle", "fahrzeug"),
    *("tenant", "order", "invoice", "cart", "trace", "host", "server", "node", "station"),
    *("address", "ip", "service", "process", "source", "key", "id"),
)
_SAY_NOTHING = {"name", "no", "number", "nr", "code", "uuid", "guid", "hash", "uid", "remote",
                "addr", "event", "utc", "local", "ms", "log", "of", "the"}  # fmt: skip
_IDS = {"id", "key", "uuid", "guid", "uid"}
_KEY_BYTES = 200
_NAMED = 10  # fields of other times
_DEPTH = 2  # the place in a rank that says how deep a field is nested
_NO_VALUE = {"NULL", "null", "None", "nil", "N/A", "n/a", "NA", "NaN", "nan", "NaT", "-", "--",
             "\\N"}  # fmt: skip
_NOBODY = "-"  # in an access log, where nobody logged in
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


class TimeChoice(NamedTuple):
    """The field of the time; `settings` are the other keys of `[timestamp]`."""

    field: str
    settings: dict[str, Any]
    reason: str
    doubts: list[str]


class KeyChoice(NamedTuple):
    """The field of the key."""

    field: str
    reason: str
    doubts: list[str]


def time_of(sample: Sample) -> TimeChoice | None:
    """The field whose values are times, the one with the most telling name first."""
    choices = [choice for name in sample.fields if (choice := _time_in(sample, name)) is not None]
    if not choices:
        choices = [choice for name in sample.fields if (choice := _mixed_in(sample, name))]
    if not choices:
        return None
    first, *others = sorted(choices, key=_order)  # stable: then as they stand
    any_other = _WHOLE_DAYS.format(first.field) in first.doubts or _is_unsure(first)
    others = [choice for choice in others if any_other or not _is_unsure(choice)]
    if others:
        before = [choice for choice in choices[: choices.index(first)] if choice in others]
        why = _why(first, others[0], before)
        names = ", ".join(choice.field for choice in others[:_NAMED])
        more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
        first.doubts.append(
            f"{first.field} is taken {why}; these fields are times, too: {names}{more}"
        )
    return first


def _why(first: TimeChoice, second: TimeChoice, before: Sequence[TimeChoice]) -> str:
    """Why a time is taken rather than the second best, and than those that stand before it."""
    depth = "nested least" if "." in first.field else "not nested"
    told = _told(first, second)
    if told is not None:
        return f"since it is {depth}" if told == _DEPTH else "for its name"
    if not before:
        return "since it stands first"
    deeper = all(_told(first, each) == _DEPTH for each in before)
    those = f"that are {depth}" if deeper else "with such a name"
    return f"since of the fields {those} it stands first"


def _told(one: TimeChoice, other: TimeChoice) -> int | None:
    """The place in their ranks where two fields first differ; None if they do not."""
    ranks = zip(_rank(one.field, _OF_A_TIME), _rank(other.field, _OF_A_TIME), strict=True)
    return next((at for at, (mine, its) in enumerate(ranks) if mine != its), None)


def _order(choice: TimeChoice) -> tuple[bool, bool, tuple[int, ...]]:
    """Births come last, numbers that nobody calls times before them; the best name is first."""
    return _is_of_birth(choice.field), _is_unsure(choice), _rank(choice.field, _OF_A_TIME)


def _is_of_birth(field: str) -> bool:
    return any(map(_BIRTH.fullmatch, _own_words(field)))


def _is_unsure(choice: TimeChoice) -> bool:
    return choice.settings.get("format") in _NUMBERS and not _says_time(choice.field)


def _says_time(field: str) -> bool:
    return any(word in _OF_A_TIME or _SAYS_TIME.fullmatch(word) for word in _own_words(field))


def _says_number(field: str) -> bool:
    """Whether a name is that of a number which is no time, such as phone, order_no, created_by_id.

    It is by its last word, or by any if no word is that of a time.
    """
    words = _own_words(field)
    last = words[-1:] if _says_time(field) else words
    return not _OF_A_NUMBER.isdisjoint(last)


def times_of_some_rows(sample: Sample) -> Iterator[str]:
    """Which fields are times, though many rows lack them; the one with the best name first."""
    for name in sorted(sample.fields, key=lambda name: _rank(name, _OF_A_TIME)):
        values = _present(sample, name)
        if not _FEW <= len(values) / max(sample.rows, 1) < _MOST:
            continue
        choice = _time_of(sample, name, values)
        if choice is not None and not _is_unsure(choice):
            rows = f"{len(values):,} of {counted(sample.rows, 'sampled row')}"
            yield f"{name} has times in {rows}{_remedy(sample, choice)}"


def _remedy(sample: Sample, choice: TimeChoice) -> str:
    """What to do where some rows have a time, which may be those of some files."""
    paths = list(_files_with(sample, choice.field))
    if len(paths) < len(sample.parts):
        files = f"{len(paths)} of {len(sample.parts)} files, such as {paths[0]}"
        return f", in {files}: draft pipelines of their own for files with it and without it"
    settings = {"field": choice.field, **choice.settings}
    given = ", ".join(f"timestamp.{key} = {value!r}" for key, value in settings.items())
    return f": with {given} the others are rejects, which pipeline.max_quarantine_ratio must allow"


def _files_with(sample: Sample, name: str) -> Iterator[str]:
    """The files in which some sampled rows have a field."""
    at = 0
    for path, rows in sample.parts:
        if any(sample.fields[name][at : at + rows]):
            yield path
        at += rows


def _time_in(sample: Sample, name: str) -> TimeChoice | None:
    return _time_of(sample, name, _values(sample, name))


def _time_of(sample: Sample, name: str, values: list[str]) -> TimeChoice | None:
    if not values:
        return None
    if name in sample.times:
        return _typed(name, values[0])
    patterns = [*_patterns(values)]
    forms = *EPOCH_POWERS, ISO, *patterns, *zoned(values, patterns)
    fits = list[_Fit]()
    for form in _that_fit(name, values, forms):
        year = None if _has_year(form) else _year(values, form)
        if (span := _span(values, form, year)) is not None:
            fits.append(_Fit(form, year, span))
    if not fits:
        return None
    form, year, span = _likeliest(fits)
    return _choice(name, _times_among(values, form, year), form, year, span, sample.zones)


def _likeliest(fits: list[_Fit]) -> _Fit:
    """The format with the newest times that do not lie ahead.

    Of days and months that may change places, those count that lie closest together: a file has
    the days of a month rather than one day of each month.
    """
    newest = max(fits, key=lambda fit: (not _lies_ahead(fit.span), fit.span.last_ms))
    orders = [fit for fit in fits if fit.form[:8] in _orders_of(newest.form)]
    return max(orders or [newest], key=lambda fit: (not _lies_ahead(fit.span), -fit.span.width_ms))


def _lies_ahead(span: _Span) -> bool:
    """Whether times are of the future."""
    return span.last_ms > now_ms() + _DAY_MS


def _that_fit(name: str, values: list[str], forms: Iterable[str]) -> list[str]:
    """The formats that a field of this name may have: a phone number is no time, ticks no epoch."""
    number = _says_number(name) or ticks_of(values) is not None
    return [form for form in forms if not (number and form in _NUMBERS)]


def _times_among(values: list[str], form: str, year: int | None) -> list[str]:
    """The values without those that are no times at all, such as N/A, so name no zone either."""
    read = _read(values, form, year)
    fit = (read.good | read.early).tolist()
    return [value for value, fits in zip(values, fit, strict=True) if fits]


def _values(sample: Sample, name: str) -> list[str]:
    """The values of a field; none if too many rows lack one."""
    values = _present(sample, name)
    return values if len(values) >= _MOST * sample.rows else []


def _present(sample: Sample, name: str) -> list[str]:
    """The values of a field, without those that exports write where there is none."""
    return [value for value in sample.fields[name] if value and value not in _NO_VALUE]


def _mixed_in(sample: Sample, name: str) -> TimeChoice | None:
    """The most frequent of several formats, if nearly all values are in one of them."""
    left, parts = _values(sample, name), dict[str, list[str]]()
    every = len(left)
    patterns = [*filter(_has_year, PATTERNS)]
    for form in _that_fit(name, left, (*EPOCH_POWERS, ISO, *patterns, *zoned(left, patterns))):
        good = _read(left, form, None).good.tolist() if left else []
        if any(good):
            parts[form] = [value for value, fits in zip(left, good, strict=True) if fits]
            left = [value for value, fits in zip(left, good, strict=True) if not fits]
    if not parts or len(left) > (1 - _MOST) * every:
        return None
    form = max(parts, key=lambda form: len(parts[form]))
    span = _span(parts[form], form, None)
    if span is None:
        return None
    choice = _choice(name, parts[form], form, None, span, sample.zones)
    counts = ", ".join(f"{len(values):,} are {each}" for each, values in parts.items())
    others = [value for each, values in parts.items() if each != form for value in values]
    choice.doubts.append(
        f"{name} mixes formats: of {every:,} times {counts}; {_become(others, form)}"
    )
    return choice


def _become(others: list[str], form: str) -> str:
    """What becomes of times of another format than this one, which may read them, too."""
    read = _read(others, form, None)
    wrong = int(read.misread.sum())
    if not wrong:
        return "rows of another format than timestamp.format are rejects"
    first = int(read.misread.argmax())
    rest = f", and {len(others) - wrong:,} are rejects" if wrong < len(others) else ""
    become = f"{wrong:,} {'becomes a record' if wrong == 1 else 'become records'} of a wrong time"
    return f"{become}, such as {others[first]} at {format_ms(int(read.ms[first]))}{rest}"


def unread_times(sample: Sample) -> Iterator[str]:
    """What is said of the fields whose values look like times, each with a value."""
    for name in sample.fields:
        values = _values(sample, name)
        if values and (said := _unread(name, values)):
            yield said


def unread_ticks(sample: Sample, time: str) -> Iterator[str]:
    """What is said of the fields that are called times, and count ticks, beside the time."""
    for name in sample.fields:
        if name != time and _says_time(name) and (said := _of_ticks(name, _values(sample, name))):
            yield said


def _of_ticks(name: str, values: list[str]) -> str | None:
    ticks = None if _says_number(name) else ticks_of(values)
    return f"{name}, such as {values[0]}, looks like {ticks.remark}" if ticks else None


def _unread(name: str, values: list[str]) -> str | None:
    if said := _of_ticks(name, values):
        return said
    number = _says_number(name)
    form = next((form for form in EPOCH_POWERS if number and _span(values, form, None)), None)
    if form is not None:
        return (
            f"{name} could be times ({form}), such as {values[0]!r}, but its name says "
            "another thing: if it is a time, set timestamp.field and timestamp.format"
        )
    if _says_time(name) and not number and _most(map(_is_of_excel, values), values):
        return f"{name}, such as {values[0]!r}, looks like {OF_EXCEL}"
    if _most(map(_is_like_a_time, values), values):
        return (
            f"{name} looks like times, such as {values[0]!r}, and no format that is known "
            "reads them: set timestamp.field, and a strptime pattern as timestamp.format, if "
            "one does"
        )
    return None


def _most(fits: Iterable[bool], values: list[str]) -> bool:
    return sum(fits) >= _MOST * len(values)


def _is_of_excel(value: str) -> bool:
    day = re.fullmatch(r"(\d{5})(?:[.,]\d+)?", value)
    return day is not None and int(day[1]) in EXCEL_DAYS


def _is_like_a_time(value: str) -> bool:
    return len(value) <= _LONGEST_TIME and _LIKE_A_TIME.search(value) is not None


def _typed(name: str, value: str) -> TimeChoice:
    """A column of a time type, with one of its values."""
    settings, doubts = _zone([value])
    if ":" not in value:
        doubts.append(_WHOLE_DAYS.format(name))
    return TimeChoice(name, settings, f"a column of a time type, such as {value}", doubts)


def _zone(values: Sequence[str], zones: Collection[str] = ()) -> tuple[dict[str, Any], list[str]]:
    """The setting of the zone for such times, and the doubt; none if they all name it."""
    bare = sum(not _ZONED.search(value) for value in values)
    if not bare:
        return {}, []
    if zones:
        return _zone_beside(sorted(zones))
    some = f"{bare:,} of {len(values):,} times" if bare < len(values) else "the times"
    verb = "names" if bare == 1 < len(values) else "name"
    return {"zone": "UTC"}, [f"{some} {verb} no zone; timestamp.zone = 'UTC' is a guess"]


def _zone_beside(zones: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """The setting for times that are followed by such names of zones, and the doubt."""
    if UTC_ZONES.issuperset(zones):
        return {"zone": "UTC"}, []
    if len(zones) == 1 and "/" in zones[0]:  # as PHP writes Europe/Berlin
        return {"zone": zones[0]}, []
    names, several = ", ".join(map(repr, zones)), len(zones) > 1
    unsure = (
        f"the times are followed by {names}, which {'are' if several else 'is'} not read: set "
        "timestamp.zone to what is meant, such as 'Europe/Berlin'; 'UTC' is a guess"
        + "; files of several zones need pipelines of their own"
        * several
    )
    return {"zone": "UTC"}, [unsure]


def _patterns(values: list[str]) -> Iterator[str]:
    """The patterns, also with a half of a day, an offset, a fraction of seconds, if these have it.

    Those with an offset or a fraction come first.
    """
    forms = [*_OF_ISO, *PATTERNS]
    if half := _HALF.search(values[0]):
        clocks = [form for form in forms if form.endswith(("%H:%M", "%H:%M:%S"))]
        blank = " " if half[1] else ""  # stands for any
        forms += [f"{form.replace('%H', '%I')}{blank}%p" for form in clocks]
    if offset := re.search(r"[\dMm]( ?)[+-]\d{2}:?\d{2}$", values[0]):
        clocks = [form for form in forms if form.endswith(("%M", "%S", "%p"))]
        forms = [f"{form}{offset[1]}%z" for form in clocks] + forms
    if part := _PART.search(values[0]):
        mark = part[1] or part[2]
        whole = (form for form in forms if "%S" in form and "%f" not in form)
        yield from (form.replace("%S", f"%S{mark}%f") for form in whole)
    yield from dict.fromkeys(forms)


def _choice(
    name: str, values: list[str], form: str, year: int | None, span: _Span, zones: Collection[str]
) -> TimeChoice:
    settings: dict[str, Any] = {"format": form}
    doubts = list(_other_ways(values, form))
    if year is not None:
        settings["year"] = year
        doubts.append(f"the times name no year; timestamp.year = {year} is a guess")
    named = form in EPOCH_POWERS or "%Z" in form
    zone, unsure = ({}, []) if named else _zone(values, zones_in(form) or zones)
    settings |= zone
    doubts += unsure
    if span.first_ms % _DAY_MS == 0 == span.last_ms % _DAY_MS and form not in EPOCH_POWERS:
        doubts.append(_WHOLE_DAYS.format(name))
    if form in EPOCH_POWERS and (rounded := next(filter(_EXPONENT.search, values), None)):
        doubts.append(
            f"{name} has numbers such as {rounded!r}, which a spreadsheet rounds: "
            f"{counted(len({*values}), 'value')} in {counted(len(values), 'sampled row')}; write "
            "them whole"
        )
    if form in EPOCH_POWERS and span.last_ms < now_ms() - _LONG_AGO_MS:
        doubts.append(
            f"{name} has times from {format_ms(span.first_ms)} on if they count from 1970: Apple's "
            "count from 2001, and GPS from 1980; look whether they are right"
        )
    if _lies_ahead(span):
        doubts.append(f"{name} has times up to {format_ms(span.last_ms)}, which lies ahead")
    if _is_of_birth(name):
        doubts.append(f"{name} is a time of a person's life rather than that of an event")
    if span.early:
        doubts.append(f"times before 1970, which make rejects: {span.early:,} of {len(values):,}")
    span = _span(values, form, year, settings.get("zone", "UTC")) or span
    first, last = format_ms(span.first_ms), format_ms(span.last_ms)
    if form in _NUMBERS and not _says_time(name):
        doubts.append(
            f"{name} has numbers that are times if they are {form}, but its name says no such "
            f"thing: look whether {first} to {last} is right"
        )
    reason = f"times from {first} to {last} in {counted(len(values), 'sampled row')}"
    return TimeChoice(name, settings, reason, doubts)


def _has_year(form: str) -> bool:
    return "%" not in form or "%Y" in form or "%y" in form


def _year(values: list[str], form: str) -> int:
    """This year, or the last one if this one lies ahead of the clock with these times."""
    now = dt.datetime.fromtimestamp(now_ms() / 1000, dt.UTC)
    span = _span(values, form, now.year)
    return now.year - (span is not None and _lies_ahead(span))


class _Span(NamedTuple):
    """The first and the last time of some values, and how many lie before 1970."""

    first_ms: int
    last_ms: int
    early: int

    @property
    def width_ms(self) -> int:
        """The time from the first to the last."""
        return self.last_ms - self.first_ms


class _Fit(NamedTuple):
    """A format that reads some values, with the year that is set if it has none."""

    form: str
    year: int | None
    span: _Span


class _Read(NamedTuple):
    """Times in ms: which are read and plausible, read and not plausible, or before 1970."""

    ms: Int64s
    good: Flags
    misread: Flags
    early: Flags


def _read(values: list[str], form: str, year: int | None, zone: str = "UTC") -> _Read:
    texts = Spans.of([*(value.encode() for value in values), _PADDING])
    ms, codes = read_times(texts.take(np.arange(len(values))), TimeFormat(form, zone, year))
    good = (codes == READ) & (ms < PLAUSIBLE.stop)
    early = (codes == OUT_OF_RANGE) & (ms < 0) & (form not in EPOCH_POWERS)
    if form in EPOCH_POWERS:
        good &= ms >= PLAUSIBLE.start
    return _Read(ms, good, (codes == READ) & ~good, early)


def _span(values: list[str], form: str, year: int | None, zone: str = "UTC") -> _Span | None:
    """What some texts are in a format; None unless nearly all are times, and plausible ones."""
    ms, good, _, early = _read(values, form, year, zone)
    if (good | early).sum() < _MOST * len(values) or not good.any():
        return None
    return _Span(int(ms[good].min()), int(ms[good].max()), int(early.sum()))


def _other_ways(values: list[str], form: str) -> Iterator[str]:
    date, clock = form[:8], form[8:]
    for other in _orders_of(form):
        swapped = other + clock
        if other != date and _span(values, swapped, None) is not None:
            what = "days and months" if "%Y" in other else "days, months and years"
            yield f"{what} may be the other way round: timestamp.format = {swapped!r}"


def _orders_of(form: str) -> tuple[str, ...]:
    """The orders of days, months and years that the date of a format may be in, its own too."""
    return next((orders for orders in _ORDERS if form[:8] in orders), ())


def key_of(sample: Sample, time: str | None) -> KeyChoice | None:
    """The field by which events belong together: its name says so, and its values repeat.

    One that is called `key` is the key, though its values may not repeat.
    """
    names = [
        name
        for name, column in sample.fields.items()
        if name != time and _is_named(name, _OF_A_KEY) and _may_be_keys(column, name == "key")
    ]
    if not names:
        return None
    field = min(names, key=lambda name: (name != "key", _rank(name, _OF_A_KEY)))
    column = sample.fields[field]
    values = [value for value in column if value is not None]
    absent, nobody = sample.rows - len(values), column.count(_NOBODY)
    sampled = counted(sample.rows, "sampled row")
    doubts = [f"no {field}: {absent:,} of {sampled}"] if absent else []
    if nobody:
        doubts.append(f"the {field} {_NOBODY!r}: {nobody:,} of {sampled}")
    reason = f"{counted(len({*values}), 'value')} in {sampled}; the order of each stays"
    return KeyChoice(field, reason, doubts)


def _may_be_keys(column: list[str | None], are_called_so: bool) -> bool:
    """Whether at least half of the rows have a short value, and most come again or are keys."""
    values = [value for value in column if value is not None and value != _NOBODY]
    return (
        2 * len(values) >= len(column)
        and len({*values}) > 1
        and (are_called_so or len({*values}) < _MOST * len(values))
        and max(map(len, values)) <= _KEY_BYTES
    )


def _is_named(field: str, words: tuple[str, ...]) -> bool:
    return _rank(field, words)[0] < len(words)


def _rank(field: str, words: tuple[str, ...]) -> tuple[int, int, int, int]:
    """How telling the name of a field is, the best first: by the words at the end of its path.

    Beside one of the words, only such stand as say no other thing: user_id, but not user_agent.
    An id is better than no such word, and a name, which others may have, too, is worse.
    """
    path, own = field.split("."), _own_words(field)
    if len(path) > 1 and (_SAY_NOTHING | _IDS).issuperset(own):  # host.name, user.id
        own += [word.lower() for word in _WORDS.findall(path[-2])]
    at = next((at for at, word in enumerate(words) if word in own), len(words))
    rest = {*own} - {*words} - _SAY_NOTHING
    sure = 0 if _IDS.intersection(own) else 2 if "name" in own else 1
    return (len(words) if rest else at), sure, len(path), len(own)


def _own_words(field: str) -> list[str]:
    """The words of the last name of a field's path."""
    return [word.lower() for word in _WORDS.findall(field.rpartition(".")[2])]
