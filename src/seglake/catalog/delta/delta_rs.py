"""What delta-rs does for Seglake's tables: create and open them, write checkpoints.

No other module calls delta-rs. Seglake appends commits itself, see `commit_log`.
"""

import contextlib
import itertools
import json
import logging
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Schema
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from seglake.catalog.delta import table_contract
from seglake.catalog.delta.actions import Action, AddedFile, now_ms, redefinition
from seglake.catalog.delta.commit_log import CHECKPOINT_INTERVAL, DeltaLog
from seglake.catalog.delta.table_contract import FILE_RETENTION, FORMAT, LOG_RETENTION, Definition
from seglake.errors import (
    CorruptData,
    MissingObject,
    SeglakeError,
    StoreError,
    UsageError,
    VersionExpired,
)
from seglake.store import Store
from seglake.store.forks import ThreadedLibrary
from seglake.store.interface import may_ask_again, reason

_PROPERTIES = {
    "seglake.format": FORMAT,
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    "delta.checkpointPolicy": "classic",
    LOG_RETENTION: "interval 30 days",
    FILE_RETENTION: "interval 30 days",
}

_DELTA_RS = ThreadedLibrary("delta-rs")
_NOT_PARSED = re.compile(r"\b(Json|Parquet) error\b")  # of Arrow, in delta-rs
_CLOCK_BOUND_MS = 3_600_000


_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class TableHandle:
    """A table in delta-rs, at the newest version seen so far. Raises as `open_table`."""

    def __init__(self, log: DeltaLog) -> None:
        _DELTA_RS.use(self)
        self._log, self._uri = log, log.table_uri
        self._newest = open_table(log)
        self._id = self._newest.metadata().id

    def newest(self) -> DeltaTable:
        """The newest version; VersionExpired if the table was created anew since it was opened.

        Raises CorruptData if it no longer keeps its contract.
        """
        _DELTA_RS.use(self)
        try:
            self._newest.update_incremental()
            is_same = self._log.is_same_table()
        except (DeltaError, OSError):  # a failure, or a clean-up deleted commits that it needs
            is_same = False
        if not is_same:
            self._newest = open_table(self._log)
        if self._newest.metadata().id != self._id:
            raise self._log.created_anew()
        return _checked(self._log, self._newest)

    def at(self, version: int) -> DeltaTable:
        """A given version; VersionExpired if the log lost it, UsageError if it does not exist.

        Raises StoreError if storage fails.
        """
        _DELTA_RS.use(self)
        if self._newest.version() == version:
            return self._newest
        newest = self.newest().version()
        if version > newest:
            raise UsageError(f"version {version} is newer than the newest, {newest}")
        with _delta_errors(self._uri, f"version {version} cannot be read"):
            try:
                return _table(self._log.store, self._log.folder, version)
            except DeltaError as error:
                if self._log.retains(version):
                    raise
                message = f"version {version} of the catalog is not retained: {reason(error)}"
                raise VersionExpired(message) from None
            except OverflowError:
                raise VersionExpired(f"there is no version {version}") from None

    def redefined(
        self, schema: pa.Schema, later: Collection[str], known_format: str
    ) -> list[Action]:
        """The action that gives the table the `later` columns of `schema` and a `seglake.format`.

        Empty if the newest version seen so far has them, and that format or a higher one.
        """
        metadata, found = self._newest.metadata(), json.loads(self._newest.schema().to_json())
        missing = set(later) - {column["name"] for column in found["fields"]}
        properties = dict(metadata.configuration)
        raised = max(properties.get("seglake.format", FORMAT), known_format)
        if not missing and raised == properties.get("seglake.format"):
            return []
        columns = pa.schema([column for column in schema if column.name in missing])
        found["fields"] += json.loads(Schema.from_arrow(columns).to_json())["fields"]
        properties["seglake.format"] = raised
        return [
            redefinition(
                str(metadata.id),
                json.dumps(found),
                metadata.partition_columns,
                properties,
                metadata.created_time,
            )
        ]

    def retention_ms(self) -> int:
        """How long the table's own setting keeps removed files. Raises as `newest`."""
        found = table_contract.interval_ms(self.newest().metadata().configuration[FILE_RETENTION])
        if found is None:  # the contract refuses it
            raise AssertionError
        return found


def create_table(store: Store, folder: str, schema: pa.Schema, partition_by: list[str]) -> None:
    """Create the table, unless it exists; several may try at once. Raises StoreError."""
    uri = f"{store.uri}/{folder}"
    _DELTA_RS.use(store)
    with (
        _delta_errors(uri, "the table cannot be created"),
        contextlib.suppress(CommitFailedError),  # someone else has just created it
    ):
        _patient(
            lambda: DeltaTable.create(
                uri,
                schema,
                mode="ignore",
                partition_by=partition_by,
                configuration=_PROPERTIES,
                storage_options=store.storage_options,
                raise_if_key_not_exists=False,  # seglake.format is not one of Delta's
                commit_properties=CommitProperties(max_commit_retries=0),  # a retry makes version 1
            )
        )
    with contextlib.suppress(MissingObject):  # an old table no longer has this commit
        store.sync(f"{folder}/_delta_log/{0:020}.json")


def renumber(log: DeltaLog, version: int) -> None:
    """Give the newest version of a table that nobody has open a number of at least `version`.

    The numbers before it are as if they had expired. Raises StoreError.
    """
    with _delta_errors(log.table_uri, "its versions cannot be renumbered"):
        table = _table(log.store, log.folder)
        newest = table.version()
        if newest >= version:
            return
        table.create_checkpoint()
    store, folder = log.store, f"{log.folder}/_delta_log"
    for suffix in ("checkpoint.parquet", "json"):
        content = store.read_all(f"{folder}/{newest:020}.{suffix}")
        store.put(f"{folder}/{version:020}.{suffix}", content)
    last = json.loads(bytes(store.read_all(f"{folder}/_last_checkpoint")))
    store.put(f"{folder}/_last_checkpoint", json.dumps({**last, "version": version}).encode())
    old = tuple(f"{folder}/{number:020}." for number in range(newest + 1))
    store.delete([found.key for found in store.list(folder) if found.key.startswith(old)])


def open_table(log: DeltaLog) -> DeltaTable:
    """The newest version of a table; MissingObject if there is none.

    Raises CorruptData if it does not keep its contract, UsageError if its `seglake.format` is not
    known, StoreError if it cannot be read.
    """
    with _delta_errors(log.table_uri, "the table cannot be read"):
        try:
            table = _table(log.store, log.folder)
        except TableNotFoundError as error:
            raise MissingObject(f"{log.table_uri}: there is no such table") from error
    return _checked(log, table)


def live_files(table: DeltaTable, partition_by: Iterable[str]) -> Iterator[AddedFile]:
    """Every data file of a version. `rows` is None where another writer left it out."""
    names = {name: f"partition.{name}" for name in partition_by}
    with _delta_errors(table.table_uri, "its files cannot be listed"):
        added = _patient(lambda: table.get_add_actions(flatten=True))
        found = pa.RecordBatchReader.from_stream(added).read_all()
    bounded = [n.removeprefix("min.") for n in found.column_names if n.startswith("min.")]
    rows: list[dict[str, Any]] = found.to_pylist()
    for row in rows:
        partition = {name: row[column] for name, column in names.items()}
        bounds = {name: (row[f"min.{name}"], row[f"max.{name}"]) for name in bounded
                  if isinstance(row[f"min.{name}"], int)}  # fmt: skip
        size, count = row["size_bytes"], row["num_records"]
        yield AddedFile(row["path"], size, partition, count, changes=True, bounds=bounds)


def checkpoint_if_due(log: DeltaLog, made: Iterable[int]) -> None:
    """Write a checkpoint if one of the versions `made` asks for it, and drop expired commits.

    A failure is only logged: the table works without a checkpoint, and a later commit writes one.
    """
    try:
        if any(map(log.asks_for_checkpoint, made)):
            _write_checkpoint(log)
    except SeglakeError as error:
        _log.warning("%s", error)


def _write_checkpoint(log: DeltaLog) -> None:
    with _delta_errors(log.table_uri, "a checkpoint cannot be written"):
        table = _table(log.store, log.folder)
        table.create_checkpoint()
        folder = f"{log.folder}/_delta_log"
        log.store.sync(f"{folder}/{table.version():020}.checkpoint.parquet")
        log.store.sync(f"{folder}/_last_checkpoint")
        if _has_right_time(log, f"{folder}/_last_checkpoint"):
            table.cleanup_metadata()  # deletes commits that from now on only the checkpoint has


def _has_right_time(log: DeltaLog, written: str) -> bool:
    """Whether this machine's clock, by which delta-rs cleans up, agrees with that of storage.

    `written` is an object that was just written.
    """
    ahead_ms = now_ms() - log.store.stat(written).modified_ms
    if abs(ahead_ms) <= _CLOCK_BOUND_MS:
        return True
    _log.warning(
        "%s: this machine's clock is %+.1f hours off the clock of storage, so expired commits are "
        "left for a later checkpoint to delete: set the clock", log.table_uri, ahead_ms / 3_600_000,
    )  # fmt: skip
    return False


def _table(store: Store, folder: str, version: int | None = None) -> DeltaTable:
    uri = f"{store.uri}/{folder}"
    _DELTA_RS.use(store)
    options = store.storage_options
    return _patient(lambda: DeltaTable(uri, version=version, storage_options=options))


def _patient(call: Callable[[], _Result]) -> _Result:
    """The result of a call of delta-rs, again where a reply of an object store ends early."""
    for failures in itertools.count(1):
        try:
            return call()
        except (DeltaError, OSError) as error:
            if not may_ask_again(error, failures):
                raise
    raise AssertionError


def _checked(log: DeltaLog, table: DeltaTable) -> DeltaTable:
    """The table itself, if it keeps the contract of its log."""
    protocol, metadata = table.protocol(), table.metadata()
    features = {*(protocol.reader_features or ()), *(protocol.writer_features or ())}
    definition = Definition(
        protocol.min_reader_version,
        protocol.min_writer_version,
        features,
        table.schema().to_json(),
        metadata.partition_columns,
        metadata.configuration,
    )
    log.check_to(table.version())
    log.contract.check(definition, lambda: log.others(table.version()), log.folder)
    return table


@contextlib.contextmanager
def _delta_errors(uri: str, problem: str) -> Iterator[None]:
    """Turn delta-rs's errors into StoreError, without them as its cause: see `reason`.

    Raises CorruptData if delta-rs got the bytes and cannot parse them.
    """
    try:
        yield
    except (DeltaError, OSError) as error:
        what = f"{uri}: {problem}: {reason(error)}"
        if _NOT_PARSED.search(what):
            raise CorruptData(what, file=uri) from None
        raise StoreError(what) from None
