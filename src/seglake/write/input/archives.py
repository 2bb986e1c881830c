"""Tar archives among input files: each regular file in an archive is a stream of its own.

An archive must be whole. It ends with a block of 512 zero bytes; a second one may be missing. More
zeros may follow, as many as there are. After two such blocks other bytes may follow up to the end
of a record of 10,240 bytes, since some tools do not clear their buffer. Anything else is damage:
an archive without its end, a header whose checksum is wrong, a member behind the end. The stream is
read to its last byte, so that a codec around the archive checks its checksum.
"""

from __future__ import annotations

import sys
import tarfile
from collections.abc import Iterator
from typing import Any

from seglake.errors import InputError
from seglake.write.input.codecs import Content

BLOCK_BYTES = 512
_RECORD_BYTES = 20 * BLOCK_BYTES
_MAGIC, _MAGIC_AT = b"ustar", 257
_HEADER_BYTES = 2 << 20  # the longest header of a member
_SKIP_BYTES = 1 << 20  # skipped at once


def is_archive(content: Content) -> bool:
    """Whether the content of a file, read from its beginning, is a tar archive."""
    head = b""
    while len(head) < BLOCK_BYTES and (more := content.read(BLOCK_BYTES - len(head))):
        head += more
    return begins_archive(head)


def begins_archive(head: bytes) -> bool:
    """Whether the first BLOCK_BYTES of a content are those of a tar archive."""
    return head[_MAGIC_AT:].startswith(_MAGIC)


def members(path: str, content: Content) -> Iterator[tuple[str, Content]]:
    """The regular files of a tar archive as ("<path>!<name of the member>", stream)."""
    forward: Any = _Forward(content)  # the stub asks for a file that can be written
    try:
        archive: Any = tarfile.TarFile(fileobj=forward, tarinfo=_TarMember)
        while (member := archive.next()) is not None:
            archive.members.clear()  # or the list of members would grow
            if member.isreg():
                forward.left = sys.maxsize
                name = member.name.encode(errors="surrogateescape").decode(errors="replace")
                yield (
                    f"{path}!{name}",
                    Content(archive.extractfile(member), path, "tar", content.raw),
                )
            forward.left = _HEADER_BYTES
        _require_end(forward)
    except (tarfile.TarError, ValueError) as problem:
        raise InputError(
            f"{path}: tar data is damaged: {problem}, noticed at byte {forward.tell()} of the "
            "archive; write it again"
        ) from problem


class _TarMember(tarfile.TarInfo):
    """A member's header. TarFile takes any block that is no header for the end of the archive."""

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _TarMember:
        """The header in a block. Raises tarfile.HeaderError for the end, ReadError for damage."""
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as problem:
            if len(buf) == BLOCK_BYTES and not any(buf):
                raise
            what = problem if buf else "it ends without a block of zeros, so it was cut off"
            raise tarfile.ReadError(str(what)) from problem


def _require_end(archive: _Forward) -> None:
    """Read what follows the first block of zeros to the last byte. Raises tarfile.ReadError."""
    archive.left = sys.maxsize
    second = archive.tell()
    record_end = (second + BLOCK_BYTES + _RECORD_BYTES - 1) // _RECORD_BYTES * _RECORD_BYTES
    while block := archive.read(BLOCK_BYTES):
        at = archive.tell() - len(block)
        if block.strip(b"\0") and (not second < at < record_end or _is_header(block)):
            raise tarfile.ReadError(
                f"more data at byte {at}, behind a block of zeros, which ends an archive "
                "(tar --concatenate joins archives)"
            )


def _is_header(block: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


class _Forward:
    """An archive as the file that TarFile reads, from the beginning to the end.

    Before the next member at most `left` bytes are read: TarFile reads a member's name and list of
    holes into memory, as long as the header says.
    """

    def __init__(self, content: Content) -> None:
        self._content, self._position, self.left = content, 0, _HEADER_BYTES

    def tell(self) -> int:
        """The count of bytes that were read or skipped."""
        return self._position

    def seek(self, position: int) -> None:
        """Skip to a position. Raises tarfile.ReadError for an earlier one."""
        if position < self._position:
            raise tarfile.ReadError(f"a header points back to byte {position}")
        while self._position < position and self._skip(min(position - self._position, _SKIP_BYTES)):
            pass

    def _skip(self, size: int) -> int:
        skipped = len(self._content.read(size))
        self._position += skipped
        return skipped

    def read(self, size: int) -> bytes:
        """The next `size` bytes, fewer at the end."""
        self.left -= size
        if self.left < 0 or size < 0:
            raise tarfile.ReadError(f"a member's header has more than {_HEADER_BYTES} bytes")
        data = self._content.read(size)
        while len(data) < size and (more := self._content.read(size - len(data))):
            data += more
        self._position += len(data)
        return data

    def seekable(self) -> bool:
        """Return False; see io."""
        return False
