"""Shapes of log lines: expressions that find the time in a line, and what else is known of it."""

from __future__ import annotations

import re
from collections import Counter, defaultdict
from collections.abc import Sequence
from typing import NamedTuple

from seglake.write.rows.zones import REGION, ZONES

ENOUGH = 0.02
"""Of the lines of a file, so many must match: an event may have many lines."""
_MOST_LOGFMT = 0.5  # of the lines must be such: others may continue an event
_HALF_OF_THEM = 0.5  # of the lines with a time must begin with it, if the others continue an event
_NEARLY = 0.99  # as many as another shape, or as there are events: then it is taken


class Shape(NamedTuple):
    """A pattern for `input.pattern`, and the one with which an event of several lines begins."""

    pattern: str
    start: str | None = None

    @property
    def expression(self) -> re.Pattern[str]:
        """The pattern, compiled; RE2 and Python read it alike."""
        return re.compile(self.pattern)

    @property
    def is_anywhere(self) -> bool:
        """Whether the time may stand anywhere in a line."""
        return self.pattern.startswith(".*?(?P<time>")

    @property
    def may_begin_otherwise(self) -> bool:
        """Whether another character may stand before the time with which a line begins."""
        return self.pattern.startswith(r"\W?(?P<time>")


_DAY_AND_TIME = r"\d{2}/[A-Z][a-z]{2}/\d{4}[: ][\d:]{8}"
_CLF = _DAY_AND_TIME + r" [+-]\d{4}"
_OFFSET = r"[+-]\d{2}:?\d{2}\b"
_BLANK = "[ \u00a0\u202f]?"  # Java and Node write "1:05 PM" with a narrow one
_HALF = rf"{_BLANK}(?:[AaPp][Mm]\b|[AaPp]\.{_BLANK}[Mm]\.)"  # of a day
_PART = r"(?:\.\d+|,\d{3,9}\b|:\d{3}(?:\d{3})?\b)?"  # of a second: ",47" is the next column
_ISO = (
    rf"\d{{4}}-\d{{2}}-\d{{2}}[T ]\d{{2}}:\d{{2}}(?::\d{{2}}{_PART})?"
    rf"(?:Z| ?{_OFFSET}| ?[+-]\d{{2}}\b|{_HALF})?"
)
_ZONE_BEHIND = re.compile(
    rf" ?\(?((?:UTC|GMT)[+-]\d{{1,2}}(?::?\d{{2}})?|(?:{'|'.join(ZONES)})\b"
    rf"|{REGION}|{_OFFSET})"
)
_SYSLOG = rf"[A-Z][a-z]{{2}} +\d{{1,2}} \d{{2}}:\d{{2}}:\d{{2}}{_PART}"
_MAIL = r"[A-Z][a-z]{2}, \d{1,2} [A-Z][a-z]{2} \d{4} \d{2}:\d{2}:\d{2} [+-]\d{4}"  # RFC 2822
_REST_BEHIND = re.compile(r"[:.-]\d+|\w+")
_PRIORITY = r"(?:<\d{1,3}>)?"  # with which a line of syslog comes from the network
_CLOCK = rf"\d{{1,2}}:\d{{2}}:\d{{2}}{_PART}(?:{_HALF})?(?: ?{_OFFSET})?"
_YEAR_BEHIND = rf"(?: (?:{'|'.join(ZONES)}))? (?:19|20)\d{{2}}\b"
_EPOCH = r"\b1\d{9}(?:\.\d+|\d{3}|\d{6}|\d{9})?\b"
_NUMBER = re.compile(_EPOCH)
_STRUCTLOG = r"\b\d{4}-\d{2}-\d{2} \d{2}:\d{2}\.\d{2}\b"  # with its seconds behind a point
_OTHERS = (  # \b, since a date may stand in a longer number, as 26.03.04 in 2026.03.04
    _DAY_AND_TIME + _PART,
    rf"\b\d{{4}}[/.]\d{{2}}[/.]\d{{2}} (?:- )?{_CLOCK}",  # with a dash: Gin
    rf"\b\d{{4}}-\d{{2}}-\d{{2}}(?:[_\t]| +){_CLOCK}",  # MariaDB's hour may have a blank in front
    rf"\b\d{{8}}[ -]{_CLOCK}",
    rf"\b\d{{2}}\.\d{{2}}\.(?:\d{{2}})?\d{{2}},? {_CLOCK}",
    rf"\b\d{{1,2}}/\d{{1,2}}/\d{{4}}(?:,? |-){_CLOCK}",
    rf"\b\d{{1,2}}/\d{{1,2}}/\d{{2}},? {_CLOCK}",  # also Spark's own
    rf"\b\d{{2}}-\d{{2}}-\d{{4}} {_CLOCK}",
    rf"\b\d{{1,2}} [A-Z][a-z]{{2}} \d{{4}} {_CLOCK}",
    rf"\b\d{{2}}-[A-Z][a-z]{{2}}-(?:\d{{2}})?\d{{2}} {_CLOCK}",
    r"[A-Z][a-z]{2} [A-Z][a-z]{2} \d{2} \d{4} \d{2}:\d{2}:\d{2} GMT[+-]\d{4}\b",  # of JavaScript
    rf"[A-Z][a-z]{{2}} {_SYSLOG}{_YEAR_BEHIND}",
    rf"{_SYSLOG}{_YEAR_BEHIND}",
    rf"[A-Z][a-z]{{2}} +\d{{1,2}},? \d{{4}} \d{{1,2}}:\d{{2}}:\d{{2}}{_PART}(?:{_HALF})?",
    _EPOCH,
)
_GLOG = r"\d{4}(?:\d{4})? \d{2}:\d{2}:\d{2}\.\d{6}"  # month and day, in new files after the year
_LOGCAT = r"\d{2}-\d{2} \d{2}:\d{2}:\d{2}\.\d{3}"  # of Android
_LEVEL = (  # by name, since CEST is a zone
    r"(?P<level>TRACE|DEBUG|VERBOSE|INFO|NOTICE|WARN|WARNING|ERROR|SEVERE|CRITICAL|ALERT|EMERG"
    r"|FATAL|PANIC|FINE|FINER|FINEST|CONFIG)\b"
)
_REQUEST = r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}|-)'


_TIMES = (
    _CLF,
    _STRUCTLOG,
    _ISO,
    *_OTHERS,
    _SYSLOG,
)  # of two that match, the longer one comes first
_TIME = re.compile("|".join([_CLF, _ISO, *_OTHERS[:-1], _SYSLOG, r"\b1\d{12}(?:\d{3}|\d{6})?\b"]))
_LOGS = (
    Shape(rf"(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<time>{_CLF})\] {_REQUEST}"),
    Shape(rf".*?\bhaproxy\[\d+\]: (?P<client>\S+):\d+ \[(?P<time>{_DAY_AND_TIME}{_PART})\]"),
    Shape(
        rf"{_PRIORITY}(?P<time>{_SYSLOG}) (?P<host>[^\s\[\]]+) (?P<process>[^\s\[:]+)",
        _PRIORITY + _SYSLOG,
    ),
    Shape(rf"<\d{{1,3}}>1 (?P<time>{_ISO}) (?P<host>\S+) (?P<process>\S+)", r"<\d{1,3}>1 "),
    Shape(rf"\W?(?P<time>{_ISO}) (?:[A-Z]{{2,3}}T|UTC)\W+{_LEVEL}", rf"\W?{_ISO}"),
    Shape(rf"\W?(?P<time>{_ISO})\W+{_LEVEL}", rf"\W?{_ISO}"),
    Shape(rf"\W?(?P<time>{_MAIL})", rf"\W?{_MAIL}"),
    Shape(rf"(?P<level>[IWEF])(?P<time>{_GLOG})", rf"[IWEF]{_GLOG}"),
    Shape(rf"(?P<time>{_LOGCAT}) +\d+ +\d+ (?P<level>[VDIWEF])\b", _LOGCAT),
    Shape(rf"(?P<time>\d{{6}} +{_CLOCK}) ", r"\d{6} +\d{1,2}:"),  # of old MySQL
    Shape(r"(?P<time>\d{6} \d{6}) \d+ (?P<level>[A-Z]{4,8})\b", r"\d{6} \d{6} "),  # of Hadoop
)
_BEGIN = (*_LOGS, *(Shape(rf"\W?(?P<time>{time})", rf"\W?{time}") for time in _TIMES))
_ANYWHERE = tuple(Shape(rf".*?(?P<time>{time})", rf".*?{time}") for time in _TIMES)


_QUOTED = r'"(?:[^"\\]|\\.)*"'
_VALUE = rf'(?:{_QUOTED}|[^\s"]*)'
_PAIR = rf'[^\s="]+(?:={_VALUE})?'
_KEY = r"[A-Za-z_][\w.-]*"
_PAIRS = re.compile(rf'[^\s="]+={_VALUE}(?: +{_PAIR})+ *')
_KEY_AND_VALUE = re.compile(rf'([^\s="]+)=({_VALUE})(?: +|$)|{_PAIR}(?: +|$)')
_MOST_KEYS = 20
_OF_A_COLUMN = re.compile(r",\d+(?=[.,]\d)")
_A_CLOCK = re.compile(r"\b\d{1,2}:\d{2}(?::\d{2}(?:[.,]\d+)?)?\b")


def log_shape_of(lines: Sequence[str]) -> Shape | None:
    """The shape of an access log, of syslog, glog, or a time and a level, if nearly all have it."""
    for shape in _LOGS:
        first = re.compile(shape.start) if shape.start else None
        events = [line for line in lines if first is None or first.match(line)]
        matches = sum(map(bool, map(shape.expression.match, events)))
        if matches and matches >= _NEARLY * len(events) and shape.expression.match(lines[0]):
            return shape
    return None


def shape_of(lines: Sequence[str]) -> Shape | None:
    """The first shape that matches nearly as many lines as any does; None if none does.

    Times inside of lines do not count if these continue an event, as those of a traceback do.
    """
    begun, first = _most(_BEGIN, lines)
    every, shape = _most((*_BEGIN, *_ANYWHERE), lines)
    if every < max(1, ENOUGH * len(lines)):
        return None
    inside = times_inside(first, lines)
    continuing = sum(_continues(lines[at - 1 : at + 1], first) for at in inside)
    return first if begun >= _HALF_OF_THEM * every and 2 * continuing > len(inside) else shape


def _most(shapes: Sequence[Shape], lines: Sequence[str]) -> tuple[int, Shape]:
    """How many lines match at most, and the first shape that matches nearly as many."""
    counts = [sum(map(bool, map(shape.expression.match, lines))) for shape in shapes]
    pairs = zip(counts, shapes, strict=True)
    return max(counts), next(shape for count, shape in pairs if count >= _NEARLY * max(counts))


def times_inside(shape: Shape, lines: Sequence[str]) -> list[int]:
    """The indexes of the lines that an event does not begin with, but that have such a time."""
    if shape not in _BEGIN or shape.start is None:
        return []
    begins, has = re.compile(shape.start), re.compile(rf".+?(?:{shape.start})")
    return [at for at, line in enumerate(lines) if not begins.match(line) and has.match(line)]


def _continues(two: Sequence[str], shape: Shape) -> bool:
    """Whether the second of two lines is indented, or stands below one without a time."""
    has = re.compile(rf".*?(?:{shape.start})")
    return bool(two) and (two[-1][:1].isspace() or not has.match(two[0]))


def clocks_before(matches: Sequence[re.Match[str]]) -> list[str]:
    """What looks like times in front of the times of at least half of some lines; else none."""
    found = [_A_CLOCK.search(each.string, 0, each.start("time")) for each in matches]
    clocks = [clock[0] for clock in found if clock]
    return clocks if 2 * len(clocks) >= len(matches) else []


def led_otherwise(matches: Sequence[re.Match[str]]) -> list[str]:
    """The lines whose time stands behind other text than that of most lines."""
    forms = [_form(each.string[: each.start("time")]) for each in matches]
    ((most, count),) = Counter(forms).most_common(1)
    others = [each.string for each, form in zip(matches, forms, strict=True) if form != most]
    return others if 2 * count >= len(matches) else []


def _form(text: str) -> str:
    """A text without its letters and digits, but for where words and numbers stand."""
    return re.sub(r"\d+", "0", re.sub(r"[^\W\d]+", "a", text))


def columns_in_times(matches: Sequence[re.Match[str]]) -> list[str]:
    """The ends of the times of at least half of some lines, which may be a column of a table."""
    found = [_OF_A_COLUMN.search(each.string, each.start("time")) for each in matches]
    ends = [
        column[0]
        for column, each in zip(found, matches, strict=True)
        if column and column.end() == each.end("time")
    ]
    return ends if 2 * len(ends) >= len(matches) else []


def has_time(line: str) -> bool:
    """Whether a time stands anywhere in a line."""
    return _TIME.search(line) is not None


def other_times(matches: Sequence[re.Match[str]]) -> list[str]:
    """The times that stand behind those taken, or before, in at least half of some lines."""
    behind = [_TIME.search(each.string, each.end("time")) for each in matches]
    before = [_TIME.search(each.string, 0, each.start("time")) for each in matches]
    found = ([other[0] for other in others if other] for others in (behind, before))
    return next((times for times in found if 2 * len(times) >= len(matches)), [])


def other_numbers(matches: Sequence[re.Match[str]]) -> list[str]:
    """The numbers behind those taken that could be times as well, in at least half of some lines.

    A number of one line alone, in both places, is the same time again.
    """
    behind = [_NUMBER.search(each.string, each.end("time")) for each in matches]
    found = [
        other[0]
        for other, each in zip(behind, matches, strict=True)
        if other and other[0] != each["time"]
    ]
    return found if 2 * len(found) >= len(matches) else []


def zones_behind(matches: Sequence[re.Match[str]]) -> frozenset[str]:
    """The names of zones that stand behind the times of lines, as in "13:00:00 CET"."""
    behind = (_ZONE_BEHIND.match(each.string, each.end("time")) for each in matches)
    return frozenset(found[1] for found in behind if found)


def rests_behind(matches: Sequence[re.Match[str]]) -> list[str]:
    """What may belong to the times of at least half of some lines, and is not read; else none."""
    found = [
        _REST_BEHIND.match(each.string, each.end("time"))
        for each in matches
        if not _ZONE_BEHIND.match(each.string, each.end("time"))
    ]
    rests = [rest[0] for rest in found if rest]
    return rests if 2 * len(rests) >= len(matches) else []


def logfmt_shape_of(lines: Sequence[str]) -> Shape | None:
    """The shape of lines of `key=value` that begin with the same key; None if few are such lines.

    Its groups are the first keys that at least half of the lines have, in their usual order.
    """
    items = [_KEY_AND_VALUE.findall(line) for line in lines if _PAIRS.fullmatch(line)]
    items = [item for item in items if sum(bool(key) for key, _ in item) > 1]  # a word has none
    firsts = {item[0][0] for item in items}
    if len(items) < _MOST_LOGFMT * len(lines) or len(firsts) != 1:
        return None
    (first,) = firsts
    if not re.fullmatch(_KEY, first):  # as CEF's header, up to the first "="
        return None
    places, values = defaultdict[str, list[int]](list), defaultdict[str, list[str]](list)
    for item in items:
        for place, (key, value) in enumerate(item):
            places[key].append(place)
            values[key].append(value)
    keys = [key for key in places if re.fullmatch(r"[A-Za-z_][A-Za-z0-9_]*", key)]
    keys = [key for key in keys if 2 * len(places[key]) >= len(items)]
    keys.sort(key=lambda key: sum(places[key]) / len(places[key]))
    head = rf"{re.escape(first)}={_VALUE}" if first not in keys else _group(first, values[first])
    rest = [
        rf"(?:(?: +{_PAIR})*? +{_group(key, values[key])})?"
        for key in keys[:_MOST_KEYS]
        if key != first
    ]
    return Shape("".join([head, *rest]), f"{_KEY}=")  # with another first key it is a reject


def _group(key: str, values: Sequence[str]) -> str:
    """The pattern of a pair; the group has no quotes if all values have some."""
    if all(value.startswith('"') for value in values):
        return rf'{key}="(?P<{key}>(?:[^"\\]|\\.)*)"'
    return rf"{key}=(?P<{key}>{_QUOTED}|\S*)"
