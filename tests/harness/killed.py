"""Let an exception end a command as a kill does."""

from collections.abc import Iterator
from contextlib import contextmanager
from unittest.mock import patch

from seglake.catalog import transaction


@contextmanager
def killed() -> Iterator[None]:
    """In the block, a command that ends by an exception withdraws nothing and deletes nothing."""
    with (
        patch.object(transaction._Transaction, "_withdraw", lambda _: None),
        patch.object(transaction, "abandon_unless_claimed", lambda *_: False),
        patch.object(transaction, "_delete_own_segments", lambda *_: None),
    ):
        yield
