"""The commands before, during and after which the power is cut, in one story of a small lake.

Each begins where the one before it ended. Run again, each does what is left of it, and no more.
"""

import random
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import NamedTuple
from unittest.mock import patch

from seglake.catalog.delta import commit_log, file_merges
from seglake.catalog.quarantine import table
from tests.chaos.upkeep import arrange
from tests.chaos.verbs import CORRECTED_TIME, HOPELESS, OTHER, RUN, VERBS
from tests.harness.observed import NOTHING, Observed, observe
from tests.makers.compacted import set_topic
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import TINY, Line, T, ingest, pipeline_of, write_file
from tests.simulation.power_disk import Disk, Killed, Recorder, build

Do = Callable[[str], object]
STORY = (
    "first ingest", "ingest", "reindex", "repair", "reindex again", "replace", "undo",
    "delete-records", "retain", "merge", "compact", "erase", "redrive", "alter", "import",
    "maintain", "vacuum", "rebuild",
)  # fmt: skip
REMOVING = {"erase", "vacuum"}  # of these people know afterwards that something is gone
RETENTION = {"cleanup.policy": "compact,delete", "retention.bytes": 250}


class Recorded(NamedTuple):
    """A command that was carried out; what a lake shows before it, perhaps meanwhile, and after."""

    name: str
    do: Do
    recorder: Recorder
    before: Observed
    between: list[Observed]
    after: Observed
    killed_at: int = 0  # it was run again on the same disk after so many events; 0: it was not

    def told(self, lake: Observed) -> bool:
        """Whether a lake may show this while the command is under way."""
        half = self.after._replace(rejected=self.before.rejected) if self.name == "erase" else None
        return lake in (self.before, *self.between, half, self.after)


@contextmanager
def often_tidied() -> Iterator[None]:
    """Most commits merge the files of the catalog, and write a checkpoint."""
    interval = (commit_log, "CHECKPOINT_INTERVAL", 2)
    fan_ins = [(each, "FAN_IN", 2) for each in (file_merges, table)]
    with patch.object(*interval), patch.object(*fan_ins[0]), patch.object(*fan_ins[1]):
        yield


class Story:
    """The story of a seed, whose files are below `folder`; its commands are recorded in turn."""

    def __init__(self, folder: Path, seed: int) -> None:
        self._folder, self._seed = folder, seed
        self._chance = random.Random(f"{seed} story")
        for name in (RUN, OTHER):
            write_file(folder / "in" / name / "in.jsonl", self._lines())

    def told(self) -> Iterator[Recorded]:
        """Every command of the story, recorded."""
        place = self._folder / "told"
        place.mkdir()
        lake, before = str(place / "lake"), NOTHING
        for name in STORY:
            self._arrange(name, lake)
            before = _shown(lake)
            yield self._recorded(name, Recorder(place), before)

    def killed(self, told: Recorded, place: Path, at: int, chance: random.Random) -> Recorded:
        """The same command on the same lake, killed before its event `at`, and then run again."""
        build(Disk(told.recorder, 0).left("none", chance), place)
        recorder = Recorder(place)
        recorder.kill_at = at
        with recorder.recording(chance), often_tidied():
            with suppress(Killed):
                told.do(str(place / "lake"))
            recorder.kill_at = None
            told.do(str(place / "lake"))
        return told._replace(recorder=recorder, killed_at=at)

    def _recorded(self, name: str, recorder: Recorder, before: Observed) -> Recorded:
        lake, do, between = str(recorder.place / "lake"), self._deed(name), list[Observed]()
        with recorder.recording(self._chance), often_tidied():
            if name == "maintain":
                VERBS[name](lake, progress=lambda _part: between.append(observe(lake)))
            else:
                do(lake)
        return Recorded(name, do, recorder, before, between, observe(lake))

    def _deed(self, name: str) -> Do:
        if name not in ("first ingest", "ingest"):
            return VERBS[name]
        run, pipeline = (RUN, "web") if name == "first ingest" else (OTHER, "beside")
        topic = {"batch.size": 200, "segment.bytes": 700}
        given = self._folder / "in" / run
        return lambda lake: ingest(
            pipeline_of(lake, given, name=pipeline, topic=topic, task=TINY), run
        )

    def _arrange(self, name: str, lake: str) -> None:
        with often_tidied():
            if name == "reindex":
                set_topic(open_catalog(lake), "events", RETENTION)
            arrange(lake, name)

    def _lines(self) -> list[Line]:
        """Some lines; a redrive mends two broken ones, others are hopeless."""
        keys = ["a", "b", "c", None]
        made = [Line(T + self._chance.randrange(90), self._chance.choice(keys)) for _ in range(24)]
        for number in (3, 11):
            made[number] = Line(T, broken=f'{{"{CORRECTED_TIME}":{T + number},"k":"b"}}')
        made[7] = Line(T, broken=HOPELESS)
        return made


def _shown(lake: str) -> Observed:
    return observe(lake) if Path(lake).exists() else NOTHING
