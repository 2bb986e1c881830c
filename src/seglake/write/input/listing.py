"""List the files that `input.paths` names.

- The path of a file lists this file, whatever its name.
- The path of a folder lists every file below it, at any depth, except hidden names. As in Spark, a
  name is hidden if it begins with "." or "_", unless it is a partition folder `_name=value`.
- A glob (`*`, `?`, `[...]`; `**` for any depth of folders) lists the files that match it. Wildcards
  match neither hidden names nor "/". The files in a matching folder are not listed. If the glob is
  itself the name of a file, such as `part[1].json`, it lists that file. Otherwise, write `[[]` for
  a bracket.
- `input.include` and `input.exclude` select among the files below a folder, and among the files
  that match a glob. Their globs are compared with the name of a file. A glob with a "/" is compared
  with the path below the folder, or below the folder in front of the path's first wildcard.
- The target lake of the ingest is skipped if it is inside such a folder. The root of the lake
  itself cannot be an input folder.
- A folder or glob raises InputError if it contains a table whose log lists the valid files (Delta,
  Hudi, Iceberg, Spark's file sink), because other files have rows that were deleted. The log is
  searched in the listing and, on local disks, in the parent folders.
- A file that is named several times is read once. On local disks this includes its links.
- An empty file is listed and has no rows. The marker of a folder in a bucket, an empty object whose
  key ends with "/", is not listed.
- A dead link raises InputError, like every file that cannot be read.
- `input.on_empty` decides about a glob or a folder without files, and about a plain path that does
  not exist. The parent folder of a missing path, or of a glob's missing folder, must exist, so that
  a misspelt path is not treated as empty. In a bucket, a folder exists if it has objects.
"""

from __future__ import annotations

import os
import re
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from itertools import chain, islice
from pathlib import Path
from typing import Any, NamedTuple, TypeVar, overload

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.config import Input
from seglake.errors import InputError, StoreError
from seglake.layout import FOLDERS
from seglake.limits import REQUESTS
from seglake.terminal.wording import counted
from seglake.write.input.content import InputStore, dead_link_error, is_dead_link, unreadable_error
from seglake.write.input.files import UNKNOWN, SourceFile, locate

HIDDEN = "a file whose name begins with . or _ is only read if input.paths names it"
BY_NAME = "a name or folder that begins with . or _"
BY_CHOICE = "input.include and input.exclude"
BY_LINK = "another name of the same file"
GLOB_HINT = " (for the files in a matching folder, add /**; for a [ in a name, write [[])"

_AT_ONCE = 1 << 14  # files whose versions are requested in one step
_WILDCARD = re.compile(r"[*?\[]")
_VISIBLE = r"(?!\.|_(?![^/]*=))"
_HIDDEN = re.compile(r"(?:^|/)(?:\.|_(?![^/]*=))")
_TABLE_LOG = re.compile(
    r"(?:^|/)(?:(_delta_log|_spark_metadata|\.hoodie)/|metadata/[^/]*\.metadata\.json[^/]*$)"
)
_TABLES = {
    "_delta_log": ("a Delta table", "delta"),
    "_spark_metadata": ("the output of a Spark stream", "FORMAT"),
    ".hoodie": ("a Hudi table", "hudi"),
    "metadata": ("an Iceberg table", "iceberg"),
}


class MissingPath(InputError):
    """The error for a path if neither the path nor its parent folder exists.

    `what` is the message without the remedy.
    """

    def __init__(self, what: str, remedy: str) -> None:
        self.what = what
        super().__init__(f"{what}. {remedy}")


class ListedInputs(NamedTuple):
    """The input files that a listing found, sorted by path, and the files that are left out.

    `missing` are input paths that do not exist. `left_out` maps the path of each excluded file to
    the reason, except for empty files with hidden names, such as `_SUCCESS`. `one_file` groups the
    paths in `files` that are names of the same file; see `names_of_one_file`.
    """

    files: FileList
    left_out: dict[str, str]
    missing: list[str]
    one_file: list[list[str]]

    def distinct(self) -> ListedInputs:
        """Return the result with only one path for each file. The other paths are left out."""
        others = other_names(self.one_file)
        left_out = self.left_out | dict.fromkeys(others, BY_LINK)
        return self._replace(files=self.files.without(others), left_out=left_out, one_file=[])


class _Found(NamedTuple):
    """A file that a listing found. Its version is UNKNOWN if the storage did not list it.

    `key` is the path of the file below the listed folder, or None if the input path is the file.
    """

    file: SourceFile
    key: str | None
    is_empty: bool = False
    is_hidden: bool = False


def _divide(found: Iterable[_Found], settings: Input) -> tuple[FileList, dict[str, str]]:
    """Return the files to read, and path → reason for the files that are left out.

    `input.include` and `input.exclude` do not apply to a file that an input path names.
    """
    include = [_choosing(glob, "include") for glob in settings.include]
    exclude = [_choosing(glob, "exclude") for glob in settings.exclude]
    others = dict[str, str]()

    def kept() -> Iterator[SourceFile]:
        for file, key, is_empty, is_hidden in found:
            if is_hidden:
                if not is_empty:
                    others[file.path] = BY_NAME
            elif key and ((include and not _matches(include, key)) or _matches(exclude, key)):
                others[file.path] = BY_CHOICE
            elif is_text(file.path):
                yield file
            else:
                raise InputError(f"the name of {file.path!r} is not UTF-8. Rename the file")

    return FileList.from_files(kept()), others


def _choosing(glob: str, key: str) -> tuple[bool, re.Pattern[str]]:
    """Return (whether the glob is compared with paths instead of names, the compiled glob).

    `key` is "include" or "exclude". Raises InputError for an invalid glob.
    """
    try:
        return "/" in glob, re.compile(_expression(glob))
    except re.error as problem:
        raise InputError(f"input.{key} = {glob!r} is not a glob ({problem}). Correct it") from None


def _matches(globs: Iterable[tuple[bool, re.Pattern[str]]], key: str) -> bool:
    name = key.rpartition("/")[2]
    return any(pattern.fullmatch(key if deep else name) for deep, pattern in globs)


def find_inputs(settings: Input, store: InputStore, lake: str = "") -> ListedInputs:
    """Return the files that `input.paths` names, sorted by path.

    Each path occurs once, but several paths may be names of one local file. `lake` is the root of
    the target lake: if it is inside of a folder or glob, its files are ignored.

    Raises:
        InputError: No file was found at a path and `on_empty` is "error"; or neither the path nor
            its parent folder exists; or a folder is the root `lake`; or a folder has a table's log.
    """
    chosen, missing, left_out = list[FileList](), list[str](), dict[str, str]()
    for path in settings.paths:
        glob, logs = is_glob(path, store), dict[str, str]()
        folder, find = (_fixed(path), _glob) if glob else (path, _plain)
        found = _outside(lake, folder, find(path, store, logs), glob=glob)
        kept, others = _divide(found, settings)
        _require_no_table(kept, logs)
        excluded = sum(reason == BY_CHOICE for reason in others.values())
        if not (kept or excluded) and (gone := _missing(path, settings.on_empty, store, glob=glob)):
            missing.append(gone)
        if not kept and settings.on_empty == "error":
            raise InputError(_nothing(path, excluded, glob=glob))
        chosen.append(kept)
        left_out.update(others)
    files = FileList.joined(chosen).by_path()
    left = {path: left_out[path] for path in sorted(left_out.keys() - files.among(left_out))}
    versioned = _with_versions(files, store)
    return ListedInputs(versioned, left, missing, names_of_one_file(versioned.paths))


def _require_no_table(files: FileList, logs: dict[str, str]) -> None:
    """Raise InputError if files belong to a table. `logs` maps tables to names of their logs."""
    for folder, log in logs.items():
        if files.has_below(folder):
            what, form = _TABLES[log]
            raise InputError(
                f"{folder} is {what}. Only {log} shows which of its files are valid. The others "
                f"have deleted or replaced rows. Ingest a DataFrame of it with a run id and "
                "input.format = 'dataframe': seglake.ingest(spark.read.format("
                f"{form!r}).load({folder!r}), settings, run_id=...). Or leave the folder out "
                f"with input.exclude"
            )


def _logs_above(folder: str) -> dict[str, str]:
    """Return parent folder → name of the table log in it. For a URI, return {}.

    A parent is left out if `folder` is inside of its log.
    """
    found = dict[str, str]()
    for above in Path(folder).parents if "://" not in folder else ():
        name = next((name for name in _TABLES if _has_log(above, name)), None)
        if name is not None and not Path(folder).is_relative_to(above / name):
            found[str(above)] = name
    return found


def _has_log(folder: Path, name: str) -> bool:
    path = os.path.join(folder, name)  # noqa: PTH118  isdir of Path raises where rights are missing
    if not os.path.isdir(path):  # noqa: PTH112
        return False
    return name != "metadata" or any(Path(path).glob("*.metadata.json*"))


def names_of_one_file(paths: Collection[str]) -> list[list[str]]:
    """Group the local paths that are names of the same file. Files with one name are left out.

    In a group, the real path is first, followed by the other paths in order. Two paths name the
    same file if their real paths are equal. For a file with several hard links, this is decided by
    device, inode, size and modification time. An equal inode is not enough, because some network
    drives reuse inodes.
    """
    ids = np.arange(len(paths), dtype=np.uint64)
    for at, path in enumerate(paths):
        if "://" not in path:
            with suppress(OSError):
                status = os.stat(path)  # noqa: PTH116  three times as fast
                ids[at] = hash((status.st_dev, status.st_ino)) % 2**64
    order = np.argsort(ids)
    again = np.flatnonzero(ids[order][1:] == ids[order][:-1])
    repeated = {*order[again].tolist(), *order[again + 1].tolist()}
    names = defaultdict[Any, list[tuple[bool, str]]](list)
    for path in (path for at, path in enumerate(paths) if at in repeated) if repeated else ():
        with suppress(OSError):
            status, real = os.stat(path), os.path.realpath(path)  # noqa: PTH116
            linked = status.st_dev, status.st_ino, status.st_size, status.st_mtime_ns
            names[linked if status.st_nlink > 1 else real].append((path != real, path))
    return [[path for _, path in sorted(some)] for some in names.values() if len(some) > 1]


def other_names(one_file: Iterable[Sequence[str]], *ingested: Collection[str]) -> set[str]:
    """Choose the name to read from each list of names of one file, and return all other names.

    The collections in `ingested` are searched one after another. The first name that one of them
    contains is chosen. If none contains a name of the list, its first name is chosen.
    """
    others = set[str]()
    for names in one_file:
        known = (name for some in ingested for name in names if name in some)
        others.update({*names} - {next(known, names[0])})
    return others


def _outside(lake: str, folder: str, found: Iterable[_Found], *, glob: bool) -> Iterator[_Found]:
    """Yield the found files that are not below the root `lake`.

    If `folder` is itself below the root, yield all. Raises InputError if `folder` is the root, or
    if a glob in the root matches files of the lake.
    """
    inside, around = (f"{_join(*locate(each))}/" if each else "" for each in (lake, folder))
    below, is_root = bool(inside) and around.startswith(inside), bool(inside) and around == inside
    if is_root and not glob:
        raise _root_is_input(folder)
    for each in found:
        if is_root and each.file.path.removeprefix(inside).partition("/")[0] in FOLDERS:
            raise _root_is_input(folder)
        if below or not (inside and each.file.path.startswith(inside)):
            yield each


def require_apart(settings: Input, store: InputStore, lake: str) -> None:
    """Raise InputError if an input folder is the root `lake`. The lake need not exist yet."""
    root = _join(*locate(lake))
    for path in settings.paths:
        is_root = not is_glob(path, store) and _join(*locate(path)) == root
        if is_root and _is_folder(root, store):
            raise _root_is_input(path)


def _root_is_input(folder: str) -> InputError:
    return InputError(
        f"{folder} is the root of the lake, so the lake's own files would be input. Set "
        f"pipeline.root to another folder"
    )


def _missing(path: str, on_empty: str, store: InputStore, *, glob: bool) -> str | None:
    """Return the folder or file that does not exist, for a path at which no file was found.

    Return None if the folder exists. Raises InputError if a plain path is missing and `on_empty` is
    "error", and MissingPath if the parent folder does not exist either.
    """
    folder = _join(*locate(_fixed(path) if glob else path))
    if is_dead_link(folder):
        raise dead_link_error(folder)
    above = folder.rpartition("/")[0] or "/"
    if _is_folder(folder, store):
        return None
    if not _is_folder(above, store):
        raise MissingPath(
            f"{path} does not exist, and neither does {above}",
            f"Correct input.paths or --source{_where(path)}"
            + (", or create that folder" if on_empty == "ok" else ""),
        )
    if on_empty == "error" and not glob:
        raise InputError(
            f"{path} does not exist. Correct input.paths or --source{_where(path)}, "
            "or set on_empty = 'ok' if it may be missing"
        )
    return folder


def _where(path: str) -> str:
    relative = "://" not in path and not Path(path).is_absolute()
    return " (relative paths start in the working folder)" if relative else ""


def _is_folder(path: str, store: InputStore) -> bool:
    """Return whether a folder exists. In a bucket, this requires that objects are below it.

    A bucket itself is assumed to exist.
    """
    if "://" not in path:
        return os.path.isdir(path)  # noqa: PTH112  Path's raises where rights are missing
    return "/" not in path.partition("://")[2] or any(True for _ in store.list(path))


def _nothing(path: str, left_out: int, *, glob: bool) -> str:
    if left_out:
        return (
            f"input.include and input.exclude leave out every file of {path} "
            f"({counted(left_out, 'file')}). Correct them or set on_empty = 'ok'"
        )
    hint = GLOB_HINT if glob else f" ({HIDDEN})"
    return f"{path} has no files. Correct input.paths or --source, or set on_empty = 'ok'{hint}"


def _with_versions(files: FileList, store: InputStore) -> FileList:
    """Query the versions that are still UNKNOWN. Raises InputError for an unreadable file."""
    if files.has_versions:
        return files
    with ThreadPoolExecutor(REQUESTS) as pool:
        read = partial(_file, store=store)
        parts = (pool.map(read, part) for part in files.parts(_AT_ONCE))
        return FileList.from_files(chain.from_iterable(parts))


def _file(file: SourceFile, store: InputStore) -> SourceFile:
    if file.version != UNKNOWN:
        return file
    try:
        return SourceFile(file.path, *store.stat(file.path))
    except StoreError as problem:
        raise unreadable_error(file.path, problem) from problem


def _plain(path: str, store: InputStore, logs: dict[str, str]) -> Iterator[_Found]:
    """Yield the file at `path`. If `path` is a folder, yield the files below it.

    Table logs are added to `logs`; see `_below`.
    """
    root, key = locate(path)
    absolute = _join(root, key)
    if key and not key.endswith("/") and store.find(path) is not None:
        yield _Found(SourceFile(absolute, *UNKNOWN), None)
        return
    for each in _below(absolute, store, logs):
        yield each._replace(is_hidden=True) if _HIDDEN.search(str(each.key)) else each


def _below(folder: str, store: InputStore, logs: dict[str, str]) -> Iterator[_Found]:
    """Yield the files below a folder. Add each table log to `logs`, as folder → name of the log."""
    logs |= _logs_above(folder)
    for listed in store.list(folder):
        path = _join(folder, listed.key)
        if log := _TABLE_LOG.search(listed.key):
            logs[_join(folder, listed.key[: log.start()])] = log[1] or "metadata"
        known = listed.etag is not None  # otherwise the version is requested after the listing
        # obstore lists the marker of a folder, an empty object "d/", as "d", which does not exist.
        if known and not (listed.size or _HIDDEN.search(listed.key) or store.find(path)):
            continue
        version = listed[1:] if known else UNKNOWN
        yield _Found(SourceFile(path, *version), listed.key, is_empty=not listed.size)


def is_glob(path: str, store: InputStore) -> bool:
    """Return whether a path contains wildcards and is not the path of an existing file."""
    if "://" in path and _WILDCARD.search(locate(path)[0]):
        return True
    try:
        return _WILDCARD.search(path) is not None and store.find(path) is None
    except InputError:  # the storage does not allow such a name
        return True


def _glob(pattern: str, store: InputStore, logs: dict[str, str]) -> Iterator[_Found]:
    """Yield the files that match a glob. Hidden files that would match are marked as hidden.

    Table logs are added to `logs`; see `_below`. Raises InputError for an invalid glob.
    """
    fixed = _fixed(pattern)
    if "://" in pattern and "://" not in fixed:
        raise InputError(f"{pattern} has a wildcard in the bucket's name. Correct input.paths")
    rest = pattern if fixed == "." else pattern[len(fixed.rstrip("/")) + 1 :]
    folder = _join(*locate(fixed))
    try:
        expression, any_name = (re.compile(_expression(rest, lead)) for lead in (_VISIBLE, ""))
    except re.error as problem:
        raise InputError(
            f"{pattern} has a range in [...] that ends before it starts ({problem}). Correct "
            f"input.paths, or write [[] for a bracket in a name"
        ) from None
    for each in _below(folder, store, logs):
        key = str(each.key)
        if expression.fullmatch(key):
            yield each
        elif _HIDDEN.search(key) and any_name.fullmatch(key):
            yield each._replace(is_hidden=True)


def _fixed(glob: str) -> str:
    """Return the folder in front of a glob's first wildcard, or "." if there is no such folder."""
    fixed = _WILDCARD.split(glob, maxsplit=1)[0].rpartition("/")[0]
    return fixed or ("/" if glob.startswith("/") else ".")


def _join(root: str, key: str) -> str:
    return f"{root.rstrip('/')}/{key}".rstrip("/") or "/"


def _expression(glob: str, lead: str = _VISIBLE) -> str:
    """Convert a glob to a regular expression for paths.

    If a wildcard is at the beginning of a name, that name must begin with a match of `lead`.
    """
    parts = []
    for part in re.sub(r"(^|/)\*\*$", r"\1**/*", glob).split("/"):
        if part == "**":
            parts.append(f"(?:{lead}[^/]+/)*")
            continue
        pieces = re.split(r"(\*+|\?|\[[!^]?[^\]]+\])", part)  # every second one is a wildcard
        pieces[::2] = map(re.escape, pieces[::2])
        pieces[1::2] = map(_wildcard, pieces[1::2])
        parts.append(f"{lead if pieces[0] == '' else ''}{''.join(pieces)}/")
    return "".join(parts).removesuffix("/")


def _wildcard(piece: str) -> str:
    if piece[0] != "[":
        return "[^/]*" if piece[0] == "*" else "[^/]"
    negated = piece[1] in "!^" and len(piece) > 3
    letters = re.sub(r"([\\\[\^&~|])", r"\\\1", piece[1 + negated : -1])
    return f"(?!/)[{'^' if negated else ''}{letters}]"


# ---------------- file list
# Store lists of input files as Arrow columns. A listed file takes 2,000 bytes as a Python object,
# and 130 bytes as a row of columns.

_TEXT, _INT = pa.large_string(), pa.int64()
_TYPES: dict[str, pa.DataType] = {"path": _TEXT, "size": _INT, "modified_ms": _INT, "etag": _TEXT}
_SCHEMA = pa.schema(_TYPES)
_ROWS = 1 << 14  # rows that are Python objects at a time
_SHOWN = 3

_Item = TypeVar("_Item")


class _Columns(Sequence[_Item]):
    """An immutable sequence with one item for each row of a table, created on access.

    `make` creates an item from the values in the columns.
    """

    def __init__(self, table: pa.Table, make: Callable[..., _Item]) -> None:
        self._table, self._make = table, make

    def __len__(self) -> int:
        return len(self._table)

    @overload
    def __getitem__(self, at: int) -> _Item: ...

    @overload
    def __getitem__(self, at: slice) -> list[_Item]: ...

    def __getitem__(self, at: int | slice) -> _Item | list[_Item]:
        if isinstance(at, slice):
            return [self[number] for number in range(len(self))[at]]
        row = self._table.slice(range(len(self))[at], 1)
        return self._make(*(column[0].as_py() for column in row.columns))

    def __iter__(self) -> Iterator[_Item]:
        for batch in self._table.to_batches(max_chunksize=_ROWS):
            yield from map(self._make, *(column.to_pylist() for column in batch.columns))

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Sequence) and [*self] == [*other]

    __hash__ = None  # type: ignore[assignment]  # as a list has none

    def __deepcopy__(self, memo: object) -> _Columns[_Item]:
        return self

    def __repr__(self) -> str:
        more = ", …" if len(self) > _SHOWN else ""
        return f"[{', '.join(map(repr, self[:_SHOWN]))}{more}]"


class FileList(_Columns[SourceFile]):
    """An immutable list of input files that takes about 130 bytes per file."""

    def __init__(self, table: pa.Table) -> None:
        super().__init__(table, SourceFile)

    @staticmethod
    def from_files(files: Iterable[SourceFile]) -> FileList:
        """Create a list of the files in the order of `files`."""
        rows, batches = iter(files), list[pa.RecordBatch]()
        while some := list(islice(rows, _ROWS)):
            columns = zip(*some, strict=True)
            arrays = [pa.array(column, f.type) for column, f in zip(columns, _SCHEMA, strict=True)]
            batches.append(pa.record_batch(arrays, schema=_SCHEMA))
        return FileList(pa.Table.from_batches(batches, _SCHEMA))

    @staticmethod
    def joined(parts: Iterable[FileList]) -> FileList:
        """Return the files of all parts, one part after another."""
        tables = [part._table for part in parts]  # noqa: SLF001  of this class
        return FileList(pa.concat_tables([_SCHEMA.empty_table(), *tables]))

    @property
    def paths(self) -> Sequence[str]:
        """Return the path of each file."""
        return _Columns(self._table.select(["path"]), str)

    @property
    def has_versions(self) -> bool:
        """Return whether the version of every file is known."""
        return bool(pc.min(self._table["size"]).as_py() != UNKNOWN.size)

    @property
    def size_bytes(self) -> int:
        """Return the total size of all files in bytes."""
        return pc.sum(self._table["size"]).as_py() or 0

    def parts(self, rows: int) -> Iterator[FileList]:
        """Divide the list into lists of at most `rows` files."""
        return (FileList(self._table.slice(at, rows)) for at in range(0, len(self), rows))

    def filter(self, flags: Sequence[bool]) -> FileList:
        """Return the files whose flag is true. `flags` has one item for each file."""
        return FileList(self._table.filter(pa.array(flags, pa.bool_())))

    def without(self, paths: Collection[str]) -> FileList:
        """Return the files whose path is not in `paths`."""
        return self.filter([path not in paths for path in self.paths]) if paths else self

    def has_below(self, folder: str) -> bool:
        """Return whether any file of the list is below the path `folder`."""
        below = pc.starts_with(self._table["path"], f"{folder.rstrip('/')}/")
        return bool(pc.any(below).as_py())

    def by_path(self) -> FileList:
        """Return the files sorted by path, without duplicate paths."""
        paths = self._table["path"]
        if pc.all(pc.greater(paths[1:], paths[:-1])).as_py() is not False:
            return self
        table = self._table.take(pc.sort_indices(paths))
        paths = table["path"]
        others = pc.not_equal(paths[1:], paths[:-1]).to_numpy()
        return FileList(table.filter(pa.array(np.append(True, others))))

    def among(self, paths: Iterable[str]) -> set[str]:
        """Return the items of `paths` that are paths of files in this list."""
        asked = pa.array(filter(is_text, paths), pa.large_string())
        mine = self._table["path"]
        found: list[Any] = mine.filter(pc.is_in(mine, asked)).to_pylist()
        return {*found}


def is_text(path: str) -> bool:
    """Return whether a path can be encoded in UTF-8. Local disks allow names that cannot."""
    try:
        path.encode()
    except UnicodeEncodeError:
        return False
    return True
