"""A lake with something to see: hourly runs, one missing, rejects, a clock that is wrong."""

import json
import random
from pathlib import Path

from seglake.config import from_tables
from seglake.engine import LocalEngine
from seglake.write.driver.run import DeclaredRun, ingest_files

TOPIC = "web"
BEGIN_MS = 1_780_272_000_000  # 2026-06-01
HOUR_MS = 3_600_000
HOURS, MISSING = 30, 11
NOW_MS = BEGIN_MS + (HOURS + 5) * HOUR_MS
REJECTED_EACH = 7  # every so many hours has rejects
FUTURE_MS = NOW_MS + 48 * HOUR_MS


def watched_lake(folder: Path, *, hours: int = HOURS, events: int = 400) -> str:
    """Make the lake; returns its root. Hour `MISSING` was never ingested."""
    chance = random.Random(1)
    for hour in range(hours):
        if hour != MISSING:
            path = folder / "in" / f"{hour:03}.jsonl"
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text("".join(_lines(chance, hour, events)))
            ingest_hour(folder, path, hour)
    return str(folder / "lake")


def _lines(chance: random.Random, hour: int, events: int) -> list[str]:
    start = BEGIN_MS + hour * HOUR_MS
    count = events + events * (hour % 24) // 6
    times = sorted(start + chance.randrange(HOUR_MS) for _ in range(count))
    late = [max(0, time - chance.randrange(90_000)) for time in times]
    rows = [json.dumps({"ts": t, "user": f"u{chance.randrange(40)}", "n": t % 977}) for t in late]
    if hour % REJECTED_EACH == 3:
        rows[5:5] = ['{"user": "u1"}', '{"ts": "yesterday", "user": "u2"}']
    if hour == 20:
        rows.append(json.dumps({"ts": FUTURE_MS, "user": "u3", "n": 1}))
    return [f"{row}\n" for row in rows]


def ingest_hour(folder: Path, path: Path, hour: int, **settings: object) -> None:
    """Ingest a file as the run that declares an hour, counted from `BEGIN_MS`.

    `settings` are the topic's.
    """
    start = BEGIN_MS + hour * HOUR_MS
    pipeline = from_tables(
        {
            "pipeline": {"root": str(folder / "lake"), "name": "hourly", "order": "time"},
            "input": {"format": "jsonl", "paths": [str(path)]},
            "timestamp": {"field": "ts", "format": "epoch_ms"},
            "key": {"fields": ["user"]},
            "topic": {"name": TOPIC, "partitions": 4, "compression.type": "zstd", **settings},
        }
    )
    run = DeclaredRun(f"hour {hour:03}", (start, start + HOUR_MS))
    ingest_files(LocalEngine(), pipeline, run)
