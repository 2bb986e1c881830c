"""Which rejects are open: those of committed attempts that no redrive has taken over.

A redrive takes over all rejects of one attempt: each of them becomes a record, or a reject of the
redrive's own attempt. The report in its run row says whose they were, so the commit that makes the
records visible also closes the rejects:

    "redrives": {"run_id": "R", "attempt_id": "…"}

`run_id` is that of the first run. The redrives of a run form a chain: each takes over what the one
before it left open. A redrive is a run of the pipeline of the first run, and is removed together
with the runs before it.
"""

import json
from collections.abc import Iterable, Sequence
from itertools import count
from typing import NamedTuple

from seglake.catalog.schema import RunRow


class Redrive(NamedTuple):
    """What a redrive took over: rejects of the run `run_id`, which the attempt had left open."""

    run_id: str
    attempt_id: str


def redrive_of(run: RunRow) -> Redrive | None:
    """What a run took over; None for an ordinary run."""
    if '"redrives"' not in run.report:  # spares the parsing of most reports
        return None
    taken = json.loads(run.report).get("redrives")
    return Redrive(taken["run_id"], taken["attempt_id"]) if taken else None


def open_attempts(runs: Iterable[RunRow]) -> list[str]:
    """The attempts whose rejects are open, given all runs of a topic."""
    runs = list(runs)
    taken = {redrive.attempt_id for redrive in map(redrive_of, runs) if redrive}
    return [run.attempt_id for run in runs if run.attempt_id not in taken]


class Chain(NamedTuple):
    """A run and its redrives, in order."""

    first: RunRow
    redrives: list[RunRow]
    next_run_id: str  # for a redrive that follows

    @property
    def last(self) -> RunRow:
        """The run that has the open rejects."""
        return self.redrives[-1] if self.redrives else self.first


def chain_of(run: RunRow, runs: Sequence[RunRow]) -> Chain:
    """The chain of a run or of a redrive, given all runs of its topic."""
    by_attempt, first = {other.attempt_id: other for other in runs}, run
    while before := redrive_of(first):
        first = by_attempt[before.attempt_id]
    after = {redrive.attempt_id: other for other in runs if (redrive := redrive_of(other))}
    redrives: list[RunRow] = []
    attempt_id = first.attempt_id
    while attempt_id in after:
        redrives.append(after[attempt_id])
        attempt_id = redrives[-1].attempt_id
    same = {other.run_id for other in runs if other.pipeline == run.pipeline}
    names = (f"{first.run_id} redrive {number}" for number in count(1))
    return Chain(first, redrives, next(name for name in names if name not in same))
