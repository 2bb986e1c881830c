"""Short histories that are written by hand: each finds one fault when that is put back.

A script says who does what, and where somebody stops: before the call of storage that has a text in
its name, as in `Mishap("create lake/catalog/log/_delta_log/", 5_000)`, which is the commit. It does
not count calls, so it stays as it is when code moves.
"""

from __future__ import annotations

from tests.simulation.deeds import Deed
from tests.simulation.inputs import KEYS
from tests.simulation.plan import COMMIT, JSONL, LOST_REPLIES, Part, Plan, Task
from tests.simulation.world import Mishap, Odds

_EVERY_KEY = tuple(sorted(key.encode() for key in KEYS))


def script(*parts: Part, extreme: bool = False) -> Plan:
    """A history on an object store with two runs, in which nothing goes wrong by chance."""
    return Plan(1, Odds(), disk=False, old=True, parts=parts, readers=(), extreme=extreme)


def actor(name: str, *steps: tuple[float, Deed]) -> Part:
    """An actor: each deed comes so many milliseconds after the one before it ended."""
    return Part(name, 0, tuple(Task(*step) for step in steps))


def _stopped(deed: Deed, ms: float, at: str = COMMIT) -> Deed:
    return deed._replace(mishap=Mishap(at, ms))


_REINDEX, _ERASE = Deed("reindex", number=1), Deed("erase", keys=_EVERY_KEY[:2])
_TAG = Deed("tag", "a")

SCRIPTS: dict[str, Plan] = {
    "a read without an end leaves out the largest timestamp": script(
        actor("importer", (0, Deed("import", number=12))), extreme=True
    ),
    "a number reads the object of a tag": script(
        actor("tagger", (0, _TAG), (0, Deed("erase", keys=_EVERY_KEY)))
    ),
    "an attempt that ends without a commit leaves its claim": script(
        actor("first", (0, _stopped(_REINDEX, 5_000))),
        actor("second", (100, Deed("reindex", number=2))),
        actor("eraser", (20_000, _ERASE)),
    ),
    "an attempt takes its files back before a fence": script(
        actor("first", (0, Deed("merge", mishap=Mishap(COMMIT, 2_800, cut=LOST_REPLIES))))
    ),
    "ids of a try that lost count as running": script(
        # It loses to the second, gives its segments ids of their own, and loses to the third.
        actor("first", (0, _stopped(Deed("ingest", "run 2", JSONL[3:4]), 4_000))),
        actor("second", (100, Deed("ingest", "run 3", JSONL[4:5]))),
        actor("third", (4_500, Deed("ingest", "run 4", JSONL[5:6]))),
        actor("eraser", (20_000, _ERASE)),
    ),
    "a repair leaves what only a tag names": script(actor("tagger", (0, _TAG), (0, Deed("merge")))),
    "a tag that loses to an erasure keeps to its version": script(
        actor("tagger", (0, _stopped(_TAG, 8_000))),
        actor("eraser", (100, Deed("erase", keys=_EVERY_KEY))),
    ),
}
