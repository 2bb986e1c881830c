"""Which files of the input list an attempt reads, and what changed since a run was committed.

Files that the topic already has are skipped. `on_changed_source` decides about files that changed
after they were ingested.
"""

from collections.abc import Callable, Collection, Mapping, Sequence
from shlex import quote
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from seglake.errors import InputError
from seglake.shown import counted
from seglake.write.input.files import FileVersion, SourceFile


class InputSelection(NamedTuple):
    """The files that an attempt reads, the files ingested before, and those that changed since.

    `missing` are paths of the input that do not exist.
    """

    files: list[SourceFile]
    skipped: list[SourceFile]
    changed: list[SourceFile]
    missing: Sequence[str] = ()


class Differences(NamedTuple):
    """The files that are new, changed or gone since a run was committed, by path.

    `new` files are unknown to the topic. `changed` files are there in a version that the topic does
    not have. `gone` files are those that the run ingested and that no longer exist.
    """

    new: list[str]
    changed: list[str]
    gone: list[str]


class ChangedFiles(InputError):
    """Files changed after they were ingested; `run_id` is the run that has the first, if known."""

    def __init__(self, paths: Sequence[str], run_id: str = "") -> None:
        self.paths = paths
        more = f", and so did {counted(len(paths) - 1, 'other file')}" if paths[1:] else ""
        run = f"--run-id {quote(run_id)}, which has it," if run_id else "the run that has it"
        super().__init__(
            f"{paths[0]} changed after it was ingested{more}: `--replace` with {run} ingests what "
            "it is now in place of that; or set on_changed_source = 'skip', or 'ingest-as-new', by "
            "which lines that both versions have come twice"
        )


def without_attempts(sources: pa.Table, attempts: Collection[str]) -> pa.Table:
    """The source rows without those of some attempts."""
    dropped = pc.is_in(sources["attempt_id"], pa.array(sorted(attempts), pa.string()))
    return sources.filter(pc.invert(dropped)) if attempts else sources


def known_versions(sources: pa.Table, files: Sequence[SourceFile]) -> dict[str, list[FileVersion]]:
    """The versions of these files in the catalog's source rows, by path."""
    paths = pa.array([file.path for file in files], pa.string())
    rows = sources.filter(pc.is_in(sources["path"], paths))
    versions: dict[str, list[FileVersion]] = {}
    columns: list[list[Any]]
    columns = [rows[name].to_pylist() for name in ("path", "size_bytes", "modified_ms", "etag")]
    for path, *version in zip(*columns, strict=True):
        versions.setdefault(path, []).append(FileVersion(*version))
    return versions


def select(
    files: Sequence[SourceFile], versions_of: Mapping[str, list[FileVersion]], on_changed: str
) -> InputSelection:
    """Divide the input list by the versions of files that the topic has.

    Raises ChangedFiles for a changed file if `on_changed` is "fail".
    """
    selected = InputSelection([], [], [])
    for file in files:
        versions = versions_of.get(file.path)
        if versions is None:
            selected.files.append(file)
        elif any(file.version.is_same(version) for version in versions):
            selected.skipped.append(file)
        else:
            selected.changed.append(file)
    if selected.changed and on_changed == "fail":
        raise ChangedFiles([file.path for file in selected.changed])
    if on_changed == "ingest-as-new":
        return selected._replace(files=sorted([*selected.files, *selected.changed]))
    return selected


def compare(
    files: Sequence[SourceFile],
    sources: pa.Table,
    ingested: Collection[str],
    is_gone: Callable[[str], bool],
) -> Differences:
    """The differences between the files that exist and those that an attempt ingested.

    `sources` are the topic's source rows of `files`, `ingested` the paths of the attempt's files.
    `is_gone` is asked of each path that the attempt ingested and that is not among `files`.
    """
    now = select(files, known_versions(sources, files), "skip")
    left = set(ingested) - {file.path for file in files}
    new, changed = ([file.path for file in some] for some in (now.files, now.changed))
    return Differences(new, changed, sorted(filter(is_gone, left)))
