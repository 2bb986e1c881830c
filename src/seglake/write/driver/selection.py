"""Which files of the input list an attempt reads, and what changed since a run was committed.

Files that the topic already has are skipped. `on_changed_source` decides about files that changed
after they were ingested.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Mapping, Sequence
from shlex import quote
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from seglake.errors import InputError
from seglake.shown import counted
from seglake.write.input.file_list import FileList
from seglake.write.input.files import FileVersion, SourceFile
from seglake.write.input.listing import BY_LINK, names_of_one_file, other_names

SourceRows = Callable[[Collection[str]], pa.Table]  # the source rows of some paths

_AT_ONCE = 1 << 17  # files that are looked for in a topic


class InputSelection(NamedTuple):
    """The files that an attempt reads, the files ingested before, and those that changed since.

    `missing` are paths of the input that do not exist. `left_out` counts the files that are left
    out by reason.
    """

    files: list[SourceFile]
    skipped: FileList
    changed: list[SourceFile]
    missing: Sequence[str] = ()
    left_out: Mapping[str, int] = {}

    @staticmethod
    def joined(parts: Sequence[InputSelection]) -> InputSelection:
        """The files of all parts, one part after another."""
        return InputSelection(
            [file for part in parts for file in part.files],
            FileList.joined([part.skipped for part in parts]),
            [file for part in parts for file in part.changed],
        )

    def one_name_each(self, one_file: Sequence[Sequence[str]]) -> InputSelection:
        """It without other names of a file: the name that was ingested before is taken.

        `one_file` are lists of names of one file.
        """
        if not one_file:
            return self
        named = [name for names in one_file for name in names]
        changed = {file.path for file in self.changed}
        others = other_names(one_file, self.skipped.among(named), changed)
        files, again = (
            [file for file in some if file.path not in others]
            for some in (self.files, self.changed)
        )
        count = len(self.files) + len(self.changed) - len(files) - len(again)
        left_out = {**self.left_out, BY_LINK: count} if count else self.left_out
        return self._replace(files=files, changed=again, left_out=left_out)

    def obeying(self, on_changed: str) -> InputSelection:
        """What is read of it if the setting `on_changed_source` is this.

        Raises ChangedFiles for a changed file if that is "fail".
        """
        if self.changed and on_changed == "fail":
            raise ChangedFiles([file.path for file in self.changed])
        if on_changed == "ingest-as-new":
            return self._replace(files=sorted([*self.files, *self.changed]))
        return self


class Differences(NamedTuple):
    """The files that are new, changed or gone since a run was committed, by path.

    `new` files are unknown to the topic. `changed` files are there in a version that the topic does
    not have. `gone` files are those that the run ingested and that no longer exist.
    """

    new: list[str]
    changed: list[str]
    gone: list[str]


class ChangedFiles(InputError):
    """Files changed after they were ingested.

    `run_id` is the run that has the first, if known; `pipeline` is that run's, if it is another.
    """

    def __init__(self, paths: Sequence[str], run_id: str = "", pipeline: str = "") -> None:
        self.paths = paths
        more = f", and so did {counted(len(paths) - 1, 'other file')}" if paths[1:] else ""
        run = f"--run-id {quote(run_id)}, which has it," if run_id else "the run that has it"
        under = f"pipeline.name = {pipeline!r} and " if pipeline else ""
        super().__init__(
            f"{paths[0]} changed after it was ingested{more}: `--replace` with {under}{run} "
            "ingests what it is now in place of that; or set on_changed_source = 'skip', or "
            "'ingest-as-new', by which lines that both versions have come twice"
        )


def without_attempts(sources: pa.Table, attempts: Collection[str]) -> pa.Table:
    """The source rows without those of some attempts."""
    dropped = pc.is_in(sources["attempt_id"], pa.array(sorted(attempts), pa.string()))
    return sources.filter(pc.invert(dropped)) if attempts else sources


def known_versions(sources: pa.Table) -> dict[str, list[FileVersion]]:
    """The versions of files in the catalog's source rows, by path."""
    versions: dict[str, list[FileVersion]] = {}
    columns: list[list[Any]]
    columns = [sources[name].to_pylist() for name in ("path", "size_bytes", "modified_ms", "etag")]
    for path, *version in zip(*columns, strict=True):
        versions.setdefault(path, []).append(FileVersion(*version))
    return versions


def select(files: FileList, versions_of: Mapping[str, list[FileVersion]]) -> InputSelection:
    """Divide files by the versions that the topic has of them."""
    new, changed, skips = list[SourceFile](), list[SourceFile](), list[bool]()
    for file in files:
        versions = versions_of.get(file.path)
        known = versions is not None and any(map(file.version.is_same, versions))
        skips.append(known)
        if not known:
            (new if versions is None else changed).append(file)
    return InputSelection(new, files.filter(skips), changed)


class KnownFiles(NamedTuple):
    """What a topic has of listed files.

    `selection` divides them by it; `owners` are the attempts that ingested some. `digests` tell
    for so many files each whether the topic has other versions of them now.
    """

    selection: InputSelection
    owners: set[str]
    digests: list[int]

    @staticmethod
    def of(files: FileList, source_rows: SourceRows) -> KnownFiles:
        """Look for the files in the topic, a bounded number at once."""
        selections, owners, digests = list[InputSelection](), set[str](), list[int]()
        for some in files.parts(_AT_ONCE):
            sources = source_rows([*some.paths])
            versions = known_versions(sources)
            selections.append(select(some, versions))
            owners.update(map(str, pc.unique(sources["attempt_id"]).to_pylist()))
            digests.append(_digest(versions))
        return KnownFiles(InputSelection.joined(selections), owners, digests)

    def differs(self, files: FileList, source_rows: SourceRows) -> bool:
        """Whether the topic has other versions of the same files now."""
        parts = zip(files.parts(_AT_ONCE), self.digests, strict=True)
        return any(
            _digest(known_versions(source_rows([*some.paths]))) != digest for some, digest in parts
        )


def _digest(versions: Mapping[str, list[FileVersion]]) -> int:
    return hash(frozenset((path, frozenset(some)) for path, some in versions.items()))


def compare(
    files: FileList,
    source_rows: SourceRows,
    ingested: Collection[str],
    is_gone: Callable[[str], bool],
) -> Differences:
    """The differences between the files that exist and those that an attempt ingested.

    `source_rows` gives the topic's source rows of paths, `ingested` are the paths of the attempt's
    files. `is_gone` is asked of each path that the attempt ingested and that is not among `files`.
    """
    now = KnownFiles.of(files, source_rows).selection
    now = now.one_name_each(names_of_one_file(files.paths))
    left = {*ingested} - files.among(ingested)
    new, changed = ([file.path for file in some] for some in (now.files, now.changed))
    return Differences(new, changed, sorted(filter(is_gone, left)))
