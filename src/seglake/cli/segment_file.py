"""Print a Kafka file of a segment as text, for `seglake dump`. It needs no catalog.

The base offset is in the file's name, as in Kafka. The output is like the output of
DumpLogSegments, but damage ends the program with an error and exit code 1.
"""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

import json
import re
import sys
from collections.abc import Iterable, Iterator
from typing import Any

import numpy as np

from seglake.errors import CorruptData, MissingObject, UsageError
from seglake.format.batch import CODEC_MASK, CONTROL, LOG_APPEND_TIME, TIMESTAMP_TYPES
from seglake.format.codecs.compression import NAMES
from seglake.format.index import OffsetIndex, TimeIndex
from seglake.limits import INT64_MAX
from seglake.log.execute import SCHEMA, records_of
from seglake.log.fetch import Chunk, LogFetch
from seglake.log.segment import LogSegment
from seglake.store import Store, open_store

Columns = dict[str, Any]


def dump_file(file: str, *, deep: bool, as_json: bool, iso: bool) -> None:
    """Print the content of a segment's file to standard output, as text or as JSON lines."""
    folder, _, name = file.rpartition("/")
    match = re.fullmatch(r"([0-9]{20})\.(log|index|timeindex)", name)
    if not match:
        raise UsageError(
            f"{file} is not the name of a Kafka segment's file. Name a file such as "
            "00000000000000000000.log, .index or .timeindex"
        )
    base_offset, suffix = int(match[1]), match[2]
    if deep and suffix != "log":
        raise UsageError("--deep is only valid for .log files")
    store = open_store(folder or ".")
    chunks = _chunks(store, folder, name, base_offset)
    try:
        if deep:
            _print_records(chunks, iso=iso)
        else:
            of_file = _batches(chunks) if suffix == "log" else _index(store, name, base_offset)
            for columns in of_file:
                _print(columns, as_json=as_json)
    except CorruptData as damage:
        raise damage.within(name) from damage
    except MissingObject:
        raise UsageError(
            f"{file} does not exist. `seglake segments ROOT TOPIC --json` lists the paths of files"
        ) from None


def _print(columns: Columns, *, as_json: bool) -> None:
    values = zip(*(np.asarray(column).tolist() for column in columns.values()), strict=True)
    if as_json:
        lines = (json.dumps(dict(zip(columns, row, strict=True))) for row in values)
    else:
        form = "  ".join(f"{name.replace('_', ' ')}: {{}}" for name in columns)
        lines = (form.format(*row) for row in values)
    sys.stdout.writelines(f"{line}\n" for line in lines)


def _chunks(store: Store, folder: str, name: str, base_offset: int) -> Iterator[Chunk]:
    topic, partition = _topic_partition(folder)
    segment = LogSegment(topic, partition, name, "", base_offset, INT64_MAX, store.size(name), 0)
    yield from LogFetch(store).chunks([segment.whole()])


def _topic_partition(folder: str) -> tuple[str, int]:
    """Return (topic, partition) from the name of the folder, or of its parent as in a lake."""
    for part in folder.split("/")[:-3:-1]:
        match = re.fullmatch(r"([a-zA-Z0-9._-]+)-([0-9]{1,10})", part)
        if match:
            return match[1], int(match[2])
    return "", 0


def _batches(chunks: Iterable[Chunk]) -> Iterator[Columns]:
    for chunk in chunks:
        table = chunk.table
        yield {
            "base_offset": table["base_offset"],
            "last_offset": table["last_offset"],
            "count": table["count"],
            "position": chunk.log_positions,
            "size": table["size"],
            "max_timestamp": table["max_timestamp"],
            "timestamp_type": np.where(
                table["attributes"] & LOG_APPEND_TIME, *reversed(TIMESTAMP_TYPES)
            ),
            "codec": np.array([*NAMES, "?", "?", "?"])[table["attributes"] & CODEC_MASK],
            "control": (table["attributes"] & CONTROL) != 0,
        }


def _print_records(chunks: Iterable[Chunk], *, iso: bool) -> None:
    from seglake.cli.record_formats import iso_batches, json_lines

    for chunk in chunks:
        batches = records_of(chunk, SCHEMA)
        for batch in iso_batches(batches) if iso else batches:
            sys.stdout.buffer.write(json_lines(batch))


def _index(store: Store, name: str, base_offset: int) -> Iterator[Columns]:
    data = store.read_all(name)
    if name.endswith(".timeindex"):
        times = TimeIndex.decode(base_offset, data)
        yield {"timestamp": times.timestamps, "offset": times.offsets}
        times.check(data)
    else:
        index = OffsetIndex.decode(base_offset, data)
        yield {"offset": index.offsets, "position": index.positions}
        index.check(data)
