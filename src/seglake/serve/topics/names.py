"""Names that make a topic of the server: `TOPIC.START.END`, `TOPIC.v12`, `TOPIC.START.END.x10`.

START and END are times such as `20260601T120000.000Z`; the milliseconds may be left out. `.v12` is
a version of the catalog. `.x10` is a replay at ten times the speed; one more part, as in
`.x10.again`, makes another such replay. The parts stand in this order.
"""

from __future__ import annotations

import re
from typing import NamedTuple

from seglake.errors import UsageError
from seglake.times.instants import to_epoch_ms

_TIME = r"\d{8}T\d{6}(?:\.\d{1,3})?Z"
_NAME = re.compile(
    rf"(?P<topic>.+?)(?:\.(?P<start>{_TIME})\.(?P<end>{_TIME}))?(?:\.v(?P<version>\d{{1,18}}))?"
    r"(?:\.x(?P<speed>\d{1,6})(?:\.[a-zA-Z0-9_-]+)?)?"
)


class Derived(NamedTuple):
    """What a name asks for: all of a topic or a window [start_ms, end_ms), a version, a speed."""

    topic: str
    start_ms: int | None = None
    end_ms: int | None = None
    version: int | None = None
    speed: int | None = None


def parse(name: str) -> Derived | None:
    """What the name asks for; None for a plain name. Raises UsageError for impossible values."""
    found = _NAME.fullmatch(name)
    if found is None or (found["start"] is None and found["version"] is None):
        return None
    version = None if found["version"] is None else int(found["version"])
    speed = None if found["speed"] is None else int(found["speed"])
    if found["start"] is None:
        if speed is not None:
            raise UsageError(f"{name}: a replay needs a window: TOPIC.START.END.x{speed}")
        return Derived(found["topic"], version=version)
    start, end = _milliseconds(name, found["start"]), _milliseconds(name, found["end"])
    if end <= start:
        raise UsageError(f"{name}: the window would end at or before its start; swap the times")
    if speed == 0:
        raise UsageError(f"{name}: a replay at speed 0 never begins; use x1 or more")
    return Derived(found["topic"], start, end, version, speed)


def _milliseconds(name: str, text: str) -> int:
    try:
        return to_epoch_ms(text)
    except UsageError:
        raise UsageError(f"{name}: {text} is no time; write 20260601T120000.000Z") from None
