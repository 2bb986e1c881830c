"""Let something happen at a named moment of a command: before it calls a function."""

from __future__ import annotations

from collections.abc import Callable
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
