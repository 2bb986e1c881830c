"""Define the section `[input]`, and the properties of each input format."""

from collections.abc import Iterator
from itertools import chain, combinations
from typing import Literal, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
from pydantic import Field

from seglake.config import rules
from seglake.config.sections import Section
from seglake.text.patterns import named_groups

FormatName = Literal["jsonl", "csv", "parquet", "avro", "text", "dataframe"]
Codec = Literal["gzip", "bz2", "zstd"]
Compression = Literal["auto", "none", Codec]


class InputFormat(NamedTuple):
    """The properties of an input format, which decide whether settings are valid for it."""

    own_keys: tuple[str, ...] = ()  # keys of `[input]` that not every format has
    in_files: bool = True  # False: the rows are in a DataFrame
    columnar: bool = False  # True: rows are typed columns; False: lines
    knows_columns: bool = True  # False: rows may have different fields


INPUT_FORMATS: dict[FormatName, InputFormat] = {
    "jsonl": InputFormat(("records", "inherit"), knows_columns=False),
    "csv": InputFormat(
        ("delimiter", "quote", "escape", "multiline", "skip_lines", "comment", "null_values")
    ),
    "parquet": InputFormat(columnar=True),
    "avro": InputFormat(columnar=True),
    "text": InputFormat(("pattern", "multiline_start_pattern", "comment", "null_values")),
    "dataframe": InputFormat(("order_column",), in_files=False, columnar=True),
}


class Input(Section):
    """The files or the DataFrame that a run reads, and their format."""

    paths: rules.Locations = Field(
        default=(),
        description="files, folders and globs (including `**`): local paths, relative to the "
        "current directory, or URIs (`s3://…`); required unless the format is `dataframe`",
    )
    include: rules.Globs = Field(
        default=(),
        description="ingest only these files of a folder or a glob: globs for file names or, with "
        "a `/`, for paths below the folder",
    )
    exclude: rules.Globs = Field(default=(), description="leave out these files (globs)")
    format: FormatName = Field(
        description="how to read a file; `dataframe`: the DataFrame that `seglake.ingest` gets"
    )
    compression: Compression = Field(
        default="auto",
        description="`auto` detects it by a file's first bytes; `none` does not unpack tar "
        "archives",
    )
    encoding: rules.Encoding = Field(
        default="utf-8",
        description="jsonl, csv, text: the encoding of the files, by its name in Python "
        "(`latin-1`, `cp1252`, `utf-16`, …); records are UTF-8. Large files are split, unless "
        "characters have several bytes in an encoding other than UTF-8, such as `utf-16`",
    )
    on_empty: Literal["ok", "error"] = Field(
        default="error",
        description="what to do if a path or glob matches no file, or a path does not exist; the "
        "parent folder must exist, so that a misspelt path is not treated as an empty hour",
    )
    records: rules.EventArray | None = Field(
        default=None,
        description="jsonl: the array that contains the events of a JSON document, which may have "
        "several lines: `Records[]`, nested `resourceLogs[].scopeLogs[].logRecords[]`, `[]` for a "
        "file that is one array, or `.` if each document is an event. Such files are not split",
    )
    inherit: rules.MemberNames = Field(
        default=(),
        description="jsonl: members of the objects around `records` that each event gets, in front "
        "of its own; an outermost object may then have 32 MiB and a million events",
    )
    delimiter: rules.OneByte = Field(
        default=",", description="csv: separator of fields, one ASCII character"
    )
    quote: rules.OneByte = Field(
        default='"', description="csv: quote around a field, doubled inside it"
    )
    escape: rules.Escape | None = Field(
        default=None,
        description='csv: `"\\\\"` for files that MySQL or Spark\'s `df.write.csv` wrote: inside '
        "quotes, it escapes a quote or itself; elsewhere it is an ordinary character",
    )
    multiline: bool = Field(
        default=True,
        description="csv: quoted fields may contain line breaks; `false` lets large files be split",
    )
    skip_lines: int = Field(
        default=0,
        ge=0,
        le=100_000,
        description="csv: number of lines in front of a file's header; such a file is one split",
    )
    comment: rules.OneByte | None = Field(
        default=None,
        description="csv, text: lines that begin with this character are skipped, and counted as "
        "`comment_lines`. In CSV, `#Fields:` in such a line (W3C logs; Zeek's `#fields`) names the "
        "columns of the lines after it, and a file is one split",
    )
    null_values: rules.NullValues = Field(
        default=(),
        description='csv, text: texts that mean null, such as `["-", "NULL"]`; an empty field is '
        "always null",
    )
    pattern: str | None = Field(
        default=None,
        description="text: RE2 pattern that matches from an event's start; named groups are fields",
    )
    multiline_start_pattern: str | None = Field(
        default=None,
        description="text: RE2 expression that matches the start of a line that begins an event; "
        "other lines continue the previous event. Default: each line is an event",
    )
    multiline_max_lines: int = Field(default=5_000, ge=1, le=50_000)  # constants, as in [task]
    multiline_max_bytes: int = Field(default=2**20, ge=1, le=2**29)
    order_column: rules.FieldName | None = Field(
        default=None,
        description="dataframe: a column with a unique integer in every row, which orders equal "
        "event times, or with `arrival` all rows; needed unless there is `topic.offset_field`",
    )

    @property
    def kind(self) -> InputFormat:
        """Return the properties of the input format."""
        return INPUT_FORMATS[self.format]

    @property
    def recoded(self) -> bool:
        """Return whether the files must be converted to UTF-8, because of `input.encoding`."""
        return self.encoding != "utf-8"

    def groups(self) -> tuple[str, ...]:
        """Return the named groups of `pattern`, or () without a pattern."""
        return () if self.pattern is None else named_groups(self.pattern)

    def _contradictions(self) -> Iterator[str]:
        keys = chain.from_iterable(kind.own_keys for kind in INPUT_FORMATS.values())
        for key in (key for key in keys if key not in self.kind.own_keys):
            if key in self.model_fields_set and getattr(self, key) is not None:
                yield f"input.{key} contradicts input.format = {self.format!r}. Remove one"
        for key in ("paths", "include", "exclude") if not self.kind.in_files else ():
            if getattr(self, key):
                yield f"input.{key} contradicts input.format = {self.format!r}. Remove {key}"
        if self.kind.in_files and not self.paths:
            yield "input.paths is missing. Name the files to read"
        if self.kind.columnar and self.compression not in {"auto", "none"}:
            yield f"input.compression contradicts input.format = {self.format!r}. Remove it"
        if self.kind.columnar and "encoding" in self.model_fields_set:
            yield f"input.encoding contradicts input.format = {self.format!r}. Remove it"
        marks = ("delimiter", "quote", "escape", "comment")
        for one, other in combinations((key for key in marks if getattr(self, key)), 2):
            if getattr(self, one) == getattr(self, other):
                yield f"input.{one} and input.{other} are the same character. Change one"
        yield from self._event_problems()

    def _event_problems(self) -> Iterator[str]:
        if self.inherit and not (self.records or "").strip("[]."):
            yield "input.inherit needs objects around the events. Name their array in input.records"
        try:
            self.groups()
        except pa.ArrowInvalid as problem:
            yield f"input.pattern: {problem}. Use RE2 syntax and (?P<name>...) groups"
        start = self.multiline_start_pattern
        try:
            pc.match_substring_regex(pa.array([""]), f"^(?:{start})")
        except pa.ArrowInvalid as problem:
            yield f"input.multiline_start_pattern: {problem}. Use RE2 syntax"
