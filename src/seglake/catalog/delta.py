"""The little of Delta that our tables need: created at protocol (1, 2), committed by delta-rs."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Iterator, Mapping, Sequence

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable
from deltalake.exceptions import CommitFailedError, DeltaError, TableNotFoundError
from deltalake.transaction import AddAction, RemoveAction

from seglake.errors import CommitConflict, MissingObject, StoreError, UsageError
from seglake.store.interface import reason

FORMAT = "1"
_PROPERTIES = {
    "seglake.format": FORMAT,
    "delta.checkpointInterval": "25",
    "delta.checkpointPolicy": "classic",
    "delta.logRetentionDuration": "interval 30 days",
    "delta.deletedFileRetentionDuration": "interval 30 days",
}


@contextlib.contextmanager
def naming(uri: str, problem: str) -> Iterator[None]:
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
        naming(uri, "the table cannot be created"),
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
        )


def open_table(uri: str, options: dict[str, str]) -> DeltaTable:
    """The newest version of the table at `uri`.

    Raises MissingObject if there is none, UsageError if it has a `seglake.format` that this code
    does not know, and StoreError if it cannot be read.
    """
    with naming(uri, "the table cannot be read"):
        try:
            table = DeltaTable(uri, storage_options=options)
        except TableNotFoundError as error:
            raise MissingObject(f"{uri}: there is no such table") from error
    found = table.metadata().configuration.get("seglake.format", "missing")
    if found.partition(".")[0] != FORMAT:
        raise UsageError(
            f"{table.table_uri}: seglake.format is {found}; this Seglake knows {FORMAT}"
        )
    return table


def add(
    path: str, size: int, partition: Mapping[str, str | None], stats: str, *, changes: bool = True
) -> AddAction:
    """The action that makes a file part of the table; without `changes` it moves rows only."""
    return AddAction(path, size, partition, _now_ms(), changes, stats)


def remove(
    path: str, size: int, partition: dict[str, str | None], *, changes: bool
) -> RemoveAction:
    """The action that takes a file out of the table."""
    return RemoveAction(path, changes, _now_ms(), size=size, partition_values=partition)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000


def commit(
    handle: DeltaTable,
    actions: Sequence[AddAction | RemoveAction],
    schema: pa.Schema,
    partition_by: list[str],
    properties: CommitProperties,
) -> None:
    """One commit on top of the handle's version, which stays what it was.

    Raises CommitConflict if another commit was in the way, and StoreError if storage failed; after
    either the commit may be in, and its files must stay.
    """
    with naming(handle.table_uri, "the commit may have failed"):
        try:
            handle.create_write_transaction(
                list(actions), "append", schema, partition_by, commit_properties=properties
            )
        except CommitFailedError:
            version = handle.version()
            raise CommitConflict(f"{handle.table_uri} changed after version {version}") from None
