"""A store that answers 403 for some objects."""

from typing import Any

import pytest

from seglake.errors import StoreError
from tests.makers.lakes import LakeMaker


def refuse(patch: pytest.MonkeyPatch, lake: LakeMaker, *keys: str) -> None:
    """From now on, storage says nothing about these objects."""
    kind: Any = type(lake.store)
    real = kind.stat

    def stat(store: Any, key: str) -> Any:
        if key in keys:
            raise StoreError(f"{store.uri}/{key}: 403 Forbidden")
        return real(store, key)

    patch.setattr(kind, "stat", stat)
