"""A run of terabytes, in its short form; `make scale` plays the whole one."""

from __future__ import annotations

from tests.scale.large_run import Setup, lines, played


def test_a_run_of_terabytes_is_planned_and_mapped() -> None:
    setup = Setup(terabytes=0.03, partitions=64, task_partitions=16)
    planned, mapped = played(setup)
    assert planned.units * 64 == planned.blobs
    assert planned.pieces > 64
    assert mapped.records > 0
    assert mapped.file_bytes > 0
    assert mapped.requests_per_mib < 3
    assert len([*lines(setup, planned, mapped)]) == 4
