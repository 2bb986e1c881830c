"""Frames of Kafka's protocol: decode requests safely, encode responses.

The decoder uses kafka-python's schemas and creates its messages. kafka-python's own decoder is not
safe for requests of unknown clients: a varint may be as long as the frame, each list of tagged
fields copies the rest of the frame, texts that end after the frame are cut, and null is accepted
everywhere. This decoder reads each byte once, and creates at most one item for each byte. It reads
the types of the served versions, in which a message is never a field outside of an array.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Callable
from functools import cache
from typing import Any, NamedTuple

from seglake.serve.api import Api

_HEAD = struct.Struct(">hhih")
_LENGTH, _COUNT = struct.Struct(">h"), struct.Struct(">i")
_VARINT_BYTES = 5  # the longest form of an unsigned 32-bit number
MOST_ITEMS = 2**16  # limit of the items in all arrays of a request
_NUMBERS = {"int8": "b", "int16": "h", "int32": "i", "int64": "q", "bool": "?"}


class MalformedRequest(Exception):
    """The bytes are not a valid request. The message has the reason."""


class Header(NamedTuple):
    """The header of a request. `size` is the size of the part that all versions have."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    size: int


def decode_header(frame: memoryview) -> Header:
    """Decode the header of a request. Raises MalformedRequest."""
    if len(frame) < _HEAD.size:
        raise MalformedRequest(f"a frame of {len(frame)} bytes is shorter than a request's header")
    key, version, correlation_id, length = _HEAD.unpack_from(frame)
    end = _HEAD.size + max(0, length)
    if length < -1 or end > len(frame):
        raise MalformedRequest(f"a client id of {length} bytes does not fit into its frame")
    try:
        client = None if length < 0 else str(frame[_HEAD.size : end], "utf-8")
    except UnicodeDecodeError as error:
        raise MalformedRequest("the client id is not UTF-8") from error
    return Header(key, version, correlation_id, client, end)


def decode(api: Api, header: Header, frame: memoryview) -> Any:
    """Decode a request into kafka-python's class, without tagged fields. Raises MalformedRequest.

    A field that this version does not have is read as its default. Bytes after the message are
    ignored, like in Kafka, because librdkafka sends some.
    """
    source = _Source(frame, header.size)
    try:
        if api.request.flexible_version_q(header.version):
            source.skip_tags()
        return _request(api.request, header.version)(source)
    except (MalformedRequest, UnicodeDecodeError, struct.error) as error:
        raise MalformedRequest(
            f"not a valid {api.name} request of version {header.version}: {error}, at byte "
            f"{source.at}"
        ) from error


def encode(response: Any, version: int, correlation_id: int) -> bytearray:
    """Encode a response of kafka-python's class as a frame."""
    response.API_VERSION = version  # before there is a header
    response.with_header(correlation_id)
    frame: bytearray = response.encode(header=True, framed=True)
    return frame


def varint(value: int) -> bytes:
    """Encode an unsigned varint."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


class _Source:
    """The bytes of a frame from `at` on, and how many more items its arrays may have."""

    __slots__ = ("_items", "at", "data", "end")

    def __init__(self, data: memoryview, at: int) -> None:
        self.data, self.at, self.end, self._items = data, at, len(data), MOST_ITEMS

    def take(self, size: int) -> memoryview:
        """Return the next `size` bytes. Raises MalformedRequest after the end of the frame."""
        start, self.at = self.at, self.at + size
        if self.at > self.end:
            raise MalformedRequest(
                f"a length of {size} bytes goes beyond the frame, which ends at byte {self.end}"
            )
        return self.data[start : self.at]

    def unpack(self, form: struct.Struct) -> tuple[Any, ...]:
        """Return the next numbers, which have the layout `form`."""
        return form.unpack(self.take(form.size))

    def varint(self) -> int:
        """Return the next unsigned varint."""
        value = 0
        for place in range(_VARINT_BYTES):
            (byte,) = self.take(1)
            value |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                return value
        raise MalformedRequest(f"a varint has more than {_VARINT_BYTES} bytes")

    def count(self, form: struct.Struct | None) -> int:
        """Read a length in this form, or a varint if `form` is None. Return -1 for null."""
        return self.varint() - 1 if form is None else int(self.unpack(form)[0])

    def items(self, count: int, size: int) -> int:
        """Check a count of items that have at least `size` bytes each, and return it."""
        self._items -= count
        if count * size > self.end - self.at or self._items < 0:
            raise MalformedRequest(
                f"an array of {count} items cannot fit the remaining {self.end - self.at} bytes"
            )
        return count

    def skip_tags(self) -> None:
        """Skip tagged fields."""
        for _ in range(self.items(self.varint(), 2)):
            self.varint()
            self.take(self.varint())


_Read = Callable[[_Source], Any]
_Fill = Callable[[_Source, Any], None]  # sets some fields of a message


@cache
def _request(kind: Any, version: int) -> _Read:
    compact = kind.flexible_version_q(version)
    return _message(kind._struct, kind, version, compact)  # noqa: SLF001  # it has no other name


def _message(schema: Any, kind: Any, version: int, compact: bool) -> _Read:
    fills = _fills(schema.untagged_fields(version), version, compact)

    def read(source: _Source) -> Any:
        made = object.__new__(kind)
        made._version, made.tags, made.unknown_tags = version, None, None
        for fill in fills:
            fill(source, made)
        if compact:
            source.skip_tags()
        return made

    return read


def _fills(fields: list[Any], version: int, compact: bool) -> list[_Fill]:
    """Return functions that read the fields. Adjacent numbers are unpacked in one call."""
    fills, numbers = list[_Fill](), list[Any]()
    for field in fields:
        if not field.is_array() and field.type_str in _NUMBERS:
            numbers.append(field)
            continue
        if numbers:
            fills.append(_numbers(numbers))
            numbers = []
        fills.append(_one(field, version, compact))
    return [*fills, _numbers(numbers)] if numbers else fills


def _numbers(fields: list[Any]) -> _Fill:
    names = [field.name for field in fields]
    form = struct.Struct(">" + "".join(_NUMBERS[field.type_str] for field in fields))

    def fill(source: _Source, made: Any) -> None:
        for name, value in zip(names, source.unpack(form), strict=True):
            setattr(made, name, value)

    return fill


def _one(field: Any, version: int, compact: bool) -> _Fill:
    name, read = field.name, _nullable(field, version, compact)
    may_be_null = field.type_str == "uuid" or field.nullable_for_version_q(version)

    def fill(source: _Source, made: Any) -> None:
        value = read(source)
        if value is None and not may_be_null:
            raise MalformedRequest(f"{name} is null")
        setattr(made, name, value)

    return fill


def _nullable(field: Any, version: int, compact: bool) -> _Read:
    """Return a function that reads a field. It returns None for null."""
    if field.is_struct_array():
        return _array(_message(field.array_of, field.data_class, version, compact), compact)
    if field.is_array():
        kind = field.array_of.type_str
        if kind in _NUMBERS:
            return _array_of_numbers(_NUMBERS[kind], compact)
        return _array(_item(field.name, _simple(kind, compact)), compact)
    return _simple(field.type_str, compact)


def _item(name: str, read: _Read) -> _Read:
    def read_item(source: _Source) -> Any:
        value = read(source)
        if value is None:
            raise MalformedRequest(f"an item of {name} is null")
        return value

    return read_item


def _array(item: _Read, compact: bool) -> _Read:
    form = None if compact else _COUNT

    def read(source: _Source) -> Any:
        count = source.count(form)
        return None if count < 0 else [item(source) for _ in range(source.items(count, 1))]

    return read


def _array_of_numbers(kind: str, compact: bool) -> _Read:
    form, size = None if compact else _COUNT, struct.calcsize(">" + kind)

    def read(source: _Source) -> Any:
        count = source.count(form)
        if count < 0:
            return None
        data = source.take(source.items(count, size) * size)
        return list(struct.unpack(f">{count}{kind}", data))

    return read


def _simple(kind: str, compact: bool) -> _Read:
    """Return a function that reads a text, bytes or an id."""
    if kind == "uuid":
        return _uuid
    form = None if compact else {"string": _LENGTH, "bytes": _COUNT, "records": _COUNT}[kind]

    def read(source: _Source) -> Any:
        size = source.count(form)
        return None if size < 0 else source.take(size)

    def read_text(source: _Source) -> Any:
        data = read(source)
        return None if data is None else str(data, "utf-8")

    return read_text if kind == "string" else read


def _uuid(source: _Source) -> uuid.UUID | None:
    data = bytes(source.take(16))
    return uuid.UUID(bytes=data) if any(data) else None  # like kafka-python
