"""Programs of `tests/clients`, built once: below `.clients`, by a hash of their sources."""

import hashlib
import os
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

from tests.clients.program import NoToolError

HERE = Path(__file__).resolve().parent
CACHE = HERE.parents[1] / ".clients"
_TARGET = "target"  # cargo's folder of all that it compiles
_LEFT_OUT = shutil.ignore_patterns("node_modules", _TARGET)  # what editors and tools leave


def built(name: str, tool: str, arguments: Sequence[str], result: str, *, part: str = "") -> Path:
    """The folder in which `tool` has built the sources of `tests/clients/<name>`.

    It has `result`, a path within it, afterwards. `part` names what is built of them, if that is
    not all. Raises NoToolError.
    """
    path = shutil.which(tool)
    if path is None:
        raise NoToolError(f"the client in {name} is built with {tool}, which is not in PATH")
    folder = CACHE / f"{name}{part and '-'}{part}-{_hash(HERE / name)}"
    if not folder.is_dir():
        _build(HERE / name, folder, [path, *arguments], result)
    return folder


def _hash(sources: Path) -> str:
    taken = hashlib.sha256()
    for path in sorted(path for path in sources.rglob("*") if path.is_file()):
        inside = path.relative_to(sources)
        if not _LEFT_OUT(str(sources), [inside.parts[0]]):
            taken.update(f"{inside}\0{path.stat().st_size}\0".encode() + path.read_bytes())
    return taken.hexdigest()[:16]


def _build(sources: Path, folder: Path, command: Sequence[str], result: str) -> None:
    scratch = folder.with_name(f"{folder.name}.{os.getpid()}")
    try:
        shutil.copytree(sources, scratch, ignore=_LEFT_OUT)
        done = subprocess.run(command, cwd=scratch, capture_output=True, text=True, check=False)
        if done.returncode or not (scratch / result).exists():
            raise NoToolError(f"{' '.join(command)}: {done.stderr.strip()}")
        shutil.rmtree(scratch / _TARGET, ignore_errors=True)
        if not folder.is_dir():
            scratch.rename(folder)  # whole or absent
    finally:
        shutil.rmtree(scratch, ignore_errors=True)
