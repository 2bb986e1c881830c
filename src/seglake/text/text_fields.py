"""Fields of lines of text: the named groups of a pattern."""

from __future__ import annotations

from typing import Any

import pyarrow.compute

from seglake.format.records import Flags, Spans
from seglake.text.patterns import matches_of
from seglake.text.spans import from_arrow, to_arrow, where_null
from seglake.text.untyped_fields import UntypedFields
from seglake.text.utf8 import invalid_utf8

pc: Any = pyarrow.compute  # its stubs ask for the type of each item


class TextFields(UntypedFields):
    """The fields of texts in a padded buffer. A text is fine if it is UTF-8 and matches.

    `invalid` says which texts are not UTF-8.
    """

    def __init__(self, texts: Spans, pattern: str) -> None:
        self.invalid: Flags = invalid_utf8(*texts)
        self._matches = matches_of(to_arrow(where_null(texts, self.invalid)), pattern)
        self._names = {field.name for field in self._matches.type}
        self.fine: Flags = self._matches.is_valid().to_numpy(zero_copy_only=False)

    def text(self, name: str) -> Spans:
        """The text of a group; null if it is empty, not part of the match, or no group."""
        if name not in self._names:
            return Spans.nulls(len(self.fine))
        spans = from_arrow(pc.struct_field(self._matches, name))
        return where_null(spans, spans.lengths <= 0)
