"""The runs that fill a lake: every format, order, codec, index policy and clock, small throughout.

Splits, blobs and pieces are so small that files are cut, blobs overlap and the hot key's log
partition is written in several pieces.
"""

from __future__ import annotations

from collections.abc import Iterator
from functools import partial
from typing import Any, NamedTuple

from tests.stored.events import START
from tests.stored.steady import MINUTE_MS, Clock, Tables, ingest, tables

CUT = {
    "split_bytes": 2500, "chunk_bytes": 1200, "blob_bytes": 600, "merge_bytes": 2000,
    "piece_bytes": 4000,
}  # fmt: skip
PATTERN = r"(?P<time>\S+ \S+) (?P<level>[A-Z]+) \[(?P<user>[^\]]*)\] (?P<text>.*)"
LAPSE = 9  # of the ticks, the one that declares no interval
TICKS = 20


class Run(NamedTuple):
    """A run; `rival` is one that commits before it, and makes it move its segments."""

    settings: Tables
    run_id: str = "1"
    interval: tuple[int, int] | None = None
    rival: Run | None = None


def topic(codec: str, partitions: int = 3, **more: Any) -> dict[str, Any]:
    """A topic's table, with segments and batches of a few records."""
    small = {"segment_bytes": 6000, "segment_ms": 604_800_000, "batch_size": 700, **more}
    settings = {name.replace("_", "."): each for name, each in small.items()}
    return {"partitions": partitions, "compression.type": codec, **settings}


def web(name: str, codec: str, order: str, **more: Any) -> Tables:
    """JSON lines, plain and packed, some of them broken."""
    how = {"pipeline": {"order": order}, "task": CUT, "topic": topic(codec, **more)}
    return tables(name, "web/**", "jsonl", **how)


def of_lines() -> Iterator[Run]:
    """JSON lines in both orders."""
    yield Run(web("web", "none", "time", index_interval_bytes=300), interval=(START, START + 60))
    arrival = web("arrived", "snappy", "arrival", index_interval_bytes=700)
    headers = {"fields": ["level", "absent"], "source": True}
    columns = {"from": "columns", "columns": ["n", "text"]}
    yield Run({**arrival, "headers": headers, "value": columns})
    placed = web("placed", "zstd", "time", index_interval_bytes=500, max_message_bytes=700)
    named = {**placed["topic"], "partition_field": "p", "batch.size": 300}
    keyed = {"fields": ["user"], "required": True}
    text = {"from": "field", "field": "text"}
    yield Run({**placed, "topic": named, "key": keyed, "value": text})


def of_tables() -> Iterator[Run]:
    """CSV and Parquet in both orders."""
    csv = {"timestamp": {"field": "time", "format": "iso8601"}, "task": CUT}
    yield Run(
        tables(
            "csv", "csv/*", "csv", **csv, input={"multiline": False},
            key={"fields": ["user", "level"], "separator": "|"},
            value={"from": "columns", "columns": ["n", "text"]},
            topic=topic("lz4", index_interval_bytes=400),
        )
    )  # fmt: skip
    dense = topic("zstd", 2, index_interval_bytes=0, compression_zstd_level=9)
    arrival = {"pipeline": {"order": "arrival"}, **csv}
    yield Run(tables("breaks", "breaks", "csv", **arrival, topic=dense, key={"fields": "user"}))
    parquet: dict[str, Any] = {"timestamp": {"field": "at"}, "key": {"fields": "user"}, "task": CUT}
    yield Run(tables("parquet", "parquet", "parquet", **parquet, topic=topic("snappy")))
    parquet["headers"] = {"fields": ["level", "place.p"]}
    of_one = {"pipeline": {"order": "arrival"}, "value": {"from": "field", "field": "place.ok"}}
    stamped = topic("lz4", 1, message_timestamp_type="LogAppendTime")
    yield Run(tables("rows", "parquet", "parquet", **parquet, **of_one, topic=stamped))


def of_text() -> Iterator[Run]:
    """Text by a pattern, and archives."""
    written = {"field": "time", "format": "%Y-%m-%d %H:%M:%S.%f", "zone": "Europe/Brussels"}
    yield Run(
        tables(
            "text", "text", "text", input={"pattern": PATTERN}, timestamp=written, task=CUT,
            key={"fields": ["user"]}, headers={"fields": ["level"]}, topic=topic("zstd", 2),
        )
    )  # fmt: skip
    archived = {"headers": {"source": True}, "topic": topic("none", 2, segment_ms=4000)}
    yield Run(tables("tar", "tar", "jsonl", **archived, task=CUT))


def of_races() -> Iterator[Run]:
    """Runs that lose a race, under both clocks."""
    clocks = {"raced": "CreateTime", "stamped": "LogAppendTime"}
    for name, clock in clocks.items():
        settings = topic("lz4", 2, message_timestamp_type=clock, index_interval_bytes=250)
        mine, other = (tables(name, f"more/{file}.jsonl", "jsonl", topic=settings) for file in "ef")
        other["pipeline"] = {**other["pipeline"], "name": "rival"}
        yield Run(mine, interval=(START, START + 9), rival=Run(other))


def of_reruns() -> Iterator[Run]:
    """The topic web grows; then a run finds all its files ingested; a topic gets no record."""
    grown = web("web", "none", "time", partitions=4, index_interval_bytes=300)
    more = {**grown, "input": {**grown["input"], "paths": ["/proc/self/cwd/in/more"]}}
    yield Run(more, "2", (START + 60, START + 99))
    yield Run(grown, "3")
    yield Run(tables("silent", "empty", "jsonl", topic=topic("zstd", 2)))


def of_ticks() -> Iterator[Run]:
    """Many small commits to a topic, so that the catalog merges files and writes a checkpoint."""
    for number in range(TICKS):
        begins = START + number * MINUTE_MS
        interval = None if number == LAPSE else (begins, begins + MINUTE_MS)
        settings = tables("ticks", f"ticks/{number:02}.jsonl", "jsonl", topic=topic("zstd", 1))
        settings["pipeline"]["name"] = f"tick-{number:02}"
        yield Run(settings, "1", interval)


def of_gzip() -> Iterator[Run]:
    """JSON lines in both orders with the codec whose bytes depend on the machine's zlib."""
    roomy = {"segment_bytes": 2**30, "index_interval_bytes": 900}
    whole = {"task": {**CUT, "piece_bytes": 2**28}}  # nothing is cut by its compressed size
    yield Run({**web("gzip-time", "gzip", "time", **roomy), **whole})
    arrival = web("gzip-arrival", "gzip", "arrival", **roomy, compression_gzip_level=9)
    yield Run({**arrival, **whole})


def run(clock: Clock, each: Run) -> dict[str, Any]:
    """Do a run, a minute after the one before; returns its report."""
    clock.ms += MINUTE_MS
    rival = None if each.rival is None else partial(run, clock, each.rival)
    return ingest(each.settings, each.run_id, each.interval, rival)


def runs() -> list[Run]:
    """All runs whose bytes are the same everywhere, in their order."""
    several = (of_lines, of_tables, of_text, of_races, of_reruns, of_ticks)
    return [each for some in several for each in some()]
