"""What the names of fields say: that a field is a time, a key, or another number."""

from __future__ import annotations

import re
from collections.abc import Collection, Sequence

Words = Sequence[Sequence[str]]  # groups of words that say the same, the most telling first

_OF_A_NUMBER = {"phone", "telephone", "telefon", "tel", "mobile", "handy", "fax", "number",
                "nummer", "num", "no", "nr", "id", "uid", "code", "zip", "plz", "ean", "isbn",
                "iban", "account", "konto", "serial", "seq", "sequence", "barcode", "sscc",
                "gtin", "imei", "msisdn", "tracking"}  # fmt: skip
_SAYS_TIME = re.compile(
    r"(?:time|date|datum|epoch|zeit|fecha|heure|hora).*|.*(?:time|date|datum|stamp|zeit)|"
    r"t|dt|dth|day|start|end|begin|started|ended|updated|modified|logged|seen|unix|"
    r"ora|orario|tid|tidpunkt|klockslag|skapad|dato|oprettet|czas|godzina|aika|hour|uhrzeit|uzeit|"
    r".*zet|cputm"  # of SAP
)
_DATE_ALONE = "data"  # a date in Italian, Portuguese and Polish, and all else in English
_OF_A_ZONE = {"tz", "zone", "timezone", "utcoffset", "tzoffset", "gmtoffset", "zeitzone", "fuso"}
_OF_A_DURATION = {"duration", "dauer", "duree", "duracion", "durata", "elapsed", "length", "lead",
                  "runtime", "uptime", "downtime", "overtime", "response", "wait", "waiting",
                  "travel", "cycle", "processing", "age", "interval", "total"}  # fmt: skip
_TIME_WORDS = ("timestamp", "datetime", "time", "ts", "date", "at", "when", "created", "occurred")
OF_A_TIME = tuple((word,) for word in _TIME_WORDS)
_NUMBERS = {"no", "nr", "number", "nummer", "num", "numero", "code"}
_SAY_NOTHING = {"name", "uuid", "guid", "hash", "uid", "remote", "addr", "event", "utc", "local",
                "ms", "log", "of", "the"} | _NUMBERS  # fmt: skip
_IDS = {"id", "key", "uuid", "guid", "uid"} | _NUMBERS
_ID_BEHIND = re.compile("(.+?)(nr|nummer|number|id)")  # in one word, as in kundennr
DEPTH = 2  # the place in a rank that says how deep a field is nested
_WORDS = re.compile(r"[A-Z]?[a-z]+|[A-Z]+(?![a-z])|\d+")


def says_time(field: str) -> bool:
    """Whether a name has the word of a time."""
    words = own_words(field)
    if words == [_DATE_ALONE]:
        return True
    return any(word in _TIME_WORDS or _SAYS_TIME.fullmatch(word) for word in words)


def says_number(field: str) -> bool:
    """Whether a name is that of a number which is no time, such as phone, order_no, created_by_id.

    It is by its last word, or by any if no word is that of a time.
    """
    words = own_words(field)
    last = words[-1:] if says_time(field) else words
    return not _OF_A_NUMBER.isdisjoint(last)


def says_zone(field: str) -> bool:
    """Whether a name has the word of a zone, or of an offset from UTC."""
    words = {*own_words(field)}
    return bool(words & _OF_A_ZONE or ("offset" in words and words & {"utc", "gmt", "time"}))


def says_duration(field: str) -> bool:
    """Whether a name has the word of a length of time."""
    return not _OF_A_DURATION.isdisjoint(own_words(field))


def is_named(field: str, words: Words) -> bool:
    """Whether a name has one of some words, and none that says another thing."""
    return rank(field, words)[0] < len(words)


def rank(field: str, words: Words) -> tuple[int, int, int, int]:
    """How telling the name of a field is, the best first: by the words at the end of its path.

    Words of a group say the same. Beside one of the words, only such stand as say no other thing:
    user_id, but not user_agent. An id or a number is better than no such word, and a name, which
    others may have, too, is worse.
    """
    every = {word for group in words for word in group}
    path = field.split(".")
    own = [part for word in own_words(field) for part in _parts(word, every)]
    if len(path) > 1 and (_SAY_NOTHING | _IDS).issuperset(own):  # host.name, user.id
        own += [word.lower() for word in _WORDS.findall(path[-2])]
    at = next((at for at, group in enumerate(words) if {*group} & {*own}), len(words))
    rest = {*own} - every - _SAY_NOTHING
    sure = 0 if _IDS.intersection(own) else 2 if "name" in own else 1
    return (len(words) if rest else at), sure, len(path), len(own)


def _parts(word: str, known: Collection[str]) -> tuple[str, ...]:
    """A known word and "id", or the like, if a word is made of both; else the word itself."""
    found = None if word in known else _ID_BEHIND.fullmatch(word)
    return found.groups() if found and found[1] in known else (word,)


def own_words(field: str) -> list[str]:
    """The words of the last name of a field's path."""
    return [word.lower() for word in _WORDS.findall(field.rpartition(".")[2])]
