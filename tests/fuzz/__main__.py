"""Fuzz every reader of stored bytes and of input files: python -m tests.fuzz --inputs 1000000

Each target is tried in two processes, one after the other, by atheris, which is guided by coverage:
first with kernels as plain Python, so that their branches guide it too, then, from the inputs kept
so far, with kernels that are compiled and check every index. Memory and time of an input are
bounded. Exits 1 if an input crashed a target: it stands in the folder, and belongs, once mended,
into tests/fuzz/found/<target>/, from where the tests try it again.
"""

import argparse
import os
import re
import subprocess
import sys
import tempfile
import time
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from tests.fuzz import folders, inputs, stored
from tests.fuzz.targets import TARGETS, Target

PROJECT = Path(__file__).parents[2]
INTERPRETED = 6  # one input in so many is tried with kernels as plain Python
MODULES = (stored, inputs, folders)  # which fill TARGETS


class Tried(NamedTuple):
    """What came of one target."""

    name: str
    interpreted: int
    checked: int
    branches: int
    kept: int
    seconds: float
    failures: list[str]


def main() -> int:
    """Fuzz as the options say; 1 if anything was found."""
    given = _options().parse_args()
    folder = given.folder or Path(tempfile.mkdtemp(prefix="seglake-fuzz-"))
    folder.mkdir(parents=True, exist_ok=True)
    chosen = [TARGETS[name] for name in given.targets or TARGETS]
    print(f"seed {given.seed}, inputs and corpora in {folder}", flush=True)
    rounds = given.inputs / sum(target.share for target in chosen)
    work = partial(_fuzz, folder=folder, rounds=rounds, seed=given.seed)
    with ThreadPoolExecutor(given.jobs) as pool:
        tried = list(pool.map(work, chosen))
    print(table(tried))
    return 1 if any(each.failures for each in tried) else 0


def _options() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(prog="tests.fuzz", description=__doc__)
    parser.add_argument("targets", nargs="*", choices=[*TARGETS, []], help="all by default")
    parser.add_argument("--inputs", type=int, default=1_000_000, help="in all")
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--jobs", type=int, default=os.cpu_count())
    parser.add_argument("--folder", type=Path, help="a new one by default; corpora there go on")
    return parser


def _fuzz(target: Target, folder: Path, rounds: float, seed: int) -> Tried:
    """Both processes of one target."""
    corpus = folder / "corpus" / target.name
    corpus.mkdir(parents=True, exist_ok=True)
    for number, data in enumerate(target.seeds() + target.found()):
        (corpus / f"seed-{number}").write_bytes(data)
    begun, count = time.monotonic(), int(rounds * target.share)
    first = _Run(target, folder, "interpreted", count // INTERPRETED, seed)
    second = _Run(target, folder, "checked", count - count // INTERPRETED, seed)
    seconds, kept = time.monotonic() - begun, len(list(corpus.iterdir()))
    failures = first.failures + second.failures
    made = Tried(target.name, first.tried, second.tried, first.branches, kept, seconds, failures)
    print(row(made), flush=True)
    return made


class _Run:
    """One process, and what its output says."""

    def __init__(self, target: Target, folder: Path, mode: str, count: int, seed: int) -> None:
        log, corpus = folder / f"{target.name}.{mode}.log", folder / "corpus" / target.name
        command = [
            sys.executable, "-m", "tests.fuzz.run", target.name, "--mode", mode, "--coverage",
            "--inputs", str(count), "--seed", str(seed), "--corpus", str(corpus),
        ]  # fmt: skip
        environment = {**os.environ, "NUMBA_CACHE_DIR": str(folder / "kernels" / mode)}
        before = set(folder.glob(f"{target.name}-*"))
        with log.open("wb") as out:
            code = subprocess.call(
                command, cwd=PROJECT, env=environment, stdout=out, stderr=subprocess.STDOUT
            )
        text = log.read_text(errors="replace")
        done = re.findall(r"^(Done) (\d+) |^(#)(\d+)\s", text, re.MULTILINE)
        self.tried = max((int(a or b) for _, a, _, b in done), default=0)
        self.branches = max(map(int, re.findall(r"cov: (\d+)", text)), default=0)
        made = sorted(str(path) for path in set(folder.glob(f"{target.name}-*")) - before)
        self.failures = [f"{path}, see {log}" for path in made]
        if code and not made and not any(word for word, *_ in done):
            self.failures = [f"exit code {code}, see {log}"]  # behind "Done", inputs are innocent


def table(tried: list[Tried]) -> str:
    """The campaign in Markdown."""
    total = sum(each.interpreted + each.checked for each in tried)
    return "\n".join(
        [
            "| target | inputs, interpreted | compiled | branches seen | kept | s | found |",
            "|---|--:|--:|--:|--:|--:|---|",
            *map(row, tried),
            "",
            f"{total} inputs.",
        ]
    )


def row(tried: Tried) -> str:
    """A line of the table."""
    cells = [tried.name, tried.interpreted, tried.checked, tried.branches, tried.kept]
    return f"| {' | '.join(map(str, cells))} | {tried.seconds:.0f} | {'; '.join(tried.failures)} |"


if __name__ == "__main__":
    sys.exit(main())
