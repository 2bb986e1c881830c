"""Caches of compiled kernels for every place that Seglake is installed in.

numba keeps a compiled kernel beside its source, or else in the user's cache. Where it can write to
neither, as in a container without a home, numba raises, and does not use the kernels that are
there. This module uses kernels beside their sources even if only others may write there: `seglake
warm` puts them there when an image is built. A kernel that is missing is compiled, and kept in the
first place that this user can write to: beside the source, the user's cache, or the user's own
folder among the temporary files. Without a safe place it is not kept. `NUMBA_CACHE_DIR` goes first.

A kept kernel contains the code of the kernels that it calls. So it is valid while the source of its
module, and of all Seglake modules that this module imports, is unchanged. numba checks the first.

numba offers no way to say this, so classes here extend its private ones. `jit` names them, and does
without this module where one of them is not what it was.
"""

import hashlib
import logging
import os
import re
import stat
import tempfile
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from functools import cache
from pathlib import Path
from typing import Any

from numba.core import caching
from numba.core.runtime.nrt import rtsys

_log = logging.getLogger(__name__)
_ROOT = Path(__file__).parents[1]
_IMPORT = re.compile(r"^from (seglake[\w.]*) import ", re.MULTILINE)
_IS_IN_FILES = Path(__file__).exists()  # not in an archive
_THREAD = threading.local()
WATCHERS = list[Callable[[], None]]()  # are called after each kernel that was compiled


class NotCompiled(Exception):
    """The kernel has to be compiled, and the caller does not want to wait for that."""


with suppress(OSError):  # a first call has a lock, for which the child of a fork may wait for ever
    tempfile.gettempdir()


@contextmanager
def never_compiling() -> Iterator[None]:
    """In the block, this thread's calls of kernels that are not there raise `NotCompiled`."""
    _THREAD.never_compiling = True
    try:
        yield
    finally:
        _THREAD.never_compiling = False


class KernelCache(caching.NullCache):
    """The cache of one kernel: first what came with the package, then what this user has."""

    def __init__(self, function: Callable[..., Any]) -> None:
        self._writable = _located(_Writable, function)
        self._shipped: Any = caching.NullCache()
        if not isinstance(self._writable, _Writable) or self._writable.within(_OfUser, _Temporary):
            self._shipped = _located(_Shipped, function)

    @property
    def cache_path(self) -> Any:
        """The folder for kernels that are compiled now. None if they are not kept."""
        return self._writable.cache_path

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel for these types of arguments. None if it has to be compiled."""
        kernel = self._shipped.load_overload(sig, target_context)
        kernel = kernel or self._writable.load_overload(sig, target_context)
        if kernel is None and getattr(_THREAD, "never_compiling", False):
            raise NotCompiled
        return kernel

    def save_overload(self, sig: Any, data: Any) -> None:
        """Keep a kernel that was compiled, unless the package was deleted in the meantime."""
        if not is_installed():
            return
        if not isinstance(self._writable, _Writable):
            _warn("every process compiles them again")
        elif self._writable.within(_Temporary):
            _warn(f"they are kept in {own_folder()}; NUMBA_CACHE_DIR names another folder")
        self._writable.save_overload(sig, data)
        for watcher in WATCHERS:
            watcher()


@cache
def _warn(what_happens: str) -> None:
    _log.warning(
        "kernels are compiled, and can be kept neither beside their sources nor in the user's"
        " cache: %s; `seglake warm` compiles them all where the package is installed",
        what_happens,
    )


@cache
def _warn_unsafe(problem: str) -> None:
    _log.warning(
        "NUMBA_CACHE_DIR is not used for kernels: %s; use chmod go-w, or unset it", problem
    )


class _Stamped:
    """A place for the kernels of a module, with a stamp of everything that they are made from."""

    _py_file: str
    get_cache_path: Callable[[], str]

    def get_source_stamp(self) -> bytes:
        """A hash of the module and of Seglake's modules that it imports."""
        return _stamp(Path(self._py_file))


class _OfVariable(_Stamped, caching.UserProvidedCacheLocator):
    """`NUMBA_CACHE_DIR`."""

    def ensure_cache_path(self) -> None:
        """Raise OSError, after a warning, if others can write to the folder."""
        try:
            _make_private(Path(self.get_cache_path()))
        except OSError as error:
            _warn_unsafe(str(error))
            raise
        super().ensure_cache_path()  # type: ignore[no-untyped-call]  # numba has no types


class _BesideSource(_Stamped, caching.InTreeCacheLocator):
    """`__pycache__` beside the source."""

    def ensure_cache_path(self) -> None:
        """Raise OSError if the folder is not as safe as the source."""
        super().ensure_cache_path()  # type: ignore[no-untyped-call]  # numba has no types
        _require_safe(Path(self.get_cache_path()), beside=Path(self._py_file))


class _BesideReadOnly(_Stamped, caching.InTreeCacheLocator):
    """`__pycache__` beside the source, which need not be writable."""

    def ensure_cache_path(self) -> None:
        """Raise OSError if the folder is missing, or not as safe as the source."""
        _require_safe(Path(self.get_cache_path()), beside=Path(self._py_file))


class _OfUser(_Stamped, caching.UserWideCacheLocator):
    """The user's cache."""

    def ensure_cache_path(self) -> None:
        """Raise OSError if others can write to the folder, or the user has no home."""
        path = Path(self.get_cache_path())
        if not path.is_absolute():
            raise FileNotFoundError("the user has no home")
        _make_private(path)
        super().ensure_cache_path()  # type: ignore[no-untyped-call]  # numba has no types


def _make_private(folder: Path) -> None:
    """Make a folder for kernels, or check the one that is there. Raises OSError."""
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    _require_safe(folder)


def _require_safe(folder: Path, beside: Path | None = None) -> None:
    """Raise PermissionError if another user can write to a folder: kernels are code.

    A folder of kernels beside their source may belong to root or to the owner of the source, and be
    as open as the folder of the source.
    """
    if not hasattr(os, "getuid"):
        return
    status, owners, may_be_open = folder.lstat(), {os.getuid()}, 0
    if beside is not None:
        owners |= {0, beside.stat().st_uid}
        may_be_open = beside.parent.stat().st_mode
    is_open = status.st_mode & 0o022 & ~may_be_open
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in owners or is_open:
        raise PermissionError(f"{folder} is not a folder that only this user can write to")


class _Temporary(_Stamped, caching.InTreeCacheLocator):
    """A folder among the temporary files."""

    def get_cache_path(self) -> str:
        """The folder for the module. Nothing can be written to it if there is no safe place."""
        # numba has no types
        folder = self.get_suitable_cache_subpath(self._py_file)  # type: ignore[no-untyped-call]
        return str(Path(own_folder() or "/dev/null", folder))


class _WritablePlaces(caching.CompileResultCacheImpl):
    _locator_classes = [_OfVariable, _BesideSource, _OfUser, _Temporary]  # noqa: RUF012  # numba's


class _ShippedPlace(caching.CompileResultCacheImpl):
    _locator_classes = [_BesideReadOnly]  # noqa: RUF012  # as in numba


class _KernelFiles(caching.FunctionCache):
    """The kernels of a function in one place.

    Before it loads a kernel, numba imports everything that it could compile, which takes 0.2 s of
    each process. A kernel that is kept needs only numba's runtime.
    """

    _impl_class: Any = None

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """The kernel for these types of arguments. None if it has to be compiled."""
        rtsys.initialize(target_context)
        return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


class _Writable(_KernelFiles):
    """The kernels of a function, in the first place that this user can write to."""

    _impl_class = _WritablePlaces

    def within(self, *places: type) -> bool:
        """Whether it is one of these places."""
        return isinstance(self._impl.locator, places)


class _Shipped(_KernelFiles):
    """The kernels of a function that are beside its source."""

    _impl_class = _ShippedPlace


def _located(kind: Any, function: Callable[..., Any]) -> Any:
    """A cache of this kind; one that keeps nothing if there is no place, as in an archive."""
    try:
        return kind(function)
    except RuntimeError as error:
        if "no locator" not in str(error):
            raise
        return caching.NullCache()


@cache
def _stamp(module: Path) -> bytes:
    """A hash of a module's source, and of the modules of Seglake that it imports."""
    sources, queue = {module: module.read_bytes()}, [module]
    while queue:
        for path in _imported(sources[queue.pop()].decode()):
            if path not in sources:
                sources[path] = path.read_bytes()
                queue.append(path)
    del sources[module]  # it comes first, whatever its folder is named
    parts = [module.read_bytes(), *(sources[path] for path in sorted(sources))]
    return hashlib.sha256(b"".join(hashlib.sha256(part).digest() for part in parts)).digest()


def _imported(source: str) -> Iterator[Path]:
    """The files of Seglake's modules that a source imports from."""
    for name in _IMPORT.findall(source):
        path = _ROOT.joinpath(*name.split("."))
        yield path / "__init__.py" if path.is_dir() else path.with_suffix(".py")


def is_installed() -> bool:
    """Return whether the package is still where this process has it from."""
    return Path(__file__).exists() or not _IS_IN_FILES


@cache
def own_folder() -> Path | None:
    """This user's folder for kernels. None unless nobody else can write: kernels are code."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    try:
        folder = Path(tempfile.gettempdir(), f"seglake-kernels-{user}")
        _make_private(folder)
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        _log.info("no folder for kernels among the temporary files: %s", error)
        return None
    return folder
