"""Short lakes with an hourly run each, whose events come as a person knows them by name.

steady   an event every 20 s
bursty   the same, and 400 more in one minute of the third hour
empty    the same, but none in the third hour
late     the same, and the fourth run ends with 20 events of the first hour
"""

import json
from collections.abc import Mapping
from pathlib import Path

from tests.makers.watched import BEGIN_MS, HOUR_MS, ingest_hour

HOURS, EVERY_MS, LATE = 5, 20_000, 20
BURST_MS = BEGIN_MS + 2 * HOUR_MS + 30 * 60_000
_FINE = {"partitions": 1, "batch.size": 512, "index.interval.bytes": 512}  # of a few records
_STEADY = {
    hour: [*range(BEGIN_MS + hour * HOUR_MS, BEGIN_MS + (hour + 1) * HOUR_MS, EVERY_MS)]
    for hour in range(HOURS)
}
STREAMS: Mapping[str, Mapping[int, list[int]]] = {
    "steady": _STEADY,
    "bursty": {**_STEADY, 2: sorted([*_STEADY[2], *range(BURST_MS, BURST_MS + 60_000, 150)])},
    "empty": {**_STEADY, 2: []},
    "late": {**_STEADY, 3: [*_STEADY[3], *_STEADY[0][:LATE]]},
}


def hourly_lake(folder: Path, kind: str) -> str:
    """Make the lake; returns its root. Each hour is a run that declares it, the empty one too."""
    for hour, times in STREAMS[kind].items():
        path = folder / "in" / f"{hour:03}.jsonl"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(f"{json.dumps({'ts': time, 'user': 'u'})}\n" for time in times))
        ingest_hour(folder, path, hour, **_FINE)
    return str(folder / "lake")
