"""Fetch and decompress input files, read the members of archives, and convert text to UTF-8."""

from __future__ import annotations

import contextlib
import os
import stat
import sys
import tarfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

from seglake.config.input import Codec, Compression
from seglake.errors import InputError, MissingObject, StoreError
from seglake.store import Listed, RefusedKey, Store, open_store
from seglake.write.input.binaries import describe_binary
from seglake.write.input.codecs import HEAD_BYTES, Content, decompress_stream, detect_codec
from seglake.write.input.encodings import UTF_8, Utf8Stream, is_single_byte, utf8_size
from seglake.write.input.files import FileVersion, SourceFile, locate
from seglake.write.input.streams import FIRST_BYTES, ByteStream, RawFile

_SPECIAL = {stat.S_IFIFO: "pipe", stat.S_IFSOCK: "socket", stat.S_IFCHR: "device"}


class InputStore:
    """A reader of input files on local disks and in buckets. Each bucket is opened once.

    `options` are storage options. If `compression` is "auto", the first bytes of a file determine
    its codec. If it is "none", files are neither decompressed nor treated as archives. Text in
    files has the `encoding`, and is converted to UTF-8.
    """

    def __init__(
        self, options: Mapping[str, str], compression: Compression = "auto", encoding: str = UTF_8
    ) -> None:
        self._options, self._compression, self.encoding = options, compression, encoding
        self._buckets: dict[str, Store] = {}

    def locate(self, path: str) -> tuple[Store, str]:
        """Return the store that contains a path, and the object key of the path in it."""
        root, key = locate(path)
        if "://" not in root:
            return open_store(root), key
        if root not in self._buckets:
            self._buckets[root] = open_store(root, self._options)
        return self._buckets[root], key

    def list(self, folder: str) -> Iterator[Listed]:
        """Yield the objects below a folder, with keys relative to it. Raises InputError."""
        # A URI of a folder would be decoded, unlike the keys of the files below the folder.
        store, prefix = self.locate(folder) if "://" in folder else (open_store(folder), "")
        below = len(prefix := prefix.rstrip("/")) and len(prefix) + 1
        try:
            for each in store.list(prefix):
                yield each._replace(key=each.key[below:])
        except StoreError as problem:
            raise InputError(f"{folder} cannot be listed: {problem}{_remedy(problem)}") from None

    def stat(self, path: str) -> FileVersion:
        """Return the current version of a file. Raises StoreError, or InputError for a pipe."""
        store, key = self.locate(path)
        try:
            return FileVersion(*store.stat(key))
        except MissingObject:
            if not store.remote and (kind := _special_kind(f"{store.uri}/{key}")):
                raise InputError(f"{path} is a {kind}. Write its data to a file first") from None
            raise

    def find(self, path: str) -> FileVersion | None:
        """Return the current version of a file, or None if it is missing. Raises InputError."""
        try:
            return self.stat(path)
        except MissingObject:
            return None
        except StoreError as problem:
            raise unreadable_error(path, problem) from problem

    def raw(self, file: SourceFile, start: int = 0, head: bytes = b"") -> RawFile:
        """Open the stored bytes of a file, from byte `start` on, as a stream.

        `head` has the first bytes of the file if they were already read, so that they are not
        requested again. This call, or a later read of the stream, may raise InputError.
        """
        return RawFile(file, *self.locate(file.path), start, head)

    def contents(self, file: SourceFile) -> Iterator[tuple[str, Content]]:
        """Yield (path, decompressed stream) of a file, or of each member of an archive.

        A member's path is "<path of the archive>!<name of the member>". The caller must read a
        stream to its end before it takes the next one.

        Raises:
            InputError: The compression is not supported, or bytes are damaged. Reads of the streams
                may raise it, too.
        """
        head, codec = self._head(file)
        content = decompress_stream(self.raw(file, head=head), codec, file.path)
        if self._is_archive(file, codec, head):
            yield from read_members(file.path, content)
        else:
            yield file.path, content

    def texts(self, file: SourceFile) -> Iterator[tuple[str, ByteStream]]:
        """Yield (path, stream) like `contents`, but with the text of the streams in UTF-8.

        See `encodings` for invalid bytes.
        """
        for path, content in self.contents(file):
            yield path, self._in_utf8(content, path)

    def text_part(self, file: SourceFile, start: int, end: int) -> tuple[ByteStream, int]:
        """Return (stream of a file's text in UTF-8, size of the file's bytes [start, end) in it).

        The stream begins at byte `start` of the file, and continues after `end`. The size is in
        bytes of UTF-8. `can_be_cut` must be true for the file.
        """
        raw, size = self.raw(file, start), end - start
        if self.encoding == UTF_8:
            return raw, size
        return self._in_utf8(self.raw(file, start), file.path), utf8_size(raw, size, self.encoding)

    def _in_utf8(self, stream: ByteStream, path: str) -> ByteStream:
        return stream if self.encoding == UTF_8 else Utf8Stream(stream, self.encoding, path)

    def can_be_cut(self, file: SourceFile) -> bool:
        """Return whether a text file can be read in independent parts. Raises InputError.

        Such a file is neither compressed nor an archive. The check takes at most one request.
        """
        if self.encoding != UTF_8 and not is_single_byte(self.encoding):
            return False
        if self._compression != "auto":
            return self._compression == "none"
        head = self.raw(file).read(BLOCK_BYTES) or b""
        return detect_codec(head[:HEAD_BYTES], file.path) is None and not begins_archive(head)

    def packing(self, file: SourceFile) -> str:
        """Return how a file is packed: "", a codec, "tar", or both, such as "gzip tar".

        Raises InputError.
        """
        head, codec = self._head(file)
        archive = "tar" if self._is_archive(file, codec, head) else None
        return " ".join(filter(None, [codec, archive]))

    def require_unchanged(self, file: SourceFile) -> None:
        """Raise InputError if the file has changed since it was listed, or cannot be queried."""
        try:
            current = self.stat(file.path)
        except StoreError as error:
            raise unreadable_error(file.path, error) from error
        if not file.version.is_same(current):
            raise InputError(
                f"{file.path} changed while this run read it. Run again when all writes to it "
                "have ended"
            )

    def _head(self, file: SourceFile) -> tuple[bytes, Codec | None]:
        """Return the first bytes of a file, and its codec. Both are empty for compression "none".

        More bytes are read from a bucket than from a disk, so that a small file needs one request.
        """
        if self._compression == "none":
            return b"", None
        raw = self.raw(file)
        head = raw.read(FIRST_BYTES if raw.remote else BLOCK_BYTES) or b""
        if self._compression != "auto":
            return head, self._compression
        return head, detect_codec(head[:HEAD_BYTES], file.path)

    def _is_archive(self, file: SourceFile, codec: Codec | None, head: bytes) -> bool:
        if codec is not None:
            content, head = decompress_stream(self.raw(file, head=head), codec, file.path), b""
            while len(head) < BLOCK_BYTES and (more := content.read(BLOCK_BYTES - len(head))):
                head += more
        return begins_archive(head)


def require_mark(file: SourceFile, store: InputStore, mark: bytes, name: str) -> None:
    """Raise InputError unless a file begins with `mark`, like all files of the format `name`."""
    head = store.raw(file).read(HEAD_BYTES) or b""
    if not head.startswith(mark):
        remark = describe_binary(head) or f"the file is not {name}. Set input.format to its format"
        raise InputError(f"{file.path}: {remark}")


def unreadable_error(path: str, error: StoreError) -> InputError:
    """Return the error for an input path that storage cannot read."""
    if is_dead_link(path):
        return dead_link_error(path)
    return InputError(f"{path} cannot be read: {error}{_remedy(error)}")


def _remedy(error: StoreError) -> str:
    if isinstance(error, RefusedKey):
        return ", or name other folders and files in input.paths"
    return ". Check the path and its permissions"


def _special_kind(path: str) -> str | None:
    """Return "pipe", "socket" or "device" if a local path is one of these, else None."""
    with contextlib.suppress(OSError):
        return _SPECIAL.get(stat.S_IFMT(Path(path).stat().st_mode))
    return None


def is_dead_link(path: str) -> bool:
    """Return whether a path is a local link whose target does not exist."""
    if "://" in path:
        return False
    # Methods of Path raise an error if rights are missing.
    return os.path.islink(path) and not os.path.exists(path)  # noqa: PTH110, PTH114


def dead_link_error(link: str) -> InputError:
    """Return the error for an input path that is a dead link."""
    return InputError(
        f"{link} is a link to {Path(link).readlink()}, which does not exist. Correct or remove "
        "the link, or leave it out with input.paths or input.exclude"
    )


# ---------------- archives
# Read tar archives among the input files: each regular file in an archive is a separate stream.
#
# An archive must be complete. It ends with one or two blocks of 512 zero bytes, and any number of
# zeros may follow. After two such blocks other bytes may follow up to the end of a record of 10,240
# bytes, because some tools do not clear their buffer. Anything else is damage: an archive without
# its end, a header whose checksum is wrong, a member after the end. The stream is read to its last
# byte, so that a codec that compresses the archive checks its checksum.

BLOCK_BYTES = 512
_RECORD_BYTES = 20 * BLOCK_BYTES
_MAGIC, _MAGIC_AT = b"ustar", 257
_HEADER_BYTES = 2 << 20  # the longest header of a member
_SKIP_BYTES = 1 << 20  # skipped in one step


def begins_archive(head: bytes) -> bool:
    """Return whether the first BLOCK_BYTES of a stream are the beginning of a tar archive."""
    return head[_MAGIC_AT:].startswith(_MAGIC)


def read_members(path: str, content: Content) -> Iterator[tuple[str, Content]]:
    """Yield the regular files of a tar archive as ("<path>!<name of the member>", stream).

    Raises InputError if the archive is damaged or not complete.
    """
    forward: Any = _Forward(content)  # Any, because the stub requires a writable file
    try:
        archive: Any = tarfile.TarFile(fileobj=forward, tarinfo=_TarMember)
        while (member := archive.next()) is not None:
            archive.members.clear()  # otherwise the list of members would grow
            if member.isreg():
                forward.left = sys.maxsize
                name = member.name.encode(errors="surrogateescape").decode(errors="replace")
                data = Content(archive.extractfile(member), path, "tar", content.raw)
                yield f"{path}!{name}", data
            forward.left = _HEADER_BYTES
        _require_end(forward)
    except (tarfile.TarError, ValueError) as problem:
        raise InputError(
            f"{path} has damaged tar data before byte {forward.tell():,} of the archive "
            f"({problem}). Write it again"
        ) from problem


class _TarMember(tarfile.TarInfo):
    """The header of an archive's member. Unlike in TarInfo, an invalid header is an error.

    TarFile would treat it as the end of the archive.
    """

    @classmethod
    def frombuf(cls, buf: bytes | bytearray, encoding: str, errors: str) -> _TarMember:
        """Parse a header block. Raise HeaderError at the archive's end, ReadError for damage."""
        try:
            return super().frombuf(buf, encoding, errors)
        except tarfile.HeaderError as problem:
            if len(buf) == BLOCK_BYTES and not any(buf):
                raise
            what = problem if buf else "it ends without a block of zeros, so it was cut off"
            raise tarfile.ReadError(str(what)) from problem


def _require_end(archive: _Forward) -> None:
    """Read to the end of the stream, after the first block of zeros.

    Raises tarfile.ReadError if another member or other data follows.
    """
    archive.left = sys.maxsize
    second = archive.tell()
    record_end = (second + BLOCK_BYTES + _RECORD_BYTES - 1) // _RECORD_BYTES * _RECORD_BYTES
    while block := archive.read(BLOCK_BYTES):
        at = archive.tell() - len(block)
        if block.strip(b"\0") and (not second < at < record_end or _is_header(block)):
            raise tarfile.ReadError(
                f"there is data at byte {at:,}, after the block of zeros that ends an archive (tar "
                "--concatenate joins archives)"
            )


def _is_header(block: bytes) -> bool:
    try:
        tarfile.TarInfo.frombuf(block, "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


class _Forward:
    """A file object over an archive, for TarFile. It can only be read forward.

    The next reads may return at most `left` bytes together. This limits the memory for headers,
    because TarFile reads a member's name and its list of holes into memory, in the length that the
    header contains.
    """

    def __init__(self, content: Content) -> None:
        self._content, self._position, self.left = content, 0, _HEADER_BYTES

    def tell(self) -> int:
        """Return the number of bytes that were read or skipped."""
        return self._position

    def seek(self, position: int) -> None:
        """Skip to a byte position. A position before the current one raises tarfile.ReadError."""
        if position < self._position:
            raise tarfile.ReadError(f"a header points back to byte {position}")
        while self._position < position and self._skip(min(position - self._position, _SKIP_BYTES)):
            pass

    def _skip(self, size: int) -> int:
        skipped = len(self._content.read(size))
        self._position += skipped
        return skipped

    def read(self, size: int) -> bytes:
        """Return the next `size` bytes, or fewer at the end of the archive."""
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
