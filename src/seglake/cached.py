"""Define a `cached_property` without a lock, like in Python 3.12 and later.

Older versions of Python hold a lock while a property is computed. If the process forks at that
time, the child would wait for this lock forever.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Generic, TypeVar

_Value = TypeVar("_Value")


class cached_property(Generic[_Value]):  # noqa: N801  # its name in `functools`
    """A property whose value is computed at the first access and then cached.

    If several threads compute it at the same time, all of them get the same value.
    """

    def __init__(self, compute: Callable[[Any], _Value]) -> None:
        self._compute, self._name = compute, ""
        self.__doc__ = compute.__doc__

    def __set_name__(self, _owner: type, name: str) -> None:
        self._name = name

    def __get__(self, instance: Any, _owner: type | None = None) -> _Value:
        if instance is None:
            return self  # type: ignore[return-value]  # an access to the attribute of the class
        value: _Value = instance.__dict__.setdefault(self._name, self._compute(instance))
        return value
