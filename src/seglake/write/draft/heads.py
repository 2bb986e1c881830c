"""The first lines of files that nobody has described, and what is said of files that have none."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import NamedTuple, TypeVar

from seglake.errors import InputError
from seglake.write.draft.encoding import Beginning, encoding_of
from seglake.write.input.binaries import NO_TEXT, binary_remark, is_binary
from seglake.write.input.codecs import HEAD_BYTES, codec_of
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile
from seglake.write.rows.arrays import array_alone, lines_of
from seglake.write.rows.hints import LF_FOR_CR, LINES_OF_AN_ARRAY
from seglake.write.rows.objects import not_one_a_line

_HEAD_BYTES = 1 << 18  # read of each
_ROWS = 1000  # taken of each
_LOOKED_AT = 10  # lines
_MOST_ZEROS = 0.1  # of the lines may have bytes of zero, as after a loss of power
_LONG_BYTES = 1 << 24  # read for the sake of a first line
_SEPARATOR = re.compile(r"sep=.")
_ARRAY = re.compile(r"\s*\[\s*(?:[{\[]|$)")

Item = TypeVar("Item")
Refused = dict[SourceFile, str]


class Head(NamedTuple):
    """The first whole lines of a file, without the empty ones, and the number of each, from 1."""

    file: SourceFile
    path: str
    lines: list[str]
    numbers: list[int]


class Heads(NamedTuple):
    """The heads of some files, their encoding, what is not sure about it, and the files without."""

    heads: list[Head]
    encoding: str
    doubts: list[str]
    refused: Refused


def heads_of(files: Iterable[SourceFile], store: InputStore) -> Heads:
    """The first lines of files. Raises InputError if none of them has lines."""
    beginnings, unread = each_of(files, lambda file: _beginning(file, store))
    encoding, doubts = encoding_of([*beginnings.values()])
    heads, others = each_of(beginnings, lambda file: _head(file, beginnings[file], encoding))
    return Heads([*heads.values()], encoding, doubts, unread | others)


def each_of(
    files: Iterable[SourceFile], read: Callable[[SourceFile], Item]
) -> tuple[dict[SourceFile, Item], Refused]:
    """What is read of each file, and why some cannot be. Raises InputError if none can."""
    items, refused = dict[SourceFile, Item](), Refused()
    for file in files:
        try:
            items[file] = read(file)
        except InputError as error:
            refused[file] = str(error)
    if not items:
        raise InputError(next(iter(refused.values())))
    return items, refused


def _beginning(file: SourceFile, store: InputStore) -> Beginning:
    """The first bytes of a file, or of the first member of an archive."""
    path, content = next(store.contents(file), (file.path, None))
    data = bytearray()
    most, whole = _HEAD_BYTES, content is None
    while content is not None and len(data) < most and not whole:
        more = content.read(most - len(data))
        data += more
        whole = not more
        if len(data) == most and not (b"\n" in data or b"\r" in data):
            most = min(2 * most, _LONG_BYTES)  # the first line is longer
    if remark := binary_remark(bytes(data[:HEAD_BYTES])):
        raise InputError(f"{path}: {remark}")
    if codec := codec_of(bytes(data[:HEAD_BYTES]), path):
        where = "an archive" if path != file.path else "a packed file"
        raise InputError(
            f"{path}: is {codec} inside {where}, and that is not unpacked: unpack the outer one, "
            "and name what is in it"
        )
    return Beginning(path, bytes(data), whole=whole)


def _head(file: SourceFile, beginning: Beginning, encoding: str) -> Head:
    """The first lines of a file. Raises InputError if it is no text of lines."""
    path, text = beginning.path, beginning.text(encoding).removeprefix("\ufeff")
    lines = [line.removesuffix("\r") for line in text.split("\n" if "\n" in text else "\r")]
    if not beginning.whole and len(lines) > 1:
        lines.pop()  # it may be cut
    rows = list(islice(((n, line) for n, line in enumerate(lines, 1) if line.strip()), _ROWS))
    head = Head(file, path, [line for _, line in rows], [number for number, _ in rows])
    if sum("\0" in line for line in head.lines) > _MOST_ZEROS * len(head.lines):
        raise InputError(f"{path}: is no text: bytes of zero stand in it; name other files")
    if "\n" not in text and len(head.lines) > 1:
        if is_binary(text.encode("utf-8", "replace")):
            raise InputError(f"{path}: {NO_TEXT}")
        raise InputError(f"{path}: lines end with CR alone, which ends no line here: {LF_FOR_CR}")
    if problem := next(_no_rows(head.lines, path), None):
        raise InputError(f"{path}: {problem}")
    return head


def _no_rows(lines: list[str], path: str) -> Iterator[str]:
    """What is wrong with lines that are no rows, and the remedy."""
    if not lines:
        return
    if _SEPARATOR.fullmatch(lines[0].strip()):
        yield (
            f"its first line, {lines[0].strip()!r}, is for Excel, and no header of CSV: take it "
            "away, as `tail -n +2 < FILE` does"
        )
    if _ARRAY.match(lines[0]):
        yield f"is a JSON array; one JSON object a line is wanted: {LINES_OF_AN_ARRAY}"
    if (name := _array_of_all(lines)) is not None:
        yield f"its lines have an array of objects and nothing else: {lines_of(name, path)}"
    yield from not_one_a_line(lines)


def _array_of_all(lines: list[str]) -> str | None:
    """The field of the first line that is an array, if each line has one alone."""
    names = [array_alone(line.encode("utf-8", "replace")) for line in lines[:_LOOKED_AT]]
    return names[0] if None not in names else None
