"""What groups committed, in one SQLite file: each commit is whole or not there.

The file belongs to one server: another server on it gets a ConfigError. After a killed server the
next one goes on with its file.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seglake.errors import ConfigError, StoreError

_FORMAT = 1
_TABLE = """
create table if not exists offsets (
  group_id text, topic text, partition integer,
  "offset" integer not null, leader_epoch integer not null, metadata text not null,
  committed_at_ms integer not null,
  primary key (group_id, topic, partition)
) without rowid
"""


class Committed(NamedTuple):
    """A committed offset: the next one to read, its leader epoch or -1, the client's metadata."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


Where = tuple[str, int]  # topic and partition


class OffsetStore:
    """The committed offsets of all groups; not for several threads at once.

    Raises ConfigError for a file that cannot be used, or that another server uses.
    """

    def __init__(self, file: Path) -> None:
        self._file = file
        try:
            if str(file) != ":memory:":
                file.parent.mkdir(parents=True, exist_ok=True)
            # a connection may go from thread to thread, one at a time
            self._db = sqlite3.connect(file, timeout=1, check_same_thread=False)
            self._db.execute("pragma locking_mode = exclusive")
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = full")
            self._check_format()
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(
                f"groups.file {file} cannot be used: {error}; it belongs to one server at a time:"
                " name another file for another server"
            ) from error

    def _check_format(self) -> None:
        with self._db:
            self._db.execute("begin immediate")
            (version,) = self._db.execute("pragma user_version").fetchone()
            if version not in (0, _FORMAT):
                raise ConfigError(
                    f"groups.file {self._file} has format {version}; this server knows {_FORMAT}"
                )
            self._db.execute(_TABLE)
            self._db.execute(f"pragma user_version = {_FORMAT}")

    def commit(self, group_id: str, offsets: Mapping[Where, Committed], now_ms: int) -> None:
        """Remember all of these offsets, or none. Raises StoreError."""
        rows = [(group_id, *where, *each, now_ms) for where, each in offsets.items()]
        self._write("insert or replace into offsets values (?, ?, ?, ?, ?, ?, ?)", rows)

    def of(self, group_id: str) -> dict[Where, Committed]:
        """Every committed offset of a group. Raises StoreError."""
        found = self._read(
            'select topic, partition, "offset", leader_epoch, metadata from offsets'
            " where group_id = ? order by topic, partition", group_id,
        )  # fmt: skip
        return {(topic, partition): Committed(*rest) for topic, partition, *rest in found}

    def groups(self) -> list[str]:
        """The groups that have committed something. Raises StoreError."""
        return [name for (name,) in self._read("select distinct group_id from offsets order by 1")]

    def delete(self, group_id: str, wheres: Iterable[Where] | None = None) -> None:
        """Forget some offsets of a group, or all. Raises StoreError."""
        if wheres is None:
            self._write("delete from offsets where group_id = ?", [(group_id,)])
        else:
            rows = [(group_id, *where) for where in wheres]
            what = "delete from offsets where group_id = ? and topic = ? and partition = ?"
            self._write(what, rows)

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _write(self, statement: str, rows: Iterable[tuple[object, ...]]) -> None:
        try:
            with self._db:
                self._db.executemany(statement, rows)
        except sqlite3.Error as error:
            raise StoreError(f"{self._file}: {error}") from error

    def _read(self, query: str, *values: object) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self._file}: {error}") from error
