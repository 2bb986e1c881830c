"""The lock is whole: a fresh machine installs what it names, whatever the registry has by then."""

import importlib.metadata
from pathlib import Path

from packaging.requirements import Requirement
from packaging.utils import canonicalize_name

LOCK = Path(__file__).parents[1] / "requirements.lock"


def test_the_lock_names_the_extras_that_its_packages_ask_for() -> None:
    """Where `name[extra]` is asked for and only `name` is pinned, pip takes the newest release."""
    lines = [line for line in LOCK.read_text().splitlines() if "==" in line]
    pinned = [Requirement(line.split()[0]) for line in lines]
    extras = {canonicalize_name(each.name): each.extras for each in pinned}
    asked = [each for name in extras for each in _asked_by(name) if each.extras]
    assert asked
    assert [
        str(each) for each in asked if not each.extras <= extras[canonicalize_name(each.name)]
    ] == []


def _asked_by(name: str) -> list[Requirement]:
    """What an installed package asks for, whatever extras of its own are chosen."""
    asked = [Requirement(text) for text in importlib.metadata.requires(name) or []]
    return [each for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})]
