"""Requests of any API and version as somebody would write them who wants to hurt a server.

They are written from kafka-python's schemas, without its codecs.
"""

import struct
from collections.abc import Iterator
from typing import Any, NamedTuple

_FIXED = {"int8": 1, "int16": 2, "int32": 4, "int64": 8, "bool": 1, "uuid": 16}
Path = tuple[str, ...]


class Shape(NamedTuple):
    """How a request is large: `items` items in the array at `path`, `tags` in each message."""

    path: Path = ()
    items: int = 1
    top_tags: int = 0
    item_tags: int = 0
    distinct: bool = False


def paths(schema: Any, version: int, above: Path = ()) -> Iterator[Path]:
    """Every array of a message."""
    for field in schema.untagged_fields(version):
        here = (*above, field.name)
        if field.is_array():
            yield here
        if field.is_struct_array():
            yield from paths(field.array_of, version, here)


def frame(kind: Any, version: int, shape: Shape) -> bytes:
    """A well-formed request of kafka-python's class."""
    flexible = kind.flexible_version_q(version)
    head = struct.pack(">hhih", kind.API_KEY, version, 7, -1) + (b"\0" if flexible else b"")
    return head + _Writer(version, flexible, shape).message(kind._struct, (), shape.top_tags)


class _Writer:
    def __init__(self, version: int, flexible: bool, shape: Shape) -> None:
        self._version, self._flexible, self._shape = version, flexible, shape
        self._number = 0

    def message(self, schema: Any, path: Path, tags: int) -> bytes:
        fields = schema.untagged_fields(self._version)
        body = b"".join(self._field(field, (*path, field.name)) for field in fields)
        return body + (varint(tags) + b"\x63\x01x" * tags if self._flexible else b"")

    def _field(self, field: Any, path: Path) -> bytes:
        if field.is_array():
            count = self._shape.items if path == self._shape.path else 1
            if path[: len(self._shape.path)] != self._shape.path[: len(path)]:
                count = 0  # only what leads to the large array is there
            items = (self._item(field, path) for _ in range(count))
            return self._size(count, ">i") + b"".join(items)
        return self._value(field.type_str, field.name)

    def _item(self, field: Any, path: Path) -> bytes:
        self._number += 1
        if field.is_struct_array():
            return self.message(field.array_of, path, self._shape.item_tags)
        return self._value(field.array_of.type_str, path[-1])

    def _value(self, kind: str, name: str) -> bytes:
        if kind in _FIXED:
            return (1 if "timeout" in name else 0).to_bytes(_FIXED[kind], "big")
        text = b"events%d" % self._number if self._shape.distinct else b"events"
        return self._size(len(text), ">h" if kind == "string" else ">i") + text

    def _size(self, size: int, form: str) -> bytes:
        return varint(size + 1) if self._flexible else struct.pack(form, size)


def varint(value: int) -> bytes:
    out = bytearray()
    while value > 127:
        out.append(value & 127 | 128)
        value >>= 7
    return bytes([*out, value])
