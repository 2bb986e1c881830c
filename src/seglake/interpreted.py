"""Kernels as plain Python: what numba's types do to numbers and rows, and what intrinsics do."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import numpy as np

_Function = TypeVar("_Function", bound=Callable[..., Any])


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
