"""Lengths of time that people give: what cannot be meant is refused, and nothing is touched."""

import math
from collections.abc import Callable
from itertools import product
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.errors import UsageError
from seglake.layout import new_attempt
from seglake.maintain.vacuum import vacuum
from tests.makers.lakes import Event, LakeMaker

HOPELESS = [-1.0, -0.001, math.nan, math.inf, -math.inf]
CALLS: list[Callable[..., Any]] = [
    lambda root, **hours: vacuum(root, dry_run=False, **hours),
    lambda root, **hours: seglake.erase(root, "events", [b"k"], **hours),
    seglake.maintain_lake,
]
RETENTION = (CALLS[0], "retention_hours")


@pytest.fixture
def root(tmp_path: Path) -> str:
    """A lake, and what a dead attempt left of a moment ago, which a grace of 0 hours removes."""
    maker = LakeMaker(tmp_path / "lake")
    maker.run({0: [Event(n, b"k") for n in range(3)]})
    left = maker.root / f"topics/events-0/{new_attempt()}/{7:020}.log"
    left.parent.mkdir()
    left.write_bytes(b"x")
    return str(maker.root)


def files(root: str) -> list[Path]:
    return sorted(Path(root).rglob("*"))


@pytest.mark.parametrize("hours", HOPELESS)
@pytest.mark.parametrize(("call", "name"), [*product(CALLS, ["grace_hours"]), RETENTION])
def test_hours_that_cannot_be_meant_are_refused(
    call: Callable[..., Any], name: str, hours: float, root: str
) -> None:
    before = files(root)
    with pytest.raises(UsageError, match=r"hours must be a number of hours, 0 or more, not"):
        call(root, **{name: hours})
    assert files(root) == before


@pytest.mark.parametrize("call", CALLS)
def test_no_grace_at_all_is_a_length_of_time(call: Callable[..., Any], root: str) -> None:
    before = files(root)
    call(root, grace_hours=0)
    assert files(root) != before
