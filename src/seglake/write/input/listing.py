"""Which files a run reads, and how their bytes are divided among tasks.

What `input.paths` may name, and what comes of it:

- a file: that file, whatever its name;
- a folder: every file below it, at any depth, except names that begin with "." or "_" (as Spark);
- a glob (`*`, `?`, `[...]`; `**` for any depth of folders): the files that match, with the same
  exception for what a wildcard stands for; a folder that matches is not entered;
- the same file named twice: it is read once;
- an empty file: it is listed and has no rows;
- a link to nothing: InputError, as for every file that cannot be read;
- nothing found: InputError for a plain path that does not exist, `input.on_empty` for a glob or an
  existing folder without files.
"""

from __future__ import annotations

import itertools
import re
from collections.abc import Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import NamedTuple

from seglake.config import Pipeline
from seglake.errors import InputError, MissingObject, StoreError
from seglake.limits import REQUESTS
from seglake.store import open_store
from seglake.write.input.streams import SourceFile, find_codec, is_archive, locate
from seglake.write.rows.csv import check_headers
from seglake.write.rows.parquet import check_schemas

__all__ = ["SourceFile", "Split", "list_inputs", "plan_splits"]

_WILDCARD = re.compile(r"[*?\[]")
_VISIBLE = r"(?![._])"


class Split(NamedTuple):
    """A part of a file: the lines or row groups that begin in bytes `start` to `end`, exclusive.

    Splits are numbered in the order of files and positions.
    """

    number: int
    file: SourceFile
    start: int
    end: int


def list_inputs(pipeline: Pipeline) -> list[SourceFile]:
    """The files that `input.paths` names, each once, sorted by path.

    Raises:
        InputError: a path does not exist, or nothing was found and `on_empty` is "error".
    """
    found: set[str] = set()
    options = pipeline.storage
    for path in pipeline.input.paths:
        glob = _WILDCARD.search(path) is not None
        files = set(_glob(path, options) if glob else _plain(path, options))
        if not files and pipeline.input.on_empty == "error":
            hint = " (a folder that a glob matches is not entered: add /**)" if glob else ""
            raise InputError(
                f"{path}: no file found; correct input.paths or set on_empty = 'ok'{hint}"
            )
        found |= files
    with ThreadPoolExecutor(REQUESTS) as pool:
        return list(pool.map(partial(_stat, options=options), sorted(found)))


def _stat(path: str, options: dict[str, str]) -> SourceFile:
    root, key = locate(path)
    try:
        path.encode()
        return SourceFile(path, *open_store(root, options).stat(key))
    except UnicodeEncodeError:
        raise InputError(f"{path!r}: its name is not UTF-8; rename the file") from None
    except StoreError as problem:
        raise InputError(f"{path}: cannot be read: {problem}; check path and rights") from problem


def _plain(path: str, options: dict[str, str]) -> Iterator[str]:
    """The file at `path`, or the files below the folder `path`."""
    root, key = locate(path)
    place = _join(root, key)
    if key and _is_file(path, options):
        yield place
        return
    keys = [key for key in _keys(place, options) if _shown(key)]
    if not keys and not Path(place).is_dir():
        raise InputError(f"{path}: does not exist; correct input.paths")
    yield from (_join(place, key) for key in keys)


def _is_file(path: str, options: dict[str, str]) -> bool:
    root, key = locate(path)
    try:
        open_store(root, options).stat(key)
    except MissingObject:
        return False
    except StoreError as problem:
        raise InputError(f"{path}: cannot be read: {problem}; check path and rights") from problem
    return True


def _glob(pattern: str, options: dict[str, str]) -> Iterator[str]:
    """The files that match `pattern`."""
    fixed = _WILDCARD.split(pattern, maxsplit=1)[0].rpartition("/")[0]
    if "://" in pattern and "://" not in fixed:
        raise InputError(f"{pattern}: a bucket's name has no wildcards; correct input.paths")
    rest = pattern[len(fixed) + 1 :] if fixed or pattern.startswith("/") else pattern
    folder = _join(*locate(fixed or ("/" if pattern.startswith("/") else ".")))
    wanted = re.compile(_expression(rest))
    return (_join(folder, key) for key in _keys(folder, options) if wanted.fullmatch(key))


def _join(root: str, key: str) -> str:
    return f"{root.rstrip('/')}/{key}".rstrip("/") or "/"


def _keys(folder: str, options: dict[str, str]) -> Iterable[str]:
    try:
        return [found.key for found in open_store(folder, options).list()]
    except StoreError as problem:
        raise InputError(f"{folder}: cannot be listed: {problem}; check path and rights") from None


def _shown(key: str) -> bool:
    return not any(part.startswith((".", "_")) for part in key.split("/"))


def _expression(glob: str) -> str:
    """A regular expression for the paths that a glob means."""
    parts = []
    for part in re.sub(r"(^|/)\*\*$", r"\1**/*", glob).split("/"):
        if part == "**":
            parts.append(f"(?:{_VISIBLE}[^/]+/)*")
            continue
        pieces = re.split(r"(\*+|\?|\[[^\]]+\])", re.sub(r"\[[!^]", "[^", part))
        body = "".join(_piece(piece) for piece in pieces)
        parts.append(f"{_VISIBLE if pieces[0] == '' else ''}{body}/")
    return "".join(parts).removesuffix("/")


def _piece(piece: str) -> str:
    if piece.startswith("*"):
        return "[^/]*"
    if piece.startswith("[") and piece.endswith("]"):
        return piece
    return "[^/]" if piece == "?" else re.escape(piece)


def plan_splits(files: Sequence[SourceFile], pipeline: Pipeline) -> list[Split]:
    """Divide files among splits of `task.split_bytes`, where their content can be cut.

    Lines and row groups can. Compressed files, archives, CSV files with `input.multiline` and files
    whose lines are numbered (`headers.source`) are one split each.

    Raises:
        InputError: a file cannot be read; or headers of CSV files, or columns of Parquet files of
            which all are wanted, differ.
    """
    if pipeline.input.format == "csv":
        check_headers(files, pipeline)
    if pipeline.input.format == "parquet" and pipeline.wants_every_column:
        check_schemas(files, pipeline)
    size = pipeline.task.split_bytes
    splits: list[Split] = []
    for file in files:
        inner = range(size, file.size, size)
        cuts = [0, *(inner if inner and _can_be_cut(file, pipeline) else ()), file.size]
        splits += [
            Split(number, file, start, end)
            for number, (start, end) in enumerate(itertools.pairwise(cuts), len(splits))
        ]
    return splits


def _can_be_cut(file: SourceFile, pipeline: Pipeline) -> bool:
    form = pipeline.input.format
    if pipeline.headers.source or (form == "csv" and pipeline.input.multiline):
        return False
    if form == "parquet":
        return True
    return find_codec(file, pipeline) is None and not is_archive(file, pipeline, None)
