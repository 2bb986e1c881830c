"""What is to be erased: record keys, and the rejected rows that have one of them.

Nobody knows with which settings a rejected row was to get its key. So a row goes if a key stands in
it as a whole word: no ASCII letter, digit or underscore is directly before or after it. That is how
a field stands in a row of JSON or CSV, also where its characters are escaped or its quotes doubled.
Rows of Parquet files and DataFrames are kept as JSON, in which binary columns are base64: what that
encodes is looked through too. There a word of a few bytes that is no text must be the whole column,
since short binary words stand in any binary data. Rows with NUL bytes are read as UTF-16 and UTF-32
too, since rows that could not be decoded have the bytes of their file.

Of a key made of several fields, joined by the default separator NUL, every field must stand there.
A binary field may have NULs of its own, so neighbouring parts may also be one field.
"""

from __future__ import annotations

import base64
import binascii
import codecs
import re
from collections.abc import Collection, Iterable, Iterator
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
_TELLING_BYTES, _TELLING_KINDS = 8, 4  # a binary word of so many, and different ones
_BASE64 = re.compile(rb'"([A-Za-z0-9+/]{2,}={0,2})(?="|\Z)')  # a row may have been cut
_MAY_BE_BASE64 = r'"[A-Za-z0-9+/]{2}'
_AFTER_ESCAPE = (  # a word may begin behind a character that is escaped, and is none of a word
    r"\\[bfnrt]|\\u(?i:00(?:[0-2][0-9a-f]|3[a-f]|40|5[b-e]|60|7[b-f]|[89a-f][0-9a-f])"
    r"|(?:0[1-9a-f]|[1-9a-f][0-9a-f])[0-9a-f]{2})"
)
_PATTERN_BYTES = 2000  # of words in one regular expression, whose program has a limited size
_SHORT = {'"': [r"\""], "\\": [r"\\"], "/": [r"\/"], "\b": [r"\b"], "\f": [r"\f"],
          "\n": [r"\n"], "\r": [r"\r"], "\t": [r"\t"]}  # fmt: skip
_NO_KEY = "nothing is named: an erasure needs a key, or a text of rejected rows"


@dataclass(frozen=True)
class ErasureCriteria:
    """Record keys, and a text: what has one of them is to be erased. Its repr hides them."""

    keys: frozenset[bytes]
    text: bytes = b""

    @staticmethod
    def of(keys: Iterable[str | bytes], text: str | bytes | None = None) -> ErasureCriteria:
        """From keys and a text; a `str` means its UTF-8. Raises UsageError if there is neither."""
        distinct = frozenset(map(_bytes, [keys] if isinstance(keys, str | bytes) else keys))
        if not distinct and not text:
            raise UsageError(_NO_KEY)
        return ErasureCriteria(distinct, _bytes(text or b""))

    def __repr__(self) -> str:
        return counted(len(self.keys), "key")

    def rejects(self, raw: Any) -> pa.BooleanArray:
        """Which rejected rows go, of their bytes as an Arrow array."""
        rows = RejectTexts.of(raw.combine_chunks() if isinstance(raw, pa.ChunkedArray) else raw)
        matches = pc.or_(rows.have_any(filter(None, self.keys)), self._have_text(rows))
        joined = [key for key in sorted(self.keys) if _SEPARATOR in key]
        near = rows.have_word(max(key.split(_SEPARATOR), key=len) for key in joined)
        some = pc.indices_nonzero(pc.and_not(near, matches))
        left = rows.take(some)
        go = _none(left.raw)
        for key in joined if len(some) else []:
            go = pc.or_(go, left.have_fields(key))
        also = pc.is_in(pa.array(range(len(rows.raw)), pa.uint64()), some.filter(go))
        return pc.or_(matches, also)

    def _have_text(self, rows: RejectTexts) -> pa.BooleanArray:
        if not self.text:
            return _none(rows.raw)
        pattern = _spellings(self.text)
        views = rows.raw, rows.decoded, rows.wide
        return reduce(pc.or_, (_matches(view, pattern) for view in views))


@dataclass(frozen=True)
class RejectTexts:
    """Rejected rows as their bytes, what their strings in base64 encode, and their wide text."""

    raw: Any
    decoded: Any  # a line for each string in base64
    wide: Any  # see `_wide_text`

    @staticmethod
    def of(raw: Any) -> RejectTexts:
        """From the bytes of rows."""
        decoded: list[bytes | None] = [None] * len(raw)
        places: list[Any] = pc.indices_nonzero(_matches(raw, _MAY_BE_BASE64)).to_pylist()
        for at in places:
            decoded[at] = b"\n".join(_encoded_in(raw[at].as_py()))
        wide: list[bytes | None] = [None] * len(raw)
        with_zeros: list[Any] = pc.indices_nonzero(_matches(raw, r"\x00")).to_pylist()
        for at in with_zeros:
            wide[at] = _wide_text(raw[at].as_py())
        return RejectTexts(raw, *(pa.array(each, pa.large_binary()) for each in (decoded, wide)))

    def take(self, places: Any) -> RejectTexts:
        """The rows at these places."""
        return RejectTexts(*(each.take(places) for each in (self.raw, self.decoded, self.wide)))

    def have_any(self, words: Iterable[bytes]) -> pa.BooleanArray:
        """Which rows have one of the words as a field, or within one if that tells something."""
        every = list(words)
        matches = pc.or_(_has_any(self.raw, every), _has_any(self.wide, every))
        matches = pc.or_(matches, _has_any(self.decoded, filter(_tells, every)))
        short = frozenset(word for word in every if not _tells(word))
        return pc.or_(matches, self._encode_one(short)) if short else matches

    def have_word(self, words: Iterable[bytes]) -> pa.BooleanArray:
        """Which rows have one of the words, if it is not empty, anywhere as a whole word."""
        every = [word for word in words if word]
        views = self.raw, self.decoded, self.wide
        return reduce(pc.or_, (_has_any(view, every) for view in views))

    def have_fields(self, key: bytes) -> pa.BooleanArray:
        """Which rows have all fields of a key, however it was made of them.

        An empty field is none if most parts are empty: then they are zeros of a number.
        """
        parts = key.split(_SEPARATOR)
        empty = {b""} if 2 * parts.count(b"") <= len(parts) else set[bytes]()
        flags = {part: self.have_any([part]).to_pylist() for part in {*parts} - {b""}}
        rows = (empty.union(fields, (part for part in flags if flags[part][row]))
                for row, fields in enumerate(self._encoded))  # fmt: skip
        return pa.array([_is_made_of(key, fields) for fields in rows], pa.bool_())

    def _encode_one(self, words: frozenset[bytes]) -> pa.BooleanArray:
        """Which rows have a string in base64 that is one of the words."""
        return pa.array([not words.isdisjoint(fields) for fields in self._encoded], pa.bool_())

    @cached_property
    def _encoded(self) -> list[list[bytes]]:
        """What the strings of each row encode."""
        rows = zip(self.raw.to_pylist(), self.decoded.is_valid().to_pylist(), strict=True)
        return [[*_encoded_in(row)] if has else [] for row, has in rows]


def _is_made_of(key: bytes, fields: Collection[bytes]) -> bool:
    """Whether a key is some of the fields, with NULs between them."""
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
    """What each string of a row encodes that may be base64."""
    for text in _BASE64.findall(row):
        with suppress(binascii.Error):
            yield base64.b64decode(text[: len(text) // 4 * 4])


def _wide_text(row: bytes) -> bytes:
    """What a row says as UTF-16 or UTF-32 of either byte order, a line for each place to begin at.

    A row that could not be decoded has the bytes of its file, from any byte on.
    """
    texts = (
        row[at:].decode(f"utf-{8 * width}-{order}", "ignore")
        for width in (2, 4) for order in ("le", "be") for at in range(width)
    )  # fmt: skip
    return "\n".join(texts).encode()


def _tells(word: bytes) -> bool:
    """Whether a word in binary data is hardly there by chance."""
    if word.isascii() and word.decode().isprintable():
        return True
    return len(word) >= _TELLING_BYTES and len({*word}) >= _TELLING_KINDS


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


def _decoded(data: bytes, where: str) -> bytes:
    prefix = BASE64.encode()
    if not data.startswith(prefix):
        return data
    try:
        return base64.b64decode(data.removeprefix(prefix), validate=True)
    except binascii.Error as error:
        raise UsageError(f"{where} is not base64 behind {BASE64!r}: {error}") from error


def _bytes(value: str | bytes) -> bytes:
    return value.encode() if isinstance(value, str) else value


# ------------------------------------------------------------------ whole words in bytes


def _none(raw: Any) -> pa.BooleanArray:
    return pa.array([False] * len(raw), pa.bool_())


def _has_any(raw: Any, words: Iterable[bytes]) -> pa.BooleanArray:
    """Which items have one of the words as a whole word."""
    matches = _none(raw)
    for some in _parts(sorted(set(words))):
        any_word = "|".join(map(_spellings, some))
        pattern = rf"(?:\A|[^0-9A-Za-z_]|{_AFTER_ESCAPE})(?:{any_word})(?:[^0-9A-Za-z_]|\z)"
        matches = pc.or_(matches, _matches(raw, pattern))
    return matches


def _matches(raw: Any, pattern: str) -> pa.BooleanArray:
    """Arrow matches binary data byte by byte; the pattern is ASCII."""
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
    """The pattern of a word as rows have it: plain, in JSON's escapes, with doubled quotes."""
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
