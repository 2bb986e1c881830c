"""Read Avro object container files: a record becomes a JSON object of its fields.

Bytes become base64, decimals text, a union its value, and times ISO 8601: in UTC for the logical
types timestamp-millis and -micros, without a zone for the local ones. fastavro decodes one record
after another; the rest is done for many records in one step.
"""

from __future__ import annotations

import datetime as dt
import io
import json
from base64 import b64encode
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import Any

import numpy as np

from seglake.config import Pipeline
from seglake.errors import InputError, SeglakeError
from seglake.extras import extra
from seglake.format.records import Spans
from seglake.limits import REQUESTS
from seglake.text.json_fields import FieldNames
from seglake.times.grammar import ISO, TimeFormat
from seglake.times.readers import Times
from seglake.write.input.binaries import AVRO_MARK, describe_binary
from seglake.write.input.codecs import HEAD_BYTES
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile, Split
from seglake.write.input.streams import PART_BYTES, RawFile
from seglake.write.rows.json_rows import JsonRows, elements_of
from seglake.write.rows.rows import MOST_ROWS, Format, Rows, most_rows

_BATCH_BYTES = 2 << 20  # Avro data that is decoded in one step: Python's objects take much more
_SYNC_BYTES = 16
_SCHEMA_KEYS = {
    "type", "name", "namespace", "fields", "items", "values", "symbols", "size", "logicalType",
    "precision", "scale",
}  # fmt: skip


class Avro(Format):
    """Records of one schema."""

    def check(self, files: Sequence[SourceFile], store: InputStore, pipeline: Pipeline) -> None:
        """Raise InputError unless all files that are not empty have one schema."""
        del pipeline
        full = [file for file in files if file.size]
        with ThreadPoolExecutor(REQUESTS) as pool:
            first, *others = pool.map(partial(_read_fields, store=store), full) if full else [{}]
        for file, fields in zip(full[1:], others, strict=True):
            changed = [name for name in {**first, **fields} if first.get(name) != fields.get(name)]
            if changed:
                raise InputError(
                    f"{file.path}: schema changed: it differs from that of {full[0].path} "
                    f"({', '.join(changed)}); ingest such files by another pipeline"
                )

    def can_split(self, _file: SourceFile, _store: InputStore, _pipeline: Pipeline) -> bool:
        """Return True, because blocks begin after sync markers."""
        return True

    def read(
        self, split: Split, store: InputStore, pipeline: Pipeline
    ) -> Iterator[tuple[str, Rows]]:
        """Yield the records of the blocks that begin in the split; see `Format.read`."""
        names, most = FieldNames(pipeline.fields()), most_rows(pipeline.fields())
        size = min(_BATCH_BYTES, pipeline.task.chunk_bytes)
        for array in _json_arrays(split, store, most, size):
            raw = elements_of(array)
            yield split.file.path, AvroRows(raw, np.arange(len(raw)), len(raw), names)


class AvroRows(JsonRows):
    """The records of a chunk as JSON. `raw` is JSON of all fields."""

    def times(self, name: str, form: TimeFormat) -> Times:
        """Return the values of a field as times. Without a format, they are ISO 8601."""
        return super().times(name, form if form.text else form._replace(text=ISO))

    def objects(self, names: Sequence[str]) -> Spans:
        """Return one JSON object per row with these fields. An empty `names` selects all fields."""
        return super().objects(names) if names else self.raw


def first_records(file: SourceFile, store: InputStore, most: int) -> list[str]:
    """Return the first records of a file as JSON. Raises InputError."""
    array = next(_json_arrays(Split(0, file, 0, file.size), store, most, _BATCH_BYTES), b"")
    return [(text or b"").decode() for text in elements_of(array).tolist()]


def _json_arrays(split: Split, store: InputStore, most: int, size: int) -> Iterator[bytes]:
    """Yield the records of a split as JSON arrays, each of `most` records or `size` Avro bytes."""
    if not split.file.size:
        return
    records, held = list[Any](), 0
    with _opened(split.file, store) as (stream, blocks):
        if split.start:
            _seek_block(stream, split.start)
        for block in blocks:
            if block.offset >= split.end:
                break
            decoded = max(block.bytes_.getbuffer().nbytes, 1)
            if block.num_records > max(decoded, MOST_ROWS):
                raise ValueError(f"a block claims {block.num_records:,} records")
            row_bytes, rows = max(decoded // max(block.num_records, 1), 1), iter(block)
            while some := [*islice(rows, min(most - len(records), -(-(size - held) // row_bytes)))]:
                records += some
                held += row_bytes * len(some)
                if held >= size or len(records) == most:
                    yield _json_array(records)
                    records, held = [], 0
        if records:
            yield _json_array(records)


@contextmanager
def _opened(
    file: SourceFile, store: InputStore
) -> Iterator[tuple[io.BufferedReader[RawFile], Any]]:
    """Open a file, and read its header. Any error of fastavro becomes an InputError."""
    stream = io.BufferedReader(store.raw(file), PART_BYTES)
    try:
        yield stream, _blocks_of(stream)
    except SeglakeError:
        raise
    except Exception as problem:
        head = store.raw(file).read(HEAD_BYTES) or b""
        if not head.startswith(AVRO_MARK):
            remark = describe_binary(head) or "it is not an Avro file. Set input.format to its "
            "format"
            raise InputError(f"{file.path}: {remark}") from problem
        raise InputError(
            f"{file.path}: cannot be read as Avro, noticed at byte {stream.tell():,}: "
            f"{problem or type(problem).__name__}; write it again, or leave it out with "
            "input.exclude"
        ) from problem


def _blocks_of(stream: io.BufferedReader[RawFile]) -> Any:
    """Read the header of a file, and return an iterator over its blocks."""
    with extra("avro", "input.format = 'avro'"):
        import fastavro  # noqa: PLC0415  # an extra
    blocks = fastavro.block_reader(stream)
    # fastavro recurses without a limit, so that such a record could kill the process.
    if _is_recursive(blocks.writer_schema, ()):
        raise ValueError("a type of its schema contains itself, which only JSON lines can have")
    return blocks


def _seek_block(stream: io.BufferedReader[RawFile], start: int) -> None:
    """Move from the end of the header to the first block that begins at `start` or later."""
    stream.seek(-_SYNC_BYTES, io.SEEK_CUR)
    header_end = stream.tell() + _SYNC_BYTES
    sync = stream.read(_SYNC_BYTES)
    begin, data = max(start, header_end) - _SYNC_BYTES, b""
    stream.seek(begin)
    while more := stream.read(PART_BYTES):
        data += more
        if (at := data.find(sync)) >= 0:
            stream.seek(begin + at + _SYNC_BYTES)
            return
        begin += len(data) - _SYNC_BYTES
        data = data[-_SYNC_BYTES:]


def _read_fields(file: SourceFile, store: InputStore) -> dict[str, Any]:
    """Return the fields of a file's records by name."""
    with _opened(file, store) as (_, blocks):
        schema = _essence(blocks.writer_schema)
    is_record = isinstance(schema, dict) and "fields" in schema
    fields = schema["fields"] if is_record else [{"name": "", "type": schema}]
    return {field["name"]: field for field in fields}


def _is_recursive(schema: Any, inside: tuple[str, ...]) -> bool:
    """Return whether a type contains itself, or one of the types `inside` which it is."""
    match schema:
        case str():
            return schema in inside
        case list():
            return any(_is_recursive(each, inside) for each in schema)
        case {"fields": fields}:
            inside = (*inside, schema["name"])
            return any(_is_recursive(field["type"], inside) for field in fields)
        case {"items": inner} | {"values": inner} | {"type": inner}:
            return _is_recursive(inner, inside)
    return False


def _essence(schema: Any) -> Any:
    """Return a schema without documentation, defaults and the like."""
    if isinstance(schema, dict):
        return {key: _essence(each) for key, each in schema.items() if key in _SCHEMA_KEYS}
    return [*map(_essence, schema)] if isinstance(schema, list) else schema


def _json_array(records: list[Any]) -> bytes:
    text = json.dumps(records, default=_text, ensure_ascii=False, separators=(",", ":"))
    if "NaN" in text or "Infinity" in text:  # perhaps in a text
        records = json.loads(text, parse_constant=lambda _: None)
        text = json.dumps(records, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def _text(value: object) -> str:
    """Return the text of a value for which JSON has no type."""
    match value:
        case bytes():
            return b64encode(value).decode()
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
        case _:  # a date, a time of day, a UUID
            return str(value)
