"""What a run did: counts that add up, and where the time went."""

from __future__ import annotations

import json
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

Progress = Callable[[str], None]
Status = Literal["committed", "already done"]


@dataclass
class Report:
    """The result of one run.

    input_rows = records + quarantined, always. `end_offsets` are exclusive, per log partition that
    grew; `skipped_files` were ingested into the topic before. Times in `seconds` are per step.
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
    max_lateness_ms: int = 0
    end_offsets: dict[int, int] = field(default_factory=dict)
    rebased: int = 0
    seconds: dict[str, float] = field(default_factory=dict)

    exit_code = 0

    def as_dict(self) -> dict[str, Any]:
        """The report as plain values."""
        return asdict(self)

    def as_json(self) -> str:
        """The report as one JSON object; what the run's catalog row keeps."""
        return json.dumps(self.as_dict(), ensure_ascii=False)

    @contextmanager
    def step(self, name: str, progress: Progress) -> Iterator[None]:
        """Announce a step, and add its duration when it ends."""
        progress(name)
        begun = time.monotonic()
        try:
            yield
        finally:
            spent = self.seconds.get(name, 0.0) + time.monotonic() - begun
            self.seconds[name] = round(spent, 3)
