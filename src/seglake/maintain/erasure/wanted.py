"""What is to be erased: record keys, and the rejected rows that have one of them.

Nobody knows with which settings a rejected row was to get its key. So a row goes if a key stands in
it as a whole word: no ASCII letter, digit or underscore is directly before or after it. That is how
a field stands in a row of JSON or CSV, also where its characters are escaped or its quotes doubled.
Of a key made of several fields, joined by the default separator NUL, every field must stand there.
"""

from __future__ import annotations

import base64
import binascii
import codecs
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seglake.errors import UsageError

BASE64 = "base64:"
_SEPARATOR = b"\0"  # of a key's fields, by default
_PATTERN_BYTES = 2000  # of words in one regular expression, whose program has a limited size
_SHORT = {'"': [r"\"", '""'], "\\": [r"\\"], "/": [r"\/"], "\b": [r"\b"], "\f": [r"\f"],
          "\n": [r"\n"], "\r": [r"\r"], "\t": [r"\t"]}  # fmt: skip
_NO_KEY = "nothing is named: an erasure needs a key, or a text of rejected rows"


@dataclass(frozen=True)
class Wanted:
    """Record keys, and a text: what has one of them is to be erased. Its repr hides them."""

    keys: frozenset[bytes]
    text: bytes = b""

    @staticmethod
    def of(keys: Iterable[str | bytes], text: str | bytes | None = None) -> Wanted:
        """From keys and a text; a `str` means its UTF-8. Raises UsageError if there is neither."""
        given = frozenset(map(_bytes, [keys] if isinstance(keys, str | bytes) else keys))
        if not given and not text:
            raise UsageError(_NO_KEY)
        return Wanted(given, _bytes(text or b""))

    def __repr__(self) -> str:
        return f"{len(self.keys)} keys"

    def rejects(self, raw: Any) -> pa.BooleanArray:
        """Which rejected rows go, of their bytes as an Arrow array."""
        raw = raw.combine_chunks() if isinstance(raw, pa.ChunkedArray) else raw
        keys = [[word for word in key.split(_SEPARATOR) if word] for key in sorted(self.keys)]
        found = _has_any(raw, [words[0] for words in keys if len(words) == 1])
        found = pc.or_(found, self._has_text(raw))
        joined = [words for words in keys if len(words) > 1]
        some = pc.indices_nonzero(_has_any(raw, [words[0] for words in joined]))
        rows = pa.array([False] * len(some), pa.bool_())
        for words in joined if len(some) else []:
            rows = pc.or_(rows, _has_all(raw.take(some), words))
        also = pc.is_in(pa.array(range(len(raw)), pa.uint64()), some.filter(rows))
        return pc.or_(found, also)

    def _has_text(self, raw: Any) -> pa.BooleanArray:
        if not self.text:
            return _none(raw)
        return _matches(raw, _spellings(self.text))


def keys_given(arguments: Iterable[str], file: Path | str | None = None) -> list[bytes]:
    """The keys of a command line: its arguments, and the lines of a file.

    `base64:` stands before the base64 of a key that is not text, or empty, or begins so itself.
    Empty lines count for nothing. Raises UsageError for an empty argument, for invalid base64, and
    for a file that cannot be read or has no key.
    """
    return [*map(_key, arguments), *(_keys_of_file(Path(file)) if file is not None else [])]


def _key(argument: str) -> bytes:
    if not argument:
        raise UsageError(f"a key is empty; {BASE64} alone names the empty key, if that is meant")
    return _decoded(argument.encode(errors="surrogateescape"), "a key")


def _keys_of_file(file: Path) -> Iterator[bytes]:
    try:
        data = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    if not any(lines):
        raise UsageError(f"{file} has no key; it needs one in each line")
    return (_decoded(line, f"{file}, line {n}") for n, line in enumerate(lines, 1) if line)


def _decoded(given: bytes, where: str) -> bytes:
    prefix = BASE64.encode()
    if not given.startswith(prefix):
        return given
    try:
        return base64.b64decode(given.removeprefix(prefix), validate=True)
    except binascii.Error as error:
        raise UsageError(f"{where} is not base64 behind {BASE64!r}: {error}") from error


def _bytes(given: str | bytes) -> bytes:
    return given.encode() if isinstance(given, str) else given


# ------------------------------------------------------------------ whole words in bytes


def _none(raw: Any) -> pa.BooleanArray:
    return pa.array([False] * len(raw), pa.bool_())


def _has_all(raw: Any, words: Iterable[bytes]) -> pa.BooleanArray:
    found = pa.array([True] * len(raw), pa.bool_())
    for word in words:
        found = pc.and_(found, _has_any(raw, [word]))
    return found


def _has_any(raw: Any, words: Iterable[bytes]) -> pa.BooleanArray:
    """Which items have one of the words as a whole word."""
    found = _none(raw)
    for some in _parts(sorted(set(words))):
        any_word = "|".join(map(_spellings, some))
        pattern = rf"(?:\A|[^0-9A-Za-z_])(?:{any_word})(?:[^0-9A-Za-z_]|\z)"
        found = pc.or_(found, _matches(raw, pattern))
    return found


def _matches(raw: Any, pattern: str) -> pa.BooleanArray:
    """Arrow matches binary data byte by byte; the pattern is ASCII."""
    found: Any = pc.match_substring_regex(raw, pattern=pattern)
    flags: pa.BooleanArray = found.fill_null(False)
    return flags


def _parts(words: Iterable[bytes]) -> Iterator[list[bytes]]:
    part, size = list[bytes](), 0
    for word in words:
        if part and size + len(word) > _PATTERN_BYTES:
            yield part
            part, size = [], 0
        part.append(word)
        size += len(word)
    if part:
        yield part


def _spellings(word: bytes) -> str:
    """The pattern of a word as rows have it: plain, in JSON's escapes, with doubled quotes."""
    try:
        return "".join(map(_spelled, word.decode()))
    except UnicodeDecodeError:
        return _literal(word)


def _spelled(character: str) -> str:
    units = character.encode("utf-16-be")
    escaped = "".join(rf"\\u(?i:{units[at : at + 2].hex()})" for at in range(0, len(units), 2))
    forms = [_literal(form.encode()) for form in [character, *_SHORT.get(character, [])]]
    return f"(?:{'|'.join([*forms, escaped])})"


def _literal(data: bytes) -> str:
    return "".join(rf"\x{byte:02x}" for byte in data)
