"""Compile every kernel once, so that nobody's first command waits for it.

Kernels are compiled on first use and kept beside the sources, or in the user's cache where those
cannot be written. `python -m seglake.warm` takes a few events of each input format through the
whole path: read, encode with every codec, write, look up, read back. No JVM starts.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from seglake.config import Pipeline
from seglake.ingest.engine import LocalEngine
from seglake.ingest.pipeline import RunKey, ingest_files
from seglake.read.lake import open as open_lake

EVENTS = 300
TIMES = ("epoch_ms", "iso8601", "%d/%b/%Y:%H:%M:%S %z")
CODECS = ("none", "gzip", "snappy", "lz4", "zstd")


def main() -> None:
    """Take a few events of every kind through a lake that is thrown away."""
    with tempfile.TemporaryDirectory(prefix="seglake-warm-") as folder:
        for number, (name, settings) in enumerate(_inputs(Path(folder)).items()):
            for order in ("time", "arrival"):
                _round_trip(Path(folder), f"{name}-{order}", order, number, settings)


def _inputs(folder: Path) -> dict[str, dict[str, Any]]:
    """A small file of each format with its settings."""
    jsonl = '{{"ts":{0},"user":"u\\u00e9{0}","path":"/a b","n":{{"m":[1,2.5e3,null]}}}}\n'
    contents = {
        "jsonl": "".join(jsonl.format(1_700_000_000_000 + 7 * i) for i in range(EVENTS)),
        "csv": "ts,user\n" + "".join(
            f'2026-11-20T01:{i % 60:02}:00Z,"u ""{i}"""\n' for i in range(EVENTS)
        ),
        "text": "".join(
            f"u{i} [20/Nov/2026:01:02:{i % 60:02} +0000] GET\n" for i in range(EVENTS)
        ),
    }  # fmt: skip
    pattern = r"(?P<user>\S+) \[(?P<ts>[^\]]+)\]"
    inputs = {}
    for (name, text), time in zip(contents.items(), TIMES, strict=True):
        (folder / name).write_text(text + "broken\n")
        source = {"paths": [str(folder / name)], "format": name}
        inputs[name] = {
            "input": {**source, "pattern": pattern} if name == "text" else source,
            "timestamp": {"field": "ts", "format": time},
            "key": {"fields": ["user"]},
            "headers": {"fields": ["user"]},
        }
    return inputs


def _round_trip(folder: Path, name: str, order: str, number: int, settings: dict[str, Any]) -> None:
    topic = {"name": name, "partitions": 2, "batch.size": 2048, "compression.type": CODECS[number]}
    tables = {
        **settings,
        "name": name,
        "root": str(folder / "lake"),
        "order": order,
        "topic": topic,
    }
    ingest_files(LocalEngine(), Pipeline.model_validate(tables), RunKey("warm"), lambda _step: None)
    log = open_lake(str(folder / "lake")).topic(name)
    for partition, end in log.end_offsets().items():
        if end:
            middle = log.record_at(partition, end // 2)
            log.offsets_for_times({partition: middle.timestamp})
            log.read_range(middle.timestamp, middle.timestamp + 1000).read_all()
            log.read_range(0, 2**60, order="time").read_all()


if __name__ == "__main__":
    main()
