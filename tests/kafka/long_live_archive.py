"""`make test-live`: the archive of live topics, run six times, with kills at every step between."""

from __future__ import annotations

import pytest

from tests.kafka.test_live_archive import World, killed_again_and_again, world

__all__ = ["world"]
STEPS = ["list input", "read and sort", "plan", "write segments", "commit"]


@pytest.mark.timeout(3600)
@pytest.mark.parametrize("seed", range(6))
def test_six_runs_with_kills_between(world: World, seed: int) -> None:  # a fixture
    killed_again_and_again(world, [*STEPS[seed % 2 :: 2], "commit"], seed)
