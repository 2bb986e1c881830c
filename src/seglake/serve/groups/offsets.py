"""Store the offsets that groups commit in one SQLite file.

A commit is atomic. The file belongs to one server. A second server that opens it gets a
ConfigError. After a server was killed, the next one can use its file.
"""

from __future__ import annotations

import base64
import os
import sqlite3
import uuid
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from seglake.errors import ConfigError, StoreError

_FORMAT = 2
_TABLE = """
create table if not exists committed (
  lake text, group_id text, topic text, partition integer,
  "offset" integer not null, leader_epoch integer not null, metadata text not null,
  committed_at_ms integer not null,
  primary key (lake, group_id, topic, partition)
) without rowid
"""

_KINDS = """
create table if not exists kinds (
  lake text, group_id text, protocol_type text not null, primary key (lake, group_id)
) without rowid
"""

_FORGET_KIND = """
delete from kinds where lake = ? and group_id = ?
and not exists (select 1 from committed where lake = ? and group_id = ?)
"""


def default_file(root: str) -> Path:
    """Return the file for a root, in the folder with the state of this user's programs (XDG)."""
    made = uuid.uuid5(uuid.NAMESPACE_URL, f"seglake:{root}")
    name = base64.urlsafe_b64encode(made.bytes).decode().rstrip("=")
    state = os.environ.get("XDG_STATE_HOME") or "~/.local/state"
    return Path(state).expanduser() / "seglake" / f"{name}.sqlite"


def _why(error: sqlite3.Error | OSError) -> str:
    """Return a message with the cause of an error of the file, and the remedy."""
    another = "name another file in the setting groups.file of --conf-file"
    if getattr(error, "sqlite_errorcode", 0) & 0xFF != sqlite3.SQLITE_BUSY:
        return f"{error}. To avoid it, {another}"
    return (
        "another process uses it, such as a `seglake serve` of the same lake, and only one "
        f"server may use it. Stop that server, or {another}"
    )


class CommittedOffset(NamedTuple):
    """The next offset to read, its leader epoch or -1, and the client's metadata."""

    offset: int
    leader_epoch: int = -1
    metadata: str = ""


Where = tuple[str, int]  # topic and partition


class OffsetStore:
    """The committed offsets of all groups of a lake. Only one thread at a time may use it.

    `lake` is the identity of the lake: another lake at the same root has separate offsets. Raises
    ConfigError for a file that cannot be used, or that another server uses.
    """

    def __init__(self, file: Path, lake: str = "") -> None:
        self._file, self._lake = file, lake
        try:
            if str(file) != ":memory:":
                file.parent.mkdir(parents=True, exist_ok=True)
            # Different threads may use the connection, one at a time.
            self._db = sqlite3.connect(file, timeout=1, check_same_thread=False)
            self._db.execute("pragma locking_mode = exclusive")
            self._db.execute("pragma journal_mode = wal")
            self._db.execute("pragma synchronous = full")
            self._db.execute("pragma secure_delete = on")  # Deleted names leave no bytes.
            self._check_format()
        except (sqlite3.Error, OSError) as error:
            raise ConfigError(f"groups.file {file} cannot be used: {_why(error)}") from error

    def _check_format(self) -> None:
        with self._db:
            self._db.execute("begin immediate")
            (version,) = self._db.execute("pragma user_version").fetchone()
            if version not in (0, _FORMAT):
                raise ConfigError(
                    f"groups.file {self._file} has format {version}, but this server reads only "
                    f"format {_FORMAT}. Name another file"
                )
            self._db.execute(_TABLE)
            self._db.execute(_KINDS)
            self._db.execute(f"pragma user_version = {_FORMAT}")

    def commit(
        self, group_id: str, offsets: Mapping[Where, CommittedOffset], now_ms: int, kind: str = ""
    ) -> None:
        """Store all of these offsets, or none. Raises StoreError.

        `kind` is the protocol type of the group's members. "" keeps the stored one.
        """
        rows = [(self._lake, group_id, *where, *each, now_ms) for where, each in offsets.items()]
        kinds = [(self._lake, group_id, kind)] if kind else []
        self._write(
            ("insert or replace into committed values (?, ?, ?, ?, ?, ?, ?, ?)", rows),
            ("insert or replace into kinds values (?, ?, ?)", kinds),
        )

    def group_offsets(self, group_id: str) -> dict[Where, CommittedOffset]:
        """Return every committed offset of a group. Raises StoreError."""
        rows = self._read(
            'select topic, partition, "offset", leader_epoch, metadata from committed'
            " where lake = ? and group_id = ? order by topic, partition", self._lake, group_id,
        )  # fmt: skip
        return {(topic, partition): CommittedOffset(*rest) for topic, partition, *rest in rows}

    def groups(self) -> dict[str, str]:
        """Return the groups that have committed offsets, and the protocol type of their members.

        The type is "" if only clients outside of the group committed. Raises StoreError.
        """
        return dict(self._read(
            "select distinct group_id, coalesce(protocol_type, '') from committed"
            " left join kinds using (lake, group_id) where lake = ? order by 1", self._lake,
        ))  # fmt: skip

    def delete(self, group_id: str, wheres: Iterable[Where] | None) -> None:
        """Delete some offsets of a group, or all if `wheres` is None. Raises StoreError."""
        mine, what = (self._lake, group_id), "delete from committed where lake = ? and group_id = ?"
        rows = [mine] if wheres is None else [(*mine, *where) for where in wheres]
        more = "" if wheres is None else " and topic = ? and partition = ?"
        self._write((what + more, rows), (_FORGET_KIND, [mine * 2]))

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _write(self, *statements: tuple[str, Iterable[tuple[object, ...]]]) -> None:
        try:
            with self._db:
                for statement, rows in statements:
                    self._db.executemany(statement, rows)
        except sqlite3.Error as error:
            raise StoreError(f"{self._file}: {error}") from error

    def _read(self, query: str, *values: object) -> list[Any]:
        try:
            return self._db.execute(query, values).fetchall()
        except sqlite3.Error as error:
            raise StoreError(f"{self._file}: {error}") from error
