"""Call delta-rs to open tables, to write checkpoints, and to delete expired commits.

Only this module calls delta-rs. Seglake writes all commits itself, including the first commit of a
table (see `commit_log`).
"""

import contextlib
import json
import logging
import re
import tempfile
import uuid
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, TypeVar

import pyarrow as pa
from deltalake import DeltaTable, Schema
from deltalake.exceptions import DeltaError, TableNotFoundError

from seglake.catalog.delta import table_contract
from seglake.catalog.delta.actions import (
    USED_STATISTICS,
    AddedFile,
    definition_action,
    extents,
    header_actions,
    mark_first_commit,
)
from seglake.catalog.delta.commit_log import CHECKPOINT_INTERVAL, LOGGED, DeltaLog
from seglake.catalog.delta.table_contract import (
    FILE_RETENTION,
    FORMAT,
    LAKE,
    LOG_RETENTION,
    READER,
    WRITER,
    Definition,
)
from seglake.clock import now_ms
from seglake.errors import (
    CorruptData,
    MissingObject,
    SeglakeError,
    StoreError,
    UsageError,
    VersionExpired,
)
from seglake.layout import DECODED_ROOT, is_decoded
from seglake.store import Store, is_local
from seglake.store.forks import ThreadedLibrary
from seglake.store.interface import reason, retry_request

_PROPERTIES = {
    "seglake.format": FORMAT,
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    "delta.checkpointPolicy": "classic",
    LOG_RETENTION: "interval 30 days",
    FILE_RETENTION: "interval 30 days",
}

# By default, Delta uses the statistics of only the first 32 columns. A catalog sets "all columns",
# because rows of runs and of input files are found by later columns.
_OF_CATALOG = {"delta.dataSkippingNumIndexedCols": "-1"}

_DELTA_RS = ThreadedLibrary("delta-rs")
_NOT_PARSED = re.compile(r"\b(Json|Parquet) error\b")  # in messages of Arrow in delta-rs
_CLOCK_BOUND_MS = 3_600_000
_LISTED_FILES = 1000  # data files that are Python objects at the same time


_log = logging.getLogger(__name__)

_Result = TypeVar("_Result")


class TableHandle:
    """The catalog table in delta-rs, at the newest version that was read so far.

    `id` is the UUID of the table. A rebuilt table has a new UUID. `lake` is the UUID of the lake.
    The constructor raises what `open_table` raises.
    """

    def __init__(self, log: DeltaLog) -> None:
        _DELTA_RS.use(self)
        self._log, self._uri = log, log.table_uri
        self._newest, self._is_own = open_table(log), True
        metadata = self._newest.metadata()
        self.id, self.lake = str(metadata.id), str(metadata.configuration[LAKE])

    def newest(self) -> DeltaTable:
        """Return the newest version.

        Raises VersionExpired if the table was rebuilt since it was opened, CorruptData if it no
        longer keeps its contract, and StoreError.
        """
        _DELTA_RS.use(self)
        # The update may read commits of a rebuilt table.
        self._is_own = False
        try:
            self._newest.update_incremental()
            is_same = self._log.is_same_table()
        except (DeltaError, OSError):
            # Storage failed, or the commits that the update needs were deleted. Open the table.
            is_same = False
        newest = self._newest if is_same else open_table(self._log)
        if str(newest.metadata().id) != self.id:
            raise self._log.replaced_error()
        self._newest, self._is_own = newest, True
        return _checked(self._log, self._newest)

    def at(self, version: int) -> DeltaTable:
        """Return the table at a version.

        Raises VersionExpired if it is not retained, UsageError if it is newer than the newest
        version, and StoreError.
        """
        _DELTA_RS.use(self)
        if self._is_own and self._newest.version() == version:
            return self._newest
        newest = self.newest().version()
        if version > newest:
            raise UsageError(f"there is no version {version} yet. The newest version is {newest}")
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

    def retention_ms(self) -> int:
        """Return the retention (ms) of removed files from the table's property.

        Raises what `newest` raises.
        """
        properties = self.newest().metadata().configuration
        interval = table_contract.interval_ms(properties[FILE_RETENTION])
        # The contract allows only intervals that can be parsed.
        if interval is None:
            raise AssertionError
        return interval


def create_table(
    store: Store, folder: str, schema: pa.Schema, partition_by: list[str], lake: str | None = None
) -> None:
    """Create a table unless it exists. Several processes may do so concurrently.

    This function does not call delta-rs, because delta-rs gives a file its final name before the
    bytes are on a local disk. After a power loss, the first commit could be empty, and the table
    could never be opened.

    Args:
        store: The store of the lake.
        folder: The table's folder.
        schema: The columns of the table.
        partition_by: The partition columns.
        lake: For a catalog, the lake's identity, or "" to use the new table's id. For another
            table, None.

    Raises:
        StoreError: Storage failed.
    """
    log = f"{folder}/_delta_log"
    if exists(store, folder):
        return
    protocol = {"minReaderVersion": READER, "minWriterVersion": WRITER}
    table_id, token = str(uuid.uuid4()), str(uuid.uuid4())
    properties = dict(_PROPERTIES)
    if lake is not None:
        properties |= {**_OF_CATALOG, LAKE: lake or table_id}
    lines = [
        *header_actions("CREATE TABLE", token, {}, (), 0),
        {"protocol": protocol},
        definition_action(table_id, schema_json(schema), partition_by, properties, now_ms()),
    ]
    data = "\n".join(map(json.dumps, lines)).encode()
    # If the object exists, another process has just created the table.
    store.put_if_absent(f"{log}/{0:020}.json", data)


def renumber(log: DeltaLog, made: int, version: int) -> None:
    """Change the number of a table's newest version from `made` to `version`, if higher.

    The table must not be open in any process. Afterwards, lower versions look expired. A late put
    of a commit to an older table also looks expired. The checkpoint and the commit are only put if
    they do not exist, so a late put of a failed rebuild cannot replace an object of a later
    rebuild. Raises StoreError.
    """
    if made >= version:
        return
    with _delta_errors(log.table_uri, "its versions cannot be renumbered"):
        _create_checkpoint(log, _table(log.store, log.folder, made))
    store, folder = log.store, f"{log.folder}/_delta_log"
    for suffix, change in (("checkpoint.parquet", bytes), ("json", mark_first_commit)):
        content = change(bytes(store.read_all(f"{folder}/{made:020}.{suffix}")))
        if not store.put_if_absent(f"{folder}/{version:020}.{suffix}", content):
            raise StoreError(f"version {version} of {log.table_uri} exists already. Run again")
    last = json.loads(bytes(store.read_all(f"{folder}/_last_checkpoint")))
    store.put(f"{folder}/_last_checkpoint", json.dumps({**last, "version": version}).encode())
    _delete_before(log, version)


def open_table(log: DeltaLog) -> DeltaTable:
    """Open the newest version of a table.

    Raises:
        MissingObject: The table does not exist.
        CorruptData: The table does not keep its contract, or is damaged.
        UsageError: This build does not read its `seglake.format`, or delta-rs would read another
            folder.
        StoreError: Storage failed.
    """
    with _delta_errors(log.table_uri, "the table cannot be read"):
        try:
            table = _table(log.store, log.folder)
        except TableNotFoundError as error:
            raise MissingObject(f"there is no table {log.table_uri}") from error
    return _checked(log, table)


def schema_json(schema: pa.Schema) -> str:
    """Return a schema as Delta's JSON."""
    return str(Schema.from_arrow(schema).to_json())


def exists(store: Store, folder: str) -> bool:
    """Return whether a folder has a table."""
    # An old table no longer has its first commit, so search for any commit or checkpoint.
    listed = store.list(f"{folder}/_delta_log")
    return any(LOGGED.fullmatch(item.key) for item in listed)


def keep_newest(log: DeltaLog) -> None:
    """Write a checkpoint of the newest version, and delete older versions. Raises StoreError."""
    _delete_before(log, _write_checkpoint(log).version())


def _delete_before(log: DeltaLog, version: int) -> None:
    listed = log.store.list(f"{log.folder}/_delta_log")
    logged = ((item.key, LOGGED.fullmatch(item.key)) for item in listed)
    log.store.delete([key for key, match in logged if match and int(match[1]) < version])


def live_files(table: DeltaTable, partition_by: Iterable[str]) -> Iterator[AddedFile]:
    """Yield every data file of a version, with the columns `partition_by`.

    A file that another program added without a row count has None as `rows`.
    """
    names = {name: f"partition.{name}" for name in partition_by}
    with _delta_errors(table.table_uri, "its files cannot be listed"):
        added = _retry_request(lambda: table.get_add_actions(flatten=True))
        files = pa.RecordBatchReader.from_stream(added).read_all()
    stated = [name for name in sorted(USED_STATISTICS) if f"min.{name}" in files.schema.names]
    lows, highs = ({name: f"{end}.{name}" for name in stated} for end in ("min", "max"))
    used = ["path", "size_bytes", "num_records", *names.values(), *lows.values(), *highs.values()]
    for some in files.select(used).to_batches(max_chunksize=_LISTED_FILES):
        rows: list[dict[str, Any]] = some.to_pylist()
        for row in rows:
            stats = {
                "minValues": {name: row[column] for name, column in lows.items()},
                "maxValues": {name: row[column] for name, column in highs.items()},
            }
            yield AddedFile(
                row["path"],
                row["size_bytes"],
                {name: row[column] for name, column in names.items()},
                row["num_records"],
                changes=True,
                bounds=extents(stats, int),
                names=extents(stats, str),
            )


def checkpoint_if_due(log: DeltaLog, made: Iterable[int]) -> None:
    """Write a checkpoint if one of the versions `made` needs it, and delete expired commits.

    A failure is only logged, because the table works without the checkpoint, and a later commit
    writes one.
    """
    try:
        if any(map(log.needs_checkpoint, made)):
            table = _write_checkpoint(log)
            if _has_right_time(log, f"{log.folder}/_delta_log/_last_checkpoint"):
                # This deletes commits that expired by this machine's clock. The checkpoint has
                # their content.
                with _delta_errors(log.table_uri, "expired commits cannot be deleted"):
                    table.cleanup_metadata()
    except SeglakeError as error:
        _log.warning("%s", error)


def _write_checkpoint(log: DeltaLog) -> DeltaTable:
    """Write a checkpoint of the newest version, and return the table at this version."""
    with _delta_errors(log.table_uri, "a checkpoint cannot be written"):
        table = _table(log.store, log.folder)
        _create_checkpoint(log, table)
    return table


def _create_checkpoint(log: DeltaLog, table: DeltaTable) -> None:
    """Write a checkpoint of `table`, which was opened at its newest version."""
    if not is_local(log.store):
        table.create_checkpoint()
        return
    # delta-rs gives a file its final name before the bytes are on a local disk. After a power loss,
    # the checkpoint could be empty, and no reader can open a table with an empty checkpoint. So
    # delta-rs writes it to a temporary folder, and Seglake copies it.
    folder, name = f"{log.folder}/_delta_log", f"{table.version():020}.checkpoint.parquet"
    parts = {key.rpartition("/")[2]: key for key in log.parts_of(table.version())}
    if name in parts:
        return
    with tempfile.TemporaryDirectory(prefix="seglake-") as aside:
        place = Path(aside, "_delta_log")
        place.mkdir()
        for part, key in parts.items():
            (place / part).write_bytes(log.store.read_all(key))
        DeltaTable(aside).create_checkpoint()
        for file in (name, "_last_checkpoint"):
            log.store.put(f"{folder}/{file}", (place / file).read_bytes())


def _has_right_time(log: DeltaLog, written: str) -> bool:
    """Return whether this clock is within an hour of storage's. `written` was just written."""
    ahead_ms = now_ms() - log.store.stat(written).modified_ms
    if abs(ahead_ms) <= _CLOCK_BOUND_MS:
        return True
    _log.warning(
        "%s: this machine's clock differs by %+.1f hours from the clock of storage, so expired "
        "commits were not deleted. Set the clock. A later checkpoint deletes them",
        log.table_uri, ahead_ms / 3_600_000,
    )  # fmt: skip
    return False


def _table(store: Store, folder: str, version: int | None = None) -> DeltaTable:
    uri = f"{store.uri}/{folder}"
    if is_decoded(store.uri):
        raise UsageError(f"{store.uri}: {DECODED_ROOT}")
    _DELTA_RS.use(store)
    options = store.storage_options
    return _retry_request(lambda: DeltaTable(uri, version=version, storage_options=options))


def _retry_request(call: Callable[[], _Result]) -> _Result:
    return retry_request(call, DeltaError, OSError)


def _checked(log: DeltaLog, table: DeltaTable) -> DeltaTable:
    """Return `table` after a check. Raises CorruptData or UsageError if it breaks its contract."""
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
    log.contract.check(definition, lambda: log.foreign_commits(table.version()), log.folder)
    return table


@contextlib.contextmanager
def _delta_errors(uri: str, problem: str) -> Iterator[None]:
    """Convert errors of delta-rs to StoreError, or to CorruptData if it cannot parse the bytes."""
    try:
        yield
    except (DeltaError, OSError) as error:
        # The error must not become the cause, see `reason`.
        what = f"{uri}: {problem}: {reason(error)}"
        if _NOT_PARSED.search(what):
            raise CorruptData(what, file=uri) from None
        raise StoreError(what) from None
