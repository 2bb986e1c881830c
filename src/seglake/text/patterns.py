"""Match texts with regular expressions (RE2) whose named groups are fields.

A match must begin at the start of the text.
"""

from __future__ import annotations

from typing import Any

import pyarrow as pa
import pyarrow.compute

pc: Any = pyarrow.compute  # Any, because its stubs require the type of each item


def named_groups(pattern: str) -> tuple[str, ...]:
    """Return the names of a pattern's named groups, in order.

    Raises `pa.ArrowInvalid` for a pattern that RE2 does not accept.
    """
    groups = pc.extract_regex(pa.array([], pa.string()), pattern)
    return tuple(field.name for field in groups.type)


def match_groups(texts: Any, pattern: str) -> Any:
    """Return an Arrow array with a struct of the named groups for each text of an Arrow array.

    The struct is null if the text does not match.
    """
    return pc.extract_regex(texts, f"^(?:{pattern})")
