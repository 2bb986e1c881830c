"""numba's `njit`, for packages that nobody may write to.

numba caches a compiled kernel beside its source, or else in the user's cache. Where it can write to
neither, as in a container without a home, it refuses to make the kernel. Then a folder of this user
among the temporary files has the cache; where that is not safe either, nothing is cached.
"""

import logging
import os
import stat
import tempfile
from collections.abc import Callable
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numba

__all__ = ["njit"]

_log = logging.getLogger(__name__)


def _njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with these options; a kernel is cached wherever that is possible."""

    def compiled(function: Callable[..., Any]) -> Any:
        try:
            return numba.njit(**options)(function)
        except RuntimeError as error:
            if "no locator" not in str(error):
                raise
        return _cached_elsewhere(function, options)

    return compiled


if TYPE_CHECKING:
    from numba import njit  # which keeps the types of functions
else:
    njit = _njit


def _cached_elsewhere(function: Callable[..., Any], options: dict[str, Any]) -> Any:
    settings: Any = numba.config  # numba makes its attributes when it is imported
    folder, configured = _own_folder(), settings.CACHE_DIR
    if folder is None:
        return numba.njit(**{**options, "cache": False})(function)
    settings.CACHE_DIR = str(folder)
    try:
        return numba.njit(**options)(function)
    finally:
        settings.CACHE_DIR = configured  # the program's own functions are none of our business


@cache
def _own_folder() -> Path | None:
    """This user's folder for kernels. None unless nobody else can write: kernels are code."""
    problem = "kernels can be cached neither beside their sources nor in the user's cache"
    user = os.getuid() if hasattr(os, "getuid") else 0
    try:
        folder = Path(tempfile.gettempdir(), f"seglake-kernels-{user}")
        folder.mkdir(mode=0o700, exist_ok=True)
        found = folder.lstat()
        if not stat.S_ISDIR(found.st_mode) or found.st_uid != user or found.st_mode & 0o022:
            raise PermissionError(f"{folder} is not a folder that only this user can write to")
        tempfile.TemporaryFile(dir=folder).close()
    except OSError as error:
        _log.warning("%s, nor elsewhere: every process compiles them again (%s)", problem, error)
        return None
    _log.warning("%s, so they are in %s; NUMBA_CACHE_DIR names another folder", problem, folder)
    return folder
