"""Read the row groups of Parquet files as Arrow batches of bounded size."""

import itertools
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache, partial
from itertools import chain
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq

from seglake.config import Pipeline
from seglake.errors import InputError
from seglake.limits import INT64_MAX, REQUESTS
from seglake.write.input.content import InputStore, require_mark
from seglake.write.input.files import PARQUET_MARK, SourceFile, Split
from seglake.write.rows.arrow import ArrowRows, cut_batch, leaf_names, leaves
from seglake.write.rows.rows import Format, RowChunks, most_rows, similar_names_hint

_UTC = {"UTC", "Etc/UTC", "GMT", "Etc/GMT", "Z", "Zulu", "+00:00"}
# Rows that are decoded in one step. Repeated values take little space in the file, but not in
# memory.
_MOST_ROWS = 1 << 14


class Parquet(Format):
    """The input format "parquet": rows of typed columns."""

    def check(self, files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline) -> None:
        """Raise InputError if values contain all columns and the columns of files differ.

        Empty files are ignored. The types of a column may differ if Arrow can merge them, because a
        number has the same JSON form in any width.
        """
        if not pipeline.wants_every_column:
            return
        full = [file for file in files if file.size]
        with ThreadPoolExecutor(REQUESTS) as pool:
            schemas = list(pool.map(partial(_read_schema, store=store), full))
        for file, schema in zip(full[1:], schemas[1:], strict=True):
            names = {**schemas[0], **schema}
            changed = [name for name in names if not _same(name, schemas[0], schema)]
            if changed:
                _require_fields(full[0].path, schemas[0], pipeline)
                _require_fields(file.path, schema, pipeline)
                raise InputError(
                    f"the schema changed: the columns of {file.path} and {full[0].path} differ "
                    f"({', '.join(_changes(changed, schemas[0], schema))}). Set value.columns, or "
                    "ingest such files with another pipeline"
                )

    def can_split(self, _file: SourceFile, _store: InputStore, _pipeline: Pipeline) -> bool:
        """Return True, because row groups can be read independently."""
        return True

    def read(self, split: Split, store: InputStore, pipeline: Pipeline) -> RowChunks:
        """Yield the rows of the row groups that begin in the split; see `Format.read`.

        An Arrow batch takes about `chunk_bytes`, or has one row.
        """
        path, chunk_bytes = split.file.path, pipeline.task.chunk_bytes
        if split.file.size == 0:
            return
        with _errors(split.file, store):
            opened = cache(partial(_opened, split.file, store))
            file = opened()
            columns = map(file.schema.column, range(len(file.schema)))
            # INT96, the old time type: nanoseconds within a day, and the number of the day.
            old_times = [each.path for each in columns if each.physical_type == "INT96"]
            most = min(most_rows(leaf_names(file.schema_arrow)), _MOST_ROWS)
            _require_sum(file.metadata)
            for group, begin in enumerate(_beginnings(file.metadata, split.file.size)):
                about = file.metadata.row_group(group)
                if split.start <= begin < split.end and about.num_rows:
                    row_bytes = max(about.total_byte_size // about.num_rows, 1)  # encoded size
                    size = min(max(chunk_bytes // row_bytes, 1), most)
                    exact = opened(_unit_of(opened("ms"), group, old_times)) if old_times else file
                    decoded = 0
                    for batch in exact.iter_batches(size, row_groups=[group]):
                        decoded += len(batch)
                        for part in cut_batch(batch, chunk_bytes):
                            yield path, ArrowRows(path, part)
                    # If the pages of every column end early, iter_batches ends without an error.
                    if decoded != about.num_rows:
                        raise ValueError(
                            f"row group {group} has {decoded:,} rows, but the footer counts "
                            f"{about.num_rows:,}"
                        )


def _opened(file: SourceFile, store: InputStore, unit: str = "ns") -> pq.ParquetFile:
    """Open a Parquet file. INT96 times are converted to `unit`. Reads verify page checksums."""
    source = pa.PythonFile(store.raw(file), "r")
    return pq.ParquetFile(source, coerce_int96_timestamp_unit=unit, page_checksum_verification=True)


def _require_sum(metadata: Any) -> None:
    """Raise ValueError unless the row counts of the row groups add up to the file's row count."""
    rows = [metadata.row_group(group).num_rows for group in range(metadata.num_row_groups)]
    if sum(rows) != metadata.num_rows or min(rows, default=0) < 0:
        raise ValueError(
            f"its footer has {metadata.num_rows:,} rows for the file, but {sum(rows):,} for its "
            f"row groups"
        )


def _unit_of(file: pq.ParquetFile, group: int, columns: list[str]) -> str:
    """Return the finest unit ("ns", "us" or "ms") in which all INT96 times fit in 64 bits.

    In a finer unit, Arrow would overflow without an error. `columns` are the INT96 columns, and
    `group` is the row group. `file` must be opened in milliseconds, in which any time fits.
    """
    low = high = 0
    for batch in file.iter_batches(_MOST_ROWS, row_groups=[group], columns=columns):
        for column in chain.from_iterable(map(leaves, batch.columns)):
            bounds: Any = pc.min_max(column.cast(pa.int64())).as_py()
            low, high = min(low, bounds["min"] or 0), max(high, bounds["max"] or 0)
    farthest = max(-low, high) + 1
    units = (unit for unit, per in (("ns", 10**6), ("us", 10**3)) if farthest * per <= INT64_MAX)
    return next(units, "ms")


def _read_schema(file: SourceFile, store: InputStore) -> dict[str, pa.DataType]:
    with _errors(file, store):
        schema = pq.read_schema(pa.PythonFile(store.raw(file), "r"))
    return {field.name: _logical_type(field.type) for field in schema}


def _logical_type(kind: pa.DataType) -> pa.DataType:
    """Return the type of the values, without the encoding that the writer chose.

    For example, dictionaries and views become the type of their values, and all names of UTC become
    "UTC".
    """
    if pa.types.is_dictionary(kind):
        return _logical_type(kind.value_type)
    if pa.types.is_timestamp(kind) and kind.tz in _UTC:
        return pa.timestamp(kind.unit, "UTC")
    if kind == pa.string_view():
        return pa.string()
    return pa.binary() if kind == pa.binary_view() else kind


def _require_fields(path: str, schema: Mapping[str, pa.DataType], pipeline: Pipeline) -> None:
    """Raise InputError if a field in the settings is neither a column nor in a struct column."""
    columns = [*schema]
    for name in pipeline.fields():
        if name not in schema and name.partition(".")[0] not in schema:
            raise InputError(
                f"{path} has no column {name!r}, which the settings name. Correct the file, or "
                f"leave it out with input.exclude. {similar_names_hint(name, columns, 'It')}"
            )


def _changes(
    names: Sequence[str], first: Mapping[str, pa.DataType], other: Mapping[str, pa.DataType]
) -> Iterator[str]:
    """Yield the names of changed columns, with the two types if each file has the column."""
    for name in names:
        both = name in first and name in other
        kinds = f" is {other[name]}, not {first[name]}" if both else ""
        yield f"{name}{kinds}"


def _same(name: str, *schemas: dict[str, pa.DataType]) -> bool:
    """Return whether all schemas have the column `name`, with types that Arrow can merge."""
    try:
        parts = [pa.schema([(name, schema[name])]) for schema in schemas]
        pa.unify_schemas(parts, promote_options="permissive")
    except (KeyError, pa.ArrowException):
        return False
    return True


@contextmanager
def _errors(file: SourceFile, store: InputStore) -> Iterator[None]:
    try:
        yield
    except InputError:
        raise
    except (pa.ArrowException, OSError, ValueError) as problem:
        require_mark(file, store, PARQUET_MARK, "Parquet")
        raise InputError(
            f"{file.path} cannot be read as Parquet ({problem}). Write it again"
        ) from problem


def _beginnings(metadata: Any, size: int) -> list[int]:
    """Estimate the byte at which each row group begins in the file, from the row groups' sizes.

    `size` is the size of the file. The metadata of columns has the exact positions, but pyarrow
    kills the process if this part of the metadata is damaged.
    """
    groups = range(metadata.num_row_groups)
    sizes = [max(int(metadata.row_group(group).total_byte_size), 1) for group in groups]
    *starts, total = itertools.accumulate(sizes, initial=0)
    return [start * size // total for start in starts]
