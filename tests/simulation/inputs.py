"""What comes into a lake: files, frames, the logs of a stopped broker."""

from __future__ import annotations

import base64
import json
import tempfile
from collections.abc import Callable, Mapping, Sequence
from functools import cache
from pathlib import Path
from random import Random
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from seglake.engine import _Failed
from seglake.limits import INT64_MAX, INT64_MIN
from tests.makers.broker_folders import BrokerLog, Step
from tests.makers.lakes import Event
from tests.simulation.model import IMPORTED, Line, Record

T = 1_699_999_000_000
KEYS = ("owl-0", "pig-1", "yak-2", "hen-3", "rat-4")  # no spelling of an id has one of them
BINARY = (b"\xffelk-5", b"\xfffox-6", b"\xffgnu-7")
ALL_KEYS = (*(key.encode() for key in KEYS), *BINARY)
FILES, PARQUET = 8, 2
POOLS = 200  # of files, which histories share
FOLDER = "sim://files"
NAME_OF_FRAME = "DataFrame"


class Given(NamedTuple):
    """The input files of a history: their lines, and their bytes, by path."""

    lines: Mapping[str, Sequence[Line]]
    data: Mapping[str, bytes]


@cache
def given(seed: int) -> Given:
    """Files with late and equal times; some rows have no time, or that in another field."""
    chance, lines, data = Random(f"files {seed}"), dict[str, list[Line]](), dict[str, bytes]()
    for number in range(FILES):
        path = f"{FOLDER}/{number}.jsonl"
        lines[path] = [_line(path, n, chance) for n in range(1, chance.randint(2, 5))]
        data[path] = b"".join(line.raw + b"\n" for line in lines[path])
    for number in range(FILES, FILES + PARQUET):
        path = f"{FOLDER}/{number}.parquet"
        lines[path] = [_row(path, n, chance) for n in range(1, chance.randint(3, 5))]
        data[path] = _parquet(lines[path])
    return Given(lines, data)


def _times(chance: Random, number: int) -> dict[str, int]:
    draw = 1.0 if number == 1 else chance.random()  # a run of rejects alone is refused
    at = T + chance.randrange(50)
    return {} if draw < 0.1 else {"when": at} if draw < 0.3 else {"ts": at}


def _line(path: str, number: int, chance: Random) -> Line:
    times, key = _times(chance, number), chance.choice(KEYS)
    raw = json.dumps({**times, "k": key, "n": f"{path[-7:]}:{number}"}).encode()
    return Line(path, number, times, key.encode(), raw, raw)


def _row(path: str, number: int, chance: Random) -> Line:
    value = f"{path[-9:]}:{number}".encode()
    return Line(path, number, _times(chance, number), chance.choice(BINARY), value, b"")


def _parquet(lines: Sequence[Line]) -> bytes:
    columns: dict[str, Any] = {
        "ts": pa.array([line.times.get("ts") for line in lines], pa.int64()),
        "when": pa.array([line.times.get("when") for line in lines], pa.int64()),
        "k": pa.array([line.key for line in lines], pa.binary()),
        "v": pa.array([line.value.decode() for line in lines]),
    }
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table(columns), sink)
    return sink.getvalue().to_pybytes()


@cache
def spellings(key: bytes) -> list[bytes]:
    """The bytes of a key, and their base64 at each place in a longer text."""
    coded = [base64.b64encode(b"\0" * shift + key) for shift in range(3)]
    return [key, *(coded[n][-(-8 * n // 6) : 8 * (n + len(key)) // 6] for n in range(3))]


# ------------------------------------------------------------------ frames


class _Told:
    """What is asked of a session, and nothing else."""

    def __init__(self) -> None:
        self.sparkSession = self.conf = self

    def get(self, _name: str) -> str:
        return "100"


class Mapped(NamedTuple):
    batches: list[pa.RecordBatch]

    def toArrow(self) -> pa.Table:
        return pa.Table.from_batches(self.batches)


class SimFrame:
    """A DataFrame of one partition, as far as an ingest knows it."""

    def __init__(self, table: pa.Table, read: Callable[[], None] = lambda: None) -> None:
        self.sparkSession, self._table, self._read = _Told(), table, read
        self.dtypes = [(name, "binary") for name in table.column_names]

    @property
    def columns(self) -> list[str]:
        return list(self._table.column_names)

    def toDF(self, *names: str) -> SimFrame:
        return SimFrame(self._table.rename_columns([*names]), self._read)

    def mapInArrow(self, task: Any, _schema: str) -> Mapped:
        self._read()
        try:
            return Mapped(list(task(iter(self._table.combine_chunks().to_batches()))))
        except _Failed as error:  # Spark would carry its text
            raise error.__cause__ or error from None


def frame_lines(seed: int, name: str) -> tuple[Line, ...]:
    """The rows of a DataFrame; all have a time."""
    chance = Random(f"frame {seed} {name}")
    return tuple(
        Line(NAME_OF_FRAME, n, {"ts": T + chance.randrange(50)}, chance.choice(KEYS).encode(),
             f"{name}:{n}".encode(), b"")
        for n in range(chance.randint(1, 4))
    )  # fmt: skip


def frame_of(lines: Sequence[Line], read: Callable[[], None]) -> SimFrame:
    """These rows as a DataFrame; `n` orders them, and `read` is called when they are read."""
    return SimFrame(
        pa.table(
            {
                "ts": pa.array([line.times["ts"] for line in lines], pa.int64()),
                "k": [line.key.decode() for line in lines],
                "v": [line.value.decode() for line in lines],
                "n": pa.array([line.number for line in lines], pa.int64()),
            }
        ),
        read,
    )


# ------------------------------------------------------------------ brokers


class Stopped(NamedTuple):
    """The folders of a broker: their files by key, and the records in them."""

    data: Mapping[str, bytes]
    logs: Mapping[int, Mapping[int, Record]]
    ends: Mapping[int, int]


@cache
def stopped(steps: int) -> Stopped:
    """The folders of a stopped broker when it had taken so many steps in each partition.

    With ten steps more, events have timestamps at the ends of int64, and -2.
    """
    times = (INT64_MAX, -2, INT64_MIN) if steps > 10 else (T, T + 1, T + 2)
    data, logs, ends = dict[str, bytes](), dict[int, dict[int, Record]](), dict[int, int]()
    story = [
        Step(-1, (Event(times[0], b"owl-0"),) * 2), Step(1, (Event(times[1], b"pig-1"),) * 2),
        Step(1, commits=False), Step(2, (Event(times[2], b"owl-0"),) * 2, rolls=True), Step(2),
    ]  # fmt: skip
    with tempfile.TemporaryDirectory() as folder:
        for partition in range(2):
            log = BrokerLog(story[partition : steps % 10])
            log.write(Path(folder) / f"{IMPORTED}-{partition}", epoch=1)
            found, ends[partition] = log.committed()
            logs[partition] = {r.offset: Record(r.timestamp, r.key, r.value) for r in found}
        for path in sorted(Path(folder).rglob("*")):
            if path.is_file():
                data[f"broker{steps}/{path.relative_to(folder)}"] = path.read_bytes()
    return Stopped(data, logs, ends)
