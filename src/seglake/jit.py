"""numba's `njit`, which keeps compiled kernels in the caches of `kernel_cache`.

Those are made of private parts of numba. This module names them, and looks at its import whether
they are what they were. If not, kernels work but are not kept: each process compiles them again,
and a warning says so. numba's own cache would be faster, and wrong where a callee changed.
docs/decisions/0022-foreign-code-by-address.md says more.

It has numba import all that a first call imports: the child of a fork in just that moment would
wait for ever for the lock of an import.
"""

import inspect
import logging
from collections.abc import Callable, Iterator, Mapping
from contextlib import suppress
from operator import attrgetter
from types import CodeType
from typing import TYPE_CHECKING, Any

import numba
import numpy as np
from numba.core import caching, dispatcher
from numba.core.runtime import nrt

__all__ = ["njit"]

_log = logging.getLogger(__name__)

for _value in (np.empty(0), object()):
    with suppress(ValueError):  # an object has no type in kernels
        numba.typeof(_value)  # type: ignore[no-untyped-call]

# What `kernel_cache` uses of these modules; functions have their parameters, others None.
_LOCATOR = {
    "from_function": "cls py_func py_file",
    "ensure_cache_path": "self",
    "get_cache_path": "self",
    "get_source_stamp": "self",
    "get_suitable_cache_subpath": "cls py_file",
}
_CACHING = {
    "NullCache.load_overload": "self sig target_context",
    "NullCache.save_overload": "self sig cres",
    "NullCache.cache_path": None,
    **{f"UserProvidedCacheLocator.{name}": of for name, of in _LOCATOR.items()},
    **{f"InTreeCacheLocator.{name}": of for name, of in _LOCATOR.items()},
    **{f"UserWideCacheLocator.{name}": of for name, of in _LOCATOR.items()},
    "CompileResultCacheImpl.__init__": "self py_func",
    "CompileResultCacheImpl._locator_classes": None,
    "CompileResultCacheImpl.locator": None,
    "FunctionCache.__init__": "self py_func",
    "FunctionCache._impl_class": None,
    "FunctionCache.cache_path": None,
    "FunctionCache.load_overload": "self sig target_context",
    "FunctionCache._load_overload": "self sig target_context",
    "FunctionCache.save_overload": "self sig data",
}
_DISPATCHER = {"Dispatcher._compile_for_args": "self"}
_NRT = {"rtsys.initialize": "self ctx"}


def _changes(module: object, parts: Mapping[str, str | None]) -> Iterator[str]:
    """The parts of a module that are missing, or have other parameters."""
    for name, parameters in parts.items():
        try:
            part = attrgetter(name)(module)
        except AttributeError:
            yield name
            continue
        if parameters is not None and _parameters(part) != parameters:
            yield name


def _parameters(function: Any) -> str:
    """The names of a function's parameters; none of what is no function of Python."""
    function = inspect.unwrap(getattr(function, "__func__", function))
    code: CodeType | None = getattr(function, "__code__", None)
    return " ".join(code.co_varnames[: code.co_argcount]) if code else ""


def _njit(**options: Any) -> Callable[[Callable[..., Any]], Any]:
    """`numba.njit` with these options; a kernel is cached wherever that is possible."""

    def compiled(function: Callable[..., Any]) -> Any:
        kernel = numba.njit(**{**options, "cache": False})(function)
        if options.get("cache") and hasattr(kernel, "py_func"):  # else numba is switched off
            _keep(kernel, function)
        return kernel

    return compiled


def _keep(kernel: Any, function: Callable[..., Any]) -> None:
    """Give a kernel its cache, and what answers until it is compiled, unless numba has changed."""
    if _CHANGED:
        return
    try:
        cached = KernelCache(function)
    except (AttributeError, TypeError) as error:
        _give_up(str(error))
        return
    if isinstance(getattr(kernel, "_cache", None), caching.NullCache):
        kernel._cache = cached  # noqa: SLF001  # numba offers no other way to choose it
        kernel._compile_for_args = Meanwhile(kernel)  # noqa: SLF001  # as above
    else:
        _give_up("Dispatcher._cache")


def _give_up(*changed: str) -> None:
    """Keep no kernels from now on, and say why."""
    _CHANGED.extend(changed)
    _log.warning(
        "numba %s has changed inside (%s): kernels are not kept, and every process compiles them"
        " again; install a version of numba that Seglake names",
        numba.__version__,
        ", ".join(changed),
    )


_CHANGED = list[str]()
if changes := [
    *_changes(caching, _CACHING), *_changes(dispatcher, _DISPATCHER), *_changes(nrt, _NRT)
]:  # fmt: skip
    _give_up(*changes)
else:
    from seglake.kernel_cache import KernelCache
    from seglake.meanwhile import Meanwhile

if TYPE_CHECKING:
    from numba import njit  # which keeps the types of functions
else:
    njit = _njit
