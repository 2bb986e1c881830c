"""Read Avro object container files. Each record becomes a JSON object with its fields.

Bytes become base64, decimals become text, a union becomes its value, and times become ISO 8601: in
UTC for the logical types timestamp-millis and -micros, without a zone for the local-timestamp
types. fastavro decodes one record after another. All other work is done for many records in one
step. Blocks are decompressed here, because fastavro does not limit their size.
"""

from __future__ import annotations

import bz2
import datetime as dt
import io
import json
import lzma
import zlib
from base64 import b64encode
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from decimal import Decimal
from functools import partial
from itertools import islice
from typing import Any

import lz4.block
import numpy as np

from seglake.config import Pipeline
from seglake.errors import CorruptData, InputError, SeglakeError
from seglake.extras import extra
from seglake.format.codecs import compression
from seglake.format.records import Spans
from seglake.limits import REQUESTS
from seglake.terminal.wording import short_bytes
from seglake.text.json_fields import FieldNames
from seglake.times.grammar import ISO, TimeFormat
from seglake.times.readers import Times
from seglake.write.input.binaries import AVRO_MARK
from seglake.write.input.content import InputStore, require_mark
from seglake.write.input.files import SourceFile, Split
from seglake.write.input.streams import PART_BYTES, RawFile
from seglake.write.rows.json_rows import JsonRows, elements_of
from seglake.write.rows.rows import MOST_ROWS, Format, RowChunks, most_rows

_BATCH_BYTES = 2 << 20  # Avro data that is decoded in one step: Python's objects take much more
_BLOCK_BYTES = 64 << 20  # limit of a block, decompressed
_TOO_LARGE = f"a block has more than {short_bytes(_BLOCK_BYTES)}, decompressed"
_SYNC_BYTES = 16
_STREAMS: dict[str, Any] = {
    "deflate": partial(zlib.decompressobj, -zlib.MAX_WBITS),
    "bzip2": bz2.BZ2Decompressor,
    "xz": partial(lzma.LZMADecompressor, memlimit=2 * _BLOCK_BYTES),
}
_SCHEMA_KEYS = {
    "type", "name", "namespace", "fields", "items", "values", "symbols", "size", "logicalType",
    "precision", "scale",
}  # fmt: skip


class Avro(Format):
    """The input format "avro": object container files whose records have one schema."""

    def check(self, files: Sequence[SourceFile], store: InputStore, _pipeline: Pipeline) -> None:
        """Raise InputError unless all files that are not empty have one schema."""
        full = [file for file in files if file.size]
        with ThreadPoolExecutor(REQUESTS) as pool:
            first, *others = pool.map(partial(_read_fields, store=store), full) if full else [{}]
        for file, fields in zip(full[1:], others, strict=True):
            changed = [name for name in {**first, **fields} if first.get(name) != fields.get(name)]
            if changed:
                raise InputError(
                    f"the schema changed: the schemas of {file.path} and {full[0].path} differ "
                    f"({', '.join(changed)}). Ingest them with separate pipelines"
                )

    def can_split(self, _file: SourceFile, _store: InputStore, _pipeline: Pipeline) -> bool:
        """Return True, because a sync marker in front of each block shows where it begins."""
        return True

    def read(self, split: Split, store: InputStore, pipeline: Pipeline) -> RowChunks:
        """Yield the records of the blocks that begin in the split; see `Format.read`."""
        names, most = FieldNames(pipeline.fields()), most_rows(pipeline.fields())
        size = min(_BATCH_BYTES, pipeline.task.chunk_bytes)
        for array in _json_arrays(split, store, most, size):
            raw = elements_of(array)
            yield split.file.path, AvroRows(raw, np.arange(len(raw)), len(raw), names)


class AvroRows(JsonRows):
    """The records of a chunk. `raw` has a JSON object with all fields for each record."""

    def times(self, name: str, form: TimeFormat) -> Times:
        """Return the values of a field as times. By default, their format is ISO 8601."""
        return super().times(name, form if form.text else form._replace(text=ISO))

    def objects(self, names: Sequence[str]) -> Spans:
        """Return one JSON object per row with these fields. An empty `names` selects all fields."""
        return super().objects(names) if names else self.raw


def first_records(file: SourceFile, store: InputStore, most: int) -> list[str]:
    """Return up to `most` records from the beginning of a file as JSON. Raises InputError."""
    array = next(_json_arrays(Split(0, file, 0, file.size), store, most, _BATCH_BYTES), b"")
    return [(text or b"").decode() for text in elements_of(array).tolist()]


def _json_arrays(split: Split, store: InputStore, most: int, size: int) -> Iterator[bytes]:
    """Yield the records of a split as JSON arrays.

    An array ends when it has `most` records, or about `size` bytes of Avro data.
    """
    if not split.file.size:
        return
    records, held = list[Any](), 0
    with _opened(split.file, store) as (stream, header):
        for rows, row_bytes in _blocks(stream, header, split):
            while some := [*islice(rows, min(most - len(records), -(-(size - held) // row_bytes)))]:
                records += some
                held += row_bytes * len(some)
                if held >= size or len(records) == most:
                    yield _json_array(records)
                    records, held = [], 0
        if records:
            yield _json_array(records)


def _blocks(
    stream: io.BufferedReader[RawFile], header: Any, split: Split
) -> Iterator[tuple[Iterator[Any], int]]:
    """Yield (records, average size of a record in Avro) for each block that begins in the split.

    `stream` must be at the end of the file's header. Raises ValueError for damage.
    """
    stream.seek(-_SYNC_BYTES, io.SEEK_CUR)
    sync = stream.read(_SYNC_BYTES)
    if split.start:
        _seek_block(stream, split.start, sync)
    # fastavro reads a copy of the file whose blocks are not compressed, one block at a time.
    fastavro, copy = _fastavro(), io.BytesIO(AVRO_MARK)
    read_long = partial(fastavro.schemaless_reader, stream, "long", None)
    copy.seek(0, io.SEEK_END)
    metadata = {"avro.schema": header.metadata["avro.schema"].encode()}
    fastavro.schemaless_writer(copy, {"type": "map", "values": "bytes"}, metadata)
    copy.write(sync)
    copy.seek(0)
    decoded = _block_reader(copy)
    while stream.tell() < split.end and stream.peek(1):
        count, size = read_long(), read_long()
        if not 0 <= size <= _BLOCK_BYTES:
            raise ValueError(_TOO_LARGE)
        data = _decompressed(stream.read(size), header.codec)
        if stream.read(_SYNC_BYTES) != sync:
            raise ValueError("a block does not end with the sync marker")
        if not 0 <= count <= max(len(data), MOST_ROWS):
            raise ValueError(f"a block claims {count:,} records")
        copy.seek(0)
        copy.truncate()
        for number in (count, len(data)):
            fastavro.schemaless_writer(copy, "long", number)
        copy.writelines((data, sync))
        copy.seek(0)
        yield iter(next(decoded)), max(len(data) // max(count, 1), 1)


def _decompressed(data: bytes, codec: str) -> bytes:
    match codec:
        case "null":
            return data
        case "deflate" | "bzip2" | "xz":
            stream = _STREAMS[codec]()
            data = stream.decompress(data, _BLOCK_BYTES + 1)
            if len(data) > _BLOCK_BYTES:
                raise ValueError(_TOO_LARGE)
            if not stream.eof:
                raise ValueError("a block is cut off")
            return data
        case "zstandard":
            return compression.decompress(compression.IDS["zstd"], data, _BLOCK_BYTES)
        case "snappy":
            data, crc = data[:-4], int.from_bytes(data[-4:], "big")
            data = compression.decompress(compression.IDS["snappy"], data, _BLOCK_BYTES)
            if zlib.crc32(data) != crc:
                raise ValueError("a block has a wrong checksum")
            return data
        case "lz4":
            if int.from_bytes(data[:4], "little") > _BLOCK_BYTES:
                raise ValueError(_TOO_LARGE)
            return bytes(lz4.block.decompress(data))
    raise ValueError(f"the codec {codec!r} cannot be read")


@contextmanager
def _opened(
    file: SourceFile, store: InputStore
) -> Iterator[tuple[io.BufferedReader[RawFile], Any]]:
    """Open a file, and read its header. Errors in the `with` block become InputErrors."""
    stream = io.BufferedReader(store.raw(file), PART_BYTES)
    try:
        yield stream, _block_reader(stream)
    except Exception as problem:
        if isinstance(problem, SeglakeError) and not isinstance(problem, CorruptData):
            raise
        require_mark(file, store, AVRO_MARK, "Avro")
        raise InputError(
            f"{file.path} cannot be read as Avro before byte {stream.tell():,} "
            f"({problem or type(problem).__name__}). Write it again, or leave it out with "
            "input.exclude"
        ) from problem


def _fastavro() -> Any:
    with extra("avro", "input.format = 'avro'"):
        import fastavro  # noqa: PLC0415  # an extra
    return fastavro


def _block_reader(stream: Any) -> Any:
    """Return fastavro's reader of a file's blocks, after it has read the header.

    Raises ValueError for a schema that could exhaust the memory.
    """
    blocks = _fastavro().block_reader(stream)
    _takes_bytes(blocks.writer_schema, {})
    return blocks


def _seek_block(stream: io.BufferedReader[RawFile], start: int, sync: bytes) -> None:
    """Move `stream` to the first block that begins at or after byte `start`.

    `stream` must be at the end of the file's header. `sync` is the file's sync marker.
    """
    begin, data = max(start, stream.tell()) - _SYNC_BYTES, b""
    stream.seek(begin)
    while more := stream.read(PART_BYTES):
        data += more
        if (at := data.find(sync)) >= 0:
            stream.seek(begin + at + _SYNC_BYTES)
            return
        begin += len(data) - _SYNC_BYTES
        data = data[-_SYNC_BYTES:]


def _read_fields(file: SourceFile, store: InputStore) -> dict[str, Any]:
    """Return field name → definition from the schema in a file's header. Raises InputError."""
    with _opened(file, store) as (_, blocks):
        schema = _essence(blocks.writer_schema)
    is_record = isinstance(schema, dict) and "fields" in schema
    fields = schema["fields"] if is_record else [{"name": "", "type": schema}]
    return {field["name"]: field for field in fields}


def _takes_bytes(schema: Any, named: dict[str, bool | None]) -> bool:
    """Return whether every value of an Avro type takes at least one byte in the file.

    Raises ValueError for types whose values could take any amount of memory. fastavro recurses
    without a limit, and a few bytes may claim any number of elements that take no bytes. `named`
    has the results for named types, or None for a type that is not complete yet.
    """
    match schema:
        case str():
            if (takes := named.get(schema, schema != "null")) is None:
                raise ValueError(
                    "a type of its schema contains itself. Convert the file to JSON lines"
                )
            return takes
        case list():
            return [*(_takes_bytes(each, named) for each in schema)] != []
        case {"fields": fields, "name": name}:
            named[name] = None
            named[name] = True in [_takes_bytes(field["type"], named) for field in fields]
            return bool(named[name])
        case {"size": size, "name": name}:
            named[name] = size > 0
            return bool(size)
        case {"items": inner} if not _takes_bytes(inner, named):
            raise ValueError("its schema has an array of empty values")
        case {"values": inner} | {"type": inner}:
            return _takes_bytes(inner, named) or "values" in schema
    return True


def _essence(schema: Any) -> Any:
    """Return a schema with only the keys that define its type, for comparisons.

    Other keys, such as documentation and defaults, are removed.
    """
    if isinstance(schema, dict):
        return {key: _essence(each) for key, each in schema.items() if key in _SCHEMA_KEYS}
    return [*map(_essence, schema)] if isinstance(schema, list) else schema


def _json_array(records: list[Any]) -> bytes:
    text = json.dumps(records, default=_text, ensure_ascii=False, separators=(",", ":"))
    if "NaN" in text or "Infinity" in text:  # may also match inside a string
        records = json.loads(text, parse_constant=lambda _: None)
        text = json.dumps(records, ensure_ascii=False, separators=(",", ":"))
    return text.encode()


def _text(value: object) -> str:
    """Convert a value of a type that JSON does not have to text, such as bytes or a date."""
    match value:
        case bytes():
            return b64encode(value).decode()
        case Decimal():
            return format(value, "f")
        case dt.datetime():
            return value.isoformat(timespec="microseconds").replace("+00:00", "Z")
        case _:  # a date, a time of day, a UUID
            return str(value)
