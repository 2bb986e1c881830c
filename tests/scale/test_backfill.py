"""A backfill beside small runs, in its short form; `make scale` plays a longer one."""

from __future__ import annotations

from pathlib import Path

from tests.scale.backfill import Setup, played


def test_a_backfill_ends_beside_runs_that_never_do(tmp_path: Path) -> None:
    """How often it copies depends on the machine; that it loses nothing does not."""
    outcome = played(tmp_path, Setup(segments=140, partitions=7, copy_s=1.0, every_s=0.2, hit=3))
    assert outcome.copied.total() == 7
    assert outcome.records > 140
    assert len(outcome.lines()) == 3
