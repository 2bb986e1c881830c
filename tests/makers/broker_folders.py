"""Partition folders as a broker leaves them, made without one: transactions, gaps, torn ends.

`BrokerLog` writes what a plain list says, so a test compares any import with that list: the records
that a consumer with read_committed gets.
"""

from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import NamedTuple

import numpy as np
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from seglake.format.batch import CONTROL, HEADER, OVERHEAD, TRANSACTIONAL
from seglake.format.decode import scan_batches
from seglake.format.encode import encode_batches, encode_bodies, write_crcs
from tests.makers.lakes import Event, Shape, Written, records_of
from tests.makers.strategies import FAR, T

PLAIN, ABORTED, COMMITTED = "plain", "aborted", "committed"
SHAPE = Shape()
TOPIC_ID = "AAAAAAAAAAAAAAAAAAAAAQ"


class Step(NamedTuple):
    """Records of one producer, or with none the marker that ends its transaction.

    Producer -1 has no transactions. `gap` offsets are left out before; a new segment begins with
    the step if it `rolls`.
    """

    producer: int
    events: tuple[Event, ...] = ()
    commits: bool = True
    gap: int = 0
    rolls: bool = False


class Placed(NamedTuple):
    """A step at its offsets, `end` exclusive."""

    step: Step
    base: int
    end: int


def batch(events: Sequence[Event], base: int, producer: int, shape: Shape, epoch: int = 0) -> bytes:
    """One batch of records, of a transaction unless the producer is -1."""
    bits = 0 if producer < 0 else TRANSACTIONAL
    return _encoded(events, base, shape, (producer, bits, epoch))


def marker(base: int, producer: int, *, commits: bool, epoch: int = 0) -> bytes:
    """The control batch that ends a transaction."""
    key, value = bytes([0, 0, 0, int(commits)]), bytes(6)
    return _encoded([Event(T, key, value)], base, SHAPE, (producer, TRANSACTIONAL | CONTROL, epoch))


def _encoded(
    events: Sequence[Event], base: int, shape: Shape, about: tuple[int, int, int]
) -> bytes:
    """One batch of a producer, with these attribute bits and this leader epoch."""
    producer, bits, epoch = about
    records, encoding = records_of(events), replace(shape.encoding, batch_bytes=2**20)
    bodies = encode_bodies(records, np.arange(len(events)))
    data = encode_batches(records.timestamps, bodies, encoding, base_offset=base).data.copy()
    header = data[:OVERHEAD].view(HEADER)
    header["attributes"] |= bits
    header["producer_id"], header["leader_epoch"] = producer, epoch
    if producer >= 0:
        header["producer_epoch"], header["base_sequence"] = 3, 17
    write_crcs(data, scan_batches(data))
    return data.tobytes()


class BrokerLog:
    """A log partition that a broker wrote: steps at offsets from `start` on."""

    def __init__(self, steps: Sequence[Step], shape: Shape = SHAPE, start: int = 0) -> None:
        self.shape, self.start, self.placed = shape, start, list[Placed]()
        self.end = start
        for step in steps:
            base = self.end + step.gap
            self.end = base + max(1, len(step.events))
            self.placed.append(Placed(step, base, self.end))

    def committed(self, limit: int | None = None) -> tuple[list[Written], int]:
        """The records of a consumer with read_committed below a high watermark, and its end."""
        top = self.end if limit is None else limit
        fates, stable = self._fates(top)
        found = [
            Written(0, each.base + n, event.timestamp, 0, event.key, event.value,
                    list(event.headers))
            for each, fate in zip(self.placed, fates, strict=True)
            if fate in {PLAIN, COMMITTED} and each.end <= min(top, stable)
            for n, event in enumerate(each.step.events)
        ]  # fmt: skip
        return found, min(top, stable)

    def _fates(self, top: int) -> tuple[list[str], int]:
        """What became of each step, "" for a marker; and the first offset that is undecided."""
        fates, stable = [""] * len(self.placed), top
        open_at: dict[int, list[int]] = {}
        for number, (step, _, end) in enumerate(self.placed):
            if end > top:
                break
            if step.producer < 0:
                fates[number] = PLAIN
            elif step.events:
                open_at.setdefault(step.producer, []).append(number)
            else:
                for each in open_at.pop(step.producer, []):
                    fates[each] = COMMITTED if step.commits else ABORTED
        for numbers in open_at.values():
            stable = min(stable, self.placed[numbers[0]].base)
        return fates, stable

    def write(self, folder: Path, *, until: int | None = None, epoch: int = 0) -> Path:
        """Write the log as a partition folder; with `until`, as it was at that end."""
        folder.mkdir(parents=True)
        files: dict[int, list[bytes]] = {self.start: []}
        for step, base, end in self.placed:
            if until is not None and end > until:
                break
            if step.rolls and base > max(files):
                files[base] = []
            data = (
                batch(step.events, base, step.producer, self.shape, epoch)
                if step.events
                else marker(base, step.producer, commits=step.commits, epoch=epoch)
            )
            files[max(files)].append(data)
        for base, parts in files.items():
            (folder / f"{base:020d}.log").write_bytes(b"".join(parts))
        (folder / "partition.metadata").write_text(f"version: 0\ntopic_id: {TOPIC_ID}\n")
        return folder


def note(root: Path, name: str, rows: Mapping[str, int]) -> None:
    """A checkpoint in a log.dir: offsets by folder name."""
    lines = [f"{folder.rpartition('-')[0]} {folder.rpartition('-')[2]} {offset}"
             for folder, offset in rows.items()]  # fmt: skip
    (root / name).write_text("\n".join(["0", str(len(lines)), *lines, ""]))


@st.composite
def logs(draw: DrawFn) -> BrokerLog:
    """Plain records and transactions of three producers, interleaved, over several segments."""
    events = st.builds(
        Event, st.one_of(st.integers(T - 20, T + 200), st.sampled_from([-1, T, FAR])),
        st.sampled_from([None, b"a", b"b"]),
        st.sampled_from([None, b"", b"value" * 5]),
    )  # fmt: skip
    some = st.lists(events, min_size=1, max_size=3).map(tuple)
    steps = st.builds(
        Step, st.integers(-1, 2), st.one_of(some, some, st.just(())), st.booleans(),
        st.sampled_from([0, 0, 0, 0, 3]), st.sampled_from([False, False, False, True]),
    )  # fmt: skip
    made = draw(st.lists(steps, min_size=1, max_size=25))
    kept = [each for each in made if each.events or each.producer >= 0]
    codec = draw(st.sampled_from(["none", "lz4", "zstd"]))
    start = draw(st.sampled_from([0, 0, 1000]))
    return BrokerLog(kept or [Step(-1, (Event(T),))], Shape(codec), start)
