"""The judge of published tables: each version has the records of the version that it names."""

import io
import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pyarrow.parquet as pq

from tests.simulation.judge import Broken
from tests.simulation.model import EVENTS, Record, State
from tests.simulation.storage import Object

TABLE = f"lake/tables/{EVENTS}/"
COMMITS = f"{TABLE}_delta_log/"
_COMMIT = re.compile(rf"{COMMITS}(\d{{20}})\.json")


@lru_cache(5_000)
def rows_of(data: bytes) -> dict[tuple[int, int], Record]:
    """The records in a file of a table. Raises Broken for a record that is there twice."""
    columns = pq.read_table(io.BytesIO(data)).to_pydict()
    names = ("partition", "offset", "timestamp_ms", "key", "value")
    found = dict[tuple[int, int], Record]()
    for partition, offset, ms, *rest in zip(*(columns[name] for name in names), strict=True):
        if (partition, offset) in found:
            raise Broken("table", f"a file has {(partition, offset)} twice")
        found[partition, offset] = Record(-1 if ms is None else ms, *rest)
    return found


def keys_in(key: str, data: bytes) -> set[bytes | None] | None:
    """The record keys in a data file of a table, or None for another object."""
    if not key.startswith(TABLE) or not key.endswith(".parquet") or "checkpoint" in key:
        return None
    return {record.key for record in rows_of(data).values()}


@dataclass
class TableJudge:
    """A table as its commits made it."""

    version: int = -1
    shows: int = -1
    files: set[str] = field(default_factory=set)

    def commit(
        self, key: str, data: bytes, objects: Mapping[str, Object], states: Mapping[int, State],
        erased: int,
    ) -> bool:  # fmt: skip
        """Judge a commit. `erased` is the version of the last erasure that has ended.

        Returns whether files were added or removed. Raises Broken.
        """
        match = _COMMIT.fullmatch(key)
        if match is None or int(match[1]) <= self.version:
            return False
        self.version = int(match[1])
        actions = [pair for line in data.splitlines() for pair in json.loads(line).items()]
        added = [action["path"] for kind, action in actions if kind == "add"]
        removed = {action["path"] for kind, action in actions if kind == "remove"}
        shown = [int(action["version"]) for kind, action in actions if kind == "txn"]
        if (added or removed) and not shown:
            raise Broken("table", f"version {self.version} names no version of the lake")
        if removed - self.files:
            raise Broken("table", f"version {self.version} removes {removed - self.files}")
        self.files -= removed
        if twice := self.files & {*added} or len({*added}) < len(added):
            raise Broken("table", f"version {self.version} adds {twice} again")
        self.files |= {*added}
        if not shown:
            return False
        if shown[0] < max(self.shows, erased):
            raise Broken(
                "table", f"version {self.version} goes back to {shown[0]} of the lake, after "
                f"{self.shows} and an erasure in {erased}",
            )  # fmt: skip
        self.shows = shown[0]
        own = max(version for version in states if version <= self.shows)
        self.require(objects, states[own])
        return bool(added or removed)

    def require(self, objects: Mapping[str, Object], state: State) -> None:
        """Raise Broken unless the table has the records of a state."""
        found = dict[tuple[int, int], Any]()
        for path in sorted(self.files):
            if TABLE + path not in objects:
                raise Broken("table", f"version {self.version} names {path}, which is gone")
            some = rows_of(objects[TABLE + path].data)
            if twice := found.keys() & some.keys():
                raise Broken("table", f"version {self.version} has {sorted(twice)[:4]} twice")
            found |= some
        wanted = dict(state.records.get(EVENTS, {}))
        if found != wanted:
            wrong = [p for p in found.keys() | wanted.keys() if found.get(p) != wanted.get(p)]
            raise Broken(
                "table", f"version {self.version} differs from version {self.shows} of the lake "
                f"at {sorted(wrong)[:4]}",
            )  # fmt: skip
