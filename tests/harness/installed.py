"""Seglake as others install it: a wheel, an environment without the extras, and a packed one."""

import os
import shutil
import subprocess
import sys
from importlib.metadata import Distribution, distribution
from pathlib import Path

from packaging.requirements import Requirement

PROJECT = Path(__file__).parents[2]


def build_wheel(folder: Path) -> Path:
    """The wheel of these sources, without anything that an earlier build left."""
    copy = folder / "sources"
    kept = shutil.ignore_patterns("__pycache__", "*.egg-info")
    shutil.copytree(PROJECT / "src", copy / "src", ignore=kept)
    for name in ("pyproject.toml", "README.md", "LICENSE"):
        shutil.copy(PROJECT / name, copy)
    _pip("wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", folder, copy)
    (wheel,) = folder.glob("*.whl")
    return wheel


def install(wheel: Path, folder: Path, *others: str) -> Path:
    """The Python of a new environment with a wheel, what it requires, and other packages.

    `pip install` would need minutes, so what is required are links to this environment's packages.
    """
    command = [sys.executable, "-m", "venv", "--copies", "--without-pip", str(folder)]
    subprocess.run(command, check=True)
    python = folder / "bin" / "python3"
    _pip("--python", python, "install", "--no-deps", "--no-index", wheel)
    (packages,) = folder.glob("lib/python*/site-packages")
    (information,) = packages.glob("seglake-*.dist-info")
    for name in _required([Distribution.at(information), *map(distribution, others)]):
        _link(distribution(name), packages)
    for name in others:
        _link(distribution(name), packages)
    return python


def pack(environment: Path, archive: Path) -> None:
    """Pack an environment, with the kernels of these sources, as `make archive` does."""
    (package,) = environment.glob("lib/python*/site-packages/seglake")
    for kernel in (PROJECT / "src" / "seglake").rglob("__pycache__/kernels-*/*.nb[ci]"):
        place = package / kernel.relative_to(PROJECT / "src" / "seglake")
        place.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(kernel, place)
    subprocess.run([PROJECT / "conf" / "deploy" / "pack.sh", environment, archive], check=True)


def lonely() -> dict[str, str]:
    """The variables of a process that knows nothing of these sources and their environment."""
    path = os.environ["PATH"].replace(str(Path(sys.executable).parent), "/usr/bin")
    left_out = ("PYTHONPATH", "PYTHONHOME", "VIRTUAL_ENV", "PYSPARK_PYTHON")
    return {k: v for k, v in os.environ.items() if k not in left_out} | {"PATH": path}


def _pip(*arguments: str | Path) -> None:
    command = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check", *arguments]
    subprocess.run(command, check=True, env=lonely())


def _required(wanted: list[Distribution]) -> set[str]:
    """The names of all packages that some need, without extras."""
    found = set[str]()
    while wanted:
        for text in wanted.pop().requires or ():
            needed = Requirement(text)
            here = needed.marker is None or needed.marker.evaluate({"extra": ""})
            if here and needed.name not in found:
                found.add(needed.name)
                wanted.append(distribution(needed.name))
    return found


def _link(package: Distribution, folder: Path) -> None:
    tops = {Path(file).parts[0] for file in package.files or ()} - {"..", "__pycache__"}
    for top in tops:
        if not (folder / top).exists():
            (folder / top).symlink_to(Path(str(package.locate_file(top))).resolve())
