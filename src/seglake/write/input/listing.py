"""The files that `input.paths` name.

- A file: that file, whatever its name.
- A folder: every file below it, at any depth, except names that begin with "." or "_" (as Spark).
- A glob (`*`, `?`, `[...]`; `**` for any depth of folders): the files that match. No wildcard
  matches a name that begins with "." or "_", and none matches "/". A folder that matches is not
  entered. A file whose name is the glob itself, such as `part[1].json`, is that file; where no such
  file is meant, `[[]` matches a bracket.
- A file that is named twice is read once. An empty file is listed and has no rows.
- A link to nothing, like every file that cannot be read, is an InputError.
- A plain path that does not exist is an InputError; `input.on_empty` decides about a glob or an
  existing folder without files.
"""

import re
from collections.abc import Iterable, Iterator
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path
from typing import Literal

from seglake.errors import InputError, MissingObject, StoreError
from seglake.limits import REQUESTS
from seglake.write.input.content import InputStore, unreadable
from seglake.write.input.files import SourceFile, locate

_WILDCARD = re.compile(r"[*?\[]")
_VISIBLE = r"(?![._])"


def list_inputs(
    paths: Iterable[str], store: InputStore, on_empty: Literal["ok", "error"]
) -> list[SourceFile]:
    """The files that `paths` name, each once, sorted by path.

    Raises:
        InputError: a path does not exist, or nothing was found and `on_empty` is "error".
    """
    all_files: set[str] = set()
    for path in paths:
        glob = _WILDCARD.search(path) is not None
        found = _glob(path, store) if glob and not _is_named(path, store) else _plain(path, store)
        files = set(found)
        if not files and on_empty == "error":
            hint = " (a folder that a glob matches is not entered: add /**)" if glob else ""
            raise InputError(
                f"{path}: no file found; correct input.paths or set on_empty = 'ok'{hint}"
            )
        all_files |= files
    with ThreadPoolExecutor(REQUESTS) as pool:
        return list(pool.map(partial(_file, store=store), sorted(all_files)))


def _file(path: str, store: InputStore) -> SourceFile:
    try:
        path.encode()
        return SourceFile(path, *store.stat(path))
    except UnicodeEncodeError:
        raise InputError(f"{path!r}: its name is not UTF-8; rename the file") from None
    except StoreError as problem:
        raise unreadable(path, problem) from problem


def _plain(path: str, store: InputStore) -> Iterator[str]:
    """The file at `path`, or the files below the folder `path`."""
    root, key = locate(path)
    absolute = _join(root, key)
    if key and _is_file(path, store):
        yield absolute
        return
    keys = [key for key in store.keys(absolute) if _shown(key)]
    if not keys and not Path(absolute).is_dir():
        raise InputError(f"{path}: does not exist; correct input.paths")
    yield from (_join(absolute, key) for key in keys)


def _is_file(path: str, store: InputStore) -> bool:
    try:
        store.stat(path)
    except MissingObject:
        return False
    except StoreError as problem:
        raise unreadable(path, problem) from problem
    return True


def _is_named(glob: str, store: InputStore) -> bool:
    """Whether a file has the glob itself as its name."""
    bucket = locate(glob)[0] if "://" in glob else ""
    try:
        return not _WILDCARD.search(bucket) and _is_file(glob, store)
    except InputError:  # storage says that no file can be called so
        return False


def _glob(pattern: str, store: InputStore) -> Iterator[str]:
    """The files that match `pattern`. Raises InputError for a bad pattern."""
    fixed = _WILDCARD.split(pattern, maxsplit=1)[0].rpartition("/")[0]
    if "://" in pattern and "://" not in fixed:
        raise InputError(f"{pattern}: a bucket's name has no wildcards; correct input.paths")
    rest = pattern[len(fixed) + 1 :] if fixed or pattern.startswith("/") else pattern
    folder = _join(*locate(fixed or ("/" if pattern.startswith("/") else ".")))
    try:
        wanted = re.compile(_expression(rest))
    except re.error as problem:
        raise InputError(
            f"{pattern}: [...] has a range that ends before it begins ({problem}); "
            "correct input.paths, or write [[] for a bracket in a name"
        ) from None
    return (_join(folder, key) for key in store.keys(folder) if wanted.fullmatch(key))


def _join(root: str, key: str) -> str:
    return f"{root.rstrip('/')}/{key}".rstrip("/") or "/"


def _shown(key: str) -> bool:
    return not any(part.startswith((".", "_")) for part in key.split("/"))


def _expression(glob: str) -> str:
    """A regular expression for the paths that a glob matches."""
    parts = []
    for part in re.sub(r"(^|/)\*\*$", r"\1**/*", glob).split("/"):
        if part == "**":
            parts.append(f"(?:{_VISIBLE}[^/]+/)*")
            continue
        pieces = re.split(r"(\*+|\?|\[[!^]?[^\]]+\])", part)  # every second one is a wildcard
        pieces[::2] = map(re.escape, pieces[::2])
        pieces[1::2] = map(_wildcard, pieces[1::2])
        parts.append(f"{_VISIBLE if pieces[0] == '' else ''}{''.join(pieces)}/")
    return "".join(parts).removesuffix("/")


def _wildcard(piece: str) -> str:
    if piece[0] != "[":
        return "[^/]*" if piece[0] == "*" else "[^/]"
    negated = piece[1] in "!^" and len(piece) > 3
    letters = re.sub(r"([\\\[\^&~|])", r"\\\1", piece[1 + negated : -1])
    return f"(?!/)[{'^' if negated else ''}{letters}]"
