"""Let something happen, or a command die, at a named moment: before it calls a function."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def before_first(
    patch: pytest.MonkeyPatch,
    owner: Any,
    name: str,
    act: Callable[[], object],
    when: Callable[..., bool] = lambda *_given, **_named: True,
) -> None:
    """Call `act` once, before the first call of `owner.name` whose arguments are as `when` says."""
    real = getattr(owner, name)

    def instead(*given: Any, **named: Any) -> Any:
        if when(*given, **named):
            patch.setattr(owner, name, real)
            act()
        return real(*given, **named)

    patch.setattr(owner, name, instead)


@contextmanager
def dying_before(
    owner: Any, name: str, when: Callable[..., bool] = lambda *_given, **_named: True
) -> Iterator[None]:
    """In the block, expect a command to be interrupted before it calls `owner.name`."""

    def die() -> None:
        raise KeyboardInterrupt

    with pytest.MonkeyPatch.context() as patch:
        before_first(patch, owner, name, die, when)
        with pytest.raises(KeyboardInterrupt):
            yield
