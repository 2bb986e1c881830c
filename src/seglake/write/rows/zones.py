"""Names of zones beside times, such as CET and Europe/Paris, which formats have as they stand."""

import re
from collections.abc import Iterable, Iterator, Sequence

ZONES = (
    "UTC", "GMT", "WET", "WEST", "BST", "CET", "CEST", "MEZ", "MESZ", "EET", "EEST", "MSK", "IST",
    "JST", "KST", "HKT", "SGT", "AEST", "AEDT", "ACST", "ACDT", "AWST", "NZST", "NZDT", "EST",
    "EDT", "CST", "CDT", "MST", "MDT", "PST", "PDT",
)  # fmt: skip
UTC_ZONES = frozenset({"UTC", "GMT"})
REGION = (  # a name of IANA
    "(?:Africa|America|Antarctica|Arctic|Asia|Atlantic|Australia|Etc|Europe|Indian|Pacific)"
    r"(?:/[\w+-]+)+"
)
_BESIDE = re.compile(
    rf"( ?[(\[]?)(?<![A-Za-z])({REGION}|(?:{'|'.join(ZONES)})(?![A-Za-z/+-])"
    r"|(?<=\()[A-Z][a-z]+(?: [A-Z][a-z]+)+(?=\)))([)\]]?)"  # as browsers have it
)
_OF_ISO = tuple(
    f"%Y-%m-%d{between}{clock}{offset}"
    for between in " T"
    for clock in ("%H:%M:%S", "%H:%M:%S.%f", "%H:%M:%S,%f", "%H:%M")
    for offset in ("", "%z", " %z")
)
_OF_DATE = (  # which Java and the command `date` write
    "%a %b %e %H:%M:%S %Z %Y",
    "%a %b %e %I:%M:%S %p %Z %Y",
    "%a %e %b %H:%M:%S %Z %Y",
)


def zoned(texts: Iterable[str], patterns: Sequence[str]) -> Iterator[str]:
    """The patterns, and those of ISO 8601, with the name of a zone as these times have one.

    A pattern has %Z for names of UTC, which are read, and other names as they are.
    """
    found = dict.fromkeys(match.groups() for text in texts if (match := _BESIDE.search(text)))
    for before, zone, after in found:
        name = "%Z" if zone in UTC_ZONES else zone
        for pattern in (*_OF_ISO, *_OF_DATE, *patterns):
            if "%Z" in pattern:
                yield pattern.replace("%Z", name)
            elif "%M" in pattern:
                yield f"{pattern}{before}{name}{after}"


def zones_in(form: str) -> frozenset[str]:
    """The name of a zone that a format has as it is."""
    return frozenset(match[2] for match in _BESIDE.finditer(re.sub("%.", "0", form)))
