"""Errors without a traceback, which Spark would show to the user as a whole."""

from collections.abc import Callable
from functools import wraps
from typing import ParamSpec, TypeVar

from seglake.errors import SeglakeError

_Arguments = ParamSpec("_Arguments")
_Result = TypeVar("_Result")


def plain_errors(function: Callable[_Arguments, _Result]) -> Callable[_Arguments, _Result]:
    """The function, with `plain` for every SeglakeError that it raises."""

    @wraps(function)
    def call(*arguments: _Arguments.args, **options: _Arguments.kwargs) -> _Result:
        try:
            return function(*arguments, **options)
        except SeglakeError as error:
            raise plain(error) from None

    return call


def plain(error: SeglakeError) -> SeglakeError:
    """The same error without its traceback."""
    return error.with_traceback(None)
