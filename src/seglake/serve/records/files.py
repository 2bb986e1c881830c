"""Bytes of an open log file of a local disk, which the kernel sends itself."""

from __future__ import annotations

from typing import NamedTuple

from seglake.store import OpenFile


class FileSpan(NamedTuple):
    """Bytes [start, start + size) of an open file, and the key of its object."""

    key: str
    file: OpenFile
    start: int
    size: int
