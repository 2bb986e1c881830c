"""The commands, as their users call them, and what each is asked to do."""

from collections.abc import Callable, Mapping
from functools import cache
from typing import Any, NamedTuple

import seglake
from seglake.config import Pipeline
from seglake.engine import LocalEngine
from seglake.format.index import IndexPolicy
from seglake.kafka.importing import import_logs
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.repair import rebuild_catalog, repair_indexes
from seglake.maintain.undo import replace_files
from seglake.maintain.vacuum import vacuum
from seglake.write.driver.redrive import redrive
from seglake.write.driver.run import DeclaredRun, ingest_files, ingest_rows
from seglake.write.driver.run_input import InputFrame
from tests.simulation import inputs
from tests.simulation.model import EVENTS, PARTITIONS, Meant
from tests.simulation.world import Mishap

LAKE = "sim://lake"


class Deed(NamedTuple):
    """A command with its arguments; the same again is the same command run again.

    The first time it dies before its first write of an object with `dies` in the key, and has its
    `mishap`.
    """

    verb: str
    run_id: str = ""
    paths: tuple[str, ...] = ()
    keys: tuple[bytes, ...] = ()
    number: int = 0
    flag: bool = False
    grace_hours: float = 24.0
    dies: str = ""
    mishap: Mishap | None = None

    def __str__(self) -> str:
        parts = [self.verb, self.run_id, *(path.rpartition("/")[2] for path in self.paths)]
        parts += [repr(key) for key in self.keys] + [str(self.number)] * bool(self.number)
        parts += ["--flag"] * self.flag
        if self.grace_hours != 24:
            parts.append(f"--grace-hours {self.grace_hours:g}")
        parts += [f"(dies before {self.dies})"] * bool(self.dies)
        if self.mishap:
            parts.append(f"({'again' if self.mishap.again else 'stops before'} {self.mishap.at})")
        return " ".join(filter(None, parts))


class Ground(NamedTuple):
    """What the commands of a history are about, beside the lake."""

    seed: int
    read: Callable[[], None]  # called when a process reads a DataFrame
    versions: dict[int, int]  # that a deed tags, by its identity: the same when it is run again


@cache
def pipeline(form: str, time: str = "ts") -> Pipeline:
    """The settings of the pipeline `web` over JSON lines, `bin` over Parquet, or `frame`."""
    tables: dict[str, Any] = {
        "root": LAKE, "max_quarantine_ratio": 0.999,
        "timestamp": {"field": time, "format": "epoch_ms"},
        "key": {"fields": ["k"]},
        "topic": {"name": EVENTS, "partitions": PARTITIONS, "batch.size": 200,
                  "segment.bytes": 700, "compression.type": "none"},
    }  # fmt: skip
    more: Mapping[str, dict[str, Any]] = {
        "jsonl": {"name": "web"},
        "parquet": {"name": "bin", "value": {"from": "field", "field": "v"}},
        "dataframe": {"name": "frame", "value": {"from": "field", "field": "v"}},
    }
    order = {"order_column": "n"} if form == "dataframe" else {"paths": ["sim://files"]}
    tables |= {**more[form], "input": {"format": form, **order}}
    return Pipeline.model_validate(tables)


@cache
def _over(paths: tuple[str, ...]) -> Pipeline:
    settings = pipeline(_form(paths))
    return settings.model_copy(update={"input": settings.input.model_copy(update={"paths": paths})})


def _form(paths: tuple[str, ...]) -> str:
    return paths[0].rpartition(".")[2]


def _ingest(deed: Deed, _ground: Ground) -> Any:
    return ingest_files(LocalEngine(), _over(deed.paths), DeclaredRun(deed.run_id))


def _replace(deed: Deed, _ground: Ground) -> Any:
    run = DeclaredRun(deed.run_id)
    return replace_files(LocalEngine(), _over(deed.paths), run, force=deed.flag)


def _frame(deed: Deed, ground: Ground) -> Any:
    frame: Any = inputs.frame_of(inputs.frame_lines(ground.seed, deed.run_id), ground.read)
    rows, run = InputFrame(frame, "n"), DeclaredRun(deed.run_id)
    return ingest_rows(LocalEngine(), rows, pipeline("dataframe"), run)


def _redrive(deed: Deed, _ground: Ground) -> Any:
    form = "jsonl" if deed.flag else "parquet"
    return redrive(LocalEngine(), pipeline(form, "when"), deed.run_id)


def _undo(deed: Deed, _ground: Ground) -> Any:
    return seglake.undo(LAKE, EVENTS, deed.run_id, force=deed.flag)


def _delete_records(deed: Deed, _ground: Ground) -> Any:
    return seglake.delete_records(LAKE, EVENTS, dict.fromkeys(range(PARTITIONS), deed.number))


def _erase(deed: Deed, _ground: Ground) -> Any:
    how: Any = {"vacuum": deed.flag, "wait": bool(deed.number), "grace_hours": deed.grace_hours}
    return seglake.erase(LAKE, EVENTS, deed.keys, **how)


def _alter(deed: Deed, _ground: Ground) -> Any:
    return seglake.alter(LAKE, EVENTS, ALTERED[deed.number % len(ALTERED)])


def _index_keys(deed: Deed, _ground: Ground) -> Any:
    fields = ["k"] if deed.flag else []
    return seglake.alter(LAKE, EVENTS, {"index.keys": deed.flag, "index.fields": fields})


def _reindex(deed: Deed, _ground: Ground) -> Any:
    return reindex(LAKE, EVENTS, IndexPolicy(60 * (1 + deed.number)))


def _vacuum(deed: Deed, _ground: Ground) -> Any:
    hours = 0 if deed.flag else None
    return vacuum(LAKE, dry_run=False, grace_hours=deed.grace_hours, retention_hours=hours)


def _maintain(deed: Deed, _ground: Ground) -> Any:
    return seglake.maintain_lake(LAKE, grace_hours=deed.grace_hours)


def _tag(deed: Deed, ground: Ground) -> Any:
    """A name for the newest version, or for one so many before it."""
    if deed.number and id(deed) not in ground.versions:
        ground.versions[id(deed)] = seglake.open(LAKE).version - deed.number
    return seglake.tag(LAKE, deed.run_id, ground.versions.get(id(deed)))


def _publish(_deed: Deed, _ground: Ground) -> Any:
    return seglake.publish(LAKE, EVENTS, fields=["k"], value=True, timestamp_ms=True)


def _import(deed: Deed, _ground: Ground) -> Any:
    return import_logs(LAKE, [f"sim://broker{deed.number}"])


ALTERED: tuple[dict[str, Any], ...] = (
    {"retention.bytes": 300},
    {"cleanup.policy": "compact,delete", "min.cleanable.dirty.ratio": 0.0, "retention.bytes": 900},
    {"index.interval.bytes": 100},
    {"quarantine.retention.ms": 3_600_000},
    {"segment.bytes": 400},
    {"retention.bytes": -1},
)

VERBS: dict[str, Callable[[Deed, Ground], Any]] = {
    "ingest": _ingest,
    "replace": _replace,
    "frame": _frame,
    "redrive": _redrive,
    "undo": _undo,
    "merge": lambda deed, _: seglake.merge(LAKE, EVENTS, everything=True, rebatch=deed.flag),
    "compact": lambda deed, _: seglake.compact(LAKE, EVENTS, force=True),
    "retain": lambda deed, _: seglake.retain(LAKE, EVENTS),
    "delete-records": _delete_records,
    "erase": _erase,
    "alter": _alter,
    "index-keys": _index_keys,
    "maintain": _maintain,
    "vacuum": _vacuum,
    "repair": lambda deed, _: repair_indexes(LAKE),
    "rebuild": lambda deed, _: rebuild_catalog(LAKE, dry_run=False, force=True),
    "reindex": _reindex,
    "tag": _tag,
    "delete-tag": lambda deed, _: seglake.tag(LAKE, deed.run_id, delete=True),
    "import": _import,
    "publish": _publish,
}


def meant(deed: Deed, ground: Ground) -> Meant:
    """What a deed's commits must be."""
    asked = Meant(deed.verb, deed.run_id, deed.paths, keys=deed.keys)
    if deed.verb == "frame":
        return asked._replace(rows=inputs.frame_lines(ground.seed, deed.run_id))
    if deed.verb == "redrive":
        return asked._replace(time="when")
    if deed.verb == "delete-records":
        return asked._replace(starts=dict.fromkeys(range(PARTITIONS), deed.number))
    if deed.verb == "import":
        logs = inputs.stopped(deed.number)
        return asked._replace(logs=logs.logs, ends=logs.ends)
    return asked
