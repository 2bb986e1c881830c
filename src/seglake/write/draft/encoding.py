"""The encoding of files that nobody has described, from their beginnings."""

from __future__ import annotations

import codecs
from collections import Counter
from collections.abc import Sequence
from typing import NamedTuple

from seglake.write.input.encodings import UTF_8

_MARKS = (  # utf-32 first: its little-endian mark begins as that of utf-16
    (codecs.BOM_UTF32_LE, "utf-32"),
    (codecs.BOM_UTF32_BE, "utf-32"),
    (codecs.BOM_UTF16_LE, "utf-16"),
    (codecs.BOM_UTF16_BE, "utf-16"),
)
_ANY = "ascii"  # nearly every encoding reads it
_FEW = 0.01  # of the lines of a file


class Beginning(NamedTuple):
    """The first bytes of a file; `whole` if the file has no more."""

    path: str
    data: bytes
    whole: bool

    def text(self, encoding: str) -> str:
        """The bytes as text; what cannot be read becomes U+FFFD, what is cut is left out."""
        return codecs.getincrementaldecoder(encoding)("replace").decode(self.data, self.whole)

    def is_in(self, encoding: str) -> bool:
        """Whether all bytes can be read."""
        try:
            codecs.getincrementaldecoder(encoding)("strict").decode(self.data, self.whole)
        except UnicodeError:
            return False
        return True

    def encoding(self) -> str:
        """By a byte order mark, bytes of zero, or else the first that reads all."""
        for mark, name in _MARKS:
            if self.data.startswith(mark):
                return name
        if b"\0" in self.data:
            return self._by_zeros()
        return next(name for name in (_ANY, UTF_8, "cp1252", "latin-1") if self._may_be(name))

    def _by_zeros(self) -> str:
        """UTF-16 without a mark, if every second byte is mostly zero and the text can be read."""
        for first, name in ((0, "utf-16-be"), (1, "utf-16-le")):
            high, low = self.data[first::2], self.data[1 - first :: 2]
            if 2 * high.count(0) > len(high) and not low.count(0) and self.is_in(name):
                return name
        return UTF_8

    def _may_be(self, encoding: str) -> bool:
        """Whether all can be read; for UTF-8, whether most lines that are not ASCII can.

        Or nearly all lines, ASCII or not, among them the first, which may be a header: then the
        others are damaged rather than of an encoding.
        """
        if encoding != UTF_8:
            return self.is_in(encoding)
        lines = self.text(UTF_8).split("\n")
        others = [line for line in lines if not line.isascii()]
        wrong = sum("\ufffd" in line for line in others)
        are_damaged = wrong < _FEW * len(lines) and "\ufffd" not in lines[0]
        return 2 * wrong <= len(others) or are_damaged


def encoding_of(beginnings: Sequence[Beginning]) -> tuple[str, list[str]]:
    """The encoding of most files, and what is not sure about it, in sentences."""
    found = {each.path: each.encoding() for each in beginnings if each.data}
    counts = Counter(found.values())
    del counts[_ANY]
    if not counts:
        return UTF_8, []
    ((encoding, _), *others) = counts.most_common()
    doubts = list[str]()
    if encoding in {"cp1252", "latin-1"}:
        doubts.append(
            f"the files are not UTF-8; input.encoding = {encoding!r} is a guess: look whether its "
            "letters are right"
        )
    elif encoding != UTF_8:
        doubts.append(f"input.encoding = {encoding!r}, by the first bytes of the files")
    if others:
        names = ", ".join(name for name, _ in others)
        which = [path for path, name in found.items() if name not in {encoding, _ANY}]
        doubts.append(
            f"other files are in {names}, such as {which[0]}: leave them out with input.exclude, "
            "and ingest them by another pipeline"
        )
    return encoding, doubts
