"""Find the formats that a text may be in, if it is a time.

A format is a date, a separator, a clock and a zone. The tables below have the dates, clocks and
zones; every combination of them is a candidate. To recognise another form of dates, add a row to
`_DATES`.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

from seglake.times.grammar import EPOCH_POWERS, ISO, expanded

_MONTH = _DAY_NAME = "[A-Z][a-z]{2}"
_REGION = "[A-Z][a-z]+(?:/[A-Za-z_]+)+"
_ZONE_NAME = (  # formats contain it as literal text; a level such as INFO is not a zone
    rf"(?:{_REGION}|(?:[ECMP][SD]T|[CEW]ES?T|MES?Z|A[CEW][SD]T|NZ[SD]T|BST|IST|JST|KST|MSK|HKT|SGT)"
    r"(?![A-Za-z]))"
)
_DATES = tuple(
    (tuple(forms.split("|")), re.compile(expression))
    for forms, expression in {
        # An expression with several formats is a date whose order of days and months is unclear.
        "%Y-%m-%d": r"\d{4}-\d{2}-\d{2}",
        "%Y/%m/%d": r"\d{4}/\d{1,2}/\d{1,2}",
        "%Y.%m.%d": r"\d{4}\.\d{1,2}\.\d{1,2}",
        "%d.%m.%Y": r"\d{1,2}\.\d{1,2}\.\d{4}",
        "%d.%m.%y": r"\d{2}\.\d{2}\.\d{2}",
        "%d/%m/%Y|%m/%d/%Y": r"\d{1,2}/\d{1,2}/\d{4}",
        "%d-%m-%Y|%m-%d-%Y": r"\d{1,2}-\d{1,2}-\d{4}",
        "%y/%m/%d|%d/%m/%y|%m/%d/%y": r"\d{1,2}/\d{1,2}/\d{2}(?!\d)",
        "%y-%m-%d|%d-%m-%y": r"\d{2}-\d{2}-\d{2}(?!\d)",
        "%d/%b/%Y": rf"\d{{1,2}}/{_MONTH}/\d{{4}}",
        "%d/%b/%y": rf"\d{{1,2}}/{_MONTH}/\d{{2}}(?!\d)",
        "%d-%b-%Y": rf"\d{{1,2}}-{_MONTH}-\d{{4}}",
        "%d-%b-%y": rf"\d{{1,2}}-{_MONTH}-\d{{2}}(?!\d)",
        "%d %b %Y": rf"\d{{1,2}} {_MONTH} \d{{4}}",
        "%Y %b %e": rf"\d{{4}} {_MONTH} [ \d]?\d(?!\d)",
        "%a, %d %b %Y": rf"{_DAY_NAME}, \d{{1,2}} {_MONTH} \d{{4}}",
        "%a %b %d %Y": rf"{_DAY_NAME} {_MONTH} \d{{2}} \d{{4}}",
        "%a %b %e": rf"{_DAY_NAME} {_MONTH} [ \d]?\d(?!\d)",
        "%a %Y-%m-%d": rf"{_DAY_NAME} \d{{4}}-\d{{2}}-\d{{2}}",
        "%b %e, %Y": rf"{_MONTH} [ \d]?\d, \d{{4}}",
        "%B %e, %Y": r"[A-Z][a-z]{2,8} [ \d]?\d, \d{4}",
        "%b %e %Y": rf"{_MONTH} [ \d]?\d \d{{4}}",
        "%b %e": rf"{_MONTH} [ \d]?\d(?!\d)",
        "%m-%d": r"\d{2}-\d{2}(?![-\d])",  # Android
        "%Y%m%d": r"\d{8}(?!\d)|\d{8}(?=\d{2}(?:\d\d){0,2}(?!\d))",
        "%y%m%d": r"\d{6}(?!\d)",
        "%m%d": r"\d{4}(?= )",  # glog
    }.items()
)
_SEPARATORS = r"T|[ ]+-[ ]|,[ ]|,|:|_|-|\t|[ ]+|"
_CLOCK = re.compile(
    rf"(?P<between>{_SEPARATORS})"
    r"(?:(?P<hour>[ \d]?\d)(?P<colon>[:.])\d{2}(?:(?P<point>[:.])(?P<second>\d{2})"
    r"(?:(?P<mark>[.,:])(?P<fraction>\d+))?)?"
    r"|(?P<compact>\d{2}(?:\d{2}){0,2})(?!\d)(?:(?P<dot>\.)\d+)?)"
    "(?P<half>[ \u00a0\u202f]?[AaPp](?:[Mm]\\b|\\.[ \u00a0\u202f]?[Mm]\\.))?"
)
_ZONE = re.compile(
    r"(?P<utc> ?(?:UTC|GMT)(?![+\w-]))"
    r"|(?P<prefix> ?(?:GMT|UTC)?)(?P<offset>[+-]\d{2}(?::?\d{2})?(?!\d)|Z(?![A-Za-z]))"
    rf"|(?P<name> ?[(\[]?{_ZONE_NAME}[)\]]?)"
)
_ZONE_IN = re.compile(rf"[ (\[a-zM]({_ZONE_NAME})[)\]]?(?: %Y)?$")
_FRACTION = re.compile("%S([.,:])%f")
_YEAR = re.compile(r" (?:19|20)\d{2}(?!\d)")
_NUMBER = re.compile(r"\d+(?:[.,]\d+)?")
_EPOCH_DIGITS = {10: "epoch_s", 13: "epoch_ms", 16: "epoch_us", 19: "epoch_ns"}
_ISO = re.compile(
    r"\d{4}-\d{2}-\d{2}"
    r"(?:[T ]\d{2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?(?:Z| UTC| ?[+-]\d{2}(?::?\d{2})?)?)?"
)
_DIGITS = {  # for `expression_for`
    **dict.fromkeys("Y", r"\d{4}"), **dict.fromkeys("ymd", r"\d{2}"),
    **dict.fromkeys("HIMS", r"\d{1,2}"), "e": r"[ \d]?\d", "f": r"\d+",
    **dict.fromkeys("abh", r"[A-Z][a-z]{2}"), "B": r"[A-Z][a-z]+",
    "p": "[AaPp]\\.?[ \u00a0\u202f]?[Mm]\\.?", "z": r"(?:Z|[+-]\d{2}(?::?\d{2})?)",
    "Z": "(?:UTC|GMT|Z)",
}  # fmt: skip


class Candidate(NamedTuple):
    """A format, the number of characters that it reads from a text, and the zone name in them."""

    form: str
    end: int
    zone: str = ""


def candidates_at_start(text: str) -> list[Candidate]:
    """Return the formats of a time at the start of a text, the longest first.

    Example:
        >>> [each.form for each in candidates_at_start("20/11/2026 10:30 started")]
        ['%d/%m/%Y %H:%M', '%m/%d/%Y %H:%M', '%d/%m/%Y', '%m/%d/%Y']
    """
    found = list[Candidate]()
    iso, number = _ISO.match(text), _NUMBER.match(text)
    if iso is not None and not text[iso.end() : iso.end() + 1].isdigit():
        found.append(Candidate(ISO, iso.end()))
    digits = len(re.split("[.,]", number[0])[0]) if number else 0
    if number is not None and digits in _EPOCH_DIGITS:
        found.append(Candidate(_EPOCH_DIGITS[digits], number.end()))
    for forms, expression in _DATES:
        date = expression.match(text)
        if date is not None:
            for rest, end, zone in _after_date(text, date.end()):
                found += [Candidate(f"{form}{rest}", end, zone) for form in forms]
    # The sort is stable, so candidates of one length are in the order of the tables.
    return sorted(dict.fromkeys(found), key=lambda each: -each.end)


def candidate_formats(text: str) -> list[str]:
    """Return the formats that may read a whole text, the most likely first."""
    return [each.form for each in candidates_at_start(text) if each.end == len(text)]


def date_orders(form: str) -> list[str]:
    """Return the format with the days, months and years of its date in each possible order."""
    for forms, _ in _DATES:
        if len(forms) > 1 and (begin := next(filter(form.startswith, forms), None)):
            return [f"{each}{form[len(begin) :]}" for each in forms]
    return [form]


def without_fraction(form: str) -> str:
    """Return the format without the fraction of its seconds."""
    return _FRACTION.sub("%S", expanded(form))


def with_optional_fraction(form: str) -> str:
    """Return the format, changed so that the fraction of seconds may be missing."""
    return _FRACTION.sub(r"%S[\1%f]", expanded(form))


def zone_in(form: str) -> str:
    """Return the name of a zone that a format has as literal text, or ""."""
    match = _ZONE_IN.search(form)
    return match[1] if match else ""


def is_region(zone: str) -> bool:
    """Return whether the name of a zone is in the IANA database, such as Europe/Berlin."""
    return "/" in zone


def expression_for(form: str) -> str:
    """Return an RE2 expression that matches times in a format, for `input.pattern`."""
    if form == ISO:
        return _ISO.pattern.removesuffix(")?") + ")"
    if form in EPOCH_POWERS:
        digits = next(count for count, name in _EPOCH_DIGITS.items() if name == form)
        return rf"\d{{{digits}}}(?:\.\d+)?"
    literal = re.split(r"(%.)", form)
    return "".join(
        _DIGITS[part[1]]
        if part.startswith("%")
        else re.sub(" +", " +", re.escape(part).replace("\\ ", " "))
        for part in literal
    )


def _after_date(text: str, at: int) -> Iterator[tuple[str, int, str]]:
    """Yield (format, its end, zone name) for each continuation of a date that ends at `at`."""
    yield "", at, ""
    clock = _CLOCK.match(text, at)
    if clock is None:
        return
    form, at = _clock_form(clock), clock.end()
    yield form, at, ""
    if year := _YEAR.match(text, at):
        yield f"{form} %Y", year.end(), ""
    zone = _ZONE.match(text, at)
    if zone is None:
        return
    name = (zone["name"] or "").strip(" ()[]")
    if zone["utc"]:
        tail = zone["utc"][:-3] + "%Z"
    elif zone["offset"]:
        tail = f"{zone['prefix']}%z"
    else:
        tail = zone["name"]
    yield f"{form}{tail}", zone.end(), name
    if year := _YEAR.match(text, zone.end()):
        yield f"{form}{tail} %Y", year.end(), name


def _clock_form(clock: re.Match[str]) -> str:
    between = re.sub(" +", " ", clock["between"])
    hour = "%I" if clock["half"] else "%H"
    if clock["compact"]:
        form = "".join((hour, "%M", "%S")[: len(clock["compact"]) // 2])
        form += ".%f" if clock["dot"] else ""
    else:
        form = f"{hour}{clock['colon']}%M"
        if clock["second"]:
            form += f"{clock['point']}%S"
        if clock["fraction"]:
            form += f"{clock['mark']}%f"
    half = clock["half"] or ""
    return f"{between}{form}" + (f"{' ' * (half[:1].isspace())}%p" if half else "")
