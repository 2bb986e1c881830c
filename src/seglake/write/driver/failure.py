"""The record of an attempt that fails, for `seglake run-status` and `seglake quarantine`.

Cluster modes lose exit codes and standard output, so the lake stores the exit code, the error and
the report. A process that is killed stores nothing.
"""

from __future__ import annotations

import json
import logging
from types import TracebackType
from typing import Any

from seglake.catalog.attempts import is_abandoned
from seglake.catalog.failed_run import FailedRun, rewrite_failed_run, write_failed_run
from seglake.clock import now_ms
from seglake.errors import CorruptData, SeglakeError, StoreError
from seglake.layout import new_attempt
from seglake.store import Store
from seglake.write.driver.report import Report

_ERROR_LENGTH = 16_384  # characters of a message that are stored

logger = logging.getLogger(__name__)


class Failure:
    """A block: if it ends with an error, the error, the report and `rejects` are stored.

    `rejects` are those of `FailedRun`. If storage fails, a warning is logged, and the block still
    ends with its own error.
    """

    def __init__(self, store: Store, report: Report) -> None:
        self._store, self._report = store, report
        self.rejects: list[dict[str, Any]] = []

    def __enter__(self) -> Failure:
        return self

    def __exit__(
        self, _kind: object, error: BaseException | None, _trace: TracebackType | None
    ) -> None:
        if isinstance(error, Exception):
            self._write(error)

    def _write(self, error: Exception) -> None:
        report = self._report
        report.status, report.attempt_id = "failed", report.attempt_id or new_attempt()
        failed = FailedRun(
            topic=report.topic,
            pipeline=report.pipeline,
            run_id=report.run_id,
            attempt_id=report.attempt_id,
            error=error_text(error),
            exit_code=getattr(error, "exit_code", 1),
            failed_at_ms=now_ms(),
            report=json.loads(report.as_row()),
        )
        try:
            self._store_with_sample(failed)
        except (StoreError, CorruptData) as problem:
            logger.warning("`seglake run-status` will not know of this failure: %s", problem)

    def _store_with_sample(self, failed: FailedRun) -> None:
        """Store what is known, with the rejects unless an erasure or a vacuum gave the attempt up.

        An erasure takes rows out of samples after it gave attempts up. A sample that comes later
        would bring a key back, so the attempt looks again when it has written one.
        """
        write_failed_run(self._store, failed)
        if self.rejects and not is_abandoned(self._store, failed.attempt_id):
            rewrite_failed_run(self._store, failed.model_copy(update={"rejects": self.rejects}))
            if is_abandoned(self._store, failed.attempt_id):
                rewrite_failed_run(self._store, failed)


def error_text(error: Exception) -> str:
    """The message of a SeglakeError; of another error only the type, since it may tell secrets."""
    name = type(error).__name__
    if not isinstance(error, SeglakeError):
        return f"{name}: the log of the driver has the rest"
    return str(error).encode(errors="backslashreplace").decode()[:_ERROR_LENGTH]
