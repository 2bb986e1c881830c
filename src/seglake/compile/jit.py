"""Wrap numba's `njit` with Seglake's cache of kernels and a fallback until a kernel is compiled.

Kernels copy the items of arrays in loops. For an assignment of an array to a part of another, numba
compiles Python's texts, because an error would name the shapes, and that takes 3 s.

This module imports everything that a first call would import. Otherwise, a process that is forked
during such an import would wait forever for the import lock.
"""

from collections.abc import Callable
from contextlib import suppress
from functools import partial
from typing import TYPE_CHECKING, Any

import numba
import numpy as np

from seglake.compile.cache import KernelCache, is_known_numba
from seglake.compile.fallback import Fallback

__all__ = ["njit"]

for _value in (np.empty(0), object()):
    with suppress(ValueError):  # an object has no type in kernels
        numba.typeof(_value)  # type: ignore[no-untyped-call]


def _njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """Return a decorator like `numba.njit`.

    With `cache=True` and a known version of numba, `KernelCache` stores the machine code, and
    `Fallback` resolves calls for which there is no machine code yet.

    numba makes three functions of a kernel: one to call from kernels, one from Python and one from
    C. The third one is left out, and so is the second one of a function `_name` in a module of
    kernels, which only kernels call. They take a quarter of the compiler's time.
    """

    def compiled(function: Callable[..., Any]) -> Any:
        private = function.__name__.startswith("_") and function.__module__.endswith("_kernels")
        wrappers = {"no_cfunc_wrapper": True, "no_cpython_wrapper": private}
        kernel = numba.njit(**{**options, **wrappers, "cache": False})(function)
        _ignore_constants(kernel)
        if private and hasattr(kernel, "py_func"):
            kernel._insert = lambda *_: None  # noqa: SLF001  # else, a call from Python would crash
            kernel._compile_for_args = partial(_refuse, function)  # noqa: SLF001  # as above
        # Without `py_func`, numba is switched off.
        if options.get("cache") and hasattr(kernel, "py_func") and is_known_numba():
            kernel._cache = KernelCache(function)  # noqa: SLF001  # numba has no public way
            kernel._compile_for_args = Fallback(kernel)  # noqa: SLF001  # numba has no public way
        return kernel

    return compiled


def _refuse(function: Callable[..., Any], *_: Any) -> Any:
    raise TypeError(f"{function.__name__} is private to kernels. Rename it to call it from Python")


def _ignore_constants(kernel: Any) -> None:
    """Make calls from kernels with constants use the same machine code as other calls.

    numba compiles a kernel again for each constant, such as the 2 in a call f(2).
    """
    if resolve := getattr(kernel, "get_call_template", None):  # missing if numba is switched off
        kernel.get_call_template = lambda args, named: resolve(
            tuple(map(_type_of, args)), {name: _type_of(kind) for name, kind in named.items()}
        )


def _type_of(kind: Any) -> Any:
    """Return the type of an argument, without the value of a constant."""
    return getattr(kind, "literal_type", kind)


if TYPE_CHECKING:
    from numba import njit  # which keeps the types of functions
else:
    njit = _njit
