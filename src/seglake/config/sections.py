"""Define the sections of a pipeline file. A section is an immutable model with a field per key.

`[input]` and `[topic]` have separate modules. Kafka's settings keep their dotted names in the file
(`segment.bytes`). In Python they have underscores (`segment_bytes`).
"""

from collections.abc import Iterator
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, Field, model_validator

from seglake.config.rules import FieldName, FieldNames, KeyFields, Size, TimeFormatText, Zone
from seglake.times import grammar


class Section(BaseModel):
    """One table of a pipeline file. Unknown keys are errors. Objects are immutable.

    Values must have the right TOML type: neither `true` nor "3" is accepted as a number.
    """

    model_config = ConfigDict(frozen=True, extra="forbid", strict=True)

    @model_validator(mode="after")
    def _no_contradiction(self) -> Self:
        problem = next(self._contradictions(), None)
        if problem:
            raise ValueError(problem)
        return self

    def _contradictions(self) -> Iterator[str]:
        """Yield a message (problem and remedy) for each contradiction between values."""
        yield from ()


class Timestamp(Section):
    """The input fields that contain the time of an event, and the format and zone of the time."""

    field: FieldName | None = Field(default=None, description="the field that has the time")
    fields: FieldNames = Field(
        default=(),
        description="instead of `field`: fields whose texts, joined by a blank, are the time, "
        "such as a date and a time of day",
    )
    format: TimeFormatText | None = Field(
        default=None,
        description="`epoch_s`, `epoch_ms`, `epoch_us`, `epoch_ns` (numbers, even in quotes or "
        "with a decimal comma), `iso8601` (such as `2026-01-31T12:00:00.5+01:00`; fraction, "
        "seconds, time and zone may be missing, and ` UTC` is a zone) or a strptime pattern, in "
        "which names of months and days are English; a part in brackets with seconds, a fraction "
        "or a zone may be missing: `%H:%M:%S[.%f]`; time types of Parquet and Avro need no format",
    )
    zone: Zone = Field(default="UTC", description="IANA zone of times without a zone")
    ambiguous: Literal["earliest", "latest", "reject"] = Field(
        default="earliest",
        description="for a local time that clocks show twice: use the earlier instant, the later "
        "instant, or quarantine the row",
    )
    nonexistent: Literal["earliest", "latest", "reject"] = Field(
        default="latest",
        description="for a local time that clocks skip: use the last millisecond before the gap, "
        "the first instant after the gap, or quarantine the row",
    )
    year: int | None = Field(
        default=None,
        ge=1970,
        le=9999,
        description="year of all times, for patterns without a year. `seglake check` and the "
        "report name files with lines of another year: ingest those lines with a separate pipeline",
    )
    allow_1970: bool = Field(
        default=False,
        description="allow files (or a DataFrame) whose times are all in January 1970. By default "
        "such a run stops, because seconds that are read as milliseconds become such times",
    )
    type_field: FieldName | None = Field(
        default=None,
        description="with `topic.offset_field`: the field that has the record's timestamp type, "
        "`0` or `CreateTime`, `1` or `LogAppendTime`; default: the type of the topic",
    )

    @property
    def names(self) -> FieldNames:
        """Return the fields that contain the time, or () if records get no time from the input."""
        return self.fields if self.field is None else (self.field,)

    @property
    def named(self) -> str:
        """Return `timestamp.field` or `timestamp.fields` with its value, as text for messages."""
        if self.field is not None:
            return f"timestamp.field {self.field!r}"
        return f"timestamp.fields {', '.join(map(repr, self.fields))}"

    @property
    def time_format(self) -> grammar.TimeFormat:
        """Return the settings that a reader of times needs, such as format, zone and year."""
        base = grammar.TimeFormat(self.format, self.zone, self.year)
        return base._replace(ambiguous=self.ambiguous, nonexistent=self.nonexistent)

    def _contradictions(self) -> Iterator[str]:
        yield from self._wrong_names()
        pattern = self.format if self.format and "%" in self.format else None
        if self.year is not None and pattern is None:
            yield "timestamp.year needs a strptime pattern in timestamp.format. Remove year"
        if pattern is None:
            return
        parts = grammar.parts_of(pattern)
        date = {grammar.YEAR, grammar.SHORT_YEAR, grammar.MONTH, grammar.DAY, grammar.YEAR_DAY}
        if parts.isdisjoint(date):
            yield (
                "timestamp.format has no date. Write a date before each time in the input, or "
                "leave out timestamp.field, so that records get the time of the run"
            )
            return
        has_year = not parts.isdisjoint({grammar.YEAR, grammar.SHORT_YEAR})
        if self.year is not None and has_year:
            yield "timestamp.year contradicts the year in timestamp.format. Remove one"
        if self.year is None and not has_year:
            yield "timestamp.format has no year. Add timestamp.year"
        if parts.isdisjoint({grammar.DAY, grammar.YEAR_DAY}):
            yield "timestamp.format has no day. Add %d or %j"
        if parts.isdisjoint({grammar.MONTH, grammar.YEAR_DAY}):
            yield "timestamp.format has no month. Add %m or %b"
        if grammar.HALF_HOUR in parts and grammar.HALF not in parts:
            yield "timestamp.format has %I without %p. Add %p or use %H"

    def _wrong_names(self) -> Iterator[str]:
        if self.field is not None and self.fields:
            yield "timestamp.field contradicts timestamp.fields. Remove one"
        if len(self.fields) == 1:
            yield "timestamp.fields needs at least two names. Use timestamp.field for one"
        if self.fields and self.format is None:
            yield "timestamp.fields needs timestamp.format. Set the format of the joined texts"
        if not self.names and (self.format or self.year):
            yield "timestamp.field is missing. Name the field that holds the time"


class Key(Section):
    """The input fields that become the key of a record."""

    fields: KeyFields = Field(
        default=(),
        description="one field: its bytes; several: joined by `separator`; none: the key is null. "
        "An inner list is one field: the first of the named fields that is not null, such as "
        '`[["after.id", "before.id"]]`',
    )
    separator: str = Field(default="\0", description="text between the fields of a key")
    required: bool = Field(
        default=False, description="quarantine rows without a key field (else the key is null)"
    )

    @property
    def choices(self) -> list[FieldNames]:
        """Return, for each part of the key, its fields. The first field that is not null is used.

        For example, [("tenant",), ("after.id", "before.id")].
        """
        return [(each,) if isinstance(each, str) else each for each in self.fields]

    def _contradictions(self) -> Iterator[str]:
        if self.required and not self.fields:
            yield "key.required needs key.fields. Add the fields or remove required"
        if "separator" in self.model_fields_set and len(self.fields) < 2:
            yield "key.separator needs two or more key.fields. Remove one"


class Value(Section):
    """The part of an input row that becomes the value of a record."""

    source: Literal["line", "field", "columns"] | None = Field(
        default=None,
        alias="from",
        description="`line`: the raw line; `field`: the bytes of one field; `columns`: a JSON "
        "object of fields. Default: `line`, or `columns` for Parquet, Avro and DataFrames",
    )
    field: FieldName | None = Field(default=None, description='the field, with `from = "field"`')
    columns: FieldNames = Field(
        default=(),
        description='with `from = "columns"`: its fields; default: all, but required for jsonl',
    )

    def _contradictions(self) -> Iterator[str]:
        if self.field is not None and self.source != "field":
            yield f"value.field contradicts value.from = {self.source or 'line'!r}. Remove one"
        if self.columns and self.source in {"line", "field"}:
            yield f"value.columns contradicts value.from = {self.source!r}. Remove one"
        if self.source == "field" and self.field is None:
            yield "value.from = 'field' needs value.field. Add it"


class HeaderFields(Section):
    """The input fields that become the headers of a record."""

    fields: FieldNames = Field(
        default=(), description="each field becomes a header; the header of a missing field is null"
    )
    array_field: FieldName | None = Field(
        default=None,
        description="instead of `fields`: the field that has all headers, an array of objects or "
        "structs with `key` and `value`, as in Spark's Kafka source",
    )
    source: bool = Field(
        default=False,
        description="add headers `seglake.source.file` and `seglake.source.line` (1-based)",
    )

    def _contradictions(self) -> Iterator[str]:
        for key in ("fields", "source"):
            if self.array_field is not None and getattr(self, key):
                yield f"headers.array_field contradicts headers.{key}. Remove one"


class TaskLimits(Section):
    """The memory and size limits of one task, in bytes. Pipeline files cannot set them."""

    # Input that a task has in memory at a time. A longer line is rejected.
    chunk_bytes: Size = Field(default=32 * 2**20, ge=64)
    split_bytes: Size = Field(default=16 * 2**20, ge=1)  # input of one split
    blob_bytes: Size = Field(default=256 * 2**10, ge=1)  # records in one blob
    merge_bytes: Size = Field(default=16 * 2**20, ge=1)  # records in memory during a merge
    piece_bytes: Size = Field(default=2**28, ge=1)  # records of a partition that one task writes
