"""Parquet files: row groups in batches, fields by column name, rows as JSON objects."""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seglake.config import Pipeline
from seglake.errors import InputError
from seglake.format.records import Int64s, Spans
from seglake.limits import REQUESTS
from seglake.text.spans import (
    base64,
    concatenate,
    constant,
    from_arrow,
    json_objects,
    nulls_as,
    quoted,
    to_arrow,
    where_null,
)
from seglake.times.directives import TimeFormat
from seglake.times.kernels import READ, UNREADABLE
from seglake.times.readers import Times, in_range, read_times
from seglake.times.zones import to_utc
from seglake.write.input.streams import RawFile, SourceFile

if TYPE_CHECKING:
    from seglake.write.input.listing import Split

_MS = pa.timestamp("ms")
_MOST_ROWS = 1 << 14  # decoded at once: repeated values take little room in the file only


def parquet_rows(split: Split, pipeline: Pipeline) -> Iterator[ParquetRows]:
    """The rows of the row groups that begin in the split.

    A batch takes about `task.chunk_bytes`, or is one row.

    Raises:
        InputError: the file is no Parquet file, is damaged, or lacks a column that must be there.
    """
    path = split.file.path
    if split.file.size == 0:
        return
    with _errors(path):
        file = pq.ParquetFile(pa.PythonFile(RawFile(split.file, pipeline), "r"))
        for group, begin in enumerate(_beginnings(file.metadata, split.file.size)):
            about = file.metadata.row_group(group)
            if split.start <= begin < split.end and about.num_rows:
                row_bytes = max(about.total_byte_size // about.num_rows, 1)  # as it is encoded
                size = min(max(pipeline.task.chunk_bytes // row_bytes, 1), _MOST_ROWS)
                for batch in file.iter_batches(size, row_groups=[group]):
                    for part in _parts(batch, pipeline.task.chunk_bytes):
                        yield ParquetRows(path, part)


def _parts(batch: Any, size_bytes: int) -> Iterator[Any]:
    """A batch in parts that take about `size_bytes`, decoded."""
    rows = max(1, batch.num_rows * size_bytes // max(batch.nbytes, 1))
    return (batch.slice(first, rows) for first in range(0, batch.num_rows, rows))


def check_schemas(files: Sequence[SourceFile], pipeline: Pipeline) -> None:
    """InputError unless all files that are not empty have the columns of the first such file.

    Types may differ as far as Arrow can merge them: the number 1 is the same JSON in any width.
    """
    full = [file for file in files if file.size]
    with ThreadPoolExecutor(REQUESTS) as pool:
        schemas = list(pool.map(partial(_read_schema, pipeline=pipeline), full))
    for file, schema in zip(full[1:], schemas[1:], strict=True):
        changed = [name for name in {**schemas[0], **schema} if not _same(name, schemas[0], schema)]
        if changed:
            raise InputError(
                f"{file.path}: schema changed: its columns differ from those of {full[0].path} "
                f"({', '.join(changed)}); set value.columns, or ingest such files by another "
                "pipeline"
            )


def _read_schema(file: SourceFile, pipeline: Pipeline) -> dict[str, pa.DataType]:
    with _errors(file.path):
        schema = pq.read_schema(pa.PythonFile(RawFile(file, pipeline), "r"))
    dictionary = pa.types.is_dictionary
    return {f.name: f.type.value_type if dictionary(f.type) else f.type for f in schema}


def _same(name: str, *schemas: dict[str, pa.DataType]) -> bool:
    """Whether all schemas have the column, with types that can be merged."""
    try:
        parts = [pa.schema([(name, schema[name])]) for schema in schemas]
        pa.unify_schemas(parts, promote_options="permissive")
    except (KeyError, pa.ArrowException):
        return False
    return True


@contextmanager
def _errors(path: str) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as problem:
        raise InputError(
            f"{path}: cannot be read as Parquet: {problem}; write it again"
        ) from problem


def _beginnings(metadata: Any, size: int) -> list[int]:
    """About where in the file each row group begins, by how large the groups are.

    The metadata of a column would tell, but pyarrow ends the process where that is damaged.
    """
    groups = range(metadata.num_row_groups)
    sizes = [max(int(metadata.row_group(group).total_byte_size), 1) for group in groups]
    before = list(itertools.accumulate(sizes, initial=0))
    return [at * size // before[-1] for at in before[:-1]]


class ParquetRows:
    """The rows of a batch. A line is a row here, and `raw` the JSON object of all its columns."""

    def __init__(self, path: str, batch: Any) -> None:
        self._path, self._batch = path, batch
        self.line_count = batch.num_rows
        self.numbers = np.arange(batch.num_rows, dtype=np.int64)
        self.reasons = np.zeros(batch.num_rows, np.int8)

    @property
    def raw(self) -> Spans:
        """The rows, as they would be if every column were wanted."""
        return self.objects(())

    def shown(self, rows: Int64s) -> Spans:
        """The rows at these positions; a column that cannot be JSON is null."""
        columns = self._batch.take(pa.array(rows)).columns
        return json_objects(self._batch.schema.names, list(map(_shown, columns)), len(rows))

    def field(self, name: str) -> Spans:
        """Strings and binaries as they are, anything else as in JSON; null if missing."""
        return _text(self._column(name), self._path)

    def times(self, name: str, form: TimeFormat) -> Times:
        """Columns of a time type by that type, others as `timestamp.format` says."""
        column = self._column(name)
        if pa.types.is_date(column.type):
            column = column.cast(pa.timestamp("s") if column.type == pa.date32() else _MS)
        if not pa.types.is_timestamp(column.type):
            if form.text is None:
                raise InputError(
                    f"{self._path}: column {name} has type {column.type}, which is no "
                    "time; set timestamp.format"
                )
            return read_times(self.field(name), form)
        null = column.is_null().to_numpy(zero_copy_only=False)
        ms = _floor_ms(column)
        local = ~null if column.type.tz is None else np.zeros(len(ms), np.bool_)
        return in_range(
            to_utc(ms, local, form.zone), np.where(null, UNREADABLE, READ).astype(np.int8)
        )

    def objects(self, names: Sequence[str]) -> Spans:
        """One JSON object per row; no names: every column."""
        names = names or self._batch.schema.names
        texts = [_json(self._column(name), self._path) for name in names]
        return json_objects(names, texts, self.line_count)

    def _column(self, name: str) -> Any:
        """A column, or with dots the field of a struct column; a column so named comes first."""
        names = self._batch.schema.names
        first, *rest = [name] if name in names else name.split(".")
        if names.count(first) > 1:
            raise InputError(f"{self._path}: there are several columns {first}; rename all but one")
        column: Any = self._batch.column(first) if first in names else None
        for part in rest:
            struct = column is not None and pa.types.is_struct(column.type)
            known = struct and column.type.get_field_index(part) >= 0
            column = pc.struct_field(column, part) if known else None
        if column is None:
            raise InputError(
                f"{self._path}: schema changed: no column {name} (there are {', '.join(names)}); "
                "correct the file or the settings"
            )
        return column


def _floor_ms(column: Any) -> Int64s:
    """A timestamp column as milliseconds, cut off towards the past; 0 for null."""
    values: Int64s = column.cast(pa.int64()).fill_null(0).to_numpy()
    if column.type.unit == "s":
        return values * 1000
    return values // {"ms": 1, "us": 1000, "ns": 1_000_000}[column.type.unit]


def _text(column: Any, path: str) -> Spans:
    """The bytes of a column's values."""
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _text(column.dictionary_decode(), path)
    if any(test(kind) for test in _BYTES):
        return from_arrow(column)
    if any(test(kind) for test in _TIMES):
        return from_arrow(_iso(column))
    null = column.is_null().to_numpy(zero_copy_only=False)
    return where_null(_json(column, path), null)


_STRINGS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BINARIES = (
    pa.types.is_binary,
    pa.types.is_large_binary,
    pa.types.is_binary_view,
    pa.types.is_fixed_size_binary,
)
_BYTES = (*_STRINGS, *_BINARIES)
_TIMES = (pa.types.is_timestamp, pa.types.is_date, pa.types.is_time)
_LISTS = (pa.types.is_list, pa.types.is_large_list, pa.types.is_fixed_size_list, pa.types.is_map)


def _json(column: Any, path: str) -> Spans:
    """The values as JSON, array at a time.

    NaN and infinities become null, binaries base64, times ISO 8601 (in UTC where the type has a
    zone), maps arrays of {"key": …, "value": …}.
    """
    kind = column.type
    if pa.types.is_dictionary(kind):
        return _json(column.dictionary_decode(), path)
    if any(test(kind) for test in (*_BYTES, *_TIMES)):
        return nulls_as(quoted(_string(column)), b"null")
    if pa.types.is_struct(kind):
        parts = [_json(pc.struct_field(column, [k]), path) for k in range(kind.num_fields)]
        names = [kind.field(k).name for k in range(kind.num_fields)]
        return _or_null(json_objects(names, parts, len(column)), column)
    if any(test(kind) for test in _LISTS):
        return _json_list(column, path)
    return _json_number(column, path)


def _shown(column: Any) -> Spans:
    try:
        return _json(column, "")
    except InputError:
        return constant(b"null", len(column))


def _string(column: Any) -> Spans:
    """What stands between the quotes of a value that is a JSON string."""
    if any(test(column.type) for test in _BINARIES):
        return base64(from_arrow(column))
    return from_arrow(_iso(column) if any(test(column.type) for test in _TIMES) else column)


def _json_number(column: Any, path: str) -> Spans:
    if pa.types.is_floating(column.type):
        column = pc.if_else(pc.is_finite(column), column, pa.scalar(None, column.type))
    if pa.types.is_duration(column.type):
        column = column.cast(pa.int64())
    try:
        return nulls_as(from_arrow(column.cast(pa.large_string())), b"null")
    except pa.ArrowException as problem:
        raise InputError(f"{path}: type {column.type} cannot be JSON: {problem}") from problem


def _json_list(column: Any, path: str) -> Spans:
    if pa.types.is_map(column.type):
        items = pa.struct([("key", column.type.key_type), ("value", column.type.item_type)])
        column = column.cast(pa.list_(items))
    if not pa.types.is_large_list(column.type):
        column = column.cast(pa.large_list(column.type.value_type))
    items = to_arrow(_json(column.flatten(), path))
    sizes = column.value_lengths().fill_null(0).to_numpy()
    ends = np.concatenate([np.zeros(1, np.int64), np.cumsum(sizes, dtype=np.int64)])
    lists = pa.LargeListArray.from_arrays(pa.array(ends), items)
    joined = pc.binary_join(lists, pa.scalar(",", pa.large_string()))
    n = len(column)
    text = concatenate([constant(b"[", n), from_arrow(joined), constant(b"]", n)])
    return _or_null(text, column)


def _or_null(text: Spans, column: Any) -> Spans:
    """`text`, or the literal null where the column is null."""
    return nulls_as(where_null(text, column.is_null().to_numpy(zero_copy_only=False)), b"null")


def _iso(column: Any) -> Any:
    """Times as ISO 8601 text."""
    if not pa.types.is_timestamp(column.type):
        return column.cast(pa.large_string())
    form = "%Y-%m-%dT%H:%M:%S" + ("Z" if column.type.tz else "")
    if column.type.tz:
        column = column.cast(pa.timestamp(column.type.unit, "UTC"))
    return pc.strftime(column, form)
