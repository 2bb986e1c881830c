"""The examples in the docstrings of the public functions and methods, run as doctests.

Each example runs in a folder of its own, which has a small lake and the files that it came from: a
request each second from 12:00 on, by seven users, of which every tenth failed. The runs `d1` and
`d2` have ten minutes each.
"""

import doctest
import inspect
import json
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

import seglake
from seglake.config import load
from seglake.read.lake import Lake
from seglake.read.log import Log
from seglake.read.window.reader import WindowReader

NOON = 1_780_315_200_000  # 2026-06-01T12:00:00Z
PIPELINE = """
[pipeline]
root = "lake"
[input]
paths = ["raw/d1.jsonl"]
format = "jsonl"
[timestamp]
field = "ts"
format = "epoch_ms"
[key]
fields = ["user"]
[topic]
name = "web"
partitions = 2
"""
FLAGS = doctest.ELLIPSIS | doctest.NORMALIZE_WHITESPACE


def public() -> Iterator[tuple[str, Any]]:
    """Yield each public function and method, and its name."""
    for name in seglake.__all__:
        if inspect.isfunction(value := getattr(seglake, name)):
            yield f"seglake.{name}", value
    for kind in (Lake, Log, WindowReader):
        for name, value in vars(kind).items():
            if not name.startswith("_") and (inspect.isfunction(value) or type(value) is property):
                yield f"{kind.__name__}.{name}", value


NAMED = dict(public())


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("examples")
    (folder / "raw").mkdir()
    for name, first in (("d1", 0), ("d2", 600)):
        events = [
            {"ts": NOON + 1000 * n, "user": f"u{n % 7}", "status": 500 if n % 10 == 0 else 200}
            for n in range(first, first + 600)
        ]
        (folder / "raw" / f"{name}.jsonl").write_text("\n".join(map(json.dumps, events)))
    (folder / "web.toml").write_text(PIPELINE)
    with pytest.MonkeyPatch.context() as patch:
        patch.chdir(folder)
        for name, start, end in (("d1", "12:00", "12:10"), ("d2", "12:10", "12:20")):
            pipeline = load("web.toml", {"input.paths": [f"raw/{name}.jsonl"]})
            interval = (f"2026-06-01T{start}:00Z", f"2026-06-01T{end}:00Z")
            seglake.run_pipeline(pipeline, run_id=name, interval=interval, local=True)
    return folder


@pytest.mark.parametrize("name", NAMED)
def test_the_example_is_right(
    made: Path, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    shutil.copytree(made, tmp_path, dirs_exist_ok=True)
    monkeypatch.chdir(tmp_path)
    lake = seglake.open("lake")
    names = {"seglake": seglake, "lake": lake, "log": lake.topic("web")}
    found = doctest.DocTestFinder(recurse=False).find(NAMED[name], name, globs=names)
    assert any(test.examples for test in found), "the docstring has no example"
    runner, said = doctest.DocTestRunner(optionflags=FLAGS), list[str]()
    for test in found:
        runner.run(test, out=said.append)
    assert not runner.failures, "".join(said)
