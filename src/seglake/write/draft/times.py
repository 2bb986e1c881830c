"""Which field of a sample is the time, with the reason, and with doubts."""

from __future__ import annotations

import re
from collections.abc import Collection, Iterable, Iterator, Sequence
from typing import Any, NamedTuple

from seglake.clock import now_ms
from seglake.shown import counted
from seglake.times.grammar import EPOCH_POWERS, ISO
from seglake.times.instants import format_ms
from seglake.write.draft.sample import Sample
from seglake.write.draft.ticks import ticks_of
from seglake.write.draft.time_formats import (
    BLANK,
    DAY_MS,
    MOST,
    Fit,
    Span,
    has_year,
    lies_ahead,
    likeliest,
    other_ways,
    patterns_of,
    span_of,
    times_in,
    year_of,
)
from seglake.write.draft.words import (
    DEPTH,
    OF_A_TIME,
    own_words,
    rank,
    says_duration,
    says_number,
    says_time,
    says_zone,
)
from seglake.write.rows.hints import EXCEL_DAYS, OF_EXCEL, PATTERNS, orders_of
from seglake.write.rows.zones import UTC_ZONES, zoned, zones_in

_FEW = 0.05  # of the rows may have a field that is worth a word
_NEAR_MS = 366 * DAY_MS
_LONG_AGO_MS = 3652 * DAY_MS  # about ten years, by which GPS counts fewer seconds than Unix
_ZONED = re.compile(  # 20-11-2026 and 20-Nov-2026 end with a year, not with an offset
    r"(?:(?<![A-Za-z])[Zz]|UTC|GMT|(?:\+|(?<!-\d{2})(?<!-[A-Za-z]{3})-)\d{2}:?\d{2}"
    r"|:\d{2}(?:[.,]\d+)?[+-]\d{2})$"
)
_WHOLE_DAYS = (
    "{0} has whole days; if another field has the time of day, set timestamp.fields = ['{0}', …] "
    "and timestamp.format for both, with a blank between them"
)
_AHEAD = "{} has times up to {}, which lies ahead"
_CLOCK = re.compile(
    f"\\d{{1,2}}:\\d{{2}}(?::\\d{{2}}(?:[.,]\\d+)?)?(?:{BLANK}[AaPp](?:\\.{BLANK})?[Mm]\\.?)?"
    "(?: ?[+-]\\d{2}:?\\d{2}|Z)?"
)
_CLOCK_OF_DIGITS = re.compile(  # if the name is of a time
    rf"{_CLOCK.pattern}|\d{{1,2}}\.\d{{2}}(?:\.\d{{2}})?|\d{{4}}|\d{{6}}"
)
_CLOCKS = ("%H:%M:%S", "%H:%M", "%H.%M.%S", "%H.%M", "%H%M%S", "%H%M")
_MIDNIGHT = "00:00:00"
_OFFSET = re.compile(r"[+-]\d{2}:?\d{2}|Z")
_LIKE_A_TIME = re.compile(
    r"\d:\d{2}(?!\d)|\b1\d{9}(?:\d{3})?(?!\d)|\b(?:19|20)\d{2}[-/.]\d|\d[-/.](?:19|20)\d{2}\b"
    r"|\b\d{2}-[A-Za-z]{3}-\d{2}\b|\d{4}年\d{1,2}月"
)
_ROUNDED = re.compile(r"\d(?:[.,]\d{1,6})?[eE]\+?\d+")
_BIRTH = re.compile(r"birth.*|dob|geb|geburt.*|naissance|nacimiento|nascita|nascimento|geboorte.*")
_NANOSECONDS = re.compile(r"_?nano(?:s|_?(?:of_?)?seconds?)?", re.IGNORECASE)
_LONGEST_TIME = 70  # characters: longer texts have other words
_NUMBERS = {  # formats that other numbers may fit, too
    *EPOCH_POWERS, "%Y%m%d%H%M%S", "%Y%m%d%H%M", "%Y%m%d%H", "%Y%m%d",
}  # fmt: skip
_NAMED = 10  # fields of other times
_PART_OF_A_DAY = re.compile(r"[.,]\d{4,}$")
_NO_VALUE = {"NULL", "null", "None", "nil", "N/A", "n/a", "NA", "NaN", "nan", "NaT", "-", "--",
             "\\N"}  # fmt: skip


class TimeChoice(NamedTuple):
    """The field of the time; `settings` are the other keys of `[timestamp]`.

    The fields `beside` belong to it: the time of day, if the field has the date, or the offset.
    """

    field: str
    settings: dict[str, Any]
    reason: str
    doubts: list[str]
    beside: tuple[str, ...] = ()
    last_ms: int = 0


def time_of(sample: Sample) -> TimeChoice | None:
    """The field whose values are times, the one with the most telling name first."""
    choices = [choice for name in sample.fields if (choice := _time_in(sample, name)) is not None]
    if not choices:
        choices = [choice for name in sample.fields if (choice := _mixed_in(sample, name))]
    if not choices:
        return None
    first, *others = sorted(choices, key=_order)  # stable: then as they stand
    at = choices.index(first)
    if _has_whole_days(first):
        first = _with_clock(sample, first) or first
    first = _with_offset(sample, first) or first
    any_other = _has_whole_days(first) or _is_unsure(first)
    others = [each for each in others if any_other or not _is_unsure(each) or _is_near(each, first)]
    if others:
        before = [choice for choice in choices[:at] if choice in others]
        why = _why(first, others[0], before)
        names = ", ".join(choice.field for choice in others[:_NAMED])
        more = f" and {len(others) - _NAMED:,} more" if len(others) > _NAMED else ""
        first.doubts.append(
            f"{first.field} is taken {why}; these fields are times, too: {names}{more}"
        )
    first.doubts.extend(_with_gaps(sample, first))
    first.doubts.extend(_of_other_orders(sample, first))
    first.doubts.extend(_of_nanoseconds(sample, first))
    return first


def _with_gaps(sample: Sample, time: TimeChoice) -> Iterator[str]:
    """The doubt that names other times, which some rows lack, as those of what has not happened."""
    some = _in_some_rows(sample)
    others = [(each.field, rows) for each, rows in some if each.field not in time.beside]
    if others:
        names = ", ".join(f"{name} in {rows:,}" for name, rows in others[:_NAMED])
        yield (
            f"of {counted(sample.rows, 'sampled row')} some have other times, too, which may be "
            f"those that are meant: {names}"
        )


def _of_other_orders(sample: Sample, time: TimeChoice) -> Iterator[str]:
    """The doubts that name files whose times are likelier with days and months the other way."""
    form: str = time.settings.get("format", "")
    ways = [form, *(date + form[8:] for date in orders_of(form) if date != form[:8])]
    files = dict[str, list[str]]()
    for path, values in _by_file(sample, time) if len(ways) > 1 else ():
        spans = [(way, span) for way in ways if (span := span_of(values, way, None)) is not None]
        if spans:
            best, _ = min(spans, key=lambda one: (lies_ahead(one[1]), one[1].width_ms))
            files.setdefault(best, []).append(path)
    files.pop(form, None)
    for way, paths in files.items():
        more = f" (and {counted(len(paths) - 1, 'file')} more)" if len(paths) > 1 else ""
        yield (
            f"{paths[0]}{more}: its times lie closer together with timestamp.format = {way!r}: if "
            "that is meant, draft a pipeline of its own"
        )


def _by_file(sample: Sample, time: TimeChoice) -> Iterator[tuple[str, list[str]]]:
    """The values of the time in each file that has some."""
    columns = [sample.fields[name] for name in (time.field, *time.beside)]
    at = 0
    for path, rows in sample.parts:
        values = _joined([column[at : at + rows] for column in columns])
        at += rows
        if values:
            yield path, values


def _joined(columns: Sequence[Sequence[str | None]]) -> list[str]:
    """The texts of each row as `timestamp.fields` joins them, of rows that have all."""
    rows = zip(*columns, strict=True)
    return [" ".join(map(str, row)) for row in rows if all(map(_is_there, row))]


def _of_nanoseconds(sample: Sample, time: TimeChoice) -> Iterator[str]:
    """The doubt about seconds whose fraction stands in a field beside them, as protobuf has it."""
    beside = time.field.rpartition(".")[0]
    for name in sample.fields if time.settings.get("format") == "epoch_s" else ():
        path, _, last = name.rpartition(".")
        if path == beside and _NANOSECONDS.fullmatch(last):
            yield f"{name} is not read, so the times are whole seconds"


def _is_near(one: TimeChoice, other: TimeChoice) -> bool:
    """Whether numbers lie so near to other times that they are hardly anything else."""
    return abs(one.last_ms - other.last_ms) < _NEAR_MS


def _has_whole_days(choice: TimeChoice) -> bool:
    return _WHOLE_DAYS.format(choice.field) in choice.doubts


def _with_clock(sample: Sample, date: TimeChoice) -> TimeChoice | None:
    """The date with the time of day that stands in another field; None if there is none.

    It is the next field behind the date, or the first one whose name is that of a time.
    """
    names = [*sample.fields]
    behind = names[names.index(date.field) + 1 :]
    may_be = [name for name in names if says_time(name) or name in behind[:1]]
    clocks = [
        name
        for name in dict.fromkeys((*behind, *names))
        if name in may_be and _are_clocks(name, _values(sample, name))
    ]
    for clock in clocks:
        values = _joined([sample.fields[date.field], sample.fields[clock]])
        forms = [f"{_day_of(date, values)} {each}" for each in _CLOCKS]
        both = _time_of(sample, f"{date.field}, {clock}", values, forms)
        if both is not None:
            others = [name for name in clocks if name != clock]
            doubts = [*both.doubts, *_of_clock(date.field, clock, others)]
            return both._replace(field=date.field, beside=(clock,), doubts=doubts)
    return None


def _with_offset(sample: Sample, time: TimeChoice) -> TimeChoice | None:
    """The time with its offset from UTC, which stands in another field; None if it needs none."""
    form = time.settings.get("format")
    if "zone" not in time.settings or form is None:
        return None
    for name in (name for name in sample.fields if says_zone(name) and name != time.field):
        offsets = _values(sample, name)
        if not offsets:
            continue
        if not _most(map(_is_offset, offsets), offsets):
            time.doubts.append(
                f"{name}, such as {offsets[0]!r}, may name the zone, and is not read"
            )
            continue
        values = _joined([sample.fields[each] for each in (time.field, *time.beside, name)])
        both = _time_of(sample, f"{time.field}, {name}", values, [f"{form} %z"])
        if both is not None and "zone" not in both.settings:
            return both._replace(field=time.field, beside=(*time.beside, name))
    return None


def _is_offset(value: str) -> bool:
    return _OFFSET.fullmatch(value) is not None


def _day_of(date: TimeChoice, values: list[str]) -> str:
    """The format of a day, behind which midnight may stand."""
    form: str = date.settings.get("format", ISO)
    if not all(_MIDNIGHT in value for value in values):
        return form.replace(ISO, "%Y-%m-%d")
    iso = "%Y-%m-%dT%H:%M:%S" if values[0][10:11] == "T" else "%Y-%m-%d %H:%M:%S"
    return form.replace(ISO, iso).replace("%H:%M:%S", _MIDNIGHT)


def _of_clock(date: str, clock: str, others: Sequence[str]) -> Iterator[str]:
    """The doubts about the field that has the time of day."""
    if others:
        yield f"{clock} is taken as the time of day; these have one, too: {', '.join(others)}"
    elif not says_time(clock):
        yield f"{clock} is taken as the time of day since it stands behind {date}"


def _are_clocks(name: str, values: list[str]) -> bool:
    form = _CLOCK_OF_DIGITS if says_time(name) else _CLOCK
    are = [form.fullmatch(value) is not None for value in values]
    return any(are) and _most(are, values) and not says_duration(name)


def _why(first: TimeChoice, second: TimeChoice, before: Sequence[TimeChoice]) -> str:
    """Why a time is taken rather than the second best, and than those that stand before it."""
    if _says_utc(first.field) and not any(_says_utc(each.field) for each in (second, *before)):
        return "since its name says UTC"
    depth = "nested least" if "." in first.field else "not nested"
    told = _told(first, second)
    if told is not None:
        return f"since it is {depth}" if told == DEPTH else "for its name"
    if not before:
        return "since it stands first"
    deeper = all(_told(first, each) == DEPTH for each in before)
    those = f"that are {depth}" if deeper else "with such a name"
    return f"since of the fields {those} it stands first"


def _told(one: TimeChoice, other: TimeChoice) -> int | None:
    """The place in their ranks where two fields first differ; None if they do not."""
    ranks = zip(_rank(one.field), _rank(other.field), strict=True)
    return next((at for at, (mine, its) in enumerate(ranks) if mine != its), None)


def _order(choice: TimeChoice) -> tuple[bool, bool, tuple[int, ...], bool]:
    """Births come last, numbers that nobody calls times before them; the best name is first.

    Of names that are as good, one that says UTC is better.
    """
    field = choice.field
    return (
        _is_of_birth(field), _is_unsure(choice), _rank(field),
        not _says_utc(field),
    )  # fmt: skip


def _rank(field: str) -> tuple[int, int, int, int]:
    """How telling a name is. Of others those with the word of a time come first, however long."""
    at, sure, depth, words = rank(field, OF_A_TIME)
    is_telling = at < len(OF_A_TIME)
    return (at, sure, depth, words) if is_telling else (at, int(not says_time(field)), depth, 0)


def _says_utc(field: str) -> bool:
    return "utc" in own_words(field)


def _is_of_birth(field: str) -> bool:
    return any(map(_BIRTH.fullmatch, own_words(field)))


def _is_unsure(choice: TimeChoice) -> bool:
    return _is_any_number(choice.field, choice.settings.get("format"))


def _is_any_number(field: str, form: str | None) -> bool:
    """Whether a field of such times has numbers that nobody calls times."""
    return form in _NUMBERS and not says_time(field)


def times_of_some_rows(sample: Sample) -> Iterator[str]:
    """Which fields are times, though many rows lack them; the one with the best name first."""
    for choice, count in _in_some_rows(sample):
        rows = f"{count:,} of {counted(sample.rows, 'sampled row')}"
        yield f"{choice.field} has times in {rows}{_remedy(sample, choice)}"


def _in_some_rows(sample: Sample) -> Iterator[tuple[TimeChoice, int]]:
    """The times that many rows have, and many lack; and how many have them."""
    for name in sorted(sample.fields, key=_rank):
        values = _present(sample, name)
        if _FEW <= len(values) / max(sample.rows, 1) < MOST:
            choice = _time_of(sample, name, values)
            if choice is not None and not _is_unsure(choice):
                yield choice, len(values)


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


def _time_of(
    sample: Sample, name: str, values: list[str], more: Sequence[str] = ()
) -> TimeChoice | None:
    """The choice of a field with these values, which may also be in one of `more` formats."""
    if not values:
        return None
    if name in sample.times:
        return _typed(name, values)
    patterns = [*patterns_of(values, more)]
    forms = *EPOCH_POWERS, ISO, *patterns, *zoned(values, patterns)
    fits = list[Fit]()
    for form in _that_fit(name, values, forms):
        year = None if has_year(form) else year_of(values, form)
        span = span_of(values, form, year)
        if span is not None and not (_is_any_number(name, form) and lies_ahead(span)):
            fits.append(Fit(form, year, span))
    if not fits:
        return None
    form, year, span = likeliest(fits)
    return _choice(name, _times_among(values, form, year), form, year, span, sample.zones)


def _that_fit(name: str, values: list[str], forms: Iterable[str]) -> list[str]:
    """The formats that a field of this name may have: a phone number is no time, ticks no epoch."""
    number = says_number(name) or ticks_of(values) is not None
    return [form for form in forms if not (number and form in _NUMBERS)]


def _times_among(values: list[str], form: str, year: int | None) -> list[str]:
    """The values without those that are no times at all, such as N/A, so name no zone either."""
    read = times_in(values, form, year)
    fit = (read.good | read.early).tolist()
    return [value for value, fits in zip(values, fit, strict=True) if fits]


def _values(sample: Sample, name: str) -> list[str]:
    """The values of a field; none if too many rows lack one."""
    values = _present(sample, name)
    return values if len(values) >= MOST * sample.rows else []


def _present(sample: Sample, name: str) -> list[str]:
    """The values of a field, without those that exports write where there is none."""
    return [value for value in sample.fields[name] if value and _is_there(value)]


def _is_there(value: str | None) -> bool:
    return bool(value) and value not in _NO_VALUE


def _mixed_in(sample: Sample, name: str) -> TimeChoice | None:
    """The most frequent of several formats, if nearly all values are in one of them."""
    left, parts = _values(sample, name), dict[str, list[str]]()
    every = len(left)
    patterns = [*filter(has_year, PATTERNS)]
    for form in _that_fit(name, left, (*EPOCH_POWERS, ISO, *patterns, *zoned(left, patterns))):
        good = times_in(left, form, None).good.tolist() if left else []
        if any(good):
            parts[form] = [value for value, fits in zip(left, good, strict=True) if fits]
            left = [value for value, fits in zip(left, good, strict=True) if not fits]
    if not parts or len(left) > (1 - MOST) * every:
        return None
    form = max(parts, key=lambda form: len(parts[form]))
    span = span_of(parts[form], form, None)
    if span is None or (_is_any_number(name, form) and lies_ahead(span)):
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
    read = times_in(others, form, None)
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
        if name != time and says_time(name) and (said := _of_ticks(name, _values(sample, name))):
            yield said


def _of_ticks(name: str, values: list[str]) -> str | None:
    ticks = None if says_number(name) else ticks_of(values)
    return f"{name}, such as {values[0]}, looks like {ticks.remark}" if ticks else None


def _unread(name: str, values: list[str]) -> str | None:
    if said := _of_ticks(name, values):
        return said
    number = says_number(name)
    form = next((form for form in EPOCH_POWERS if number and span_of(values, form, None)), None)
    if form is not None:
        return (
            f"{name} could be times ({form}), such as {values[0]!r}, but its name says "
            "another thing: if it is a time, set timestamp.field and timestamp.format"
        )
    is_excels = says_time(name) or all(map(_PART_OF_A_DAY.search, values))
    if is_excels and not number and _most(map(_is_of_excel, values), values):
        return f"{name}, such as {values[0]!r}, looks like {OF_EXCEL}"
    if _most(map(_is_like_a_time, values), values):
        return (
            f"{name} looks like times, such as {values[0]!r}, and no format that is known "
            "reads them: set timestamp.field, and a strptime pattern as timestamp.format, if "
            "one does"
        )
    return None


def _most(fits: Iterable[bool], values: list[str]) -> bool:
    return sum(fits) >= MOST * len(values)


def _is_of_excel(value: str) -> bool:
    day = re.fullmatch(r"(\d{5})(?:[.,]\d+)?", value)
    return day is not None and int(day[1]) in EXCEL_DAYS


def _is_like_a_time(value: str) -> bool:
    return len(value) <= _LONGEST_TIME and _LIKE_A_TIME.search(value) is not None


def _typed(name: str, values: list[str]) -> TimeChoice:
    """A column of a time type."""
    settings, doubts = _zone(values[:1])
    if ":" not in values[0]:
        doubts.append(_WHOLE_DAYS.format(name))
    span = span_of(values, ISO, None)
    if span is not None and lies_ahead(span):
        doubts.append(_AHEAD.format(name, format_ms(span.last_ms)))
    reason = f"a column of a time type, such as {values[0]}"
    return TimeChoice(name, settings, reason, doubts, last_ms=span.last_ms if span else 0)


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


def _choice(
    name: str, values: list[str], form: str, year: int | None, span: Span, zones: Collection[str]
) -> TimeChoice:
    settings: dict[str, Any] = {"format": form}
    doubts = list(other_ways(values, form))
    if year is not None:
        settings["year"] = year
        doubts.append(f"the times name no year; timestamp.year = {year} is a guess")
    named = form in EPOCH_POWERS or "%Z" in form or "%z" in form
    zone, unsure = ({}, []) if named else _zone(values, zones_in(form) or zones)
    settings |= zone
    doubts += unsure
    if span.first_ms % DAY_MS == 0 == span.last_ms % DAY_MS and form not in EPOCH_POWERS:
        doubts.append(_WHOLE_DAYS.format(name))
    if form in EPOCH_POWERS and _most(map(_is_rounded, values), values):
        doubts.append(
            f"{name} has numbers such as {values[0]!r}, which a spreadsheet rounds: "
            f"{counted(len({*values}), 'value')} in {counted(len(values), 'sampled row')}; write "
            "them whole"
        )
    if form in EPOCH_POWERS and span.last_ms < now_ms() - _LONG_AGO_MS:
        doubts.append(
            f"{name} has times from {format_ms(span.first_ms)} on if they count from 1970: Apple's "
            "count from 2001, and GPS from 1980; look whether they are right"
        )
    if lies_ahead(span):
        doubts.append(_AHEAD.format(name, format_ms(span.last_ms)))
    if _is_of_birth(name):
        doubts.append(f"{name} is a time of a person's life rather than that of an event")
    if span.early:
        doubts.append(f"times before 1970, which make rejects: {span.early:,} of {len(values):,}")
    span = span_of(values, form, year, settings.get("zone", "UTC")) or span
    first, last = format_ms(span.first_ms), format_ms(span.last_ms)
    if form in _NUMBERS and not says_time(name):
        doubts.append(
            f"{name} has numbers that are times if they are {form}, but its name says no such "
            f"thing: look whether {first} to {last} is right"
        )
    reason = f"times from {first} to {last} in {counted(len(values), 'sampled row')}"
    return TimeChoice(name, settings, reason, doubts, last_ms=span.last_ms)


def _is_rounded(value: str) -> bool:
    """Whether a number has an exponent, and as few digits as a spreadsheet shows."""
    return _ROUNDED.fullmatch(value) is not None
