"""Read and write local files, on a disk or a mounted share.

Reads use `pread` on a bounded set of open descriptors. A warm 4 KiB read takes about a microsecond,
needs no lock and survives a fork. Mapped memory is no faster once the bytes are used. If another
process truncates the file, mapped memory kills the process, but a short `pread` is only an error.

A write fills a temporary file in the same folder (`<key>.<32 hex>.tmp`), which is only kept after a
crash. The file is then renamed, or linked if it must not replace another file. A durable write
syncs the file before this step, and its folder after it. It also syncs every folder up to the root,
once, because the process that made a folder may have died before the folder's name was on the disk.
So a power loss loses no file that the catalog names. While a large file is being written, Linux
starts to write out the first bytes, so that the sync waits only for the last ones.
"""

from __future__ import annotations

import contextlib
import ctypes
import os
import resource
import stat
import uuid
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import AbstractContextManager
from functools import cache, lru_cache, partial
from pathlib import Path
from typing import TYPE_CHECKING, Any

from seglake.errors import StoreError
from seglake.store.interface import (
    Listed,
    Reader,
    Stat,
    Store,
    Writer,
    check_key,
    check_length,
    store_errors,
    view,
)

if TYPE_CHECKING:
    from typing_extensions import Buffer

    from seglake.store.interface import Data

_LEAST_OPEN_FILES, _MOST_OPEN_FILES = 64, 256
_BUFFER_BYTES = 2**16  # buffer of small writes; larger writes bypass it without a copy
_MOST_SYNCED = 4096  # synced folders that a store remembers; each attempt has separate folders
_EARLY_BYTES = 4 * 2**20  # written data after which the disk starts to write it out
_SYNC_FILE_RANGE_WRITE = 2  # a flag of Linux: start to write, and do not wait


def local_store(root: str, storage_options: dict[str, str]) -> Store:
    """Return a store of the files below the folder `root`, which need not exist yet.

    `storage_options` are for delta-rs.
    """
    return _LocalStore(str(Path(root).absolute()), storage_options)


def local_file(store: Reader, key: str) -> OpenFile | None:
    """Return the open file of an object, or None if the store is not local.

    Raises what `Reader.read` raises.
    """
    return store.open_file(key) if isinstance(store, _LocalStore) else None


def close_unused_files(store: Reader) -> None:
    """Close the open files of a local store, except files that a read is using.

    A deleted file takes space on the disk until it is closed.
    """
    if isinstance(store, _LocalStore):
        store.forget()


def is_local(store: Reader) -> bool:
    """Return whether the objects are local files.

    If so, a file that another library writes may be incomplete after a power loss, because the
    library does not sync it.
    """
    return isinstance(store, _LocalStore)


class OpenFile:
    """A descriptor that stays open while it is in use, even after its eviction from the cache."""

    __slots__ = ("fd",)

    def __init__(self, path: str) -> None:
        self.fd = -1
        self.fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)

    def fileno(self) -> int:
        """Return the descriptor. `sendfile` calls this method."""
        return self.fd

    def __del__(self) -> None:
        if self.fd >= 0:
            os.close(self.fd)


class _LocalStore:
    """The files below a folder.

    If another process replaces a file, `read` may return old bytes. `read_all` always opens the
    file again, because the commits of a rebuilt Delta table have the names of old commits.
    """

    remote = False

    def __init__(self, root: str, storage_options: dict[str, str]) -> None:
        self.uri, self.storage_options = root, storage_options
        self.public_options = dict[str, str]()
        self._open = lru_cache(_open_files())(partial(_open_below, self.uri))
        self._synced = set[Path]()  # folders below the root whose names are on the disk

    def __repr__(self) -> str:
        return f"open_store({self.uri!r})"

    def __reduce__(self) -> tuple[object, ...]:
        return _LocalStore, (self.uri, self.public_options)

    def size(self, key: str) -> int:
        return self.stat(key).size

    def stat(self, key: str) -> Stat:
        with store_errors(self.uri, key):
            status = _of_file(_path(self.uri, key).stat())
        etag = f"{status.st_mtime_ns:x}-{status.st_size:x}"
        return Stat(status.st_size, status.st_mtime_ns // 1_000_000, etag)

    def read(self, key: str, start: int, end: int, *, opened: OpenFile | None = None) -> Buffer:
        try:
            file = opened or self._open(key)
            data = more = os.pread(file.fd, end - start, start)
            if len(data) == end - start:
                return data
            # One call reads at most 2 GiB.
            while more and len(data) < end - start:
                more = os.pread(file.fd, end - start - len(data), start + len(data))
                data += more
        except (OSError, ValueError, OverflowError) as error:
            with store_errors(self.uri, key):
                raise error from None
        check_length(self.uri, key, data, start, end)
        return data

    def open_file(self, key: str) -> OpenFile:
        try:
            return self._open(key)
        except (OSError, ValueError) as error:
            with store_errors(self.uri, key):
                raise error from None

    def read_ranges(self, key: str, starts: Sequence[int], ends: Sequence[int]) -> list[Buffer]:
        return [self.read(key, start, end) for start, end in zip(starts, ends, strict=True)]

    def read_all(self, key: str) -> Buffer:
        """Read the whole object. Its size is taken from the open file, not from the name."""
        with store_errors(self.uri, key):
            file = _open_below(self.uri, key)
            size = _of_file(os.fstat(file.fd)).st_size
        return self.read(key, 0, size, opened=file)

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
        """Sync the file or folder and all folders above it, any of which may be new."""
        path = _path(self.uri, key)
        with store_errors(self.uri, key):
            _sync(path)
            for folder in path.parents:
                # Without the right to read a folder, Seglake cannot have made anything in it.
                with contextlib.suppress(PermissionError):
                    _sync(folder)

    def make_folder(self, folder: Path) -> None:
        """Create a folder and its parents, and sync their names to the disk."""
        inside = Path(self.uri) in folder.parents
        if folder.is_dir() and (folder in self._synced or not inside):
            return
        self.make_folder(folder.parent)
        folder.mkdir(exist_ok=True)
        _sync(folder.parent)
        if len(self._synced) >= _MOST_SYNCED:
            self._synced.clear()
        self._synced.add(folder)

    def list(self, prefix: str = "", after: str = "") -> Iterator[Listed]:
        folder = _path(self.uri, prefix.rstrip("/")) if prefix else Path(self.uri)
        with store_errors(self.uri, prefix):
            for path, status in _walk(folder):
                key = Path(path).relative_to(self.uri).as_posix()
                if key > after:
                    yield Listed(key, status.st_size, status.st_mtime_ns // 1_000_000)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete the files, and each folder that becomes empty.

        Each folder is synced once, at the end. A power loss after that restores no file. A power
        loss before that may restore any of the files.
        """
        changed = set[Path]()
        for key in keys:
            path = _path(self.uri, key)
            folder = path.parent
            with store_errors(self.uri, key):
                path.unlink(missing_ok=True)
            # If the folder is created again, its name must be synced again.
            self._synced.discard(folder)
            with contextlib.suppress(OSError):  # the folder is not empty
                folder.rmdir()
                folder = folder.parent
            changed.add(folder)
        for folder in sorted(changed):
            with store_errors(self.uri, ""), contextlib.suppress(FileNotFoundError):
                _sync(folder)
        self.forget()

    def forget(self) -> None:
        """Close every open file, except files that a read is using."""
        self._open.cache_clear()


def _open_files() -> int:
    """Return the limit of open files for one store, from the limit of the process."""
    allowed, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    return min(max(allowed // 4, _LEAST_OPEN_FILES), _MOST_OPEN_FILES)


def _path(root: str, key: str) -> Path:
    check_key(root, key)
    return Path(root, key)


def _of_file(status: os.stat_result) -> os.stat_result:
    """Return the status of a regular file. Raises FileNotFoundError for anything else."""
    if not stat.S_ISREG(status.st_mode):
        raise FileNotFoundError
    return status


def _open_below(root: str, key: str) -> OpenFile:
    check_key(root, key)
    return OpenFile(f"{root}/{key}")


def _walk(folder: str | Path) -> Iterator[tuple[str, os.stat_result]]:
    """Yield every file below `folder`, sorted by name. Skip files that vanish."""
    with contextlib.suppress(FileNotFoundError), os.scandir(folder) as entries:
        for entry in sorted(entries, key=lambda entry: entry.name):
            if entry.is_dir():
                yield from _walk(entry.path)
                continue
            # List a symbolic link to a missing file too, so that a read of it is an error.
            with contextlib.suppress(FileNotFoundError):
                dangling = entry.is_symlink() and not Path(entry.path).exists()
                yield entry.path, entry.stat(follow_symlinks=not dangling)


class _LocalWriter:
    """A stream into a temporary file. `publish` (a rename or a link) gives it its final name."""

    def __init__(
        self,
        store: _LocalStore,
        key: str,
        publish: Callable[[Path, Path], None],
        *,
        durable: bool = True,
    ) -> None:
        self._store, self._key, self._publish, self._durable = store, key, publish, durable
        self._path = _path(store.uri, key)
        self._temporary = self._path.with_name(f"{self._path.name}.{uuid.uuid4().hex}.tmp")
        self._failed = False
        self._written = self._begun = 0  # bytes

    def __enter__(self) -> _LocalWriter:
        with store_errors(self._store.uri, self._key):
            try:
                self._open()
            except FileNotFoundError:
                # The folder cannot be made, as below /proc, or another process just removed it.
                what = "cannot be written: its folder cannot be created, or was just deleted"
                raise OSError(f"{what}. Name another folder, or try again") from None
        return self

    def _open(self) -> None:
        if self._durable:
            self._store.make_folder(self._path.parent)
        else:
            self._path.parent.mkdir(parents=True, exist_ok=True)
        # `open` sets the rights by the umask, unlike `tempfile`.
        self._file = self._temporary.open("xb", buffering=_BUFFER_BYTES)

    def write(self, data: Data) -> None:
        with store_errors(self._store.uri, self._key):
            try:
                self._written += self._file.write(view(data))
            except BaseException:
                self._failed = True
                raise
        if self._durable and self._written - self._begun >= _EARLY_BYTES:
            # Start to write the new bytes to the disk. Errors are reported by the sync.
            if (call := _sync_file_range()) is not None:
                more = self._written - self._begun
                call(self._file.fileno(), self._begun, more, _SYNC_FILE_RANGE_WRITE)
            self._begun = self._written

    def __exit__(self, kind: type[BaseException] | None, *_: object) -> None:
        try:
            if kind is None:
                self._finish()
        finally:
            with contextlib.suppress(OSError):
                self._file.close()
            # If this fails, a vacuum deletes the file.
            with contextlib.suppress(OSError):
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


@cache
def _sync_file_range() -> Any:
    """Return Linux's `sync_file_range`, which Python's `os` does not have, or None elsewhere."""
    function = getattr(ctypes.CDLL(None), "sync_file_range", None)
    if function is not None:
        function.argtypes = [ctypes.c_int, ctypes.c_int64, ctypes.c_int64, ctypes.c_uint]
    return function


def _sync(path: Path) -> None:
    """Sync a file's bytes, or the names in a folder, to the disk."""
    fd = os.open(path, os.O_RDONLY | os.O_CLOEXEC)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)
