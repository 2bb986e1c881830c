"""Check that other programs changed a Delta table only in ways that Seglake supports.

Another program may rearrange rows and add columns, see docs/catalog.md. Seglake refuses to read the
table after any other change, and the error names the change:

- A changed row. An input file whose source row is missing would be ingested again. After a restore
  of an older version, offsets would be assigned twice.
- A protocol or a property that Seglake does not support. The next commit of Seglake would break the
  table for programs that rely on it.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from itertools import chain
from shlex import quote
from typing import Any, NamedTuple

import pyarrow as pa

from seglake.catalog.delta.actions import DeltaCommit
from seglake.errors import CorruptData, UsageError

FORMAT = "6"  # the only supported format; unreleased builds wrote 1 to 5
LAKE = "seglake.lake"  # the property with the lake's identity
LOG_RETENTION, FILE_RETENTION = "delta.logRetentionDuration", "delta.deletedFileRetentionDuration"
READER, WRITER = 1, 2  # versions of Delta's protocol that every reader supports
_TYPES = {pa.string(): "string", pa.int32(): "integer", pa.int64(): "long", pa.binary(): "binary"}
_INTERVAL = re.compile(r"interval (\d{1,9}) (minute|hour|day|week)s?", re.IGNORECASE)
_UNITS_MS = {"minute": 60_000, "hour": 3_600_000, "day": 86_400_000, "week": 604_800_000}
_DAMAGE = (ValueError, KeyError, TypeError, AttributeError, RecursionError)


class Definition(NamedTuple):
    """The definition of a Delta table at one version. `schema` is Delta's JSON."""

    reader: int
    writer: int
    features: Collection[str]
    schema: str
    partition_by: Sequence[str]
    properties: Mapping[str, str]

    @staticmethod
    def parse(protocol: Mapping[str, Any], metaData: Mapping[str, Any]) -> Definition:  # noqa: N803
        """Return the definition that two actions of Delta make, see `DeltaCommit.definition`."""
        features = (protocol.get(f"{of}Features") or () for of in ("reader", "writer"))
        return Definition(
            protocol["minReaderVersion"], protocol["minWriterVersion"], {*chain(*features)},
            metaData["schemaString"], metaData["partitionColumns"], dict(metaData["configuration"]),
        )  # fmt: skip


class TableContract(NamedTuple):
    """The rules that a Delta table must keep.

    `name` and `remedy`, the advice to the user, are for error messages. `at` replaces `{root}` in a
    remedy by the lake's root. If `guards` is set, only Seglake may change rows.
    """

    name: str
    schema: pa.Schema
    partition_by: Sequence[str]
    remedy: str
    guards: bool = True

    def at(self, root: str) -> TableContract:
        """Return the contract with the lake's root in its remedy."""
        return self._replace(remedy=self.remedy.replace("{root}", quote(root)))

    def check_rows(self, commit: DeltaCommit, file: str) -> None:
        """Raise CorruptData if the commit in `file` changes rows and is not Seglake's."""
        if self.guards and commit.changes_rows and not commit.is_ours:
            what = f"{commit.title}, changed rows of {self.name}"
            raise CorruptData(f"{what}. {self.remedy}", file=file)

    def check(
        self, definition: Definition, others: Callable[[], Iterable[DeltaCommit]], file: str
    ) -> None:
        """Check the definition of the table in the folder `file`.

        Args:
            definition: The table's definition.
            others: Returns the commits after Seglake's last commit, newest first. The error names
                the newest of these commits that redefines the table.
            file: The table's folder.

        Raises:
            CorruptData: The definition breaks the contract.
            UsageError: The table has another `seglake.format`.
        """
        version = definition.properties.get("seglake.format", FORMAT)
        if version != FORMAT:
            raise UsageError(
                f"{file} has seglake.format = {version}, and this build of Seglake reads"
                f" only {FORMAT}. Ingest the inputs again into a new lake, or keep the build that"
                " wrote it"
            )
        for problem in self._problems(definition):
            titles = [f"after {commit.title}: " for commit in others() if commit.definition]
            raise CorruptData(f"{''.join(titles[:1])}{problem}. {self.remedy}", file=file)

    def _problems(self, definition: Definition) -> Iterator[str]:
        """Yield a description of each part of a definition that Seglake does not support."""
        if definition.reader > READER or definition.writer > WRITER or definition.features:
            features = ", ".join(sorted(definition.features)) or "no named features"
            protocol = f"reader {definition.reader}, writer {definition.writer} ({features})"
            supported = "Seglake supports reader 1, writer 2"
            yield f"{self.name} has Delta's protocol {protocol}, but {supported}"
        if list(definition.partition_by) != list(self.partition_by):
            yield f"{self.name} is partitioned by {', '.join(definition.partition_by) or 'nothing'}"
        problems = self._schema_problems(definition.schema)
        for problem in chain(problems, _property_problems(definition.properties)):
            yield f"{self.name} {problem}"
        if self.guards and LAKE not in definition.properties:
            yield f"{self.name} has no property {LAKE}"

    def _schema_problems(self, schema: str) -> Iterator[str]:
        try:
            columns = {field["name"]: field for field in json.loads(schema)["fields"]}
            for name, field in columns.items():
                yield from (f"has {key} on column {name}" for key in _demands(field))
        except _DAMAGE as error:
            yield f"has an unreadable schema: {error!r}"
            return
        for column in self.schema:
            expected, there = _TYPES[column.type], columns.get(column.name)
            if there is None:
                yield f"has no column {column.name!r}"
            elif there["type"] != expected:
                yield f"has a column {column.name} of type {there['type']} instead of {expected}"


def _demands(field: Mapping[str, Any]) -> Iterator[str]:
    """Yield the constraints that a column imposes on writers, such as delta.invariants."""
    if not field["nullable"]:
        yield "NOT NULL"
    yield from (key for key in field["metadata"] if key.startswith("delta."))


def _property_problems(properties: Mapping[str, str]) -> Iterator[str]:
    if "seglake.format" not in properties:
        yield "has no property seglake.format, so Seglake did not create it"
    if properties.get("delta.appendOnly", "false").lower() != "false":
        yield "has delta.appendOnly, which forbids replacing segments. Set it to false"
    log, files = (interval_ms(properties.get(n, "")) for n in (LOG_RETENTION, FILE_RETENTION))
    if log is None or files is None or log < max(_UNITS_MS["day"], files):
        settings = ", ".join(f"{n} = {properties.get(n)}" for n in (LOG_RETENTION, FILE_RETENTION))
        advice = "set both in minutes, hours, days or weeks, as in 'interval 30 days'"
        yield f"has {settings}: {advice}. The first must be at least a day, and at least the second"


def interval_ms(interval: str) -> int | None:
    """Convert an interval, such as "interval 30 days", to ms. Return None for other forms."""
    match = _INTERVAL.fullmatch(interval)
    return int(match[1]) * _UNITS_MS[match[2].lower()] if match else None
