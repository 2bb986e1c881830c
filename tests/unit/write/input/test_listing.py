"""Which files a path, a folder or a glob means."""

import fnmatch
import os
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.config import Input, Pipeline
from seglake.errors import InputError
from seglake.store import Listed, open_store
from seglake.write.input.content import InputStore
from seglake.write.input.files import SourceFile
from seglake.write.input.listing import BY_CHOICE, BY_LINK, BY_NAME, _expression, find_inputs
from tests.harness.object_server import _Handler, _Reply, object_server
from tests.makers.files import pipeline, read
from tests.makers.inputs import chunks_of, listed, splits_of, store_of

FILES = [
    "a.jsonl",
    "b.jsonl",
    "sub/c.jsonl",
    "sub/deep/d.txt",
    ".hidden",
    "_tmp/x.jsonl",
    "sub/_SUCCESS",
]


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for name in FILES:
        path = tmp_path / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
    (tmp_path / "empty").mkdir()
    return tmp_path


def names(folder: Path, *paths: str, on_empty: str = "error", **choice: Any) -> list[str]:
    given = [str(folder / path) for path in paths]
    found = listed(pipeline(given, "text", input={"on_empty": on_empty, **choice}))
    assert all(file.size == 1 and file.modified_ms > 0 and file.etag for file in found)
    return [str(Path(file.path).relative_to(folder)) for file in found]


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("a.jsonl", ["a.jsonl"]),
        ("_tmp/x.jsonl", ["_tmp/x.jsonl"]),
        (".", ["a.jsonl", "b.jsonl", "sub/c.jsonl", "sub/deep/d.txt"]),
        ("sub", ["sub/c.jsonl", "sub/deep/d.txt"]),
        ("sub/", ["sub/c.jsonl", "sub/deep/d.txt"]),
        ("_tmp", ["_tmp/x.jsonl"]),
        ("*.jsonl", ["a.jsonl", "b.jsonl"]),
        ("?.jsonl", ["a.jsonl", "b.jsonl"]),
        ("[!a].jsonl", ["b.jsonl"]),
        ("*/*.jsonl", ["sub/c.jsonl"]),
        ("_*/*.jsonl", ["_tmp/x.jsonl"]),
        ("**/*.jsonl", ["a.jsonl", "b.jsonl", "sub/c.jsonl"]),
        ("**", ["a.jsonl", "b.jsonl", "sub/c.jsonl", "sub/deep/d.txt"]),
        ("sub/**/d.*", ["sub/deep/d.txt"]),
        (".h*", [".hidden"]),
    ],
)
def test_paths(folder: Path, path: str, wanted: list[str]) -> None:
    assert names(folder, path) == wanted


@pytest.mark.parametrize(
    ("path", "include", "exclude", "wanted"),
    [
        (".", "*.jsonl", (), ["a.jsonl", "b.jsonl", "sub/c.jsonl"]),
        (".", (), "*.txt", ["a.jsonl", "b.jsonl", "sub/c.jsonl"]),
        (".", (), ["a*", "sub/*.jsonl"], ["b.jsonl", "sub/deep/d.txt"]),
        (".", "sub/**", "**/d.*", ["sub/c.jsonl"]),
        (".", ["[ab].jsonl", "*/deep/*"], "b*", ["a.jsonl", "sub/deep/d.txt"]),
        ("sub", "c.jsonl", (), ["sub/c.jsonl"]),
        ("sub", "deep/*", (), ["sub/deep/d.txt"]),
        ("*.jsonl", (), "a*", ["b.jsonl"]),
        ("s*/**", "deep/*", (), []),  # the folder in front of the first wildcard has `sub`
        ("s*/**", "sub/deep/*", (), ["sub/deep/d.txt"]),
        ("a.jsonl", "b*", "a*", ["a.jsonl"]),  # a file named by itself
    ],
)
def test_include_and_exclude(
    folder: Path, path: str, include: object, exclude: object, wanted: list[str]
) -> None:
    keys = {"include": include, "exclude": exclude, "on_empty": "ok"}
    settings = pipeline(str(folder / path), "text", input=keys)
    found = find_inputs(settings.input, store_of(settings))
    assert [str(Path(file.path).relative_to(folder)) for file in found.files] == wanted
    every = pipeline(str(folder / path), "text")
    rest = {file.path for file in listed(every)} - {file.path for file in found.files}
    chosen = [path for path, reason in found.left_out.items() if reason == BY_CHOICE]
    assert chosen == sorted(rest)
    if not wanted:
        strict = pipeline(str(folder / path), "text", input={**keys, "on_empty": "error"})
        with pytest.raises(InputError, match=r"leave out every file of .* \(2 files\)"):
            listed(strict)


def test_a_bad_glob_is_named(folder: Path) -> None:
    settings = pipeline(folder, "text", input={"exclude": ["x", "[z-a]"]})
    with pytest.raises(InputError, match=r"input\.exclude = '\[z-a\]' is not a glob \(bad"):
        listed(settings)


def test_what_one_path_leaves_out_another_may_name(folder: Path) -> None:
    paths = [str(folder), str(folder / "a.jsonl")]
    settings = pipeline(paths, "text", input={"exclude": "[ab]*"})
    found = find_inputs(settings.input, store_of(settings))
    assert [Path(file.path).name for file in found.files] == ["a.jsonl", "c.jsonl", "d.txt"]
    hidden = [str(folder / name) for name in (".hidden", "_tmp/x.jsonl", "sub/_SUCCESS")]
    wanted = {str(folder / "b.jsonl"): BY_CHOICE} | dict.fromkeys(hidden, BY_NAME)
    assert found.left_out == wanted


def test_every_file_once_in_order_of_paths(folder: Path) -> None:
    assert names(folder, "b.jsonl", "*.jsonl", "./sub/../a.jsonl", "sub/deep") == [
        "a.jsonl",
        "b.jsonl",
        "sub/deep/d.txt",
    ]


def test_paths_are_relative_to_the_current_directory(
    folder: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(folder)
    for path in ("a.jsonl", "./a.jsonl", "a.j*", f"file://{folder}/a.jsonl", f"file:{folder}/a.j*"):
        assert [file.path for file in listed(pipeline(path, "text"))] == [str(folder / "a.jsonl")]


@pytest.mark.parametrize("path", ["nope", "nope/x.jsonl", "a.jsonl/x"])
def test_a_path_must_exist(folder: Path, path: str) -> None:
    with pytest.raises(InputError, match=f"{path} (does not exist|cannot be read)"):
        names(folder, path)


@pytest.mark.parametrize("path", ["nope", "sub/nope", "nope/*.jsonl", "sub/nope/**"])
def test_a_path_may_be_missing_where_nothing_may_be_there(folder: Path, path: str) -> None:
    settings = pipeline(str(folder / path), "text", input={"on_empty": "ok"})
    found = find_inputs(settings.input, store_of(settings))
    assert not found.files
    assert found.missing == [str(folder / path.partition("/*")[0])]


@pytest.mark.parametrize("path", ["nope/x.jsonl", "nope/x/*", "nope/x/**/*.jsonl"])
def test_a_misspelt_path_is_not_an_empty_one(folder: Path, path: str) -> None:
    with pytest.raises(InputError, match=r"does not exist, and neither does .*. Correct input"):
        names(folder, path, on_empty="ok")


def test_in_a_bucket_a_folder_with_an_object_is_there() -> None:
    bucket = Bucket("events/2026-01-01/00/a.log")
    settings = pipeline("memory://logs/events/2026-01-01/01", "text", input={"on_empty": "ok"})
    found = find_inputs(settings.input, bucket)
    assert not found.files
    assert found.missing == ["memory://logs/events/2026-01-01/01"]
    bucket = Bucket("events/2026-01-01/00/a.log")
    misspelt = pipeline("memory://logs/evnets/2026-01-01/01", "text", input={"on_empty": "ok"})
    with pytest.raises(InputError, match="neither does memory://logs/evnets/2026-01-01"):
        find_inputs(misspelt.input, bucket)


@pytest.mark.parametrize("path", ["*.csv", "empty", "nope/*.jsonl"])
def test_nothing_found(folder: Path, path: str) -> None:
    assert names(folder, path, on_empty="ok") == []
    with pytest.raises(InputError, match=r"has no files. .* or set on_empty"):
        names(folder, path)


@given(st.text("ab*?.", min_size=1, max_size=6), st.text("ab.", min_size=1, max_size=6))
def test_globs_of_one_name_as_fnmatch(glob: str, name: str) -> None:
    if glob == "**":
        glob = "*"
    hidden = name[0] == "." and glob[0] in "*?"
    matched = bool(re.fullmatch(_expression(glob), name))
    assert matched == (fnmatch.fnmatchcase(name, glob) and not hidden)


@pytest.mark.parametrize("glob", ["a[!x]b", "a[^x]b", "a[!--0]b", "a[.-0]b", "a?b", "a*b", "a**b"])
def test_no_wildcard_matches_a_slash(glob: str, tmp_path: Path) -> None:
    (tmp_path / "a").mkdir()
    for name in ("a/b", "a.b"):
        (tmp_path / name).write_bytes(b"x")
    assert "a/b" not in names(tmp_path, glob, on_empty="ok")


@pytest.mark.parametrize(
    ("glob", "name"),
    [
        ("[[]", "["), ("[!]", "!"), ("[^]", "^"), ("[\\d]", "d"), ("[\\]", "\\"), ("x[]", "x[]"),
        ("[a&&b]", "&"), ("[x^]", "^"), ("[a", "[a"), ("a]", "a]"), ("[-a]", "-"), ("[||~~]", "~"),
    ],
)  # fmt: skip
def test_letters_in_brackets_mean_themselves(glob: str, name: str) -> None:
    assert re.fullmatch(_expression(glob), name)
    assert not re.fullmatch(_expression(glob), "1")


@pytest.mark.parametrize("glob", ["[z-a]", "sub/[9-0]*"])
def test_a_range_from_end_to_beginning_is_refused(folder: Path, glob: str) -> None:
    told = re.escape(glob) + r" has a range in \[...\] that ends before it starts .*input\.paths"
    with pytest.raises(InputError, match=told):
        names(folder, glob)


def test_a_file_whose_name_is_a_glob(folder: Path) -> None:
    """The file that has the name wins; without it, the name is a glob."""
    for name in ("part[1].json", "part1.json", "[z-a]"):
        (folder / name).write_bytes(b"x")
    assert names(folder, "part[1].json") == ["part[1].json"]
    assert names(folder, "part[[]1].json") == ["part[1].json"]
    assert names(folder, "[z-a]") == ["[z-a]"]
    (folder / "[z-a]").unlink()
    (folder / "[z-a]").mkdir()
    (folder / "[z-a]/x.json").write_bytes(b"x")
    assert names(folder, "[z-a]/x.json") == ["[z-a]/x.json"]
    (folder / "part[1].json").unlink()
    assert names(folder, "part[1].json") == ["part1.json"]


def test_an_unreadable_file_is_named(folder: Path) -> None:
    settings = pipeline(folder / "a.jsonl", "text")
    found = listed(settings)
    (folder / "a.jsonl").unlink()
    with pytest.raises(InputError, match=r"a\.jsonl cannot be read: "):
        read_listed(settings, found)


@pytest.mark.parametrize("path", [".", "*", "gone"])
def test_a_link_to_nothing_is_named(folder: Path, path: str) -> None:
    (folder / "gone").symlink_to(folder / "nowhere")
    with pytest.raises(InputError) as caught:
        names(folder, path)
    target = f"is a link to {folder}/nowhere, which does not exist"
    assert str(caught.value).startswith(f"{folder}/gone {target}. Correct or remove the link, ")
    assert names(folder, ".", exclude=["gone"])


def read_listed(settings: Pipeline, files: list[SourceFile]) -> list[list[Any]]:
    splits = splits_of(settings, files)
    return [list(chunks_of(split, settings)) for split in splits]


def test_a_file_that_grew_is_read_as_it_was_listed(tmp_path: Path) -> None:
    path = tmp_path / "file"
    path.write_bytes(b"one\n")
    settings = pipeline(path, "text")
    found = listed(settings)
    path.write_bytes(b"one\ntwo\n")
    (chunks,) = read_listed(settings, found)
    assert chunks[0].records.values.tolist() == [b"one"]
    path.write_bytes(b"o")
    with pytest.raises(InputError, match="another process changed"):
        read_listed(settings, found)


def test_splits(tmp_path: Path) -> None:
    (tmp_path / "1").write_bytes(b"x" * 250)
    (tmp_path / "2").write_bytes(b"")
    (tmp_path / "3").write_bytes(b"\x1f\x8b\x08" + b"x" * 249)
    task = {"split_bytes": 100}
    settings = pipeline(tmp_path, "text", task=task)
    splits = splits_of(settings)
    cuts = [(s.number, Path(s.file.path).name, s.start, s.end) for s in splits]
    assert cuts == [
        (0, "1", 0, 100),
        (1, "1", 100, 200),
        (2, "1", 200, 250),
        (3, "2", 0, 0),
        (4, "3", 0, 252),
    ]
    whole = pipeline(tmp_path, "text", task=task, headers={"source": True})
    assert len(splits_of(whole)) == 3


def test_paths_in_a_store() -> None:
    with pytest.raises(InputError, match="does not exist"):
        read(pipeline("memory://nowhere/x", "text"))
    for path in ("memory://nowhere", "memory://nowhere/*.jsonl"):
        with pytest.raises(InputError, match="has no files"):
            read(pipeline(path, "text"))
    with pytest.raises(InputError, match="a wildcard in the bucket's name"):
        read(pipeline("s3://logs-*/x", "text"))


class Bucket(InputStore):
    """An object store of some keys, all in one bucket."""

    def __init__(self, *keys: str) -> None:
        super().__init__({})
        store = self._buckets["memory://logs"] = open_store("memory://logs")
        for key in keys:
            store.put(key, b"x")

    def list(self, folder: str) -> Iterator[Listed]:
        prefix = folder.removeprefix("memory://logs").lstrip("/")
        prefix = prefix and f"{prefix}/"
        below = self._buckets["memory://logs"].list()
        return (
            each._replace(key=each.key.removeprefix(prefix))
            for each in below
            if each.key.startswith(prefix)
        )


@pytest.mark.parametrize(
    ("path", "include", "exclude", "wanted"),
    [
        ("memory://logs", "*.log", "b.*", ["a.log", "day/c.log"]),
        ("memory://logs/day", "*.log", (), ["day/c.log"]),
        ("memory://logs/**", "day/*", (), ["day/c.log", "day/d.txt"]),
        ("memory://logs/d*/*", (), "day/*.log", ["day/d.txt"]),
        ("memory://logs/*.log", (), "day/*", ["a.log", "b.log"]),
    ],
)
def test_include_and_exclude_in_a_bucket(
    path: str, include: object, exclude: object, wanted: list[str]
) -> None:
    bucket = Bucket("a.log", "b.log", "day/c.log", "day/d.txt", "day/_SUCCESS")
    settings = pipeline(path, "text", input={"include": include, "exclude": exclude})
    found = find_inputs(settings.input, bucket)
    assert [file.path for file in found.files] == [f"memory://logs/{key}" for key in wanted]
    assert all(file.startswith("memory://logs/") for file in found.left_out)


@pytest.mark.parametrize("path", ["m", "m/", "m/**", "m/*", "m/e"])
def test_folder_markers_in_a_bucket_are_no_files(path: str) -> None:
    with object_server() as server:
        empty = dict.fromkeys(["m/", "m/d/", "m/e/", "m/_tmp/", "m/e/empty.jsonl"], b"")
        server.objects |= {**empty, "m/a.jsonl": b"{}", "m/e/b.jsonl": b"{}"}
        settings = pipeline(f"{server.root}/{path}", "jsonl")
        found = find_inputs(settings.input, InputStore(server.options))
    keys = [file.path.removeprefix(f"{server.root}/m/") for file in found.files]
    everything = ["a.jsonl", "e/b.jsonl", "e/empty.jsonl"]
    assert keys == {"m/*": everything[:1], "m/e": everything[1:]}.get(path, everything)
    assert not found.left_out


def test_pipes_and_sockets_are_refused_with_the_remedy(tmp_path: Path) -> None:
    os.mkfifo(tmp_path / "fifo")
    end, other = os.pipe()
    with socket.socket(socket.AF_UNIX) as bound:
        bound.bind(str(tmp_path / "socket"))
        for path, kind in [
            (tmp_path / "fifo", "pipe"), (tmp_path, "pipe"), (tmp_path / "f*", "pipe"),
            (f"/dev/fd/{end}", "pipe"), (tmp_path / "socket", "socket"),
        ]:  # fmt: skip
            with pytest.raises(InputError, match=f"is a {kind}. Write its data to a file"):
                listed(pipeline(str(path), "text"))
    os.close(end)
    os.close(other)


def test_an_archived_object_is_not_blamed_on_rights_or_changes(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    refused = b"<Error><Code>InvalidObjectState</Code></Error>"
    monkeypatch.setattr(_Handler, "_get", lambda *_: _Reply(403, refused))
    with object_server() as server:
        server.objects["a"] = b"{}"
        store = InputStore(server.options)
        (file,) = find_inputs(pipeline(f"{server.root}/a", "jsonl").input, store).files
        with pytest.raises(InputError, match=r"Restore it, or leave it out") as caught:
            store.packing(file)
    assert "changed" not in str(caught.value)


def test_folders_of_a_bucket_are_named_by_their_keys() -> None:
    keys = ["a%20b/x", "a b/y", "c#d/z", "c?d/w", "q%41/v", "e/f"]
    with object_server() as server:
        server.objects |= dict.fromkeys(keys, b"{}")
        for key in [key for key in keys if "?" not in key]:
            settings = pipeline(f"{server.root}/{key.rpartition('/')[0]}", "jsonl")
            found = find_inputs(settings.input, InputStore(server.options))
            assert [*found.files.paths] == [f"{server.root}/{key}"]


@pytest.mark.parametrize("key", ["p/d//a", "p/./a", "p/d/../a", "p//a", "p/a\tb", "p/a\x7f"])
def test_key_that_prevents_a_listing_is_named_with_the_way_around(key: str) -> None:
    with object_server() as server:
        server.objects |= {key: b"{}", "p/d/b.jsonl": b"{}", "p/e/c.jsonl": b"{}"}
        store = InputStore(server.options)
        paths = [f"{server.root}/{each}" for each in ("p/d/b.jsonl", "p/e")]
        found = find_inputs(pipeline(paths, "jsonl").input, store)
        assert [*found.files.paths] == [paths[0], f"{paths[1]}/c.jsonl"]
        for path in ("p", "p/**/*.jsonl", key):
            with pytest.raises(InputError, match=r"or name other folders") as refused:
                find_inputs(pipeline(f"{server.root}/{path}", "jsonl").input, store)
            assert repr(key) in str(refused.value)


def test_partition_folders_are_entered_whatever_they_are_called(tmp_path: Path) -> None:
    read = ["_date=1/a.jsonl", "d=1/b.jsonl"]
    hidden = ["_date=1/_part-0.jsonl", "_tmp/c.jsonl", ".x=1/d.jsonl"]
    for name in (*read, *hidden, "_SUCCESS"):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_text("{}" * (name != "_SUCCESS"))
    for path in (tmp_path, tmp_path / "**", tmp_path / "*/*.jsonl"):
        found = find_inputs(pipeline(str(path)).input, InputStore({}))
        assert [*found.files.paths] == [str(tmp_path / name) for name in read]
        assert found.left_out == dict.fromkeys([str(tmp_path / name) for name in hidden], BY_NAME)
    named = str(tmp_path / "_date=1/_part-0.jsonl")
    found = find_inputs(pipeline([str(tmp_path), named]).input, InputStore({}))
    assert named in [*found.files.paths]
    assert named not in found.left_out


LOGS = [
    "_delta_log/00000000000000000000.json", "_spark_metadata/0", ".hoodie/hoodie.properties",
    "metadata/v1.metadata.json", "metadata/00000-6f1c2a3e.metadata.json",
]  # fmt: skip


@pytest.mark.parametrize("log", LOGS)
def test_a_folder_whose_files_a_log_names_is_refused(log: str, tmp_path: Path) -> None:
    for name in (f"t/{log}", "t/d=1/a.parquet", "t/b.parquet", "c.parquet"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("x")
    for path in (".", "t", "t/d=1", "t/*.parquet", "**/*.parquet", "t/d=1/*"):
        with pytest.raises(InputError, match=re.escape(f"{tmp_path}/t is ")):
            names(tmp_path, path)
    for path in ("t/b.parquet", "*.parquet", f"t/{log.partition('/')[0]}"):
        assert names(tmp_path, path)
    assert names(tmp_path, ".", exclude="t/**") == ["c.parquet"]
    bucket = Bucket(f"t/{log}", "t/d=1/a.parquet", "c.parquet")
    for path in ("memory://logs", "memory://logs/t", "memory://logs/t/*/*.parquet"):
        with pytest.raises(InputError, match="memory://logs/t is "):
            find_inputs(pipeline(path, "text").input, bucket)
    (only,) = find_inputs(pipeline("memory://logs/*.parquet", "text").input, bucket).files
    assert only.path == "memory://logs/c.parquet"


def test_a_file_is_read_under_one_of_its_names(tmp_path: Path) -> None:
    for name in ("in/pods/a.log", "in/pods/b.log", "elsewhere/c.log"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("same")
    inside = tmp_path / "in"
    (inside / "containers").symlink_to(inside / "pods")
    (inside / "a.log").symlink_to(inside / "pods/a.log")
    (inside / "hard.log").hardlink_to(inside / "pods/b.log")
    for name in ("out-1.log", "out-2.log"):  # their target is not in the folder
        (inside / name).symlink_to(tmp_path / "elsewhere/c.log")
    found = find_inputs(pipeline(inside, "text").input, InputStore({})).distinct()
    read = [path.removeprefix(f"{inside}/") for path in found.files.paths]
    assert read == ["hard.log", "out-1.log", "pods/a.log"]
    others = ["a.log", "containers/a.log", "containers/b.log", "out-2.log", "pods/b.log"]
    assert found.left_out == {str(inside / name): BY_LINK for name in others}


def test_a_lake_in_the_folder_is_no_input(tmp_path: Path) -> None:
    for name in ("a.jsonl", "lake/catalog/b.json", "lakes/c.jsonl"):
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text("{}")
    store = InputStore({})

    def found(path: Path) -> list[str]:
        settings = Input(format="jsonl", paths=(str(path),))
        files = find_inputs(settings, store, str(tmp_path / "lake")).files
        return [each.path.removeprefix(f"{tmp_path}/") for each in files]

    assert found(tmp_path) == ["a.jsonl", "lakes/c.jsonl"]
    assert found(tmp_path / "**/*.json*") == ["a.jsonl", "lakes/c.jsonl"]
    assert found(tmp_path / "lake/catalog") == ["lake/catalog/b.json"]  # somebody means it
    (tmp_path / "lake/own.jsonl").write_text("{}")
    assert found(tmp_path / "lake/*.jsonl") == ["lake/own.jsonl"]
    for path in ("lake", "lake/**/*.json"):
        with pytest.raises(InputError, match="is the root of the lake"):
            found(tmp_path / path)
