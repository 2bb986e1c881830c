"""Fields that are texts without a type, as CSV and lines of text have them."""

from __future__ import annotations

from abc import ABC, abstractmethod
from typing import Any

import numpy as np
import pyarrow.compute

from seglake.format.records import Flags, Spans
from seglake.text.json import quoted
from seglake.text.json_fields import Scalars
from seglake.text.spans import to_arrow

_RAW_JSON = r"^(true|false|-?(0|[1-9][0-9]*)(\.[0-9]+)?([eE][+-]?[0-9]+)?)$"

pc: Any = pyarrow.compute  # its stubs ask for the type of each item


class UntypedFields(ABC):
    """Fields of values that have no types, with the methods of `JsonFields`.

    `fine` says in which values fields can be found.
    """

    fine: Flags

    @abstractmethod
    def text(self, name: str) -> Spans:
        """The texts of a field; null if it is empty or missing."""

    def json(self, name: str) -> Spans:
        """The texts of a field as JSON strings; null if missing."""
        return quoted(self.text(name))

    def scalars(self, name: str) -> Scalars:
        """The texts of a field that are there.

        A text that reads as a JSON number, true or false counts as one, too.
        """
        texts = self.text(name)
        rows = np.flatnonzero(texts.lengths >= 0)
        some = texts.take(rows)
        raw = pc.match_substring_regex(to_arrow(some), _RAW_JSON)
        return Scalars(rows, some, raw.to_numpy(zero_copy_only=False))

    def is_null(self, name: str) -> Flags:
        """Whether a value that is fine lacks the field, or has it empty."""
        null: Flags = self.fine & (self.text(name).lengths < 0)
        return null
