"""Tar archives among input files: each regular file in an archive is a stream of its own."""

import sys
import tarfile
from collections.abc import Iterator
from typing import Any

from seglake.errors import InputError
from seglake.write.input.codecs import Content

_BLOCK_BYTES = 512
_MAGIC, _MAGIC_AT = b"ustar", 257
_HEADER_BYTES = 2 << 20  # the longest header of a member


def is_archive(content: Content) -> bool:
    """Whether the content of a file, read from its beginning, is a tar archive."""
    head = b""
    while len(head) < _BLOCK_BYTES and (more := content.read(_BLOCK_BYTES - len(head))):
        head += more
    return head[_MAGIC_AT:].startswith(_MAGIC)


def members(path: str, content: Content) -> Iterator[tuple[str, Content]]:
    """The regular files of a tar archive as ("<path>!<name of the member>", stream)."""
    bounded = _Bounded(content)
    try:
        # the stub asks for all of IO[bytes]; a stream is only read
        with tarfile.open(fileobj=bounded, mode="r|") as archive:  # type: ignore[call-overload]
            while (member := archive.next()) is not None:
                archive.members.clear()  # or the list of members would grow
                data = archive.extractfile(member) if member.isreg() else None
                if data is not None:
                    bounded.left = sys.maxsize
                    name = member.name.encode(errors="surrogateescape").decode(errors="replace")
                    yield f"{path}!{name}", Content(data, path, "tar", content.raw)
                bounded.left = _HEADER_BYTES
    except (tarfile.TarError, ValueError) as problem:
        raise InputError(f"{path}: tar data is damaged: {problem}; write it again") from problem


class _Bounded:
    """An archive that gives at most `left` more bytes while the next member is searched.

    tarfile reads a member's name and list of holes into memory, as long as the header says.
    """

    def __init__(self, stream: Any) -> None:
        self._stream, self.left = stream, _HEADER_BYTES

    def read(self, size: int) -> bytes:
        data: bytes = self._stream.read(size)
        self.left -= len(data)
        if self.left < 0:
            raise tarfile.ReadError(f"a member's header has more than {_HEADER_BYTES} bytes")
        return data
