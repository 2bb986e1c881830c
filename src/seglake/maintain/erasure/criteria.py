"""Parse the record keys that an erasure removes, and match rejected rows with them.

`rewrites.count_hits` matches records.

The settings that would have given a rejected row its key are unknown. So a row is erased if it
contains a key as a whole word:

    - A whole word has no ASCII letter, digit or underscore directly before or after it. Fields in
      rows of JSON and CSV are whole words. Escaped characters and doubled quotes are recognized.
    - Rows of Parquet files and DataFrames are stored as JSON, with binary columns in base64. The
      decoded base64 is searched, too. There, a short word that is not text must be the whole
      column, because short binary words occur by chance in any binary data.
    - Rows that could not be decoded have the bytes of their file. So rows with NUL bytes are also
      searched as UTF-16 and UTF-32.
    - A key may consist of several fields, joined by the default separator NUL. Then the row must
      contain every field. A binary field may contain NULs, so neighbouring parts of the key may be
      one field.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Callable, Collection, Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass
from functools import reduce
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc

from seglake.cached import cached_property
from seglake.errors import UsageError
from seglake.terminal.wording import counted

BASE64 = "base64:"
_SEPARATOR = b"\0"  # of a key's fields, by default
# A binary word with fewer bytes, or fewer distinct bytes, may occur by chance.
_TELLING_BYTES, _TELLING_KINDS = 8, 4
_BASE64 = re.compile(rb'"([A-Za-z0-9+/]{2,}={0,2})(?="|\Z)')  # a row may have been cut
_MAY_BE_BASE64 = r'"[A-Za-z0-9+/]{2}'
_AFTER_ESCAPE = (  # a word may begin after an escaped character that is not part of a word
    r"\\[bfnrt]|\\u(?i:00(?:[0-2][0-9a-f]|3[a-f]|40|5[b-e]|60|7[b-f]|[89a-f][0-9a-f])"
    r"|(?:0[1-9a-f]|[1-9a-f][0-9a-f])[0-9a-f]{2})"
)
_PATTERN_BYTES = 2000  # of words in one regular expression, because its size is limited
_SHORT = {'"': [r"\""], "\\": [r"\\"], "/": [r"\/"], "\b": [r"\b"], "\f": [r"\f"],
          "\n": [r"\n"], "\r": [r"\r"], "\t": [r"\t"]}  # fmt: skip
_NO_KEY = "an erasure needs a key, or a text in rejected rows"


@dataclass(frozen=True)
class ErasureCriteria:
    """The record keys to erase, and a text in rejected rows to erase. The repr hides both."""

    keys: frozenset[bytes]
    text: bytes = b""

    @staticmethod
    def from_keys(keys: Iterable[str | bytes], text: str | bytes | None = None) -> ErasureCriteria:
        """Return the criteria for keys and a text, which are encoded as UTF-8 if they are `str`.

        Raises UsageError if there is neither a key nor a text.
        """
        distinct = frozenset(map(_bytes, [keys] if isinstance(keys, str | bytes) else keys))
        if not distinct and not text:
            raise UsageError(_NO_KEY)
        return ErasureCriteria(distinct, _bytes(text or b""))

    def __repr__(self) -> str:
        return counted(len(self.keys), "key")

    def rejects(self, raw: Any) -> pa.BooleanArray:
        """Return, for each rejected row in the Arrow array `raw`, whether it must be erased."""
        rows = RejectTexts.from_raw(
            raw.combine_chunks() if isinstance(raw, pa.ChunkedArray) else raw
        )
        matches = rows.contains_any(filter(None, self.keys))
        if self.text:
            pattern = _spellings(self.text)
            for view in (rows.raw, rows.decoded, rows.wide):
                matches = pc.or_(matches, _matches(view, pattern))
        joined = [key for key in sorted(self.keys) if _SEPARATOR in key]
        near = rows.contains_word(max(key.split(_SEPARATOR), key=len) for key in joined)
        some = pc.indices_nonzero(pc.and_not(near, matches))
        left = rows.take(some)
        go = _all_false(left.raw)
        for key in joined if len(some) else []:
            go = pc.or_(go, left.contains_fields(key))
        also = pc.is_in(pa.array(range(len(rows.raw)), pa.uint64()), some.filter(go))
        return pc.or_(matches, also)


@dataclass(frozen=True)
class RejectTexts:
    """Rejected rows as bytes, as their decoded base64 strings, and as decoded UTF-16 and UTF-32."""

    raw: Any
    decoded: Any  # a line for each string in base64
    wide: Any  # see `_wide_text`

    @staticmethod
    def from_raw(raw: Any) -> RejectTexts:
        """Decode rejected rows from an Arrow array of bytes."""

        def converted(pattern: str, convert: Callable[[bytes], bytes]) -> Any:
            rows: list[bytes | None] = [None] * len(raw)
            places: list[Any] = pc.indices_nonzero(_matches(raw, pattern)).to_pylist()
            for at in places:
                rows[at] = convert(raw[at].as_py())
            return pa.array(rows, pa.large_binary())

        decoded = converted(_MAY_BE_BASE64, lambda row: b"\n".join(_encoded_in(row)))
        return RejectTexts(raw, decoded, converted(r"\x00", _wide_text))

    def take(self, places: Any) -> RejectTexts:
        """Return the rows at the positions `places`, in all three forms."""
        return RejectTexts(*(each.take(places) for each in (self.raw, self.decoded, self.wide)))

    def contains_any(self, words: Iterable[bytes]) -> pa.BooleanArray:
        """Return, for each row, whether it has one of the words as a whole word.

        In decoded base64, a short binary word must be the whole string, because it may occur by
        chance.
        """
        every = list(words)
        matches = pc.or_(_has_any(self.raw, every), _has_any(self.wide, every))
        matches = pc.or_(matches, _has_any(self.decoded, filter(_is_distinctive, every)))
        short = frozenset(word for word in every if not _is_distinctive(word))
        if not short:
            return matches
        encoded = [not short.isdisjoint(fields) for fields in self._encoded]
        return pc.or_(matches, pa.array(encoded, pa.bool_()))

    def contains_word(self, words: Iterable[bytes]) -> pa.BooleanArray:
        """Return, for each row, whether any of its forms has one of the words as a whole word.

        Empty words are ignored.
        """
        every = [word for word in words if word]
        views = self.raw, self.decoded, self.wide
        return reduce(pc.or_, (_has_any(view, every) for view in views))

    def contains_fields(self, key: bytes) -> pa.BooleanArray:
        """Return, for each row, whether it has all fields of a key.

        The key may be divided into fields at any of its NULs, and one matching division is enough.
        Empty fields match every row. But if more than half of the parts are empty, they are zero
        bytes of a binary number, and match no row.
        """
        parts = key.split(_SEPARATOR)
        empty = {b""} if 2 * parts.count(b"") <= len(parts) else set[bytes]()
        flags = {part: self.contains_any([part]).to_pylist() for part in {*parts} - {b""}}
        rows = (empty.union(fields, (part for part in flags if flags[part][row]))
                for row, fields in enumerate(self._encoded))  # fmt: skip
        return pa.array([_is_made_of(key, fields) for fields in rows], pa.bool_())

    @cached_property
    def _encoded(self) -> list[list[bytes]]:
        """Return the decoded base64 strings of each row."""
        rows = zip(self.raw.to_pylist(), self.decoded.is_valid().to_pylist(), strict=True)
        return [[*_encoded_in(row)] if has else [] for row, has in rows]


def _is_made_of(key: bytes, fields: Collection[bytes]) -> bool:
    """Return whether a key consists of fields from `fields`, joined by NULs."""
    starts = [0]  # of fields that are still to be found
    for start in starts:
        ends = (start + len(field) for field in fields if key.startswith(field, start))
        for end in ends:
            if end == len(key):
                return True
            if key[end] == 0 and end + 1 not in starts:
                starts.append(end + 1)
    return False


def _encoded_in(row: bytes) -> Iterator[bytes]:
    """Yield the decoded bytes of each string in a row that may be base64."""
    for text in _BASE64.findall(row):
        with suppress(binascii.Error):
            yield base64.b64decode(text[: len(text) // 4 * 4])


def _wide_text(row: bytes) -> bytes:
    """Decode a row as UTF-16 and UTF-32 in both byte orders, from each possible first byte.

    A row that could not be decoded may begin at any byte of its file. Return one line of UTF-8 for
    each decoding.
    """
    texts = (
        row[at:].decode(f"utf-{8 * width}-{order}", "ignore")
        for width in (2, 4) for order in ("le", "be") for at in range(width)
    )  # fmt: skip
    return "\n".join(texts).encode()


def _is_distinctive(word: bytes) -> bool:
    """Return whether a word is unlikely to occur in binary data by chance."""
    if word.isascii() and word.decode().isprintable():
        return True
    return len(word) >= _TELLING_BYTES and len({*word}) >= _TELLING_KINDS


def parse_keys(arguments: Iterable[str], file: Path | str | None = None) -> list[bytes]:
    """Parse the keys in the arguments of a command line and in the lines of a file.

    A key that is binary, is empty, or begins with `base64:` must be written as `base64:` and its
    base64. Empty lines are skipped. Raises UsageError for an empty argument, for invalid base64,
    and for a file that cannot be read or has no key.
    """
    return [*map(_key, arguments), *(_keys_of_file(Path(file)) if file is not None else [])]


def _key(argument: str) -> bytes:
    if not argument:
        raise UsageError(f"a key is empty. For records with an empty key, write {BASE64}")
    return _decoded(argument.encode(errors="surrogateescape"), "a key")


def _keys_of_file(file: Path) -> Iterator[bytes]:
    try:
        data = file.read_bytes().removeprefix(codecs.BOM_UTF8)
    except OSError as error:
        raise UsageError(f"{file}: {error.strerror}") from error
    lines = [line.removesuffix(b"\r") for line in data.split(b"\n")]
    if not any(lines):
        raise UsageError(f"{file} has no keys. Write one in each line")
    return (_decoded(line, f"{file}, line {n}") for n, line in enumerate(lines, 1) if line)


def _decoded(data: bytes, where: str) -> bytes:
    prefix = BASE64.encode()
    if not data.startswith(prefix):
        return data
    try:
        return base64.b64decode(data.removeprefix(prefix), validate=True)
    except binascii.Error as error:
        raise UsageError(f"{where} is not base64 after {BASE64!r}: {error}") from error


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


# ------------------------------------------------------------------ whole words in bytes


def _all_false(raw: Any) -> pa.BooleanArray:
    return pa.array([False] * len(raw), pa.bool_())


def _has_any(raw: Any, words: Iterable[bytes]) -> pa.BooleanArray:
    """Return, for each item, whether it has one of the words as a whole word."""
    matches = _all_false(raw)
    for some in _parts(sorted(set(words))):
        any_word = "|".join(map(_spellings, some))
        pattern = rf"(?:\A|[^0-9A-Za-z_]|{_AFTER_ESCAPE})(?:{any_word})(?:[^0-9A-Za-z_]|\z)"
        matches = pc.or_(matches, _matches(raw, pattern))
    return matches


def _matches(raw: Any, pattern: str) -> pa.BooleanArray:
    """Return, for each binary item, whether an ASCII pattern matches it. Null never matches."""
    matches: Any = pc.match_substring_regex(raw, pattern=pattern)
    flags: pa.BooleanArray = matches.fill_null(False)
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
    """Return a pattern that matches a word if it is plain, JSON-escaped, or has doubled quotes."""
    try:
        return "".join(map(_spelled, word.decode()))
    except UnicodeDecodeError:
        return _literal(word)


def _spelled(character: str) -> str:
    units = character.encode("utf-16-be")
    escaped = "".join(rf"\\u(?i:{units[at : at + 2].hex()})" for at in range(0, len(units), 2))
    may_quote = character.isascii() and not character.isalnum() and character != "_"
    doubled = [2 * character] if may_quote else []
    forms = [_literal(form.encode()) for form in [character, *_SHORT.get(character, []), *doubled]]
    return f"(?:{'|'.join([*forms, escaped])})"


def _literal(data: bytes) -> str:
    return "".join(rf"\x{byte:02x}" for byte in data)
