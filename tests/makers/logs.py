"""Logs without a catalog, in memory: what fetching and decoding need, made in no time."""

import threading
import time
from collections.abc import Sequence
from typing import Any, NamedTuple

import numpy as np

from seglake.format.batch import BatchTable
from seglake.format.encode import encode_batches, encode_bodies
from seglake.log.segment import LogSegment, Piece, Window
from tests.makers.lakes import Event, Shape, Written, records_of


class MadeLog(NamedTuple):
    """A segment's log, the table of its batches, and its records."""

    segment: LogSegment
    data: bytes
    table: BatchTable
    records: list[Written]

    def piece(self, window: Window) -> Piece:
        """What a plan with the densest index takes: neighbours in one range."""
        table = self.table
        keep = (table["max_timestamp"] >= window.start_ms) & (
            table["min_timestamp"] < window.end_ms
        )
        return self.part(window, keep)

    def part(self, window: Window, keep: Any) -> Piece:
        """The batches under a mask."""
        some = self.table[keep]
        starts, ends = some["position"], some["position"] + some["size"]
        firsts, stops = some["base_offset"], some["last_offset"] + 1
        return Piece(self.segment, window, starts, ends, firsts, stops, len(self.records)).joined()


def made(rows: Sequence[Event], shape: Shape, partition: int = 0, base: int = 0) -> MadeLog:
    """The log of one segment with these rows from offset `base` on."""
    records = records_of(rows)
    bodies = encode_bodies(records, np.arange(len(rows)))
    batches = encode_batches(records.timestamps, bodies, shape.encoding, base_offset=base)
    data, end = batches.data.tobytes(), base + len(rows)
    key = f"topics/events-{partition}/{base:020}"
    names = f"{key}.log", f"{key}.zonemap"
    segment = LogSegment("events", partition, *names, base, end, len(data), 0)
    written = [
        Written(partition, base + i, row.timestamp, 0, row.key, row.value, list(row.headers))
        for i, row in enumerate(rows)
    ]
    return MadeLog(segment, data, batches.table, written)


MEETING_S = 60  # on a loaded machine


class Shelf:
    """A store of logs; `remote` or not, it counts requests, bytes, and how many at the same time.

    A request takes `wait_s`, and first waits until so many are there that they `meet`.
    """

    uri, public_options = "shelf:", dict[str, str]()

    def __init__(
        self, logs: Sequence[MadeLog], *, remote: bool, wait_s: float = 0, meet: int = 1
    ) -> None:
        self._objects = {log.segment.log_key: log.data for log in logs}
        self.remote, self._wait_s, self._meeting = remote, wait_s, threading.Barrier(meet)
        self._lock = threading.Lock()
        self.requests: list[tuple[str, int, int]] = []
        self.threads = set[threading.Thread]()
        self.bytes_read = self.under_way = self.most_under_way = 0

    def read(self, key: str, start: int, end: int) -> bytes:
        with self._lock:
            self.requests.append((key, start, end))
            self.threads.add(threading.current_thread())
            self.bytes_read += end - start
            self.under_way += 1
            self.most_under_way = max(self.most_under_way, self.under_way)
        self._meeting.wait(MEETING_S)
        time.sleep(self._wait_s)
        with self._lock:
            self.under_way -= 1
        return self._objects[key][start:end]

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[bytes]:
        return [self.read(key, start, end) for start, end in zip(starts, ends, strict=True)]
