"""delta-rs at its edge: the few methods of `DeltaTable` that Seglake calls, over any store.

The table is what its log says: JSON commits, and checkpoints in a form of our own. Each request
that delta-rs would make is a call to the store, so others run between them, and each may fail.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import lru_cache
from typing import Any, ClassVar, NamedTuple

from deltalake.exceptions import DeltaError, TableNotFoundError

from seglake.catalog.delta.actions import AddedFile
from seglake.errors import MissingObject, StoreError
from seglake.store import Store

_LOGGED = re.compile(r"_delta_log/(\d{20})\.(json|checkpoint\.parquet)")
_LAST = "_delta_log/_last_checkpoint"
_RETENTION_MS = 30 * 24 * 3_600_000  # of commits: what the tables' properties say

Action = dict[str, Any]


class Metadata(NamedTuple):
    id: str
    configuration: dict[str, str]
    partition_columns: list[str]
    created_time: int


class Protocol(NamedTuple):
    min_reader_version: int = 1
    min_writer_version: int = 2
    reader_features: list[str] | None = None
    writer_features: list[str] | None = None


class _Schema(NamedTuple):
    text: str

    def to_json(self) -> str:
        return self.text


class State(NamedTuple):
    """A version: its files by path, and its definition."""

    version: int
    files: dict[str, Action]
    removed: dict[str, Action]
    metadata: Action | None
    transactions: dict[str, int]

    def after(self, version: int, content: bytes) -> State:
        files, removed, metadata = dict(self.files), dict(self.removed), self.metadata
        transactions = dict(self.transactions)
        for kind, action in _actions(content):
            if kind == "add":
                files[action["path"]] = action
                removed.pop(action["path"], None)
            elif kind == "remove":
                files.pop(action["path"], None)
                removed[action["path"]] = action
            elif kind == "metaData":
                metadata = action
            elif kind == "txn":
                transactions[action["appId"]] = action["version"]
        return State(version, files, removed, metadata, transactions)


@lru_cache(20_000)
def _actions(content: bytes) -> list[tuple[str, Action]]:
    return [pair for line in content.splitlines() for pair in json.loads(line).items()]


class SimTable:
    """What `deltalake.DeltaTable` is to Seglake. The stage sets storage, clock and ids."""

    opener: ClassVar[Callable[[str], Store]]
    now_ms: ClassVar[Callable[[], int]]

    def __init__(
        self, uri: str, version: int | None = None, storage_options: Mapping[str, str] | None = None
    ) -> None:
        del storage_options
        self.table_uri, self._store = uri, SimTable.opener(uri)
        if version is not None and version < 0:
            raise OverflowError
        with _errors():
            self._state = self._loaded(version)

    def version(self) -> int:
        return self._state.version

    def metadata(self) -> Metadata:
        found = self._state.metadata or {}
        names = ("id", "configuration", "partitionColumns", "createdTime")
        return Metadata(*(found[name] for name in names))

    def protocol(self) -> Protocol:
        return Protocol()

    def schema(self) -> _Schema:
        return _Schema((self._state.metadata or {})["schemaString"])

    def update_incremental(self) -> None:
        """Go on to the newest version."""
        with _errors():
            state = self._followed(self._state)
            if state is self._state and not self._has(state.version):
                state = self._loaded(None)  # a clean-up deleted the commits that come next
            self._state = state

    @property
    def files(self) -> dict[str, Action]:
        """The files of the version, by path."""
        return self._state.files

    def create_checkpoint(self) -> None:
        """Write the version as a whole, and name it as the last one."""
        state = self._state
        data = json.dumps([*state]).encode()
        with _errors():
            self._store.put(f"_delta_log/{state.version:020}.checkpoint.parquet", data)
            size = len(state.files) + len(state.removed) + 2
            last = {"version": state.version, "size": size}
            self._store.put(_LAST, json.dumps(last).encode())

    def cleanup_metadata(self) -> None:
        """Delete old commits that come before a checkpoint."""
        with _errors():
            found = [
                (int(match[1]), match[2], each)
                for each in self._store.list("_delta_log")
                if (match := _LOGGED.fullmatch(each.key))
            ]
            whole = [n for n, kind, _ in found if kind != "json" and n <= self._state.version]
            oldest_ms = SimTable.now_ms() - _RETENTION_MS
            old = [n for n, kind, each in found if kind == "json" and each.modified_ms < oldest_ms]
            kept = max((n for n in whole if n <= max(old, default=-1) + 1), default=0)
            self._store.delete(
                [each.key for n, _, each in found if n < kept and each.modified_ms < oldest_ms]
            )

    # ------------------------------------------------------------------ the log

    def _loaded(self, version: int | None) -> State:
        hint = self._hint()
        if hint > -1 and (version is None or hint <= version):
            return self._from(hint, version, hinted=True)
        return self._from(-1, version, hinted=False)

    def _from(self, first: int, version: int | None, *, hinted: bool) -> State:
        """The version made of the last checkpoint and the commits after it, from `first` on."""
        found = [
            (int(match[1]), match[2])
            for each in self._store.list("_delta_log")
            if (match := _LOGGED.fullmatch(each.key)) and int(match[1]) >= first
        ]
        whole = [n for n, kind in found if kind != "json" and (version is None or n <= version)]
        if hinted and not whole:
            raise DeltaError("the last checkpoint is named, and there is no checkpoint")
        commits = sorted(n for n, kind in found if kind == "json")
        state = State(-1, {}, {}, None, {})
        if whole:
            state = self._checkpoint(max(whole))
        for number in commits:
            if number > state.version and (version is None or number <= version):
                if number != state.version + 1:
                    raise DeltaError(f"commit {state.version + 1} is missing")
                state = state.after(number, bytes(self._store.read_all(_commit_key(number))))
        if state.metadata is None:
            raise TableNotFoundError(f"{self.table_uri} is no table")
        if version is not None and state.version != version:
            raise DeltaError(f"there is no version {version}")
        return state

    def _checkpoint(self, version: int) -> State:
        data = self._store.read_all(f"_delta_log/{version:020}.checkpoint.parquet")
        return State(version, *json.loads(bytes(data))[1:])  # a renumbered one has its old number

    def _hint(self) -> int:
        try:
            return int(json.loads(bytes(self._store.read_all(_LAST)))["version"])
        except MissingObject:
            return -1

    def _followed(self, state: State) -> State:
        while True:
            try:
                content = bytes(self._store.read_all(_commit_key(state.version + 1)))
            except MissingObject:
                return state
            state = state.after(state.version + 1, content)

    def _has(self, version: int) -> bool:
        try:
            self._store.size(_commit_key(version))
        except MissingObject:
            return False
        return True


class _errors:  # noqa: N801  # a block, like those of contextlib
    """Storage's errors as delta-rs raises them."""

    def __enter__(self) -> None:
        pass

    def __exit__(self, _kind: object, error: BaseException | None, _trace: object) -> None:
        if isinstance(error, StoreError):
            raise DeltaError(f"Generic simulated error: {error}") from None


def _commit_key(version: int) -> str:
    return f"_delta_log/{version:020}.json"


def checkpoint_actions(data: bytes) -> list[Action]:
    """As that of `actions`."""
    state = State(*json.loads(data))
    return [
        {"protocol": {"minReaderVersion": 1, "minWriterVersion": 2}},
        {"metaData": state.metadata},
        *({"txn": {"appId": name, "version": n}} for name, n in state.transactions.items()),
        *({"add": action} for action in state.files.values()),
    ]


def live_files(table: SimTable, _partition_by: Iterable[str]) -> Iterator[AddedFile]:
    """As that of `delta_rs`."""
    for each in table.files.values():
        rows, bounds, names = _stats(each.get("stats") or "{}")
        yield AddedFile(
            each["path"],
            each["size"],
            each["partitionValues"],
            rows,
            changes=True,
            bounds=bounds,
            names=names,
        )


@lru_cache(20_000)
def _stats(text: str) -> tuple[Any, dict[str, tuple[int, int]], dict[str, tuple[str, str]]]:
    stats = json.loads(text)
    low, high = stats.get("minValues", {}), stats.get("maxValues", {})
    bounds = {name: (low[name], high[name]) for name in low if isinstance(low[name], int)}
    names = {name: (low[name], high[name]) for name in low if isinstance(low[name], str)}
    return stats.get("numRecords"), bounds, names
