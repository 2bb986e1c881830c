"""Match patterns whose named groups are fields: RE2 expressions, from the start of a text."""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # Any, because its stubs require the type of each item


def named_groups(pattern: str) -> tuple[str, ...]:
    """Return the named groups of a pattern. Raises `pa.ArrowInvalid` unless it is valid in RE2."""
    groups = pc.extract_regex(pa.array([], pa.string()), pattern)
    return tuple(field.name for field in groups.type)


def match_groups(texts: Any, pattern: str) -> Any:
    """Return the groups of each text of an Arrow array as a struct; null if it does not match."""
    return pc.extract_regex(texts, f"^(?:{pattern})")
