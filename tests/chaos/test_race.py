"""A short race; `make chaos` runs long ones."""

from pathlib import Path

import pytest

from tests.chaos.account import SEEN
from tests.chaos.race import race


@pytest.mark.rest
def test_every_version_is_what_the_commits_say(tmp_path: Path) -> None:
    done = race(str(tmp_path / "lake"), tmp_path, seed=20, steps=4)
    assert done["ingest"] >= 2
    assert done[SEEN] >= 2
    assert len(done) > 2, f"none but writers made commits: {done}"  # whoever loses makes none
