"""A list of input files in columns is what a list of objects would be, and takes less memory."""

import copy
import hashlib
import tracemalloc
from collections.abc import Collection, Iterator

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.catalog.schema import FILE_SCHEMAS
from seglake.config import Input
from seglake.errors import MissingObject
from seglake.store.interface import Listed
from seglake.write.driver import run_input
from seglake.write.driver.run_input import KnownFiles
from seglake.write.input import listing
from seglake.write.input.content import InputStore
from seglake.write.input.files import UNKNOWN, FileVersion, SourceFile
from seglake.write.input.listing import FileList, find_inputs

SIZES = st.integers(0, 3)
VERSIONS = st.builds(FileVersion, SIZES, SIZES, st.sampled_from([None, '"a"', "a", "b"]))
FILES = st.lists(
    st.builds(
        lambda path, version: SourceFile(path, *version), st.text("abé/", max_size=3), VERSIONS
    )
)


@pytest.fixture(scope="module", autouse=True)
def _small_blocks() -> Iterator[None]:
    """Lists of few files have several batches, and several queries of the catalog."""
    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(listing, "_ROWS", 3)
        patched.setattr(run_input, "_AT_ONCE", 2)
        yield


@given(FILES, st.data())
def test_it_is_what_a_list_would_be(files: list[SourceFile], data: st.DataObject) -> None:
    made = FileList.from_files(files)
    assert made == files
    assert [*made.paths] == [file.path for file in files]
    assert (len(made), bool(made), made.size_bytes) == (
        len(files), bool(files), sum(file.size for file in files)
    )  # fmt: skip
    assert FileList.from_files([*files, SourceFile("b", *UNKNOWN)]).has_versions is False
    assert made.has_versions
    cut = data.draw(st.slices(max(len(files), 1)))
    assert made[cut] == files[cut]
    assert [made[at] for at in range(-len(files), len(files))] == 2 * files
    rows = data.draw(st.integers(1, 4))
    parts = [*made.parts(rows)]
    assert all(len(part) <= rows for part in parts)
    assert FileList.joined(parts) == files
    assert FileList.joined([made, *parts, made]) == 3 * files
    flags = [data.draw(st.booleans()) for _ in files]
    assert made.filter(flags) == [file for file, flag in zip(files, flags, strict=True) if flag]
    by_path = made.by_path()
    assert [*by_path.paths] == sorted({file.path for file in files})
    assert {*by_path} <= {*files}
    asked = data.draw(st.sets(st.text("abé/\udc80", max_size=2)))
    assert made.among(asked) == asked & {file.path for file in files}
    assert copy.deepcopy(made) == made
    with pytest.raises(IndexError):
        made[len(files)]


@given(FILES, FILES)
def test_files_are_new_known_or_changed(files: list[SourceFile], known: list[SourceFile]) -> None:
    listed = FileList.from_files(files).by_path()
    versions: dict[str, list[FileVersion]] = {}
    for file in known:
        versions.setdefault(file.path, []).append(file.version)
    rows = [
        {"path": path, "size_bytes": size, "modified_ms": ms, "etag": etag, "attempt_id": "a"}
        for path, size, ms, etag in known
    ]

    def source_rows(paths: Collection[str]) -> pa.Table:
        asked = [row for row in rows if row["path"] in paths]
        return pa.Table.from_pylist(asked, FILE_SCHEMAS["source"])

    found = KnownFiles.from_files(listed, source_rows).selection
    assert sorted([*found.files, *found.skipped, *found.changed], key=lambda f: f.path) == listed
    assert {file.path for file in found.files} == {*listed.paths} - {*versions}
    for file in found.skipped:
        assert any(file.version.is_same(version) for version in versions[file.path])
    for file in found.changed:
        assert not any(file.version.is_same(version) for version in versions[file.path])


def _etag(number: int) -> str:
    """Tags compress as little as real ones."""
    return f'"{hashlib.md5(b"%d" % number).hexdigest()}"'


class Many(InputStore):
    """A bucket of so many objects, in the order of their keys."""

    count = 60_000

    def list(self, folder: str) -> Iterator[Listed]:
        for n in range(self.count):
            yield Listed(f"2026/{n // 1000:05}/part-{n:012}.json.gz", 1000, 7000 + n, _etag(n))

    def stat(self, path: str) -> FileVersion:
        assert "*" in path, "the listing has all versions"
        raise MissingObject(path)


@pytest.mark.rest
def test_many_listed_files_take_little_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    """As objects they take more than 2,000 bytes each, and as columns 130."""
    monkeypatch.undo()
    monkeypatch.setattr(listing, "_ROWS", 1 << 14)
    monkeypatch.setattr(run_input, "_AT_ONCE", Many.count)
    asked = list[int]()

    def known(some: Collection[str]) -> pa.Table:
        paths = [*some]
        asked.append(len(paths))
        count = len(paths) - 7 if len(asked) == 1 else len(paths)
        numbers = range(count)
        return pa.table(
            {"path": paths[-count:], "size_bytes": [1000] * count, "modified_ms": [*numbers],
             "etag": [_etag(n + len(paths) - count) for n in numbers],
             "attempt_id": ["a"] * count}
        )  # fmt: skip

    settings = Input(format="jsonl", paths=("memory://logs/*/*/*",))
    before = pa.total_allocated_bytes()
    tracemalloc.start()
    files = find_inputs(settings, Many({})).files
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert len(files) == Many.count
    assert pa.total_allocated_bytes() - before < 150 * Many.count
    assert peak < 1000 * (1 << 14), "the objects of one block"
    found = KnownFiles.from_files(files, known)
    assert (len(found.selection.files), len(found.selection.skipped)) == (7, Many.count - 7)
    assert found.owners == {"a"}
    asked.clear()
    assert not found.differs(files, known)
    assert found.differs(files, lambda paths: known(paths).slice(1))
