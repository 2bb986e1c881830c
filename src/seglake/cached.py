"""A `cached_property` without a lock, as Python has it from 3.12 on.

Older versions of Python hold a lock while a property is computed. If a process forks in the
meantime, the child would wait for this lock forever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")


class cached_property(Generic[_Value]):  # noqa: N801  # its name in `functools`
    """A property that is cached after the first access.

    If several threads compute it at the same time, all get the same value.
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute, self._name = compute, ""
        self.__doc__ = compute.__doc__

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, _owner: type | None = None) -> _Value:
        if instance is None:
            return self  # type: ignore[return-value]  # as of the class, for tools
        value: _Value = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value
