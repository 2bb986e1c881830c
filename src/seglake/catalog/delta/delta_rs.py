"""The little of Delta that our tables need: created, opened and checkpointed by delta-rs.

Commits are appended by `seglake.catalog.delta.commit_log`.
"""

from __future__ import annotations

import contextlib
import logging
from collections.abc import Iterable, Iterator

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError

from seglake.catalog.delta.commit_log import CHECKPOINT_INTERVAL, DeltaLog
from seglake.errors import MissingObject, SeglakeError, StoreError, UsageError
from seglake.store import open_store
from seglake.store.interface import reason

FORMAT = "1"
_PROPERTIES = {
    "seglake.format": FORMAT,
    "delta.checkpointInterval": str(CHECKPOINT_INTERVAL),
    "delta.checkpointPolicy": "classic",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 30 days",
}

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def delta_errors(uri: str, problem: str) -> Iterator[None]:
    """Turns what delta-rs raises into StoreError. It is not kept as the cause, see `reason`."""
    try:
        yield
    except (DeltaError, OSError) as error:
        raise StoreError(f"{uri}: {problem}: {reason(error)}") from None


def open_or_create(
    uri: str, schema: pa.Schema, partition_by: list[str], options: dict[str, str]
) -> None:
    """Create the table at `uri` unless it exists; several may try at once. Raises StoreError."""
    with (
        delta_errors(uri, "the table cannot be created"),
        contextlib.suppress(CommitFailedError),  # someone else has just created it
    ):
        DeltaTable.create(
            uri,
            schema,
            mode="ignore",
            partition_by=partition_by,
            configuration=_PROPERTIES,
            storage_options=options,
            raise_if_key_not_exists=False,  # seglake.format is not one of Delta's
            commit_properties=CommitProperties(max_commit_retries=0),  # or it is version 1 as well
        )
    with contextlib.suppress(MissingObject):  # it is so old that this commit has gone
        open_store(uri, options).sync(f"_delta_log/{0:020}.json")


def open_table(uri: str, options: dict[str, str]) -> DeltaTable:
    """The newest version of the table at `uri`.

    Raises MissingObject if there is none, UsageError if it has a `seglake.format` that this code
    does not know, and StoreError if it cannot be read.
    """
    with delta_errors(uri, "the table cannot be read"):
        try:
            table = DeltaTable(uri, storage_options=options)
        except TableNotFoundError as error:
            raise MissingObject(f"{uri}: there is no such table") from error
    return checked_format(table)


def checked_format(table: DeltaTable) -> DeltaTable:
    """The table, if its `seglake.format` is one that this code knows; else UsageError."""
    found = table.metadata().configuration.get("seglake.format", "missing")
    if found.partition(".")[0] != FORMAT:
        raise UsageError(
            f"{table.table_uri}: seglake.format is {found}; this Seglake knows {FORMAT}"
        )
    return table


def checkpoint_if_due(log: DeltaLog, options: dict[str, str], made: Iterable[int]) -> None:
    """Write a checkpoint if one of the versions `made` asks for it, and drop expired commits.

    A failure is logged only: the table needs no checkpoint, and a later commit writes the next.
    """
    try:
        if any(map(log.asks_for_checkpoint, made)):
            with delta_errors(log.table_uri, "a checkpoint cannot be written"):
                table = DeltaTable(log.table_uri, storage_options=options)
                table.create_checkpoint()
                store = open_store(log.table_uri, options)
                store.sync(f"_delta_log/{table.version():020}.checkpoint.parquet")
                store.sync("_delta_log/_last_checkpoint")
                table.cleanup_metadata()  # of commits that only the checkpoint tells from now on
    except SeglakeError as error:
        _log.warning("%s", error)
