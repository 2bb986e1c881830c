"""Raise errors without a traceback, because Spark would show the whole traceback to the user."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from seglake.errors import SeglakeError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def plain_errors(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """Wrap a function so that it raises every SeglakeError without its traceback."""

    @wraps(function)
    def call(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        try:
            return function(*arguments, **options)
        except SeglakeError as error:
            raise error.with_traceback(None) from None

    return call
