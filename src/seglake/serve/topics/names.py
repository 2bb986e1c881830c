"""Names that make a topic of the server: `TOPIC.START.END`, `TOPIC.v12`, `TOPIC.TAG`, `….x10`.

START and END are times such as `20260601T120000.000Z`; the milliseconds may be left out. `.v12` is
a version of the catalog, and `.q3-train` is the version of the tag `q3-train`. `.x10` is a replay
of a window at ten times the speed; one more part, as in `.x10.again`, makes another such replay.
The parts have this order.
"""

from __future__ import annotations

import re
from collections.abc import Container
from typing import NamedTuple

from seglake.catalog.tags import NAME
from seglake.errors import UsageError
from seglake.times.instants import to_epoch_ms

_TIME = r"\d{8}T\d{6}(?:\.\d{1,3})?Z"
_WINDOW = rf"(?P<topic>.+?)(?:\.(?P<start>{_TIME})\.(?P<end>{_TIME}))?"
_SPEED = r"\.x(?P<speed>\d{1,6})(?:\.[a-zA-Z0-9_-]+)?"
_REST = rf"(?:\.v(?P<version>\d{{1,18}}))?(?:{_SPEED})?"
_PLAIN = re.compile(_WINDOW + _REST)
_KEYED = re.compile(r"\.key(?:64)?\.")
_TAGGED = re.compile(rf"(?P<before>.+)\.(?P<tag>{NAME})")
_REPLAYED = re.compile(rf"(?P<before>.+)\.(?P<tag>{NAME})(?P<replay>{_SPEED})")


class Derived(NamedTuple):
    """What a name asks for: all of a topic or a window [start_ms, end_ms), a version, a speed.

    The version has a number, or is that of a tag.
    """

    topic: str
    start_ms: int | None = None
    end_ms: int | None = None
    version: int | None = None
    speed: int | None = None
    tag: str | None = None


def parse(
    name: str, topics: Container[str] = (), tags: Container[str] | None = ()
) -> Derived | None:
    """What the name asks for; None for a plain name. Raises UsageError for impossible values.

    `topics` and `tags` are those of the lake; with None any name may be a tag. A name that means
    something without a tag, of a topic of the lake, keeps that meaning, whatever tags there are.
    """
    asked = _parsed(name, name)
    if asked is not None and asked.topic in topics:
        return asked
    return _tagged(name, topics, tags) or asked


def _parsed(text: str, name: str) -> Derived | None:
    """What the text, a name without its tag, asks for; None for the whole of a plain name."""
    plain, has_tag = _PLAIN.fullmatch(text), text != name
    if plain is None or not (has_tag or plain["start"] or plain["version"]):
        return None
    return _derived(name, plain)


def _tagged(name: str, topics: Container[str], tags: Container[str] | None) -> Derived | None:
    """What a name with a tag asks for; None if it has none of the tags."""
    for match in (_TAGGED.fullmatch(name), _REPLAYED.fullmatch(name)):
        if match is None or not (tags is None or match["tag"] in tags):
            continue
        before, replay = match["before"], match.groupdict().get("replay", "")
        if before in topics and not replay:
            return Derived(before, tag=match["tag"])
        asked = _parsed(before + replay, name)
        if asked is not None and asked.version is None:
            return asked._replace(tag=match["tag"])
    return None


def why_none(name: str, topics: Container[str]) -> str:
    """What is wrong with a name that begins with a topic of the lake, to stand behind a message."""
    parts = name.split(".")
    begins = (".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
    topic = next((begin for begin in begins if begin in topics), None)
    if topic is None:
        return ""
    return (
        f": what follows {topic} is no window, as in {topic}.20260601T120000Z.20260601T130000Z, and"
        " no version or tag"
    )


def holds_key(name: str, topics: Container[str]) -> bool:
    """Return whether a name is one of a topic for a single key, as earlier builds served them.

    `topics` are all topics of the lake: a topic may have `.key.` in its own name.
    """
    if name in topics or not _KEYED.search(name):
        return False
    try:
        asked = parse(name, topics, tags=None)
    except UsageError:
        return True
    return asked is None or asked.topic not in topics


def _derived(name: str, match: re.Match[str]) -> Derived:
    version = None if match["version"] is None else int(match["version"])
    speed = None if match["speed"] is None else int(match["speed"])
    if match["start"] is None:
        if speed is not None:
            raise UsageError(f"{name}: a replay needs a window: TOPIC.START.END.x{speed}")
        return Derived(match["topic"], version=version)
    start, end = _milliseconds(name, match["start"]), _milliseconds(name, match["end"])
    if end <= start:
        what = "the window would end at or before its start; swap the times"
        raise UsageError(f"{name}: {what}")
    if speed == 0:
        raise UsageError(f"{name}: a replay at speed 0 never begins; use x1 or more")
    return Derived(match["topic"], start, end, version, speed)


def _milliseconds(name: str, text: str) -> int:
    try:
        return to_epoch_ms(text)
    except UsageError:
        what = f"{text} is no time; write 20260601T120000.000Z"
        raise UsageError(f"{name}: {what}") from None
