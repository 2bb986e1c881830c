"""After `python -m seglake.warm` nobody waits for the compiler."""

import itertools
import json
import multiprocessing
import sys
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from numba.core.dispatcher import Dispatcher
from typer.testing import CliRunner

import seglake
from seglake import warm
from seglake.cli.app import app
from seglake.layout import new_attempt
from seglake.log.rewrite.keep import ExcludeKeys, ExcludeOffsets, KeepOffsets
from seglake.log.rewrite.segments import RewriteTarget, rewrite
from seglake.maintain.compaction.compact import compact
from seglake.maintain.health.reindex import reindex
from seglake.maintain.health.verify import verify
from seglake.maintain.merge import merge
from tests.makers.lakes import Event, LakeMaker, Shape, T
from tests.makers.raw_events import ingest, pipeline_of
from tests.unit.write.test_offsets_kept import Row, write_jsonl, write_parquet
from tests.unit.write.test_offsets_kept import pipeline_of as offsets_kept

ROWS = [
    {"ts": str(T + 5 * i), "a": f'x"é{i}', "b": "y" * (i % 3), "p": str(i % 2)} for i in range(40)
]
VALUES: list[Any] = [
    {},
    {"from": "field", "field": "a"},
    {"from": "columns", "columns": ["a", "b"]},
]
CODECS = itertools.cycle(["none", "gzip", "snappy", "lz4", "zstd"])


def compiled() -> set[tuple[str, str]]:
    """Each kernel with the types of its arguments for which there is machine code."""
    modules = [module for name, module in sys.modules.items() if name.startswith("seglake")]
    kernels: list[Any] = [
        k for module in modules for k in vars(module).values() if isinstance(k, Dispatcher)
    ]
    return {(f"{k.__module__}.{k.__name__}", str(types)) for k in kernels for types in k.signatures}


def write_inputs(folder: Path) -> dict[str, dict[str, str]]:
    """A file of each format; for each the table [input]."""
    texts = {
        "jsonl": "".join(f"{json.dumps(row)}\n" for row in ROWS),
        "csv": "ts,a,b,p\n" + "".join(f"{r['ts']},{r['a']},{r['b']},{r['p']}\n" for r in ROWS),
        "text": "".join("{ts} {a} {b} {p}\n".format(**row) for row in ROWS),
    }
    for form, text in texts.items():
        (folder / form).write_text(text)
    pq.write_table(pa.Table.from_pylist(ROWS), folder / "parquet")
    pattern = r"(?P<ts>\S+) (?P<a>\S+) (?P<b>\S*) (?P<p>\S+)"
    tables = {form: {"format": form} for form in (*texts, "parquet")}
    tables["text"]["pattern"] = pattern
    return tables


def ingest_everything(folder: Path) -> None:
    for form, table in write_inputs(folder).items():
        for number, value in enumerate(VALUES):
            order, named = ("arrival", []) if number == 1 else ("time", ["a"])
            root = folder / f"{form}-{number}"
            pipeline = pipeline_of(
                root, folder / form, input=table, value=value, order=order,
                key={"fields": named}, headers={"fields": named},
                topic={"compression.type": next(CODECS), "batch.size": 500},
            )  # fmt: skip
            assert ingest(pipeline).records == len(ROWS)
            read = CliRunner().invoke(app, ["read", str(root), "events"])
            assert read.stdout.count("\n") == len(ROWS)
            read_windows(root)


def read_windows(root: Path) -> None:
    """Each one new, then put into the cache, then from there."""
    log = seglake.open(str(root)).topic("events")
    for columns in (None, ["value"]):
        for start in range(T, T + 200, 45):
            for _ in range(3):
                log.read_range(start, start + 60, columns=columns).read_all()


def search(folder: Path) -> None:
    """By keys, and by fields of every kind."""
    maker = LakeMaker(folder, settings={"index.keys": True})
    values = b'{"n": %d, "t": "\\u00e9", "l": [1, "x"]}', b'{"n": 2.5, "t": "y"}'
    maker.run(
        {0: [Event(T + i, b"%d" % i, values[i % 2] % ((i,) * (1 - i % 2))) for i in range(9)]}
    )
    log, stats = seglake.open(str(folder)).topic("events"), seglake.ReadStats()
    kinds = {
        "n": "int32",
        "t": "string",
        "l": "json",
        "x": "float64",
        "y": "bool",
        "z": "timestamp",
    }
    assert len(log.read_range(T, T + 9, fields=kinds, stats=stats).read_all()) == 9
    assert len(log.find(where={"l": ["x", 7], "n": [0, 2.5]}, newest=1).read_all()) == 1
    assert log.last("3") is not None
    maker.run({0: [Event(T + 9, b"9", headers=(("a", b"b"),))]})
    (found,) = seglake.open(str(folder)).topic("events").find("9").read_all().to_pylist()
    assert found["headers"] == [{"key": "a", "value": b"b"}]


def ingest_offsets(folder: Path) -> None:
    """Records that keep their offsets, of lines and of columns."""
    rows = [Row(i % 2, i * 3, T + i, i // 7 % 2, b"k", None, [("a", b"b")]) for i in range(40)]
    write_parquet(folder / "columns", rows)
    write_jsonl(folder / "lines", rows)
    for form, name in (("parquet", "columns"), ("jsonl", "lines")):
        settings = offsets_kept(folder / f"offsets-{form}", folder / name, form)
        assert ingest(settings).records == len(rows)


def tend_a_lake(root: Path) -> None:
    maker = LakeMaker(root, settings={"cleanup.policy": "compact"})
    for codec in ("none", "zstd"):
        rows = [Event(T + i, b"%d" % (i % 20), i % 9 * b"\xff" or None) for i in range(30)]
        maker.run({0: rows}, Shape(codec))
    reindex(str(root), "events")
    for days in range(3):
        compact(str(root), "events", force=True, now_ms=T + days * 10**8)
    rewrite_segments(maker)
    assert verify(str(root), deep=True).findings == []


def join_tiny_batches(root: Path) -> None:
    maker = LakeMaker(root)
    for first in (0, 30):
        rows = [Event(T + i, b"%d" % i, b"x" * i) for i in range(first, first + 30)]
        maker.run({0: rows}, Shape("zstd", batch_bytes=200))
    merged = merge(str(root), "events", everything=True, rebatch=True)
    assert (merged.segments, merged.new_segments) == (2, 1)


def rewrite_segments(maker: LakeMaker) -> None:
    rows = maker.catalog.rows.segments(maker.catalog.snapshot(), "events")
    bits = KeepOffsets.from_bitmaps([(row.base_offset, b"\x77" * 4) for row in rows])
    for keep in (ExcludeKeys.from_keys([b"x", b"k"]), ExcludeOffsets.from_ranges([(3, 7)]), bits):
        rewrite(maker.store, rows, keep, RewriteTarget(new_attempt()))


def compiled_later(folder: Path) -> set[tuple[str, str]]:
    """What work of every kind compiles, or loads, after the warming."""
    said = list[tuple[int, int]]()
    warm.main(lambda *done: said.append(done))
    assert said == sorted(said)
    assert said[-1][0] == said[-1][1] > 100  # as many kernels as there are
    before = compiled()
    assert len({kernel for kernel, _ in before}) > 20
    ingest_everything(folder)
    ingest_offsets(folder)
    search(folder / "searched")
    tend_a_lake(folder / "tended")
    join_tiny_batches(folder / "merged")
    return compiled() - before


@pytest.mark.rest
@pytest.mark.slow
def test_no_work_compiles_anything_more(tmp_path: Path) -> None:
    with multiprocessing.get_context("spawn").Pool(1) as pool:
        assert pool.apply(compiled_later, [tmp_path]) == set()
