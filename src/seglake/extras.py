"""Name the extra that installs a missing package."""

from collections.abc import Iterator
from contextlib import contextmanager

from seglake.errors import MissingExtra

__all__ = ["extra"]


@contextmanager
def extra(name: str, what: str) -> Iterator[None]:
    """Raise MissingExtra if an import in the block needs a package of the extra `name`.

    `what` is the subject of the message. A ModuleNotFoundError for a module that is missing in an
    installed package is not converted.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        package = (error.name or "").partition(".")[0]
        if error.name != package or package == "seglake":
            raise
        raise MissingExtra(
            f"{what} needs the package {package!r}. Install it: pip install 'seglake[{name}]'"
        ) from None
