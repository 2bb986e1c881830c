"""What Seglake's modules get instead of the machine: storage, clocks, ids and threads of a world.

Only names in modules are replaced, once for the whole process. Without a world they do what they
did before.
"""

from __future__ import annotations

import importlib
import json
import os
import pkgutil
import sys
import time
import uuid
from collections.abc import Callable, Iterable, Iterator, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from functools import lru_cache
from types import ModuleType
from typing import Any

import pyarrow as pa

import seglake
from seglake import engine
from seglake import store as real_store
from seglake.catalog import retention, schema
from seglake.catalog.delta import actions, commit_log, data_files, delta_rs, file_merges
from seglake.catalog.delta.table_contract import TableContract
from seglake.catalog.quarantine import table
from seglake.catalog.schema import Kind
from seglake.catalog.version import segments
from seglake.compile.fallback import WAITS
from seglake.datasource import batch
from seglake.maintain import vacuum
from seglake.read import origin
from seglake.store import Store
from seglake.terminal.progress import Pace
from seglake.write.driver import commit as placement
from tests.simulation import delta
from tests.simulation.storage import SCHEME, Bucket, SimStore
from tests.simulation.world import Crash, Process, World

LAKE = "sim://lake"
_LEFT_OUT = ("seglake.airflow", "seglake.serve", "seglake.cli", "seglake.replay",
             "seglake.reporting", "seglake.__main__", "seglake.warm", "seglake.jobs")  # fmt: skip

bucket: Bucket | None = None  # of the world that is played now
disk = False


def play(new: Bucket | None, *, on_disk: bool = False, folds: bool = False) -> None:
    """Let Seglake be in this world from now on, or in none."""
    global bucket, disk  # there is one stage
    bucket, disk = new, on_disk
    vacuum._FEW, retention._FEW = (2, 2) if folds else (1000, 100)
    batch._store.cache_clear()
    origin._origin_at.cache_clear()


class _Tables:
    """Arrow's files instead of Parquet's: to write and read them takes a tenth of the time."""

    @staticmethod
    def write_table(table: pa.Table, sink: pa.BufferOutputStream, **_: bool) -> None:
        with pa.ipc.new_file(sink, table.schema) as writer:
            writer.write_table(table)


@lru_cache(5_000)
def parsed(data: bytes) -> pa.Table:
    """A data file of the lake, as `_Tables` writes it."""
    return pa.ipc.open_file(pa.py_buffer(data)).read_all()


def read_parquet(store: Store, key: str, schema: pa.Schema) -> pa.Table:
    """As that of `data_files`; bytes that are the same are parsed once."""
    table = parsed(bytes(store.read_all(key)))
    return table if table.schema.equals(schema) else data_files._conform(table, schema)


def read_metadata(store: Store, key: str, size: int) -> Mapping[bytes, bytes]:
    """As that of `data_files`, in one request."""
    return parsed(bytes(store.read(key, 0, size))).schema.metadata or {}


def _remembered(function: Callable[..., Any]) -> Callable[..., Any]:
    """A function of tables, which are parsed once and never changed, and of text."""
    known: dict[Any, tuple[Any, Any]] = {}

    def remembered(*given: Any) -> Any:
        given = tuple(list(each) if isinstance(each, Iterator) else each for each in given)
        key = tuple(
            tuple(map(id, each)) if isinstance(each, list) else _name(each) for each in given
        )
        if key not in known:
            if len(known) > 5_000:
                known.clear()
            known[key] = given, function(*given)  # what has an id stays alive
        return known[key][1]

    return remembered


def _name(value: Any) -> Any:
    return value if isinstance(value, str) else id(value)


class _Json(ModuleType):
    """The module `json`, which parses a line once. Nobody changes what it gives."""

    dumps = staticmethod(json.dumps)
    loads = staticmethod(lru_cache(20_000)(json.loads))


def _checked_once(check: Callable[..., None]) -> Callable[..., None]:
    """A definition that keeps its contract keeps it again."""
    kept = set[Any]()

    def checked(contract: TableContract, found: Any, *given: Any) -> None:
        key = (contract.name, found.schema, *sorted(found.properties.items()))
        if key not in kept:
            check(contract, found, *given)
            kept.add(key)

    return checked


def _running() -> Process | None:
    return bucket.world.running if bucket else None


def _world() -> World | None:
    return bucket.world if bucket else None


def open_store(uri: str, storage_options: Mapping[str, str] | None = None) -> Store:
    """The store at a URI, of the world if that begins with `sim:`."""
    if not uri.startswith(SCHEME) or bucket is None:
        return real_store.open_store(uri, storage_options)
    return SimStore(bucket, uri, disk=disk and uri.startswith(LAKE))


class _Clock(ModuleType):
    """The module `time`, with the clock of the process that runs."""

    def __init__(self) -> None:
        super().__init__("time")
        self.perf_counter, self.struct_time = time.perf_counter, time.struct_time

    def time_ns(self) -> int:
        process, world = _running(), _world()
        if world is None:
            return time.time_ns()
        return int((world.now_ms + (process.skew_ms if process else 0)) * 1_000_000)

    def time(self) -> float:
        return self.time_ns() / 1e9

    def monotonic(self) -> float:
        world = _world()
        return time.monotonic() if world is None else world.now_ms / 1000

    def sleep(self, seconds: float) -> None:
        if process := _running():
            process.about.get("asleep", lambda: None)()
            process.wait(seconds * 1000)
        elif _world() is None:
            time.sleep(seconds)


class _Ids(ModuleType):
    """The module `uuid`, with ids from the seed."""

    UUID, NAMESPACE_URL = uuid.UUID, uuid.NAMESPACE_URL
    uuid5 = staticmethod(uuid.uuid5)

    def uuid4(self) -> uuid.UUID:
        if process := _running():
            return uuid.UUID(int=process.ids.getrandbits(128), version=4)
        return uuid.uuid4()


class _InTurn:
    """A pool of threads that does each call at once, by itself."""

    def __init__(self, *_: Any, **__: Any) -> None:
        pass

    def __enter__(self) -> _InTurn:
        return self

    def __exit__(self, *_: object) -> None:
        pass

    def submit(self, call: Callable[..., Any], *given: Any, **named: Any) -> Future[Any]:
        future: Future[Any] = Future()
        try:
            future.set_result(call(*given, **named))
        except Crash:
            raise
        except BaseException as error:  # as a pool does
            future.set_exception(error)
        return future

    def map(self, call: Callable[..., Any], *given: Iterable[Any]) -> Iterator[Any]:
        return iter([call(*each) for each in zip(*given, strict=False)])

    def shutdown(self, *_: Any, **__: Any) -> None:
        pass


CLOCK, IDS = _Clock(), _Ids("uuid")
_installed = False


def install() -> None:
    """Put the stage's things in the place of the machine's in every module of Seglake."""
    global _installed  # noqa: PLW0603  # once
    if _installed:
        return
    _installed = True
    os.environ.setdefault(WAITS, "wait")  # no compiler beside, whose clock is no seed's
    instead = _instead()
    for module in _modules():
        _replace(module, instead)
    table = delta.SimTable
    table.opener = open_store
    table.now_ms = lambda: CLOCK.time_ns() // 1_000_000
    for owner, name, value in _edges():
        setattr(owner, name, value)


def _edges() -> Iterator[tuple[Any, str, Any]]:
    """What else is replaced: (a module or class, a name in it, what it is now)."""
    yield from ((each, "json", _Json("json")) for each in (commit_log, actions))
    yield data_files, "pq", _Tables
    yield delta_rs, "DeltaTable", delta.SimTable
    yield delta_rs, "live_files", delta.live_files
    yield commit_log, "checkpoint_actions", delta.checkpoint_actions
    yield TableContract, "check", _checked_once(TableContract.check)
    yield engine, "CORES", 1
    yield Pace, "line", lambda *_: None  # it goes by the real clock
    yield placement, "_FEW_SEGMENTS", 0
    yield commit_log, "CHECKPOINT_INTERVAL", 5
    yield file_merges, "FAN_IN", 4
    yield file_merges, "ENOUGH_ROWS", 6
    yield table, "FAN_IN", 2
    yield table, "ENOUGH_BYTES", 16_384
    yield table, "UNIT_BYTES", 4_096  # most are of one size


def _modules() -> list[ModuleType]:
    for found in pkgutil.walk_packages(seglake.__path__, "seglake."):
        if not found.name.startswith(_LEFT_OUT):
            importlib.import_module(found.name)
    names = [name for name in sys.modules if name.startswith("seglake.")]
    return [sys.modules[name] for name in sorted(names) if not name.startswith("seglake.store.o")]


def _once_checked(kind: Kind, table: pa.Table, file: str) -> pa.Table:
    """As `schema.check_required`, of a table once."""
    if len(_checked) > 5_000:
        _checked.clear()
    if id(table) not in _checked:
        _checked[id(table)] = _check_required(kind, table, file)
    return table


_checked: dict[int, pa.Table] = {}
_check_required = schema.check_required


def _instead() -> dict[int, Any]:
    return {
        id(real_store.open_store): open_store,
        id(time): CLOCK,
        id(time.sleep): CLOCK.sleep,
        id(uuid): IDS,
        id(data_files.read_parquet): read_parquet,
        id(data_files.read_metadata): read_metadata,
        id(schema.check_required): _once_checked,
        id(segments.segments_by_partition): _remembered(segments.segments_by_partition),
        id(ThreadPoolExecutor): _InTurn,
    }


def _replace(module: ModuleType, instead: Mapping[int, Any]) -> None:
    if module is real_store:
        return
    for name, value in list(vars(module).items()):
        if id(value) in instead:
            setattr(module, name, instead[id(value)])
