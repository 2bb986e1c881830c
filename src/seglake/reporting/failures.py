"""Runs that failed, as the report lists them: the newest attempts, with the error of each."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from itertools import islice
from typing import NamedTuple

from seglake.catalog.failed_run import FailedRun, all_failed_runs
from seglake.reporting.figures import TopicFigures
from seglake.store import Store

_MOST = 20
_ERROR = 300  # characters

_RunKey = tuple[str, str, str]


class FailedAttempt(NamedTuple):
    """An attempt at a run that failed at `failed_at_ms`.

    `error` is the start of its message's first line. `committed` says whether the lake has the run
    all the same, as an attempt before or after this one committed it.
    """

    topic: str
    pipeline: str
    run_id: str
    failed_at_ms: int
    exit_code: int
    error: str
    committed: bool


def newest_failures(
    store: Store, topic: str | None, topics: Sequence[TopicFigures]
) -> list[FailedAttempt]:
    """The newest failed attempts at one topic or at any, newest first; `topics` have the runs.

    Raises StoreError and CorruptData.
    """
    there = {(run.topic, run.pipeline, run.run_id) for each in topics for run in each.committed}
    failed = [_attempt(run, there) for run in islice(all_failed_runs(store, topic), _MOST)]
    return sorted(failed, key=lambda attempt: attempt.failed_at_ms, reverse=True)


def _attempt(run: FailedRun, committed: Collection[_RunKey]) -> FailedAttempt:
    key = run.topic, run.pipeline, run.run_id
    line = next(iter(run.error.splitlines()), "")
    error = line if len(line) <= _ERROR else f"{line[: _ERROR - 1]}…"
    return FailedAttempt(*key, run.failed_at_ms, run.exit_code, error, key in committed)
