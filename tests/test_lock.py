"""The lock is whole: a fresh machine installs what it names, whatever the registry has by then."""

import importlib.metadata
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.utils import canonicalize_name
from packaging.version import Version

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


def test_what_is_installed_first_is_in_the_lock_of_all() -> None:
    def entries(lock: Path) -> set[str]:
        lines = (line.strip(" \\") for line in lock.read_text().splitlines())
        return {line for line in lines if "==" in line or line.startswith("--hash")}

    first = entries(LOCK.with_name("conf") / "runtime.lock")
    assert len(first) > 50
    assert first <= entries(LOCK)


@pytest.mark.parametrize("name", ["crc32c", "lz4", "numba", "zstandard"])
def test_packages_whose_inside_is_used_have_upper_bounds(name: str) -> None:
    """The newest minor release that they allow is that of the lock (decision 22)."""
    project = tomllib.loads(LOCK.with_name("pyproject.toml").read_text())["project"]
    asked = [Requirement(text) for text in project["dependencies"]]
    (bounds,) = [each.specifier for each in asked if each.name == name]
    (line,) = [line for line in LOCK.read_text().splitlines() if line.startswith(f"{name}==")]
    pinned = Version(line.split()[0].partition("==")[2])
    assert pinned in bounds
    assert f"{pinned.major}.{pinned.minor}.999" in bounds
    assert f"{pinned.major}.{pinned.minor + 1}" not in bounds


def _asked_by(name: str) -> list[Requirement]:
    """What an installed package asks for, whatever extras of its own are chosen."""
    asked = [Requirement(text) for text in importlib.metadata.requires(name) or []]
    return [each for each in asked if each.marker is None or each.marker.evaluate({"extra": ""})]
