"""The report of a run: counts that add up, and the duration of each step."""

from __future__ import annotations

import json
import logging
import time
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from seglake.catalog.rows import SegmentRow
from seglake.write.driver.selection import Selection

logger = logging.getLogger(__name__)

Progress = Callable[[str], None]
Status = Literal["committed", "already done", "dry run"]


def silent(_step: str) -> None:
    """Show no progress; the log has the steps."""


@dataclass
class Report:
    """The result of one run.

    input_rows = records + quarantined, always. `reasons` counts the quarantined rows by reason. The
    topic had `skipped_files` before. `end_offsets` are exclusive, for each log partition that grew.
    `max_lateness_ms` is the lateness of the latest event, None without an order of arrival.
    `version` is -1 until this call commits the run. `rebased` counts the lost races after which the
    segments were re-based. `seconds` are per step, and include attempts that were planned again.
    """

    topic: str
    pipeline: str
    run_id: str
    attempt_id: str = ""
    status: Status = "committed"
    version: int = -1
    input_files: int = 0
    skipped_files: list[str] = field(default_factory=list)
    changed_files: list[str] = field(default_factory=list)
    input_bytes: int = 0
    input_rows: int = 0
    records: int = 0
    quarantined: int = 0
    reasons: dict[str, int] = field(default_factory=dict)
    segments: int = 0
    output_bytes: int = 0
    index_bytes: int = 0
    min_timestamp: int | None = None
    max_timestamp: int | None = None
    max_lateness_ms: int | None = None
    end_offsets: dict[int, int] = field(default_factory=dict)
    rebased: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    exit_code = 0

    def log(self, text: str) -> None:
        """Write a log line that names the run."""
        logger.info(
            "topic %s, pipeline %s, run %s: %s", self.topic, self.pipeline, self.run_id, text
        )

    def copy(self) -> Report:
        """A report for the next attempt, which shares the `seconds` of this one."""
        return replace(self)

    def describe_input(self, selection: Selection) -> None:
        """Fill in the files that are read, skipped and changed."""
        self.input_files = len(selection.files)
        self.input_bytes = sum(file.size for file in selection.files)
        self.skipped_files = [file.path for file in selection.skipped]
        self.changed_files = [file.path for file in selection.changed]

    def describe(self, segments: Sequence[SegmentRow]) -> None:
        """Fill in sizes, timestamps and end offsets of the segments."""
        self.segments = len(segments)
        self.index_bytes = sum(
            row.index_bytes + row.timeindex_bytes + row.zonemap_bytes for row in segments
        )
        self.output_bytes = sum(row.log_bytes for row in segments) + self.index_bytes
        self.min_timestamp = min((row.min_timestamp for row in segments), default=None)
        self.max_timestamp = max((row.max_timestamp for row in segments), default=None)
        self.end_offsets = {row.partition: row.end_offset for row in segments}

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)

    def as_json(self) -> str:
        """The report as one JSON object."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    def as_row(self) -> str:
        """The report as the run's catalog row has it, with a count of the skipped files.

        A list of them would grow with a folder that each run skips except for its newest files.
        """
        counted = {**self.as_dict(), "skipped_files": len(self.skipped_files)}
        return json.dumps(counted, ensure_ascii=False)

    @contextmanager
    def step(self, name: str, progress: Progress) -> Iterator[None]:
        """Announce a step to `progress` and the log, and add its duration when it ends."""
        self.log(name)
        progress(name)
        begun = time.monotonic()
        try:
            yield
        finally:
            spent = self.seconds.get(name, 0.0) + time.monotonic() - begun
            self.seconds[name] = round(spent, 3)
