"""`python -m tests.simulation`: histories for some minutes, one history as a story, or a hunt."""

import argparse
import logging
import os
import sys
import time
from collections.abc import Iterable

from tests.simulation import campaign, faults, stage, story
from tests.simulation.history import run
from tests.simulation.plan import plan_of
from tests.simulation.scripts import SCRIPTS

STEADY = (  # failed once
    *(55_002_581, 71_001_328, 91_001_394, 120_008_323, 130_010_553),
    *(150_006_276, 150_007_513, 300_002_080),
)


def main(arguments: list[str] | None = None) -> int:
    """Returns 1 if something failed, or something that must be met was not."""
    read = argparse.ArgumentParser(prog="python -m tests.simulation", description=__doc__)
    read.add_argument("--minutes", type=float, default=0, help="play histories for so long")
    read.add_argument("--histories", type=int, default=0, help="play so many, in this process")
    read.add_argument("--seed", type=int, help="the first seed; without it the clock's")
    read.add_argument("--workers", type=int, default=os.cpu_count(), help="processes")
    read.add_argument("--history", type=int, help="play this one, and tell its story")
    read.add_argument("--whole", action="store_true", help="do not make the story short")
    read.add_argument("--fault", choices=sorted(faults.FAULTS), help="put this fault back first")
    read.add_argument(
        "--find", action="store_true", help="look for seeds of faults without a script"
    )
    read.add_argument("--found", nargs="*", help="find these faults, or all, by script or seed")
    read.add_argument("--scripts", action="store_true", help="as --found, but only by scripts")
    read.add_argument("--steady", nargs="*", type=int, help="play these, or all that failed once")
    read.add_argument("--repeat", action="store_true", help="play the first ones twice")
    asked = read.parse_args(arguments)
    seed = int(time.time()) if asked.seed is None else asked.seed
    print(f"seed {seed if asked.history is None else asked.history}", flush=True)
    if asked.find:
        return find(seed, asked.minutes)
    if asked.found is not None or asked.scripts:
        logging.disable(logging.CRITICAL)
        return find_faults(asked.found or (SCRIPTS if asked.scripts else faults.FAULTS))
    with faults.put_back(asked.fault):
        if asked.history is not None:
            return tell(asked.history, whole=asked.whole)
        if asked.histories or asked.steady is not None:
            account = campaign.play(seed, most=asked.histories)
            for each in () if asked.steady is None else asked.steady or STEADY:
                account.add(campaign.play(each, most=1))
            differing = campaign.differing(seed) if asked.repeat else []
            print(*account.lines(), *differing, sep="\n")
            return int(bool(account.failed or differing))
    account = campaign.play_at_once(seed, asked.minutes, asked.workers)
    print(*account.lines(), sep="\n")
    print(*(f"never met: {what}" for what in account.never_met), sep="\n")
    return int(bool(account.failed or account.never_met))


def tell(seed: int, *, whole: bool) -> int:
    """The story of a history; a short one if it fails."""
    stage.install()
    plan = plan_of(seed)
    problem = run(plan, thorough=True).problem
    short = story.Short(plan, frozenset(), frozenset())
    if problem is not None and not whole:
        short = story.shorten(plan, problem.kind, print)
    print(*story.told(short), sep="\n")
    return int(problem is not None)


def find(seed: int, minutes: float) -> int:
    """Look for a seed for each fault without a script; each fault has its share of the time."""
    missed = 0
    for fault in faults.SEARCHED:
        until = time.time() + 60 * minutes / len(faults.SEARCHED)
        found, tried = campaign.hunt(fault, seed, until=until)
        missed += found is None
        print(f"{fault}: " + (f"seed {found}" if found else "NOT FOUND") + f", {tried} histories",
              flush=True)  # fmt: skip
    return int(missed > 0)


def find_faults(chosen: Iterable[str]) -> int:
    """Play each chosen fault with the fault and without. Return 1 if one is not found.

    All faults are put back once first, because an edit fails if its line is not there any more.
    """
    for fault in faults.FAULTS:
        with faults.put_back(fault):
            pass
    found = [tell_found(fault, played(fault, fault), played(fault, None)) for fault in chosen]
    return int(not all(found))


def played(fault: str, put: str | None) -> object:
    """Play the script of a fault, or else its seed, with `put` put back. Return what failed."""
    if fault in SCRIPTS:
        return SCRIPTS[fault].problem(put)
    with faults.put_back(put):
        return campaign.play(faults.SEARCHED[fault], most=1).failed


def tell_found(fault: str, found: object, otherwise: object) -> bool:
    """Print whether a fault is found, and only a fault. Return it, too."""
    what = "found" if found else "NOT FOUND"
    if otherwise:
        what += f", but also without it: {otherwise}"
    print(f"{fault}: {what}", flush=True)
    return bool(found and not otherwise)


if __name__ == "__main__":
    if os.environ.get("PYTHONHASHSEED") != "0":  # sets of text have another order in each process
        os.environ["PYTHONHASHSEED"] = "0"
        os.execv(sys.executable, [sys.executable, "-m", "tests.simulation", *sys.argv[1:]])
    sys.exit(main())
