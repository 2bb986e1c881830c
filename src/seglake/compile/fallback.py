"""Substitute kernels that are not compiled yet, so that small work does not wait for the compiler.

The decorator `meanwhile` sets the substitute of a kernel. It is `INTERPRETED`, or a function with
the kernel's parameters that returns, for example, "unknown codec", so that the caller uses slower
code. A process does not compile a kernel with a substitute. A background process runs
`seglake.warm`, which compiles all kernels, and each process loads a kernel as soon as it is
available. See docs/decisions/0024-small-work-does-not-wait-for-the-compiler.md.

A call waits for the compiler if there is no background process, if a kernel has no substitute, or
if this process has interpreted the kernel for `MOST_SECONDS`, because such work is not small.
"""

from __future__ import annotations

import hashlib
import logging
import os
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

import numpy as np

from seglake.compile.cache import NotCompiled, never_compiling, own_folder
from seglake.compile.locks import fork_safe_lock

try:
    import fcntl
except ImportError:  # on Windows, where there is no background compiler
    fcntl = None  # type: ignore[assignment]

WAITS = "SEGLAKE_KERNELS"  # if this environment variable is "wait", a call waits for the compiler
MOST_SECONDS = 5.0  # processor time in which one process interprets one kernel
_LOOK_SECONDS = 0.5  # between two checks whether a kernel is available

_log = logging.getLogger(__name__)
_THREAD = threading.local()
_LONG_WAY, _SAID = list[bool](), list[str]()

Answer = Callable[..., Any]
_Function = TypeVar("_Function", bound=Answer)


class Fallback:
    """Resolves the calls of one kernel that has no machine code in this process yet."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._answer: Answer | None = getattr(kernel.py_func, "meanwhile", None)
        self._compiled = kernel._compile_for_args  # noqa: SLF001  # numba offers no other way
        self._looked, self._seconds = -_LOOK_SECONDS, 0.0

    def __call__(self, *args: Any, **named: Any) -> Any:
        """Return the function to call for these arguments: machine code, or the substitute."""
        if getattr(_THREAD, "interprets", False):
            return self._kernel.py_func
        if _LONG_WAY and self._answer not in (None, INTERPRETED):
            return self._answer
        if os.environ.get(WAITS) == "wait":
            return self._compiled(*args, **named)
        if time.monotonic() < self._looked + _LOOK_SECONDS:
            return self._stand_in()
        return self.loaded(*args, **named) or self._absent(*args, **named)

    def loaded(self, *args: Any, **named: Any) -> Any:
        """Load and return machine code for these arguments, or None if it must be compiled."""
        try:
            with never_compiling():
                return self._compiled(*args, **named)
        except NotCompiled:
            return None

    def _absent(self, *args: Any, **named: Any) -> Any:
        """Return the kernel's substitute, or compile the kernel and return its machine code."""
        if self._answer is None or self._seconds > MOST_SECONDS or not self._comes():
            _say_that_it_waits(self._kernel.__name__)
            return self._compiled(*args, **named)
        self._looked = time.monotonic()
        return self._stand_in()

    def _comes(self) -> bool:
        """Return whether a background process compiles this kernel. Start one if needed."""
        return self._kernel._cache.cache_path is not None and BESIDE.compiles()  # noqa: SLF001

    def _stand_in(self) -> Answer | None:
        return self._interpreted if self._answer is INTERPRETED else self._answer

    def _interpreted(self, *args: Any) -> Any:
        """Run the Python code of this kernel and of the kernels that it calls."""
        started = time.thread_time()
        _THREAD.interprets = True
        try:
            with np.errstate(over="ignore"):  # as in machine code, integers wrap
                return result(self._kernel.py_func(*map(argument, args)))
        finally:
            _THREAD.interprets = False
            self._seconds += time.thread_time() - started


def load(kernel: Any, *args: Any) -> None:
    """Load a kernel's cached machine code for the types of `args` before its first call."""
    resolves = getattr(kernel, "_compile_for_args", None)
    if isinstance(resolves, Fallback) and not kernel.signatures:
        resolves.loaded(*args)


def _say_that_it_waits(kernel: str) -> None:
    """Log once for each installation and user that a call waits for the compiler."""
    if _SAID:
        return
    _SAID.append(kernel)
    if _is_told("waits"):
        return
    _log.warning(
        "the first use of an installation waits for the compiler, up to half a minute in all "
        "(kernel %s). To compile all kernels ahead of time, run `seglake warm`",
        kernel,
    )


def _is_told(note: str) -> bool:
    """Return whether `note` was recorded before for this user and installation, and record it."""
    folder = own_folder()
    if folder is None:
        return False
    made_ns = Path(__file__).stat().st_mtime_ns  # a newer version in this folder compiles again
    try:
        (folder / f"{_place(made_ns)}.{note}").touch(exist_ok=False)
    except FileExistsError:
        return True
    except OSError:  # for example, a full disk: then it is logged again
        return False
    return False


@contextmanager
def long_way() -> Iterator[None]:
    """In the block, call the substitute function of each kernel that has one, not machine code."""
    _LONG_WAY.append(True)
    yield
    _LONG_WAY.clear()


class _CompilerBeside:
    """The background process that compiles all kernels, at most one for an installation and user.

    The background process holds a file lock while it runs. A process that gets the lock starts the
    background process, and passes the lock to it.
    """

    def __init__(self) -> None:
        self._lock = fork_safe_lock()
        self._process: subprocess.Popen[bytes] | None = None

    def compiles(self) -> bool:
        """Return whether the background process runs. A process tries to start it at most once."""
        with self._lock:
            folder = own_folder() if fcntl else None
            if folder is None or "python" not in Path(sys.executable or "").name:  # embedded
                return False
            with (folder / f"{_place()}.compiles").open("wb") as file:
                try:
                    fcntl.flock(file, fcntl.LOCK_EX | fcntl.LOCK_NB)
                except BlockingIOError:
                    return True
                return self._start(file.fileno())

    def _start(self, lock: int) -> bool:
        if self._process is not None:
            return self._process.poll() is None
        try:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "seglake.warm", "--beside"],
                pass_fds=[lock], start_new_session=True, env=_environment(),
                stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
            )  # fmt: skip
        except OSError as error:
            _log.info("cannot start a process that compiles kernels: %s", error)
            return False
        if _is_told("beside"):
            return True
        _log.warning(
            "the first use of an installation compiles all kernels in a background process, for "
            "about a minute. Until then, reads are slower. To compile them ahead of time, run "
            "`seglake warm`"
        )
        return True


BESIDE = _CompilerBeside()


def _place(*more: object) -> str:
    """Return a file name that is a hash of this installation, its compiler settings and `more`."""
    names = "NUMBA_CACHE_DIR", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"
    place = repr([__file__, sys.version, *map(os.environ.get, names), *more])
    return hashlib.sha256(place.encode()).hexdigest()[:16]


def _environment() -> dict[str, str]:
    """Return the environment of the background process, which finds this package and compiles."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, WAITS: "wait", "PYTHONPATH": os.pathsep.join(filter(None, paths))}


# ---------------- kernels as plain Python
# Reproduce how numba converts numbers and rows, and the functions of intrinsics.


def meanwhile(answer: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Decorate a kernel with a substitute to call until the kernel is compiled. Use below `njit`.

    `answer` is the substitute, `INTERPRETED` or a function with the kernel's parameters.
    """

    def decorate(function: _Function) -> _Function:
        vars(function)["meanwhile"] = answer
        return function

    return decorate


def INTERPRETED(*_: Any) -> Any:  # noqa: N802  # a mark, never called
    """Mark a kernel whose source is interpreted as Python until it is compiled."""
    raise AssertionError


def plainly(plain: Callable[..., Any]) -> Callable[[Any], Any]:
    """Decorate an intrinsic with a Python function that replaces it in interpreted kernels."""

    def decorate(intrinsic: Any) -> Any:
        calls = {"__call__": lambda _self, *args: plain(*args)}
        intrinsic.__class__ = type("Intrinsic", (type(intrinsic),), calls)
        return intrinsic

    return decorate


def argument(value: Any) -> Any:
    """Convert an argument for an interpreted kernel, integers to int64 and arrays to `_Rows`."""
    if type(value) is int:
        return np.int64(value)
    if isinstance(value, tuple):
        items = map(argument, value)
        # `_make` of a named tuple checks `len`, which `Spans` defines as the number of its items.
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    structured = isinstance(value, np.ndarray) and value.dtype.names
    return _Rows(value) if structured else value


def result(value: Any) -> Any:
    """Convert NumPy numbers in a result to Python numbers, which machine code would return."""
    if isinstance(value, tuple):
        return tuple(map(result, value))
    return value.item() if isinstance(value, np.generic) else value


class _Rows:
    """A structured array whose rows have their fields as attributes, like in numba."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> _Row:
        return _Row(self._rows[number])


class _Row:
    """A row with its fields as attributes. Integers have 64 bits, like sums in machine code."""

    def __init__(self, fields: Any) -> None:
        object.__setattr__(self, "_fields", fields)

    def __getattr__(self, name: str) -> Any:
        return np.int64(self._fields[name])

    def __setattr__(self, name: str, value: Any) -> None:
        self._fields[name] = value
