"""Frames of Kafka's protocol: a request decoded within its own bounds, a response encoded.

kafka-python's codecs shorten a text that goes on behind the frame, and take null where the protocol
forbids it. Here both are `Malformed`.
"""

from __future__ import annotations

import struct
from typing import Any, NamedTuple

from seglake.serve.api import Api

_HEAD = struct.Struct(">hhih")
# what kafka-python's decoders raise for bytes that are not a message
_BAD = (struct.error, IndexError, ValueError, TypeError, AssertionError, OverflowError, KeyError)


class Malformed(Exception):
    """The bytes are not a request; the text says why."""


class Header(NamedTuple):
    """The header of a request; `size` is that of its part that all versions share."""

    key: int
    version: int
    correlation_id: int
    client_id: str | None
    size: int


def header_of(frame: memoryview) -> Header:
    """The header of a request. Raises Malformed."""
    if len(frame) < _HEAD.size:
        raise Malformed(f"a frame of {len(frame)} bytes is shorter than a request's header")
    key, version, correlation_id, length = _HEAD.unpack_from(frame)
    end = _HEAD.size + max(0, length)
    if length < -1 or end > len(frame):
        raise Malformed("the client id goes on behind the frame")
    try:
        client = None if length < 0 else str(frame[_HEAD.size : end], "utf-8")
    except UnicodeDecodeError as error:
        raise Malformed("the client id is not UTF-8") from error
    return Header(key, version, correlation_id, client, end)


def decode(api: Api, header: Header, frame: memoryview) -> Any:
    """The request of kafka-python's class. Raises Malformed."""
    flexible = api.request.flexible_version_q(header.version)
    try:
        start = _after_tags(frame, header.size) if flexible else header.size
        schema = api.request._struct  # noqa: SLF001  # `decode` does not say where it ended
        decoder = schema.compiled_decode_from(
            header.version, compact=flexible, tagged=flexible, data_class=api.request
        )
        request, end = decoder(frame, start)
    except _BAD as error:
        what = f"{type(error).__name__}: {error}"
        raise Malformed(f"no {api.name} request of version {header.version}: {what}") from error
    if end > len(frame):  # bytes behind a message are ignored, as in Kafka: librdkafka sends some
        what = f"it ends at byte {end} of {len(frame)}"
        raise Malformed(f"no {api.name} request of version {header.version}: {what}")
    if null := _null_in(request, schema, header.version):
        raise Malformed(f"{api.name}: {null} is null")
    return request


def encode(response: Any, version: int, correlation_id: int) -> bytearray:
    """The frame of a response of kafka-python's class."""
    response.API_VERSION = version  # before there is a header
    response.with_header(correlation_id)
    frame: bytearray = response.encode(header=True, framed=True)
    return frame


def varint(value: int) -> bytes:
    """An unsigned varint of the protocol."""
    out = bytearray()
    while value > 0x7F:
        out.append(value & 0x7F | 0x80)
        value >>= 7
    out.append(value)
    return bytes(out)


def _varint_at(frame: memoryview, at: int) -> tuple[int, int]:
    value = shift = 0
    while True:
        byte = frame[at]
        at += 1
        value |= (byte & 0x7F) << shift
        if byte < 0x80:
            return value, at
        shift += 7
        if shift > 28:
            raise ValueError("a varint has more than five bytes")


def _after_tags(frame: memoryview, at: int) -> int:
    """Where the tagged fields of a header end."""
    count, at = _varint_at(frame, at)
    for _ in range(count):
        _, at = _varint_at(frame, at)
        size, at = _varint_at(frame, at)
        at += size
        if at > len(frame):
            raise ValueError("a tagged field goes on behind the frame")
    return at


def _null_in(message: Any, schema: Any, version: int) -> str | None:
    """The name of a field that is null and must not be; None without one."""
    for field in schema.untagged_fields(version):
        value = getattr(message, field.name)
        if value is None:
            if field.type_str != "uuid" and not field.nullable_for_version_q(version):
                return str(field.name)  # an id of zeros is decoded as None
        elif field.is_struct_array():
            for item in value:
                if (null := _null_in(item, field.array_of, version)) is not None:
                    return f"{field.name}.{null}"
        elif field.type_str == "[]string" and None in value:
            return f"an item of {field.name}"
    return None
