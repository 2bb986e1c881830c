"""What answers the calls of a kernel that is not compiled yet, so that small work does not wait.

The decorator `meanwhile` names the answer: `INTERPRETED`, or a function with the kernel's
parameters whose answer sends the caller another way, such as "unknown codec". Such a kernel is not
compiled by the process that calls it. A process beside runs `seglake.warm`, which compiles all
kernels, and each process loads a kernel as soon as it is there.
docs/decisions/0024-small-work-does-not-wait.md says more.

A call waits for the compiler if nothing compiles beside, if a kernel has no such answer, or if it
was interpreted for `MOST_SECONDS`: then the work is not small.
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
from seglake.compile.locks import Lock

try:
    import fcntl
except ImportError:  # not on Windows, where nothing compiles beside
    fcntl = None  # type: ignore[assignment]

WAITS = "SEGLAKE_KERNELS"  # this variable of the environment, if it is "wait": compile at the call
MOST_SECONDS = 5.0  # of a processor, in which one process interprets one kernel
_LOOK_SECONDS = 0.5  # between two looks whether a kernel is there now

_log = logging.getLogger(__name__)
_THREAD = threading.local()
_LONG_WAY, _SAID = list[bool](), list[str]()

Answer = Callable[..., Any]
_Function = TypeVar("_Function", bound=Answer)


class Fallback:
    """Resolves the calls of one kernel for which there is no machine code in this process."""

    def __init__(self, kernel: Any) -> None:
        self._kernel = kernel
        self._answer: Answer | None = getattr(kernel.py_func, "meanwhile", None)
        self._compiled = kernel._compile_for_args  # noqa: SLF001  # numba offers no other way
        self._looked, self._seconds = -_LOOK_SECONDS, 0.0

    def __call__(self, *args: Any, **named: Any) -> Any:
        """What is to be called with these arguments: machine code, or what answers meanwhile."""
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
        """Machine code that is there. None if it has to be compiled."""
        try:
            with never_compiling():
                return self._compiled(*args, **named)
        except NotCompiled:
            return None

    def _absent(self, *args: Any, **named: Any) -> Any:
        """What answers in the place of machine code, or the code, for which the call waits."""
        if self._answer is None or self._seconds > MOST_SECONDS or not self._comes():
            _say_that_it_waits(self._kernel.__name__)
            return self._compiled(*args, **named)
        self._looked = time.monotonic()
        return self._stand_in()

    def _comes(self) -> bool:
        """Whether a process beside compiles the kernel, and keeps it where this one looks."""
        return self._kernel._cache.cache_path is not None and BESIDE.compiles()  # noqa: SLF001

    def _stand_in(self) -> Answer | None:
        return self._interpreted if self._answer is INTERPRETED else self._answer

    def _interpreted(self, *args: Any) -> Any:
        """The answer of the kernel's source. The kernels that it calls are interpreted, too."""
        started = time.thread_time()
        _THREAD.interprets = True
        try:
            with np.errstate(over="ignore"):  # as in machine code, integers wrap
                return result(self._kernel.py_func(*map(argument, args)))
        finally:
            _THREAD.interprets = False
            self._seconds += time.thread_time() - started


def load(kernel: Any, *args: Any) -> None:
    """Load the machine code of a kernel for such arguments, if it is there, before any call."""
    resolves = getattr(kernel, "_compile_for_args", None)
    if isinstance(resolves, Fallback) and not kernel.signatures:
        resolves.loaded(*args)


def _say_that_it_waits(kernel: str) -> None:
    """Say so once for each installation and user."""
    if _SAID:
        return
    _SAID.append(kernel)
    if _is_told("waits"):
        return
    _log.warning(
        "the first use of Seglake here waits for the compiler of its kernels (now: %s), up to half"
        " a minute in all, once for each installation; `seglake warm` compiles them ahead of time",
        kernel,
    )


def _is_told(note: str) -> bool:
    """Whether a process of this user told a note about this installation; from now on one has."""
    folder = own_folder()
    if folder is None:
        return False
    made_ns = Path(__file__).stat().st_mtime_ns  # a newer version at this place compiles anew
    try:
        (folder / f"{_place(made_ns)}.{note}").touch(exist_ok=False)
    except FileExistsError:
        return True
    except OSError:  # as when the disk is full; then it is told once more
        return False
    return False


@contextmanager
def long_way() -> Iterator[None]:
    """In the block, kernels that have another way beside them are never compiled nor called."""
    _LONG_WAY.append(True)
    yield
    _LONG_WAY.clear()


class _CompilerBeside:
    """The process that compiles beside: one at a time for an installation and its user.

    It has a lock on a file as long as it lives. Whoever gets the lock starts the process, and
    hands the lock down to it.
    """

    def __init__(self) -> None:
        self._lock = Lock()
        self._process: subprocess.Popen[bytes] | None = None

    def compiles(self) -> bool:
        """Whether it runs. Each process starts it at most once."""
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
            _log.info("no process can compile kernels beside this one: %s", error)
            return False
        if _is_told("beside"):
            return True
        _log.warning(
            "the first use of Seglake here: a process beside this one compiles its kernels, about"
            " a minute of one core, once for each installation. Until then, reads are slower;"
            " `seglake warm` compiles them ahead of time"
        )
        return True


BESIDE = _CompilerBeside()


def _place(*more: object) -> str:
    """A name for the place whose kernels the process compiles."""
    names = "NUMBA_CACHE_DIR", "NUMBA_CPU_NAME", "NUMBA_CPU_FEATURES"
    place = repr([__file__, sys.version, *map(os.environ.get, names), *more])
    return hashlib.sha256(place.encode()).hexdigest()[:16]


def _environment() -> dict[str, str]:
    """The environment, with this package and nothing to wait for."""
    paths = [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")]
    return {**os.environ, WAITS: "wait", "PYTHONPATH": os.pathsep.join(filter(None, paths))}


# ---------------- kernels as plain Python
# What numba's types do to numbers and rows, and what intrinsics do.


def meanwhile(answer: Callable[..., Any]) -> Callable[[_Function], _Function]:
    """Decorates a kernel, below `njit`: `answer` takes small calls until the kernel is compiled.

    It is `INTERPRETED`, or a function with the kernel's parameters.
    """

    def decorate(function: _Function) -> _Function:
        vars(function)["meanwhile"] = answer
        return function

    return decorate


def INTERPRETED(*_: Any) -> Any:  # noqa: N802  # a mark, never called
    """The kernel's own source answers, as Python."""
    raise AssertionError


def plainly(plain: Callable[..., Any]) -> Callable[[Any], Any]:
    """Decorates an intrinsic: `plain` does the same in a kernel that is interpreted."""

    def decorate(intrinsic: Any) -> Any:
        calls = {"__call__": lambda _self, *args: plain(*args)}
        intrinsic.__class__ = type("Intrinsic", (type(intrinsic),), calls)
        return intrinsic

    return decorate


def argument(value: Any) -> Any:
    """An argument as an interpreted kernel takes it: numbers have 64 bits, rows have fields."""
    if type(value) is int:
        return np.int64(value)
    if isinstance(value, tuple):
        items = map(argument, value)
        # `_make` of a named one asks for its length, which `Spans` has as that of its items
        return type(value)(*items) if hasattr(value, "_fields") else tuple(items)
    structured = isinstance(value, np.ndarray) and value.dtype.names
    return _Rows(value) if structured else value


def result(value: Any) -> Any:
    """A result with Python's numbers, as machine code returns it."""
    if isinstance(value, tuple):
        return tuple(map(result, value))
    return value.item() if isinstance(value, np.generic) else value


class _Rows:
    """A structured array whose rows have their fields as attributes."""

    def __init__(self, rows: Any) -> None:
        self._rows = rows

    def __len__(self) -> int:
        return len(self._rows)

    def __getitem__(self, number: int) -> _Row:
        return _Row(self._rows[number])


class _Row:
    """A row. Its integers have 64 bits, as sums of them do in machine code."""

    def __init__(self, fields: Any) -> None:
        object.__setattr__(self, "_fields", fields)

    def __getattr__(self, name: str) -> Any:
        return np.int64(self._fields[name])

    def __setattr__(self, name: str, value: Any) -> None:
        self._fields[name] = value
