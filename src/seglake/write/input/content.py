"""The content of input files: fetched from storage, decompressed, taken out of archives."""

import os
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

from seglake.errors import InputError, StoreError
from seglake.store import Listed, Store, open_store
from seglake.write.input.archives import BLOCK_BYTES, begins_archive, is_archive, members
from seglake.write.input.codecs import HEAD_BYTES, Codec, Content, codec_of, decompressed
from seglake.write.input.encodings import UTF_8, Utf8Stream, is_single_byte, utf8_size
from seglake.write.input.files import FileVersion, SourceFile, locate
from seglake.write.input.streams import FIRST_BYTES, ByteStream, RawFile

Compression = Literal["auto", "none", "gzip", "bz2", "zstd"]


class InputStore:
    """Opens input files on local disks and in buckets; each bucket is opened once.

    `options` are storage options. With the `compression` "auto" the first bytes of a file determine
    its codec; with "none" files are read as they are. Text is in `encoding`, and is read as UTF-8.
    """

    def __init__(
        self, options: Mapping[str, str], compression: Compression = "auto", encoding: str = UTF_8
    ) -> None:
        self._options, self._compression, self.encoding = options, compression, encoding
        self._buckets: dict[str, Store] = {}

    def locate(self, path: str) -> tuple[Store, str]:
        """The store of a path, and its object key there."""
        root, key = locate(path)
        if "://" not in root:
            return open_store(root), key
        if root not in self._buckets:
            self._buckets[root] = open_store(root, self._options)
        return self._buckets[root], key

    def list(self, folder: str) -> Iterator[Listed]:
        """The objects below a folder, with keys relative to it. Raises InputError."""
        try:
            yield from open_store(folder, self._options).list()
        except StoreError as problem:
            text = f"{folder}: cannot be listed: {problem}; check path and rights"
            raise InputError(text) from None

    def has_objects(self, folder: str) -> bool:
        """Whether anything lies below a folder. Raises InputError."""
        try:
            return any(True for _ in open_store(folder, self._options).list())
        except StoreError as problem:
            raise unreadable(folder, problem) from None

    def stat(self, path: str) -> FileVersion:
        """The current version of a file. Raises StoreError."""
        store, key = self.locate(path)
        return FileVersion(*store.stat(key))

    def raw(self, file: SourceFile, start: int = 0, head: bytes = b"") -> RawFile:
        """The stored bytes of a file, from `start` on. Raises InputError, also while reading.

        `head` has the first ones if they were read before: no request asks for them again.
        """
        return RawFile(file, *self.locate(file.path), start, head)

    def contents(self, file: SourceFile) -> Iterator[tuple[str, Content]]:
        """The (path, stream) of a file, or of each member of an archive.

        A member's path is "<path of the archive>!<name of the member>". Each stream must be read to
        its end before the next is taken.

        Raises:
            InputError: the compression is not supported, or bytes are damaged; also while reading.
        """
        head = self._head(file)
        codec = self._codec(file, head)
        content = decompressed(self.raw(file, head=head), codec, file.path)
        if self._is_archive(file, codec, head):
            yield from members(file.path, content)
        else:
            yield file.path, content

    def texts(self, file: SourceFile) -> Iterator[tuple[str, ByteStream]]:
        """As `contents`, in UTF-8; what is not in the encoding is none (see `encodings`)."""
        for path, content in self.contents(file):
            yield path, self._in_utf8(content, path)

    def text_part(self, file: SourceFile, start: int, end: int) -> tuple[ByteStream, int]:
        """The text of a file from byte `start` on, and how many bytes of it stand before `end`.

        Both are in UTF-8; the file is one that can be cut.
        """
        raw, size = self.raw(file, start), end - start
        if self.encoding == UTF_8:
            return raw, size
        return self._in_utf8(self.raw(file, start), file.path), utf8_size(raw, size, self.encoding)

    def _in_utf8(self, stream: ByteStream, path: str) -> ByteStream:
        return stream if self.encoding == UTF_8 else Utf8Stream(stream, self.encoding, path)

    def can_be_cut(self, file: SourceFile) -> bool:
        """Whether parts of a text can be read on their own. Raises InputError."""
        return (self.encoding == UTF_8 or is_single_byte(self.encoding)) and self.is_plain(file)

    def is_plain(self, file: SourceFile) -> bool:
        """Whether a file is neither compressed nor an archive: one request. Raises InputError."""
        if self._compression != "auto":
            return self._compression == "none"
        head = self.raw(file).read(BLOCK_BYTES) or b""
        return codec_of(head[:HEAD_BYTES], file.path) is None and not begins_archive(head)

    def packing(self, file: SourceFile) -> str:
        """What a file is packed with: "", a codec, "tar", or "gzip tar". Raises InputError."""
        head = self._head(file)
        codec = self._codec(file, head)
        archive = "tar" if self._is_archive(file, codec, head) else None
        return " ".join(filter(None, [codec, archive]))

    def require_unchanged(self, file: SourceFile) -> None:
        """Raise InputError if the file is not the version that was listed."""
        try:
            current = self.stat(file.path)
        except StoreError as error:
            raise unreadable(file.path, error) from error
        if not file.version.is_same(current):
            raise InputError(
                f"{file.path} changed since this run listed it: run again when all writes to it "
                "have ended"
            )

    def _head(self, file: SourceFile) -> bytes:
        """The first bytes of a file, all of a small one in a bucket; none if nobody needs them."""
        if self._compression == "none":
            return b""
        raw = self.raw(file)
        return raw.read(FIRST_BYTES if raw.remote else BLOCK_BYTES) or b""

    def _codec(self, file: SourceFile, head: bytes) -> Codec | None:
        if self._compression == "none":
            return None
        if self._compression != "auto":
            return self._compression
        return codec_of(head[:HEAD_BYTES], file.path)

    def _is_archive(self, file: SourceFile, codec: Codec | None, head: bytes) -> bool:
        if codec is None:
            return begins_archive(head)
        return is_archive(decompressed(self.raw(file, head=head), codec, file.path))


def unreadable(path: str, error: StoreError) -> InputError:
    """The error for an input path that storage cannot read."""
    if is_dead_link(path):
        return leads_nowhere(path)
    return InputError(f"{path}: cannot be read: {error}; check path and rights")


def is_dead_link(path: str) -> bool:
    """Whether this is a link of a local disk to what is not there."""
    if "://" in path:
        return False
    # Path's methods raise where rights are missing.
    return os.path.islink(path) and not os.path.exists(path)  # noqa: PTH110, PTH114


def leads_nowhere(link: str) -> InputError:
    """The error for a dead link among the input."""
    return InputError(
        f"{link}: is a link to {Path(link).readlink()}, and nothing is there: correct the link or "
        "remove it, or leave it out by input.paths or input.exclude"
    )
