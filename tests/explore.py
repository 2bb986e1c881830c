"""Look for new mistakes for some minutes: python -m tests.explore --minutes 60

What `make test` tries is the same for a day; here nothing is. Steps take turns until the time is
over: a Hypothesis test with examples of a new seed, hostile inputs, kills of ingests on a local
disk, kills of commits on an S3 server. A step that takes too long is cut short: it is interrupted,
and ended if it does not tell soon what it has. Each finding is printed with the command that finds
it again and with the end of its output. Exits 1 if there is any. The output of every step that was
cut short, or found something, is a file in the folder of `--outputs`. `--seed` repeats the steps of
an earlier call.
"""

from __future__ import annotations

import argparse
import contextlib
import os
import random
import secrets
import shlex
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from itertools import count, cycle
from pathlib import Path
from typing import NamedTuple

PROJECT = Path(__file__).parents[1]
PARTS = ("examples", "fuzz", "kills", "s3")
TURNS = ("examples", "examples", "fuzz", "examples", "kills", "examples", "s3")
UNIT = "hypothesis and not spark and not kafka and not s3 and not slow"
NOTHING_FOUND, FOUND = "nothing found", "FOUND"
SHOWN_LINES = 60  # of a finding's output
LAST_WORDS_S = 20  # that an interrupted step has to tell what it was doing


class Step(NamedTuple):
    """A command, as the arguments of this Python."""

    part: str
    arguments: tuple[str, ...]

    def __str__(self) -> str:
        return shlex.join(["python", *self.arguments])


class Outcome(NamedTuple):
    """What came of a step: its exit code, None if it was cut short, and its output."""

    step: Step
    code: int | None
    seconds: float
    output: str

    @property
    def word(self) -> str:
        """The outcome in a word or two."""
        if self.code is None:
            return "cut short"
        return FOUND if self.code else NOTHING_FOUND


def steps(seed: int, parts: tuple[str, ...], tests: list[str]) -> Iterator[Step]:
    """Steps without end; they follow from the seed."""
    chance = random.Random(seed)
    shuffled = chance.sample(tests, len(tests))
    names = cycle(shuffled)
    for number in count():
        part, new = TURNS[number % len(TURNS)], str(chance.randrange(2**31))
        if part not in parts:
            continue
        yield Step(part, _arguments(part, new, next(names) if part == "examples" else ""))


def _arguments(part: str, seed: str, test: str) -> tuple[str, ...]:
    quiet = ("-q", "-x", "-p", "no:cacheprovider")
    chosen = ("--hypothesis-profile=explore", f"--hypothesis-seed={seed}", test)
    return {
        "examples": ("-m", "pytest", *quiet, *chosen),
        "fuzz": ("-m", "tests.fuzz", "--inputs", "20000", "--seed", seed),
        "kills": ("-m", "tests.chaos.kill", "--kills", "20", "--s3", "0", "--spark", "0",
                  "--seed", seed),
        "s3": ("-m", "tests.chaos.kill", "--kills", "0", "--s3", "8", "--spark", "0",
               "--seed", seed),
    }[part]  # fmt: skip


def hypothesis_tests() -> list[str]:
    """The Hypothesis tests that need no JVM and no server, each once for all its parameters."""
    command = [sys.executable, "-m", "pytest", "--collect-only", "-q", "-m", UNIT]
    done = subprocess.run(command, cwd=PROJECT, capture_output=True, text=True, check=True)
    found = [line.partition("[")[0] for line in done.stdout.splitlines() if "::" in line]
    return sorted(set(found))


def run(step: Step, limit_s: float) -> Outcome:
    """Run a step; after so many seconds it is interrupted, and all its processes are ended."""
    begun = time.monotonic()
    with tempfile.TemporaryFile("w+") as out:
        process = subprocess.Popen(
            [sys.executable, *step.arguments],
            cwd=PROJECT, stdout=out, stderr=subprocess.STDOUT, start_new_session=True,
        )  # fmt: skip
        code: int | None = None
        try:
            code = process.wait(limit_s)
        except subprocess.TimeoutExpired:
            process.send_signal(signal.SIGINT)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(LAST_WORDS_S)
        finally:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, signal.SIGKILL)
            process.wait()
        out.seek(0)
        return Outcome(step, code, time.monotonic() - begun, out.read())


def explore(given: argparse.Namespace) -> list[Outcome]:
    """Run steps until the time is over; what they found."""
    deadline, found = time.monotonic() + 60 * given.minutes, []
    tests = hypothesis_tests() if "examples" in given.parts else []
    for step in steps(given.seed, tuple(given.parts), tests):
        left = deadline - time.monotonic()
        if left <= 0:
            break
        outcome = run(step, min(left, given.step_seconds))
        print(f"{outcome.word:14} {outcome.seconds:4.0f} s  {step}", flush=True)
        if outcome.code:
            found.append(outcome)
            print("\n".join(outcome.output.splitlines()[-SHOWN_LINES:]), flush=True)
        if outcome.code != 0:
            print(f"  all output: {store(outcome, given.outputs)}", flush=True)
    return found


def store(outcome: Outcome, folder: Path) -> Path:
    """Write a step's command and output to a new file."""
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.NamedTemporaryFile(
        "w", dir=folder, prefix=f"{outcome.step.part}-", suffix=".txt", delete=False
    ) as file:
        file.write(f"{outcome.step}\n{outcome.word} after {outcome.seconds:.0f} s\n\n")
        file.write(outcome.output)
    return Path(file.name)


def main(arguments: list[str] | None = None) -> int:
    """Explore as the options say; 1 if anything was found."""
    parser = argparse.ArgumentParser(prog="tests.explore", description=__doc__)
    parser.add_argument("parts", nargs="*", default=PARTS, help=f"of {', '.join(PARTS)}; all")
    parser.add_argument("--minutes", type=float, default=60)
    parser.add_argument("--seed", type=int, default=secrets.randbelow(2**31))
    parser.add_argument("--step-seconds", type=float, default=240, help="a step's limit")
    parser.add_argument("--outputs", type=Path, default=PROJECT / "build/explore")
    given = parser.parse_args(arguments)
    if unknown := set(given.parts) - set(PARTS):
        parser.error(f"no such part: {', '.join(sorted(unknown))}")
    print(f"seed {given.seed}, {given.minutes:g} minutes", flush=True)
    found = explore(given)
    print(f"\n{len(found)} found", *(f"  {outcome.step}" for outcome in found), sep="\n")
    return 1 if found else 0


if __name__ == "__main__":
    sys.exit(main())
