"""The files that a draft is for: those of one kind, and not those that cannot be read."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from fnmatch import fnmatchcase
from glob import escape
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Any, NamedTuple

from seglake.config import Input
from seglake.errors import InputError
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile
from seglake.write.input.listing import (
    HIDDEN,
    ListedInputs,
    MissingPath,
    find_inputs,
    glob_hint,
    is_glob,
)

_SPREAD, _LARGEST = 5, 3  # files that rows are taken from
_NAMED = 3  # files of other kinds
_CODECS = "gz", "bz2", "zst", "zstd"
_NO_ID = r"(?![0-9A-Fa-f]{8,}\b|[0-9A-Z]{8,}\b)"  # as in CloudFront's E1.2026-11-20-03.b68daeed.gz
_SUFFIX = re.compile(
    rf"\.{_NO_ID}([A-Za-z]\w*?)(?:-\d[\d_T:-]*)?(?:\.(?:{'|'.join(_CODECS)}|[\d_T:-]+))*$"
)
_FOLDER_OF_A_VALUE = re.compile(r"(?<=/)([A-Za-z_][\w.-]*)=[^/]*(?=/)")  # Spark and Hive name so
LEFT_OUT = "left out by input.exclude, until it is mended and taken out there: "


class Chosen(NamedTuple):
    """The files of a draft, the settings of `[input]` that choose them, and doubts."""

    files: list[SourceFile]
    settings: dict[str, Any]
    doubts: list[str]


def choose(paths: Sequence[str], store: InputStore, root: str, output: Path | None) -> Chosen:
    """The files of the suffix with most bytes, but those of the lake; see `sample_of`."""
    files = _full_files(paths, store, root)
    beside = output is not None and any(_holds(path, output) for path in paths)
    chosen = _one_kind(files, beside=beside)
    kinds = _kinds(chosen.files)
    for path in paths if chosen.settings and len(paths) > 1 else ():
        _require_some(path, _listed([path], store, root).files, kinds)
    return chosen


def _full_files(paths: Sequence[str], store: InputStore, root: str) -> list[SourceFile]:
    """The files with any bytes. Raises InputError if there are none."""
    names = ", ".join(paths)
    try:
        listed = _listed(paths, store, root)
    except MissingPath as missing:
        raise InputError(f"{missing.what}; correct the path") from None
    if listed.missing:
        raise InputError(f"{', '.join(listed.missing)}: does not exist; correct the path")
    if not listed.files:
        hint = next((glob_hint(path) for path in paths if is_glob(path, store)), "")
        hint = hint or f" ({HIDDEN})"
        raise InputError(f"{names}: no file is found; name other paths{hint}")
    if not any(file.size for file in listed.files):
        raise InputError(f"{names}: there is no file with any bytes; name other paths")
    return [file for file in listed.files if file.size]


def _listed(paths: Sequence[str], store: InputStore, root: str) -> ListedInputs:
    return find_inputs(Input(paths=tuple(paths), format="text", on_empty="ok"), store, root)


def _require_some(path: str, files: Sequence[SourceFile], chosen: Mapping[str, str]) -> None:
    """Raise InputError if a path has files, and none of those chosen: a run would read nothing."""
    if files and all(file.path not in chosen for file in files):
        suffix = next(iter(chosen.values()))
        kind = f"with the suffix .{suffix}" if suffix else "without a suffix"
        raise InputError(
            f"{path}: holds no file {kind}, as most bytes of these paths are in, but "
            f"{_names(files)}; draft a pipeline of its own: seglake init {quote(path)}"
        )


def _names(files: Sequence[SourceFile]) -> str:
    """The names of the first files, and how many more there are."""
    names = ", ".join(PurePosixPath(file.path).name for file in files[:_NAMED])
    more = len(files) - _NAMED
    return f"{names} and {more:,} more" if more > 0 else names


def _holds(path: str, output: Path) -> bool:
    return Path(path).is_dir() and output.absolute().is_relative_to(Path(path).absolute())


def _one_kind(files: list[SourceFile], *, beside: bool) -> Chosen:
    """The files with the suffix that has most bytes, the settings that choose them, and doubts."""
    kinds, sizes = _kinds(files), Counter[str]()
    for file in files:
        sizes[kinds[file.path]] += file.size
    if len(sizes) == 1 and not beside:
        return Chosen(files, {}, [])
    ((suffix, _),) = sizes.most_common(1)
    chosen = [file for file in files if kinds[file.path] == suffix]
    others = [file for file in files if kinds[file.path] != suffix]
    doubts = [f"files of other kinds are left out: {len(others):,} ({_names(others)})"]
    doubts = doubts if others else []
    if not suffix:
        return Chosen(chosen, {"exclude": _globs(others) + ["*.toml"] * beside}, doubts)
    settings = {"include": _globs(chosen)}
    strays = {_suffix(file) for file in others if _matches(file, settings["include"])}
    if strays:  # such as "xz" of a.jsonl.xz
        settings["exclude"] = [f"*.{each}" for each in sorted(strays) if each]
    return Chosen(chosen, settings, doubts)


def _globs(files: Sequence[SourceFile]) -> list[str]:
    """What the names of files match: also those that logrotate adds a number or a day to."""
    suffixes = sorted({_suffix(file) for file in files} - {""})
    return [f"*.{each}{more}" for each in suffixes for more in ("", ".*", "-[0-9]*")]


def _matches(file: SourceFile, globs: Sequence[str]) -> bool:
    return any(fnmatchcase(file.path.rpartition("/")[2], glob) for glob in globs)


def _kinds(files: Sequence[SourceFile]) -> dict[str, str]:
    """The suffix of each file, by path, whatever its case; "" for an id.

    An id has digits, and each file has another one.
    """
    suffixes = {file.path: _suffix(file).lower() for file in files}
    alone = [suffix for suffix, count in Counter(suffixes.values()).items() if count == 1]
    ids = {suffix for suffix in alone if any(map(str.isdigit, suffix))}
    several = len(ids) > 1
    return {path: "" if several and each in ids else each for path, each in suffixes.items()}


def _suffix(file: SourceFile) -> str:
    """What the name of a file ends with, but for codecs and numbers of rotation."""
    match = _SUFFIX.search(file.path.rpartition("/")[2])
    return match[1] if match and match[1] not in _CODECS else ""


def some_of(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Files that lie far apart, and the largest ones: a folder may hold several kinds of lines."""
    spread = {at * (len(files) - 1) // (_SPREAD - 1) for at in range(_SPREAD)}
    largest = sorted(range(len(files)), key=lambda at: -files[at].size)[:_LARGEST]
    return [files[at] for at in sorted({*spread, *largest})]


def columns_in_paths(files: Sequence[SourceFile], fields: Collection[str]) -> list[str]:
    """The doubt about columns that stand in the names of folders and are no fields; none: []."""
    names = dict[str, str]()
    for file in files:
        for found in _FOLDER_OF_A_VALUE.finditer(file.path):
            if found[1] not in fields:
                names.setdefault(found[1], found[0])
    if not names:
        return []
    verb = "is no field" if len(names) == 1 else "are no fields"
    doubt = (
        f"{', '.join(names)} {verb}: folders such as {', '.join(names.values())} are not read as "
        "columns; headers.source = true keeps the path of each record's file"
    )
    return [doubt]


def without(
    refused: Mapping[SourceFile, str],
    chosen: Chosen,
    paths: Sequence[str],
    store: InputStore,
    root: str,
) -> Chosen:
    """The files without some, which `input.exclude` leaves out, with a doubt that says why.

    Raises InputError with the reason if one of the paths is such a file.
    """
    if not refused:
        return chosen
    names = [_exclusion(file, chosen.files) for file in refused]
    settings = {**chosen.settings, "exclude": [*chosen.settings.get("exclude", ()), *names]}
    left = find_inputs(Input(paths=tuple(paths), format="text", **settings), store, root).files
    if named := next((file for file in refused if file in left), None):
        raise InputError(refused[named])
    files = [file for file in chosen.files if file not in refused]
    doubts = [f"{LEFT_OUT}{why}" for why in refused.values()]
    return Chosen(files, settings, [*chosen.doubts, *doubts])


def _exclusion(file: SourceFile, among: Sequence[SourceFile]) -> str:
    """A glob of `input.exclude` that matches this file alone: its name, or with folders above."""
    parts = file.path.split("/")
    ends = ("/".join(parts[-depth:]) for depth in range(1, len(parts)))
    end = next(
        (end for end in ends if sum(each.path.endswith(f"/{end}") for each in among) == 1),
        parts[-1],
    )
    return f"{'**/' * ('/' in end)}{escape(end)}"
