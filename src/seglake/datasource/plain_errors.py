"""Raise errors without a traceback, because Spark would show the whole traceback to the user."""

from contextlib import ContextDecorator

from seglake.errors import SeglakeError


class PlainErrors(ContextDecorator):
    """Raises every SeglakeError of a block, or of a decorated function, without its traceback."""

    def __enter__(self) -> None:
        """Do nothing."""

    def __exit__(self, _kind: object, error: BaseException | None, _traceback: object) -> None:
        if isinstance(error, SeglakeError):
            raise error.with_traceback(None) from None
