"""Choose the folders of compiled kernels, and load and save kernels there.

numba loads a cached kernel if the kernel's own file has not changed. But a kernel also contains the
code of the kernels that it calls. So the name of a folder is a hash of all kernel sources, numba's
version and the processor. Kernels of another build have another folder.

A kernel is loaded from the first folder that has it, and saved in the first writable one:

    1. the folder that `NUMBA_CACHE_DIR` names; if it is set, no other is used
    2. `__pycache__` of the package, where `seglake warm` puts kernels when an image is built
    3. the user's cache
    4. the user's own folder among the temporary files

Kernels are code, so a folder that another user can write to is not used.
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
from typing import Any, NamedTuple

import numba
from llvmlite import binding
from numba.core import caching
from numba.core.runtime.nrt import rtsys

_log = logging.getLogger(__name__)
_PACKAGE = Path(__file__).parents[1]
# Kernels contain no code of `compile`.
_IMPORT = re.compile(r"^from seglake\.(?!compile\.)([\w.]+) import ", re.MULTILINE)
_IS_IN_FILES = Path(__file__).exists()  # not in an archive
_THREAD = threading.local()
_NUMBA_CONFIG: Any = numba.config  # its attributes have no types
_NUMBA = "0.68."  # the version whose private parts Seglake uses, see decision 22
_OTHER_SOURCES = "text/json.py", "text/spans.py"  # with kernels, in addition to *_kernels.py
WATCHERS = list[Callable[[], None]]()  # called after each kernel that was compiled


class NotCompiled(Exception):
    """Raised if a kernel must be compiled and the caller does not wait for the compiler."""


with suppress(OSError):  # call it now, because its lock could block the child of a fork forever
    tempfile.gettempdir()


@contextmanager
def never_compiling() -> Iterator[None]:
    """In the block, calls in this thread to kernels that are not compiled raise `NotCompiled`."""
    _THREAD.never_compiling = True
    try:
        yield
    finally:
        _THREAD.never_compiling = False


@cache
def is_known_numba() -> bool:
    """Return whether this module supports numba's version. Log a warning otherwise."""
    known = bool(numba.__version__.startswith(_NUMBA))
    if not known:
        _log.warning(
            "Seglake does not support numba %s, so every process compiles kernels again. Install "
            "numba %s*",
            numba.__version__,
            _NUMBA,
        )
    return known


class _Locator(caching.UserProvidedCacheLocator):
    """Locates the folder `numba.config.CACHE_DIR`, which `_folders` has already checked."""

    def ensure_cache_path(self) -> None:
        """Accept the folder without a check."""

    @classmethod
    def get_suitable_cache_subpath(cls, _py_file: str) -> str:
        """Return no subfolder, so that the folder of kernels can be moved with the package."""
        return ""

    def get_disambiguator(self) -> str:
        """Return the package and the line of a kernel, which make its cache file's name unique."""
        return f"{Path(self._py_file).parent.name}-{self._lineno}"


class _Impl(caching.CompileResultCacheImpl):
    _locator_classes = [_Locator]  # noqa: RUF012  # numba's


class _Files(caching.FunctionCache):
    """The cached kernels of one function in one folder."""

    _impl_class = _Impl

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Load a kernel without an import of numba's compiler, which takes 0.2 s."""
        rtsys.initialize(target_context)
        return self._load_overload(sig, target_context)  # type: ignore[no-untyped-call]


class KernelCache(caching.NullCache):
    """The cached kernels of one function in all folders."""

    def __init__(self, function: Callable[..., Any]) -> None:
        before = _NUMBA_CONFIG.CACHE_DIR
        try:
            self._files = [_files(function, folder) for folder in _folders().all]
        finally:
            _NUMBA_CONFIG.CACHE_DIR = before

    @property
    def cache_path(self) -> Path | None:
        """Return the folder for kernels that are compiled now, or None if they are not saved."""
        return _folders().writable

    def load_overload(self, sig: Any, target_context: Any) -> Any:
        """Return the kernel for these types of arguments, or None if it must be compiled.

        Raises NotCompiled instead in a thread that must not compile.
        """
        for files in self._files:
            if kernel := files.load_overload(sig, target_context):
                return kernel
        if getattr(_THREAD, "never_compiling", False):
            raise NotCompiled
        return None

    def save_overload(self, sig: Any, data: Any) -> None:
        """Save a compiled kernel. Ignore errors, such as a full disk."""
        writable = _folders().writable
        if writable is None:
            _warn_not_kept("every process compiles them again")
            return
        if writable.parent == own_folder():
            _warn_not_kept(
                f"they are stored in {writable}. To use another folder, set NUMBA_CACHE_DIR"
            )
        with suppress(OSError):
            self._files[-1].save_overload(sig, data)  # type: ignore[no-untyped-call]
        for watcher in WATCHERS:
            watcher()


def _files(function: Callable[..., Any], folder: Path) -> _Files:
    _NUMBA_CONFIG.CACHE_DIR = str(folder)
    return _Files(function)  # type: ignore[no-untyped-call]  # numba has no types


@cache
def _warn_not_kept(what_happens: str) -> None:
    _log.warning(
        "compiled kernels cannot be stored next to their sources or in the user's cache, so %s. To "
        "store them next to the sources, run `seglake warm` as a user who may write there",
        what_happens,
    )


class _Folders(NamedTuple):
    """The folders with kernels of this build. New kernels are saved in `writable`, if not None."""

    all: list[Path]
    writable: Path | None


@cache
def _folders() -> _Folders:
    """Return the folders for kernels. A process searches for them only once."""
    try:
        name = f"kernels-{_build()}"
    except OSError:  # the package is in an archive
        return _Folders([], None)
    if chosen := _NUMBA_CONFIG.CACHE_DIR:
        try:
            folder = _writable(Path(chosen, name))
        except OSError as error:
            _log.warning(
                "NUMBA_CACHE_DIR is not used for kernels: %s. Use chmod go-w, or unset it", error
            )
        else:
            return _Folders([folder], folder)
    found, shipped = list[Path](), _PACKAGE / "__pycache__" / name
    with suppress(OSError):
        return _Folders([shipped], _writable(shipped, beside=_PACKAGE))
    with suppress(OSError):
        _require_safe(shipped, beside=_PACKAGE)
        found.append(shipped)
    home = Path(os.environ.get("XDG_CACHE_HOME", os.path.expanduser("~/.cache")))  # noqa: PTH111
    for parent in (home / "seglake" if home.is_absolute() else None, own_folder()):
        if parent is not None:
            with suppress(OSError):
                return _Folders([*found, folder := _writable(parent / name)], folder)
    return _Folders(found, None)


def _writable(folder: Path, beside: Path | None = None) -> Path:
    """Create `folder` if it is missing, and return it. Raises OSError if unsafe or read-only."""
    mode = 0o700 if beside is None else stat.S_IMODE(beside.stat().st_mode)
    folder.mkdir(mode, parents=True, exist_ok=True)
    _require_safe(folder, beside)
    tempfile.TemporaryFile(dir=folder).close()
    return folder


def _require_safe(folder: Path, beside: Path | None = None) -> None:
    """Raise PermissionError if another user can write to a folder.

    A folder inside the package folder `beside` may also belong to root or to the package's owner,
    and may have the same write permissions as the package.
    """
    if not hasattr(os, "getuid"):
        return
    status, owners, may_be_open = folder.lstat(), {os.getuid()}, 0
    if beside is not None:
        owners |= {0, beside.stat().st_uid}
        may_be_open = beside.stat().st_mode
    is_open = status.st_mode & 0o022 & ~may_be_open
    if not stat.S_ISDIR(status.st_mode) or status.st_uid not in owners or is_open:
        raise PermissionError(f"{folder} is not a folder that only this user can write to")


def kernel_sources() -> list[Path]:
    """Return the files of modules with kernels, and of the Seglake modules that they import."""
    queue = [*_PACKAGE.rglob("*_kernels.py"), *(_PACKAGE / name for name in _OTHER_SOURCES)]
    sources = set(queue)
    while queue:
        for name in _IMPORT.findall(queue.pop().read_text("utf-8")):
            path = _PACKAGE.joinpath(*name.split("."))
            path = path / "__init__.py" if path.is_dir() else path.with_suffix(".py")
            if path not in sources:
                sources.add(path)
                queue.append(path)
    return sorted(sources)


def _build() -> str:
    """Return a hash of all that decides the machine code of kernels, in 20 hex digits.

    These are the kernel sources, the options in `jit.py`, numba's version and the processor.
    """
    cpu = _NUMBA_CONFIG.CPU_NAME or binding.get_host_cpu_name()
    features = _NUMBA_CONFIG.CPU_FEATURES
    if features is None:
        features = binding.get_host_cpu_features().flatten()
    parts = [repr((numba.__version__, cpu, features)).encode()]
    parts += [path.read_bytes() for path in (*kernel_sources(), _PACKAGE / "compile/jit.py")]
    digests = b"".join(hashlib.sha256(part).digest() for part in parts)
    return hashlib.sha256(digests).hexdigest()[:20]


def is_installed() -> bool:
    """Return whether the package is still where this process loaded it from."""
    return Path(__file__).exists() or not _IS_IN_FILES


@cache
def own_folder() -> Path | None:
    """Return this user's folder for kernels in the temporary directory, or None if unsafe."""
    user = os.getuid() if hasattr(os, "getuid") else 0
    try:
        return _writable(Path(tempfile.gettempdir(), f"seglake-kernels-{user}"))
    except OSError as error:
        _log.info("cannot create a folder for kernels among the temporary files: %s", error)
        return None
