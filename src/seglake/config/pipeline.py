"""Define `Pipeline`, which has all sections of one pipeline file."""

import hashlib
import json
from collections.abc import Iterator
from itertools import chain
from typing import Any, Literal

from pydantic import Field

from seglake.config.input import Input
from seglake.config.rules import Options, Root
from seglake.config.sections import HeaderFields, Key, Section, TaskLimits, Timestamp, Value
from seglake.config.topic import LIFECYCLE_FIELDS, Topic

_WITHOUT_EFFECT = (  # keys of [pipeline] that do not affect the records of a run
    "name", "root", "storage", "max_quarantine_ratio", "on_changed_source", "on_outside_interval",
)  # fmt: skip


class Pipeline(Section):
    """All settings of one pipeline.

    A field is a section, or a key of the section `[pipeline]`.
    """

    name: str = Field(min_length=1, description="default: the file's name, without `.toml`")
    root: Root = Field(description="folder or URI of the lake")
    order: Literal["time", "arrival"] = Field(
        default="time",
        description="`time`: sort by event time, source file, position; `arrival`: by source file "
        "and position only",
    )
    max_quarantine_ratio: float = Field(
        default=0.05,
        ge=0,
        le=1,
        description="a run fails if a larger part of its rows is rejected, or if all rows are "
        "rejected; every ratio except 0 allows one reject",
    )
    on_changed_source: Literal["fail", "skip", "ingest-as-new"] = Field(
        default="fail",
        description="what to do with a file that changed since it was ingested into the topic: end "
        "with an error, skip it, or ingest all of its lines, including lines that the topic "
        "already has. If the run is already committed, nothing is ingested, and `fail` ends with "
        "an error",
    )
    on_outside_interval: Literal["report", "fail"] = Field(
        default="report",
        description="what to do if a run has records, but none in its declared interval; such a "
        "run does not close the interval",
    )
    input: Input
    timestamp: Timestamp = Field(default_factory=Timestamp)
    key: Key = Field(default_factory=Key)
    value: Value = Field(default_factory=Value)
    headers: HeaderFields = Field(default_factory=HeaderFields)
    topic: Topic
    task: TaskLimits = Field(default_factory=TaskLimits)
    storage: Options = Field(
        default_factory=dict,
        description="options of the object store (`endpoint`, `region`, `allow_http`, …); secrets "
        "come from the environment",
    )

    @property
    def row_number(self) -> str | None:
        """Return `input.order_column`, or else `topic.offset_field`, or None if neither is set.

        This column orders the rows of a DataFrame.
        """
        return self.input.order_column or self.topic.offset_field

    @property
    def value_source(self) -> Literal["line", "field", "columns"]:
        """Return `value.from`, or its default for the input format."""
        return self.value.source or ("columns" if self.input.kind.columnar else "line")

    @property
    def wants_every_column(self) -> bool:
        """Return whether the value contains every column of the input."""
        return self.value_source == "columns" and not self.value.columns

    def fields(self) -> tuple[str, ...]:
        """Return the names of all input fields in the settings, without duplicates."""
        named = (
            *self.timestamp.names,
            *chain.from_iterable(self.key.choices),
            self.value.field,
            *self.value.columns,
            *self.headers.fields,
            self.topic.partition_field,
            self.topic.offset_field,
            self.timestamp.type_field,
            self.headers.array_field,
        )
        return tuple(dict.fromkeys(name for name in named if name is not None))

    def allows_rejects(self, rejected: int, rows: int) -> bool:
        """Return whether a run may commit if `rejected` of its `rows` rows are rejected.

        Every ratio above 0 allows one reject, because a single reject does not indicate wrong
        settings. A run whose rows are all rejected is never committed, because its files would
        count as ingested.
        """
        ratio = self.max_quarantine_ratio
        return not rejected or (rejected < rows and rejected <= max(ratio * rows, ratio > 0))

    def fingerprint(self) -> str:
        """Return the SHA-256, in hex, of the settings that affect the records of a run.

        The order of tables and keys does not matter. These settings are left out: the pipeline's
        name, the root of the lake, storage options, conditions that make a run fail, the topic's
        lifecycle settings, and settings that have their default value. So a setting that a later
        version adds does not change the fingerprint of an older run.
        """
        exclude: Any = dict.fromkeys(_WITHOUT_EFFECT, True)
        exclude |= {"input": {"on_empty"}, "timestamp": {"allow_1970"}, "topic": LIFECYCLE_FIELDS}
        dump = self.model_dump(mode="json", by_alias=True, exclude=exclude, exclude_defaults=True)
        canonical = json.dumps(dump, sort_keys=True, separators=(",", ":"), ensure_ascii=True)
        return hashlib.sha256(canonical.encode()).hexdigest()

    def _contradictions(self) -> Iterator[str]:
        yield from self._time_problems()
        yield from self._offset_problems()
        if self.input.kind.columnar and self.value_source == "line":
            yield (
                f"value.from = 'line' contradicts input.format = {self.input.format!r}. "
                "Use columns or field"
            )
        if self.headers.source and not self.input.kind.in_files:
            yield f"headers.source contradicts input.format = {self.input.format!r}. Remove it"
        if self.wants_every_column and not self.input.kind.knows_columns:
            yield (
                "value.from = 'columns' needs value.columns with input.format = "
                f"{self.input.format!r}. Add them"
            )
        if self.input.format == "text":
            groups = self.input.groups()
            for name in (name for name in self.fields() if name not in groups):
                yield f"field {name!r} is not a named group of input.pattern. Add (?P<{name}>...)"

    def _time_problems(self) -> Iterator[str]:
        clock = self.topic.message_timestamp_type
        if not self.timestamp.names and clock == "CreateTime":
            yield (
                "timestamp.field is missing. Set it, or to give records the time of the run "
                "instead, set "
                "topic.message.timestamp.type = 'LogAppendTime' and pipeline.order = 'arrival'"
            )
        if not self.timestamp.names and self.order == "time":
            yield "timestamp.field is missing, but pipeline.order = 'time' needs it. Use 'arrival'"
        if self.timestamp.field and not self.timestamp.format and not self.input.kind.columnar:
            yield "timestamp.format is missing. Set the format of the time, such as 'iso8601'"

    def _offset_problems(self) -> Iterator[str]:
        if self.topic.offset_field is None:
            if self.timestamp.type_field is not None:
                yield "timestamp.type_field needs topic.offset_field. Add it or remove type_field"
            if self.row_number is None and not self.input.kind.in_files:
                column = "a column with a unique integer in every row"
                yield f"input.order_column is missing. Name {column}"
            return
        if self.order == "time":
            yield "topic.offset_field contradicts pipeline.order = 'time'. Use 'arrival'"
        if not self.timestamp.names:
            yield "topic.offset_field needs timestamp.field. Name the field that holds the time"
        if self.input.order_column is not None:
            yield (
                "input.order_column contradicts topic.offset_field, which sets the order. Remove it"
            )
