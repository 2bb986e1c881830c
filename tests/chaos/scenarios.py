"""What is ingested while processes die, and what a lake may hold then.

A story is the same in every shape: a lake with two topics (or none yet); a run over files, of which
one was ingested before; perhaps another run at the same time; a file that comes between two
attempts at the run, or after it; the next run over the same folder. Only a commit binds, so the run
has what was there when the attempt that committed began. What a lake must hold is a function of the
runs that are committed, in their order, and of what they listed: it is made without a disturbance,
and everything must be equal to it.
"""

import json
import os
import random
from pathlib import Path
from typing import Any, Literal, NamedTuple

from seglake.layout import success_key
from seglake.maintain.health.verify import verify
from seglake.maintain.vacuum import vacuum
from seglake.store import open_store
from tests.chaos.verbs import CORRECTED_TIME, HOPELESS, OTHER, RUN
from tests.chaos.victim import Job
from tests.harness.observed import NOTHING, Observed, copy_lake, observe
from tests.makers.lakes import open_catalog
from tests.makers.raw_events import (
    TINY,
    Line,
    T,
    assert_holds,
    ingest,
    pipeline_of,
    read_lake,
    write_file,
)

NEXT, BEFORE, ASIDE = "next", "before", "aside"
WHOLE = "run with the late file"  # what a run is called whose attempt listed that, too
MODIFIED_S = T // 1000  # of all files, that every campaign lists the same


class Shape(NamedTuple):
    """A kind of story. `other` is what another writer does to the topic, or to one aside."""

    name: str
    order: Literal["time", "arrival"] = "time"
    clock: Literal["CreateTime", "LogAppendTime"] = "CreateTime"
    empty: bool = False  # before the story begins
    grown: bool = False
    other: Literal["", "overtakes", "races", "races aside", "is the same run"] = ""


SHAPES = [
    Shape("into an empty lake", empty=True),
    Shape("in arrival order", "arrival"),
    Shape("overtaken", other="overtakes"),
    Shape("append time, overtaken", "arrival", "LogAppendTime", other="overtakes"),
    Shape("a file has grown", grown=True),
    Shape("beside a second writer", other="races"),
    Shape("append time, beside a second writer", "time", "LogAppendTime", other="races"),
    Shape("beside a writer of another topic", "arrival", empty=True, other="races aside"),
    Shape("started twice at once", other="is the same run"),
]


class Scenario:
    """The story of one shape: its files below `folder`, its lakes below the URI `place`."""

    def __init__(self, shape: Shape, folder: Path, place: str, chance: random.Random) -> None:
        self.shape, self._folder, self._place = shape, folder, place
        self._content = {
            name: [_some_lines(chance) for _ in range(count)]
            for name, count in {BEFORE: 1, RUN: 2, NEXT: 1, OTHER: 1, ASIDE: 1}.items()
        }
        self._growth = _some_lines(chance)
        self._lakes: dict[tuple[str, ...], str] = {}
        self._expected: dict[tuple[str, ...], Observed] = {}
        self._grown = False
        self._late = False  # whether the late file is there
        self._whole: dict[str, bool] = {}  # by lake: whether the run that is committed has it
        for name in (BEFORE, RUN, OTHER, ASIDE):
            self._write(name)
        self._begun = self._begin()
        self._start = () if shape.empty else observe(self._begun).runs
        self._assert_model_agrees()

    # ------------------------------------------------------------------ what runs

    @property
    def beside(self) -> str:
        """What another process runs while the run is attempted first, if any."""
        return {"is the same run": RUN, "overtakes": "", "": ""}.get(self.shape.other, OTHER)

    @property
    def committed(self) -> set[str]:
        """What is committed when the run has ended."""
        return {RUN} if self.shape.other in ("", "is the same run") else {RUN, OTHER}

    def begin(self, lake: str) -> None:
        """Let a new lake be as it stands before the run."""
        if self._start:
            copy_lake(self._begun, lake)

    def job(self, lake: str, name: str) -> Job:
        """One of the runs into a lake."""
        overtaken = self.shape.other == "overtakes" and name == RUN
        other = (_tables(self._settings(lake, OTHER)), OTHER) if overtaken else None
        return Job(_tables(self._settings(lake, name)), name, other)

    def run_aside(self, lake: str, run_id: str) -> None:
        """Another run into the topic aside, of a few lines."""
        lines = [Line(T + n, "abc"[n % 3]) for n in range(6)]
        path = write_file(self._folder / run_id / "in.jsonl", lines)
        settings = self._settings(lake, ASIDE)
        given = settings.input.model_copy(update={"paths": (str(path),)})
        ingest(settings.model_copy(update={"input": given}), run_id)

    def arrange(self, name: str, *, late: bool = False) -> None:
        """Let the folder hold what it does during an attempt at a run, perhaps the late file."""
        self._late = late or name == NEXT
        self._fill(name, late=self._late)

    def assert_same_again(self, lake: str, name: str) -> None:
        """A run that is committed does nothing when it is started again, and says so."""
        before = open_catalog(lake).snapshot().version
        report = ingest(self._settings(lake, name), name)
        assert (report.status, report.exit_code) == ("already done", 0)
        assert open_catalog(lake).snapshot().version == before

    # ------------------------------------------------------------------ what readers see

    def seen(self, lake: str) -> set[str]:
        """Which runs readers see; they must see nothing but these, and find no damage."""
        found = observe(lake)
        if found == NOTHING and not self._start:
            return set()
        runs = tuple(run for run in found.runs if run not in self._start)
        if RUN in runs:  # by the attempt that just ended, if it is new here
            whole = self._whole.setdefault(lake, self._late)
            told = tuple(WHOLE if run == RUN and whole else run for run in runs)
        else:
            told = runs
        assert len(set(found.runs)) == len(found.runs), f"a run is committed twice: {found.runs}"
        assert len(runs) + len(self._start) == len(found.runs), "a run was lost"
        expected = self.expected(told)
        for what, mine, theirs in zip(Observed._fields, found, expected, strict=True):
            assert mine == theirs, f"{what} are not those of an undisturbed lake after {runs}"
        found_wrong = verify(lake, deep=True).findings  # a killed run comes to its mark later
        findings = [each for each in found_wrong if not each.file.endswith("/success")]
        assert not findings, f"verify finds {findings[:3]}"
        return set(runs)

    def assert_marked(self, lake: str) -> None:
        """Every committed run has its mark of success."""
        store, table = open_store(lake), open_catalog(lake)
        snapshot = table.snapshot()
        for topic in snapshot.topics():
            for run in table.rows.runs(snapshot, topic.topic):
                assert store.size(success_key(run.attempt_id)) == 0

    def assert_swept(self, lake: str) -> None:
        """What the killed attempts left behind can be removed, and is nothing that anyone reads."""
        before = self.seen(lake)
        vacuum(lake, dry_run=False, grace_hours=0)
        orphans = verify(lake).orphans
        assert not orphans, f"vacuum leaves {orphans[:3]}"
        assert self.seen(lake) == before

    def expected(self, runs: tuple[str, ...]) -> Observed:
        """What a lake shows in which these runs were committed in this order, and nothing died."""
        if runs not in self._expected:
            self._expected[runs] = observe(self.undisturbed(runs))
        return self._expected[runs]

    def undisturbed(self, runs: tuple[str, ...]) -> str:
        """A lake in which these runs were committed in this order, and nothing died."""
        if not runs:
            return self._begun
        if runs not in self._lakes:
            lake = f"{self._place}/after-{'-'.join(runs)}"
            if len(runs) > 1 or self._start:
                copy_lake(self.undisturbed(runs[:-1]), lake)
            last = RUN if runs[-1] == WHOLE else runs[-1]
            self._fill(last, late=runs[-1] in {NEXT, WHOLE})
            ingest(self._settings(lake, last), last)
            self._fill(last, late=self._late)  # as it was
            self._lakes[runs] = lake
        return self._lakes[runs]

    def _assert_model_agrees(self) -> None:
        """The undisturbed lake itself, against the files read with `json` and `sorted`."""
        others = (OTHER,) if self.shape.other in ("overtakes", "races") else ()
        self._late = True
        lakes = {run: self.undisturbed((*others, run, NEXT)) for run in (RUN, WHOLE)}
        if self.shape.grown:
            return  # lines that are there twice cannot be told apart
        paths = {name: sorted(self._paths(name)) for name in (BEFORE, RUN, NEXT, OTHER)}
        if self.shape.empty:
            paths[RUN] += paths[BEFORE]
        paths[WHOLE] = paths[RUN] + paths[NEXT]
        for run, lake in lakes.items():
            names = [*((BEFORE,) if self._start else ()), *others, run]
            told = [paths[name] for name in names + [NEXT] * (run == RUN)]
            assert_holds(read_lake(lake), self._settings(lake, RUN), told)

    # ------------------------------------------------------------------ files and settings

    def _begin(self) -> str:
        """The lake before the story begins."""
        lake = f"{self._place}/begun"
        for name in () if self.shape.empty else (ASIDE, BEFORE):
            ingest(self._settings(lake, name), name)
        return lake

    def _paths(self, name: str) -> list[Path]:
        folder = "in" if name in (BEFORE, RUN, NEXT) else name
        return [
            self._folder / folder / f"{name}-{number}.jsonl{'.gz' * (name == NEXT)}"
            for number in range(len(self._content[name]))
        ]

    def _write(self, name: str) -> None:
        for path, lines in zip(self._paths(name), self._content[name], strict=True):
            write_file(path, [*lines, *(self._growth if name == BEFORE and self._grown else [])])
            os.utime(path, (MODIFIED_S, MODIFIED_S))

    def _fill(self, name: str, *, late: bool) -> None:
        """Let the files of the folder be what they are at the time of a run."""
        if name == RUN and self.shape.grown and not self._grown:
            self._grown = True
            self._write(BEFORE)
        for path in self._paths(NEXT):
            if late and not path.exists():
                self._write(NEXT)
            if not late:
                path.unlink(missing_ok=True)

    def _settings(self, lake: str, name: str) -> Any:
        aside = name == ASIDE or (name == OTHER and self.shape.other == "races aside")
        clock = "CreateTime" if aside else self.shape.clock
        paths = {BEFORE: self._paths(BEFORE), RUN: self._folder / "in", NEXT: self._folder / "in"}
        of_topic = {"message.timestamp.type": clock, "batch.size": 300, "segment.bytes": 1500}
        return pipeline_of(
            lake,
            paths.get(name, self._folder / name),
            name={OTHER: "beside", ASIDE: "aside"}.get(name, "web"),
            order=self.shape.order,
            topic={**of_topic, "name": "aside" if aside else "events"},
            on_changed_source="ingest-as-new" if self.shape.grown else "fail",
            task=TINY,
        )


def _tables(settings: Any) -> dict[str, Any]:
    tables: dict[str, Any] = settings.model_dump(mode="json", by_alias=True, exclude_unset=True)
    return tables


def _some_lines(chance: random.Random) -> list[Line]:
    """A few dozen lines, broken ones among them: hopeless ones, and some for a redrive."""
    keys = ["a", "b", "c", None]
    made = [Line(T + chance.randrange(200), chance.choice(keys)) for _ in range(30)]
    for number in range(len(made)):
        if number in (3, 18) or chance.random() < 0.08:
            made[number] = Line(T, broken=HOPELESS if number % 2 else _to_correct(chance))
    return made


def _to_correct(chance: random.Random) -> str:
    """A line whose time is in another field."""
    return json.dumps({CORRECTED_TIME: T + chance.randrange(200), "k": chance.choice("bcd")})
