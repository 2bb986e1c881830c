"""A store of local files, on a disk or a mounted share.

Reads go through a bounded set of open descriptors and `pread`: a warm 4 KiB read takes about a
microsecond, needs no lock, and survives a fork. Mapped memory is no faster once the bytes are used,
and would kill the process if a file were truncated under it; a `pread` comes back short, which is
an error like any other.

A write goes to a temporary file in the same folder (`<key>.<32 hex>.tmp`, left behind only by a
crash), which is renamed, or linked where nothing may be replaced. If it is to be durable, the file
is fsynced before and the folder after; and so is, once, every folder between it and the root, for
whoever made one may have died before its name was on the disk. So what the catalog names is there
when the power fails.
"""

from __future__ import annotations

import contextlib
import os
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING

from seglake.errors import StoreError
from seglake.store.interface import (
    Listed,
    Stat,
    Store,
    Writer,
    check_key,
    checked,
    store_errors,
    view,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from seglake.store.interface import Data

_OPEN_FILES = 128  # descriptors that one store keeps for reading


def local_store(root: str) -> Store:
    """The files below the folder `root`, which need not exist yet."""
    return _LocalStore(str(Path(root).absolute()))


class _OpenFile:
    """A descriptor that lives as long as anyone holds it: eviction never closes one in use."""

    __slots__ = ("fd",)

    def __init__(self, path: Path) -> None:
        self.fd = -1
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class _LocalStore:
    """Files below a folder. One that another process replaced may be read as it was before."""

    remote = False

    def __init__(self, root: str) -> None:
        self.uri, self.public_options = root, dict[str, str]()
        self._open = lru_cache(_OPEN_FILES)(partial(_open_below, self.uri))
        self._lasting = set[Path]()  # folders below the root whose names are on the disk

    def __repr__(self) -> str:
        return f"open_store({self.uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _LocalStore, (self.uri,)

    def size(self, key: str) -> int:
        return self.stat(key).size

    def stat(self, key: str) -> Stat:
        with store_errors(self.uri, key):
            found = Path(self.uri, check_key(self.uri, key)).stat()
            if not stat.S_ISREG(found.st_mode):
                raise FileNotFoundError
        etag = f"{found.st_mtime_ns:x}-{found.st_size:x}"
        return Stat(found.st_size, found.st_mtime_ns // 1_000_000, etag)

    def read(self, key: str, start: int, end: int) -> Buffer:
        try:
            file = self._open(key)
            data = os.pread(file.fd, end - start, start)
            more = data
            while (
                more and len(data) < end - start
            ):  # a call gives 2 GiB at most, on some mounts less
                more = os.pread(file.fd, end - start - len(data), start + len(data))
                data += more
        except (OSError, ValueError, OverflowError) as error:
            with store_errors(self.uri, key):
                raise error from None
        return checked(self.uri, key, data, start, end)

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        return [self.read(key, start, end) for start, end in zip(starts, ends, strict=True)]

    def read_all(self, key: str) -> Buffer:
        return self.read(key, 0, self.size(key))

    def put(self, key: str, data: Data) -> None:
        with self.writer(key) as stream:
            stream.write(data)

    def put_if_absent(self, key: str, data: Data) -> bool:
        try:
            with _LocalWriter(self, key, os.link) as stream:
                stream.write(data)
        except StoreError as error:
            if isinstance(error.__cause__, FileExistsError):
                return False
            raise
        return True

    def writer(self, key: str, *, durable: bool = True) -> AbstractContextManager[Writer]:
        return _LocalWriter(self, key, os.replace, durable=durable)

    def sync(self, key: str) -> None:
        """Syncs the file and all folders above it: who made it may have made any of them."""
        path = Path(self.uri, check_key(self.uri, key))
        with store_errors(self.uri, key):
            _sync(path)
            for folder in path.parents:
                with contextlib.suppress(PermissionError):  # nor could it be made in there
                    _sync(folder)

    def make_folder(self, folder: Path) -> None:
        """Makes a folder, and those above it, whose names are on the disk from then on."""
        there = folder.is_dir()
        inside = Path(self.uri) in folder.parents
        if there and (folder in self._lasting or not inside):
            return
        self.make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)
        self._lasting.add(folder)

    def list(self, prefix: str = "") -> Iterator[Listed]:
        folder = Path(self.uri, check_key(self.uri, prefix.rstrip("/")) if prefix else "")
        with store_errors(self.uri, prefix):
            for path, found in _walk(folder):
                key = Path(path).relative_to(self.uri).as_posix()
                yield Listed(key, found.st_size, found.st_mtime_ns // 1_000_000)

    def delete(self, keys: Iterable[str]) -> None:
        """Removes the files, and each one's folder when that was its last."""
        for key in keys:
            path = Path(self.uri, check_key(self.uri, key))
            with store_errors(self.uri, key):
                path.unlink(missing_ok=True)
            with contextlib.suppress(OSError):
                path.parent.rmdir()
        self.forget()

    def forget(self) -> None:
        """Lets go of every open file."""
        self._open.cache_clear()


def _open_below(root: str, key: str) -> _OpenFile:
    return _OpenFile(Path(root, check_key(root, key)))


def _walk(folder: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    """Every file below `folder` in the order of names; what vanishes meanwhile is left out.

    A link to nothing is listed as itself, so that whoever wants to read it gets an error.
    """
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as found:
        for entry in sorted(found, key=lambda entry: entry.name):
            if entry.is_dir():
                yield from _walk(entry.path)
                continue
            with contextlib.suppress(FileNotFoundError):
                to_nothing = entry.is_symlink() and not Path(entry.path).exists()
                yield entry.path, entry.stat(follow_symlinks=not to_nothing)


class _LocalWriter:
    """A temporary file beside its target; `publish` (a rename or a link) gives it the name."""

    def __init__(
        self,
        store: _LocalStore,
        key: str,
        publish: Callable[[Path, Path], None],
        *,
        durable: bool = True,
    ) -> None:
        self._store, self._key, self._publish, self._durable = store, key, publish, durable
        self._path = Path(store.uri, check_key(store.uri, key))
        self._temporary = self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex}.tmp")
        self._failed = False

    def __enter__(self) -> _LocalWriter:
        with store_errors(self._store.uri, self._key):
            if self._durable:
                self._store.make_folder(self._path.parent)
            else:
                self._path.parent.mkdir(parents=True, exist_ok=True)
            self._file = self._temporary.open("xb", buffering=1 << 20)  # with the umask's rights
        return self

    def write(self, data: Data) -> None:
        with store_errors(self._store.uri, self._key):
            try:
                self._file.write(view(data))
            except BaseException:
                self._failed = True
                raise

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            with contextlib.suppress(OSError):
                self._file.close()
            with contextlib.suppress(OSError):  # what is left behind, vacuum removes
                self._temporary.unlink(missing_ok=True)

    def _finish(self) -> None:
        with store_errors(self._store.uri, self._key):
            if self._failed:
                raise OSError("not published, since a write to it failed")
            self._file.flush()
            if self._durable:
                os.fsync(self._file.fileno())
            self._publish(self._temporary, self._path)
            if self._durable:
                _sync(self._path.parent)
        self._store.forget()


def _sync(path: Path) -> None:
    """Wait until a file's bytes, or the names in a folder, are on the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
