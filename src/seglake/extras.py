"""What a plain `pip install seglake` leaves out, and how to get it."""

from collections.abc import Iterator
from contextlib import contextmanager

from seglake.errors import MissingExtra

__all__ = ["extra"]


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Imports in the block need the extra `name`; `what` is the subject of the message.

    Raises MissingExtra for a package that is not installed. If an installed package lacks a module,
    the ModuleNotFoundError stays as it is.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if error.name != package or package == "seglake":
            raise
        raise MissingExtra(
            f"{what} needs the package {package!r}: pip install 'seglake[{name}]'"
        ) from None
