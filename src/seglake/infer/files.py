"""Choose the input files for a pipeline, and read the first lines of a sample of them."""

from __future__ import annotations

import codecs
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from fnmatch import fnmatchcase
from glob import escape
from itertools import islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar

from seglake.advice.finding import Finding
from seglake.advice.json_shapes import EventArray, events_of
from seglake.config import Input
from seglake.errors import InputError
from seglake.write.input.binaries import NO_TEXT, describe_binary, is_binary
from seglake.write.input.codecs import HEAD_BYTES, SUFFIXES, detect_codec
from seglake.write.input.content import InputStore
from seglake.write.input.encodings import UTF_8
from seglake.write.input.files import SourceFile
from seglake.write.input.listing import GLOB_HINT, HIDDEN, MissingPath, find_inputs, is_glob
from seglake.write.rows.json_rows import first_events

_SPREAD, _LARGEST = 5, 3  # number of sampled files: far apart in the listing, and largest
_SAMPLED_BYTES, _LONGEST_LINE_BYTES = 1 << 18, 1 << 24
_SAMPLED_LINES = 1000
_EXAMINED = 10
_HASH = r"(?![0-9A-Fa-f]{8,}\b|[0-9A-Z]{8,}\b)"  # E1.2026-11-20-03.b68daeed.gz has no suffix
_SUFFIX = re.compile(rf"\.{_HASH}([A-Za-z]\w*?)(?:-\d[\d_T:-]*)?(?:\.(?:{SUFFIXES}|[\d_T:-]+))*$")
_PARTITION_FOLDER = re.compile(r"(?<=/)([A-Za-z_][\w.-]*)=[^/]*(?=/)")  # day=2026-11-01
_MARKS = {  # UTF-32 first, because its little-endian mark begins with UTF-16's mark
    "utf-32": (codecs.BOM_UTF32_LE, codecs.BOM_UTF32_BE),
    "utf-16": (codecs.BOM_UTF16_LE, codecs.BOM_UTF16_BE),
}
_FEW_DAMAGED = 0.01  # share of lines that may be damaged

Item = TypeVar("Item")
Refused = dict[SourceFile, str]


class ChosenFiles(NamedTuple):
    """The files that a pipeline will read, and findings about the other files.

    `settings` has the keys `include` and `exclude` of `[input]` that select these files.
    """

    files: list[SourceFile]
    settings: dict[str, Any]
    findings: list[Finding]


class FirstLines(NamedTuple):
    """The first non-empty lines of a file, and the number of each line, from 1.

    If the file has JSON documents with arrays of events, `events` is the path to these events, and
    `lines` are the first events.
    """

    file: SourceFile
    path: str
    lines: list[str]
    numbers: list[int]
    events: EventArray | None = None


# ---------------------------------------------------------------- which files


def choose_files(
    paths: Sequence[str], store: InputStore, root: str, output: Path | None
) -> ChosenFiles:
    """Choose the files with the suffix that has the most bytes. Leave out files of the lake.

    `root` is the root of the lake. `output` is the pipeline file that will be written; if it is
    below one of `paths`, the settings exclude it. Raises InputError if a path does not exist, or if
    all files are empty.
    """
    files = _files_with_bytes(paths, store, root)
    kinds, sizes = _kinds(files), Counter[str]()
    for file in files:
        sizes[kinds[file.path]] += file.size
    ((suffix, _),) = sizes.most_common(1)
    chosen = [file for file in files if kinds[file.path] == suffix]
    others = [file for file in files if kinds[file.path] != suffix]
    is_inside = output is not None and any(_contains(path, output) for path in paths)
    settings = dict[str, Any]()
    if suffix and (others or is_inside):
        settings["include"] = _globs(chosen)
        strays = {_suffix(each) for each in others if _is_included(each, settings["include"])}
        if strays:  # such as "xz" in a.jsonl.xz
            settings["exclude"] = [f"*.{each}" for each in sorted(strays) if each]
    elif others or is_inside:
        settings["exclude"] = _globs(others) + ["*.toml"] * is_inside
    names = [file.path for file in others]
    found = [Finding("other-files", names[0], {"suffix": suffix}, len(names))] if names else []
    folders = {match[1]: match[0] for each in chosen
               for match in _PARTITION_FOLDER.finditer(each.path)}  # fmt: skip
    found += [Finding("partition-folder", name, {"folder": folders[name]}) for name in folders]
    return ChosenFiles(chosen, settings, found)


def sampled_files(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Return up to eight files: five that are far apart in the list, and the three largest."""
    spread = {at * (len(files) - 1) // (_SPREAD - 1) for at in range(_SPREAD)}
    largest = sorted(range(len(files)), key=lambda at: -files[at].size)[:_LARGEST]
    return [files[at] for at in sorted({*spread, *largest})]


def exclude_refused(refused: Refused, chosen: ChosenFiles, paths: Sequence[str]) -> ChosenFiles:
    """Remove refused files from the chosen files, and add them to `input.exclude`.

    `refused` has file → reason for each file that cannot be ingested together with the others. If
    one of `paths` is such a file, raise InputError with the reason.
    """
    if not refused:
        return chosen
    absolute = {path if "://" in path else str(Path(path).absolute()) for path in paths}
    if named := next((file for file in refused if file.path in absolute), None):
        raise InputError(refused[named])
    globs = [_exclusion(file, chosen.files) for file in refused]
    settings = {**chosen.settings, "exclude": [*chosen.settings.get("exclude", ()), *globs]}
    found = [Finding("file-left-out", file.path, {"why": why}) for file, why in refused.items()]
    files = [file for file in chosen.files if file not in refused]
    return ChosenFiles(files, settings, [*chosen.findings, *found])


def _files_with_bytes(paths: Sequence[str], store: InputStore, root: str) -> list[SourceFile]:
    names = ", ".join(paths)
    try:
        settings = Input(paths=tuple(paths), format="text", on_empty="ok")
        listed = find_inputs(settings, store, root).distinct()
    except MissingPath as missing:
        raise InputError(f"{missing.what}. Correct the path") from None
    if listed.missing:
        raise InputError(f"there is no {', '.join(listed.missing)}. Correct the path")
    if not listed.files:
        hint = GLOB_HINT if any(is_glob(path, store) for path in paths) else f" ({HIDDEN})"
        raise InputError(f"found no files in {names}. Give other paths{hint}")
    files = [file for file in listed.files if file.size]
    if not files:
        raise InputError(f"all files in {names} are empty. Give other paths")
    return files


def _contains(path: str, output: Path) -> bool:
    return Path(path).is_dir() and output.absolute().is_relative_to(Path(path).absolute())


def _globs(files: Sequence[SourceFile]) -> list[str]:
    """Return globs for the suffixes of files. They also match rotated names such as a.log.1."""
    suffixes = sorted({_suffix(file) for file in files} - {""})
    return [f"*.{each}{more}" for each in suffixes for more in ("", ".*", "-[0-9]*")]


def _is_included(file: SourceFile, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(file.path.rpartition("/")[2], glob) for glob in globs)


def _kinds(files: Sequence[SourceFile]) -> dict[str, str]:
    """Return path → suffix of the file in lower case. Suffixes that are unique ids become ""."""
    suffixes = {file.path: _suffix(file).lower() for file in files}
    counts = Counter(suffixes.values())
    ids = {each for each, count in counts.items() if count == 1 and re.search(r"\d", each)}
    return {path: "" if len(ids) > 1 and each in ids else each for path, each in suffixes.items()}


def _suffix(file: SourceFile) -> str:
    """Return the suffix of a file's name, ignoring suffixes of codecs and of log rotation.

    For example, "jsonl" for "a.jsonl.1.gz", or "" without a suffix.
    """
    match = _SUFFIX.search(file.path.rpartition("/")[2])
    return match[1] if match and not re.fullmatch(SUFFIXES, match[1]) else ""


def _exclusion(file: SourceFile, among: Sequence[SourceFile]) -> str:
    """Return a glob that matches only `file`: its name, and folders if the name is not unique."""
    parts = file.path.split("/")
    ends = ("/".join(parts[-depth:]) for depth in range(1, len(parts)))
    unique = (end for end in ends if sum(each.path.endswith(f"/{end}") for each in among) == 1)
    end = next(unique, parts[-1])
    return f"{'**/' * ('/' in end)}{escape(end)}"


# ---------------------------------------------------------------- their first lines


def read_first_lines(
    files: Iterable[SourceFile], store: InputStore
) -> tuple[list[FirstLines], str, list[Finding], Refused]:
    """Return the first lines of files, their encoding, findings, and the unreadable files.

    Raises InputError if no file can be read.
    """
    begins, unread = read_each(files, lambda file: _first_bytes(file, store))
    encoding, findings = _choose_encoding([*begins.values()])
    heads, others = read_each(begins, lambda file: _first_lines(file, begins[file], encoding))
    return [*heads.values()], encoding, findings, unread | others


def read_each(
    files: Iterable[SourceFile], read: Callable[[SourceFile], Item]
) -> tuple[dict[SourceFile, Item], Refused]:
    """Call `read` for each file. Return (file → result, file → error message).

    An error is an InputError that `read` raises for a file. Raises InputError if `read` fails for
    all files.
    """
    items, refused = dict[SourceFile, Item](), Refused()
    for file in files:
        try:
            items[file] = read(file)
        except InputError as error:
            refused[file] = str(error)
    if not items:
        raise InputError(next(iter(refused.values())))
    return items, refused


class _FirstBytes(NamedTuple):
    """The first bytes of a file, decompressed. If `whole`, the file has no other bytes."""

    path: str
    data: bytes
    whole: bool

    def text(self, encoding: str) -> str:
        """Return the bytes as text. Bytes that cannot be decoded become U+FFFD."""
        return codecs.getincrementaldecoder(encoding)("replace").decode(self.data, self.whole)

    def encoding(self) -> str:
        """Guess the encoding from a byte order mark, from zero bytes, or from invalid UTF-8."""
        for name, marks in _MARKS.items():
            if self.data.startswith(marks):
                return name
        if b"\0" in self.data:
            for first, name in ((0, "utf-16-be"), (1, "utf-16-le")):
                high, low = self.data[first::2], self.data[1 - first :: 2]
                if 2 * high.count(0) > len(high) and not low.count(0):
                    return name
            return UTF_8
        if self.data.isascii():
            return "ascii"
        lines = self.text(UTF_8).split("\n")
        wrong = sum("\ufffd" in line for line in lines)
        others = sum(not line.isascii() for line in lines)
        few = wrong < _FEW_DAMAGED * len(lines) and "\ufffd" not in lines[0]
        # Most lines with bytes beyond ASCII are valid UTF-8, so the other lines are damaged.
        if 2 * wrong <= others or few:
            return UTF_8
        return "latin-1" if "\ufffd" in self.text("cp1252") else "cp1252"


def _choose_encoding(begins: Sequence[_FirstBytes]) -> tuple[str, list[Finding]]:
    """Return the most frequent encoding of files that are not ASCII, and findings about it."""
    found = {each.path: each.encoding() for each in begins if each.data}
    counts = Counter(name for name in found.values() if name != "ascii")
    if not counts:
        return UTF_8, []
    encoding = counts.most_common(1)[0][0]
    findings = [Finding("encoding", "input.encoding", {"encoding": encoding})]
    others = [path for path, name in found.items() if name not in {encoding, "ascii"}]
    if others:
        findings.append(Finding("other-encoding", others[0], {}, len(others)))
    return encoding, findings if others or encoding != UTF_8 else []


def _first_bytes(file: SourceFile, store: InputStore) -> _FirstBytes:
    """Read the first bytes of a file, or of the first member of an archive."""
    path, content = next(store.contents(file), (file.path, None))
    data = bytearray()
    most, whole = _SAMPLED_BYTES, content is None
    while content is not None and len(data) < most and not whole:
        more = content.read(most - len(data))
        data += more
        whole = not more
        if len(data) == most and not (b"\n" in data or b"\r" in data):
            most = min(2 * most, _LONGEST_LINE_BYTES)
    if remark := describe_binary(bytes(data[:HEAD_BYTES])):
        packing = store.packing(file)
        how = f". Unpack the {packing} file first" if packing else ""
        raise InputError(f"{path}: {remark}{how}")
    if codec := detect_codec(bytes(data[:HEAD_BYTES]), path):
        raise InputError(
            f"{path} is {codec} inside another archive or compressed file. Unpack the outer file"
        )
    return _FirstBytes(path, bytes(data), whole)


def _first_lines(file: SourceFile, begin: _FirstBytes, encoding: str) -> FirstLines:
    """Return the first lines of a file. Raises InputError if it has no lines of text."""
    path, text = begin.path, begin.text(encoding).removeprefix("\ufeff")
    if events := events_of(text):
        some = first_events(text.encode(), events.records, _SAMPLED_LINES)
        return FirstLines(file, path, some, [*range(1, len(some) + 1)], events)
    parts = text.split("\n" if "\n" in text else "\r")
    lines = [line.removeprefix("\ufeff").removesuffix("\r") for line in parts]
    if not begin.whole and len(lines) > 1:
        lines.pop()  # the sample may end inside the last line
    numbered = ((number, line) for number, line in enumerate(lines, 1) if line.strip())
    rows = [*islice(numbered, _SAMPLED_LINES)]
    head = FirstLines(file, path, [line for _, line in rows], [number for number, _ in rows])
    if "\n" not in text and len(head.lines) > 1 and not is_binary(text.encode("utf-8", "replace")):
        raise InputError(
            f"{path} has lines that end with CR, which is not supported. End them with LF, as "
            "`tr '\\r' '\\n' < FILE` does"
        )
    if is_binary("".join(head.lines[:_EXAMINED]).encode("utf-8", "replace")):
        raise InputError(f"{path}: {NO_TEXT}")
    return head
