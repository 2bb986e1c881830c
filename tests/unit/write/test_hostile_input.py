"""What data may not do: choose a path or rights, fill the memory, be code."""

import bz2
import gzip
import io
import os
import re
import stat
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import zstandard
from hypothesis import example, given
from hypothesis import strategies as st

import seglake
from seglake.errors import InputError, SeglakeError, UsageError
from seglake.write.api import run_pipeline
from seglake.write.map.unit import Summary, _joined, group_splits, read_every_row
from tests.harness.bounded import MIB, TASK_BYTES, measure, write_lines
from tests.harness.tiers import of_today, rest_but
from tests.makers.forged import FORGED
from tests.makers.inputs import map_settings, splits_of, store_of
from tests.makers.raw_events import Line, T, ingest, pipeline_of, read_lake, write_file
from tests.makers.strategies import examples

UUID = "[0-9a-f]{8}(-[0-9a-f]{4}){3}-[0-9a-f]{12}"
PATHS = re.compile(  # of everything that an ingest may write
    rf"(topics/events-[0-2]/{UUID}/[0-9]{{20}}\.(log|index|timeindex|zonemap)"
    rf"|attempts/{UUID}/(manifest\.json|success|fate|inputs\.json)"
    rf"|catalog/(log|quarantine)/(_delta_log/[0-9]{{20}}\.json"
    rf"|(kind=[a-z]+/)?(topic=events/)?[0-9a-zA-Z._-]+\.parquet))"
)
NAMES = [
    "../../x", "..", "/etc/passwd", "a/b", "manual__2026-11-20T01:00:00+00:00", "a\0b", "~",
    "%2e%2e", "C:\\x", "a\nb", " ", "é" * 300, "$(id)", "{0}", "'; --", "\u202e",
    "\U0001f600", "x" * 5000,
]  # fmt: skip


@given(name=st.text(st.characters(codec="utf-8"), min_size=1, max_size=30))
@example(name="..")
@examples(10)
def test_run_ids_and_keys_are_data(name: str, tmp_path_factory: pytest.TempPathFactory) -> None:
    check_names(tmp_path_factory.mktemp("lake"), name)


@pytest.mark.parametrize("name", NAMES)
def test_names_that_would_be_paths(tmp_path: Path, name: str) -> None:
    check_names(tmp_path, name)


def check_names(folder: Path, name: str) -> None:
    """As run id, pipeline's name and key, it comes back as it was and names no file."""
    path = write_file(folder / "in/a.jsonl", [Line(T, name), Line(T, broken=repr(name))])
    settings = pipeline_of(folder / "lake", path, name=name)
    assert ingest(settings, name).status == "committed"
    assert ingest(settings, name).status == "already done"
    (run,) = seglake.open(settings.root).history()
    assert (run.run_id, run.pipeline) == (name, name)
    assert [r.key for log in read_lake(settings.root).values() for r in log] == [name.encode()]
    made = {p.relative_to(folder).as_posix() for p in folder.rglob("*") if p.is_file()}
    strange = [p for p in made - {"in/a.jsonl"} if not PATHS.fullmatch(p.removeprefix("lake/"))]
    assert strange == []


def test_a_run_id_that_is_no_text_is_refused(tmp_path: Path) -> None:
    """As a program gets it whose argument is not UTF-8."""
    path = write_file(tmp_path / "a.jsonl", [Line(T)])
    with pytest.raises(UsageError, match="the run id is empty"):
        run_pipeline(pipeline_of(tmp_path / "lake", path), run_id="")
    with pytest.raises(UsageError, match=r"the run id 'a\\udcff' cannot be encoded"):
        run_pipeline(pipeline_of(tmp_path / "lake", path), run_id="a\udcff")
    assert not (tmp_path / "lake").exists()


def test_a_file_whose_name_is_no_text_is_refused(tmp_path: Path) -> None:
    path = Path(os.fsdecode(os.fsencode(tmp_path) + b"/in/a\xff.jsonl"))
    path.parent.mkdir()
    path.write_bytes(b'{"ts":1}\n')
    with pytest.raises(InputError, match=r"a\\udcff\.jsonl.*Rename"):
        ingest(pipeline_of(tmp_path / "lake", tmp_path / "in"))


def test_members_of_archives_lead_nowhere(tmp_path: Path) -> None:
    """Names that climb, links and devices: their bytes are read, nothing is unpacked."""
    names = [b"../../up", b"/etc/passwd", b"a\xff", "é".encode(), b"x" * 3000]
    with tarfile.open(tmp_path / "a.tar", "w", encoding="utf-8", format=tarfile.GNU_FORMAT) as tar:
        for name in names:
            member = tarfile.TarInfo(os.fsdecode(name))
            data = b'{"ts":%d}\n' % T
            member.size = len(data)
            tar.addfile(member, io.BytesIO(data))
        for kind in (tarfile.SYMTYPE, tarfile.LNKTYPE, tarfile.CHRTYPE, tarfile.FIFOTYPE):
            member = tarfile.TarInfo("link")
            member.type, member.linkname = kind, "/etc/passwd"
            tar.addfile(member)
    settings = pipeline_of(tmp_path / "lake", tmp_path / "a.tar", headers={"source": True})
    assert ingest(settings).records == len(names)
    headers = seglake.open(settings.root).topic("events").read_range(0, 2 * T).read_all()["headers"]
    rows: list[Any] = headers.to_pylist()
    told = {row[0]["value"].decode().partition("!")[2] for row in rows}
    assert told == {"../../up", "/etc/passwd", "a\ufffd", "é", "x" * 3000}
    assert {p.name for p in tmp_path.iterdir()} == {"a.tar", "lake"}


@pytest.mark.parametrize("forged", FORGED)
def test_a_forged_catalog_on_a_disk_leads_nowhere(tmp_path: Path, forged: str) -> None:
    """The file outside is there, and would do."""
    root, forgery = tmp_path / "lake", FORGED[forged]
    ingest(pipeline_of(root, write_file(tmp_path / "a.jsonl", [Line(T)])))
    log = root / "catalog/log"
    segment = next(log.glob("kind=segment/*/*.parquet"))
    (tmp_path / "outside.parquet").write_bytes(segment.read_bytes())
    (log / f"_delta_log/{1:020}.json").write_bytes(forgery.of(log / "_delta_log"))
    with pytest.raises(SeglakeError):
        forgery.read(str(root), {})


def test_files_have_the_rights_of_the_umask(tmp_path: Path) -> None:
    """A whole lake on a local disk, Delta's own files included."""
    made = [Line(T + n, broken=None if n % 3 else "{") for n in range(30)]
    path = write_file(tmp_path / "a.jsonl", made)
    before = os.umask(0o027)
    try:
        ingest(pipeline_of(tmp_path / "lake", path))
    finally:
        os.umask(before)
    found = [(p.is_dir(), stat.S_IMODE(p.stat().st_mode)) for p in (tmp_path / "lake").rglob("*")]
    assert len(found) > 20
    assert set(found) == {(True, 0o750), (False, 0o640)}


# ------------------------------------------------------------------ memory


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_but(["large.jsonl", "large.jsonl.gz"], "large.jsonl"))
@pytest.mark.parametrize("order", rest_but(["time", "arrival"], "time"))
def test_an_input_larger_than_memory(tmp_path: Path, order: str, name: str) -> None:
    """In many splits, and in one."""
    write_lines(tmp_path / "small.jsonl", TASK_BYTES)
    count = write_lines(tmp_path / name, 20 * TASK_BYTES)
    found = measure(tmp_path / "lake", tmp_path / "small.jsonl", tmp_path / name, order)
    assert found[1:] == (count, 0, "")
    assert found.grown_bytes < 4 * TASK_BYTES, found


def test_what_lines_leave_behind_counts_as_what_it_holds(tmp_path: Path) -> None:
    """A short field with an escape is copied; keys, and lines that are rejected, hold the lines."""
    line = '{"ts":%d,"k":"a","n":"x\\ny","rest":"%s"}\n'
    path, size = tmp_path / "a.jsonl", 2**17
    path.write_text("".join(line % (T, "z" * 2000) for _ in range(500)))
    bounds = {"chunk_bytes": size, "split_bytes": 2**30}
    changes: dict[str, Any] = {"value": {"from": "field", "field": "n"}, "task": bounds}
    settings = pipeline_of(tmp_path / "lake", path, **changes)
    (unit,) = group_splits(splits_of(settings), 2**30)
    groups = [
        sum(chunk.line_count for _, chunk in g)
        for g in _joined(
            unit, store_of(settings), map_settings(settings), Summary(), read_every_row
        )
    ]
    assert sum(groups) == 500
    assert max(groups) * 2000 < 2 * size


def tarred(data: bytes) -> bytes:
    """A tar archive whose member has a name, in its extended header, of `data`."""
    header = tarfile.TarInfo("././@LongLink")
    header.type, header.size = tarfile.GNUTYPE_LONGNAME, len(data)
    return header.tobuf(tarfile.GNU_FORMAT) + data + bytes(2048)


BOMBS: dict[str, Callable[[bytes], bytes]] = {
    "gz": gzip.compress,
    "bz2": bz2.compress,
    "zst": zstandard.compress,
    "tar.gz": lambda data: gzip.compress(tarred(data)),
}


@pytest.mark.slow
@pytest.mark.parametrize("kind", rest_but(BOMBS, "gz"))
def test_a_decompression_bomb(tmp_path: Path, kind: str) -> None:
    """A record and 128 MiB of one line, or of a member's name, in a small file."""
    lines = [Line(T), Line(T, broken="{")]
    small = write_file(tmp_path / "small.jsonl.gz", lines)
    record = write_file(tmp_path / "record.jsonl", lines[:1]).read_bytes()
    bomb = tmp_path / f"bomb.{kind}"
    bomb.write_bytes(BOMBS[kind](record + bytes(128 * MIB)))
    assert bomb.stat().st_size < MIB
    found = measure(tmp_path / "lake", small, bomb)
    assert found[1:3] == ((-1, -1) if kind == "tar.gz" else (1, 1))
    told = "(a member's header has more than"
    assert (told in found.error) == (kind == "tar.gz")
    assert found.grown_bytes < 8 * TASK_BYTES


# Rows that are many, tiny, wide or bad take the memory that docs/deployment.md declares.

SIZE = 48 * MIB  # unpacked: more than `task.chunk_bytes`
DECLARED = 400 * MIB  # docs/deployment.md: what a task takes, beside Python and its libraries


class Hostile(NamedTuple):
    """A file: one row, or rows of so many bytes, and the tables of its pipeline."""

    write: Callable[[int], bytes]
    settings: dict[str, Any]
    rejected: bool = False
    suffix: str = "gz"
    size: int = SIZE


def lines(line: bytes, head: bytes = b"") -> Callable[[int], bytes]:
    """Copies of a line behind a header or a good line, packed."""
    return lambda size: gzip.compress(head + line * (size // len(line) + 1), 1)


def parquet(columns: dict[str, Any], row_bytes: int) -> Callable[[int], bytes]:
    """A Parquet file of one row, repeated, that takes `row_bytes` in memory."""

    def write(size: int) -> bytes:
        count = size // row_bytes + 2
        table = pa.table({name: pa.repeat(value, count) for name, value in columns.items()})
        if "t" in columns:
            table = table.set_column(0, "t", pa.array([T] + [None] * (count - 1), pa.int64()))
        pq.write_table(table, out := io.BytesIO(), row_group_size=1 << 20)
        return out.getvalue()

    return write


def csv(columns: int, name: str = "c%d") -> bytes:
    return b",".join((name % n).encode() for n in range(columns)) + b"\n"


def tables(form: str, value: str = "line", **more: Any) -> dict[str, Any]:
    """A pipeline in the order of arrival, or, with a field `t`, of time."""
    stamp = {"field": "t", "format": "epoch_ms", "allow_1970": True}
    timed = {"order": "time", "timestamp": stamp}
    clock = {} if "t" in more else {"message.timestamp.type": "LogAppendTime"}
    return {
        "max_quarantine_ratio": 1.0,
        "topic": {"name": "events", "partitions": 3, **clock},
        "input": {"format": form, **more.pop("input", {})},
        "value": {} if value == "line" else {"from": value, **more.pop("value_columns", {})},
        **(timed if more.pop("t", None) else {"order": "arrival"}),
        **more,
    }


EVENT = b'{"t":%d,"k":"a"}\n' % T
SPACED = b"{" + b" " * 1000 + b"}\n"
MANY = [f"a{n}.b" for n in range(500)]
KEY: dict[str, Any] = {"key": {"fields": ["k"]}}
SOURCE: dict[str, Any] = {"headers": {"source": True}}
PATTERN = {"pattern": "(?P<a>y)(?P<b>z)"}
WIDE = tables("csv", "columns")
ROWS = tables("parquet", "columns")

HOSTILE = {
    "objects without members": Hostile(lines(b"{}\n"), tables("jsonl", **KEY)),
    "objects without a time": Hostile(lines(b"{}\n", EVENT), tables("jsonl", t=1, **KEY), True),
    "short events": Hostile(lines(b'{"t":1}\n'), tables("jsonl", t=1, **KEY)),
    "broken lines": Hostile(lines(b"x\n", EVENT), tables("jsonl", t=1, **KEY), True),
    "lines of one byte": Hostile(lines(b"x\n"), tables("text")),
    "lines of one byte with headers": Hostile(lines(b"x\n"), tables("text", **SOURCE)),
    "lines that do not match": Hostile(
        lines(b"x\n", b"yz\n"), tables("text", input=PATTERN), rejected=True
    ),
    "empty lines": Hostile(lines(b"\n" * 999 + b"{}\n"), tables("jsonl")),
    "deep nesting": Hostile(
        lines(b'{"a":' * 511 + b"{}" + b"}" * 511 + b"\n"), tables("jsonl", **KEY)
    ),
    "many headers": Hostile(lines(SPACED), tables("jsonl", headers={"fields": MANY})),
    "many columns of objects": Hostile(
        lines(SPACED), tables("jsonl", "columns", value_columns={"columns": MANY})
    ),
    "csv of one column": Hostile(lines(b"x\n", b"a\n"), tables("csv")),
    "csv of too few columns": Hostile(lines(b"x\n", b"a,b\n1,2\n"), tables("csv"), True),
    "letters that are escaped": Hostile(lines(b"\x01" * 999 + b",1\n", b"a,b\n"), WIDE),
    "csv of 1000 columns, short rows": Hostile(
        lines(b"x\n", csv(1000) + b"," * 999 + b"\n"), WIDE, True, size=MIB
    ),
    "csv of 1000 columns": Hostile(lines(b"," * 999 + b"\n", csv(1000)), WIDE, size=32 * MIB),
    "csv of 10000 columns": Hostile(lines(b"," * 9999 + b"\n", csv(10_000)), WIDE, size=16 * MIB),
    "csv of long names": Hostile(
        lines(b"," * 99 + b"\n", csv(100, "%d" + "c" * 5000)), WIDE, size=MIB
    ),
    "tiny rows": Hostile(parquet({"a": None, "b": True}, 4), ROWS, suffix="parquet"),
    "many tiny columns": Hostile(
        parquet({f"c{n}": 1 for n in range(1000)}, 8000), ROWS, suffix="parquet"
    ),
    "rows without a time": Hostile(
        parquet({"t": 1, "b": 1}, 8), tables("parquet", "columns", t=1), True, "parquet"
    ),
    "a text again and again": Hostile(parquet({"a": "x" * 2**12}, 2**12), ROWS, suffix="parquet"),
}


QUICK = "tiny rows"
OTHERS = of_today(name for name in HOSTILE if name != QUICK)


@pytest.mark.slow
@pytest.mark.parametrize("name", rest_but([QUICK, *OTHERS], QUICK))
@pytest.mark.long
def test_hostile_rows_take_the_memory_of_others(name: str, tmp_path: Path) -> None:
    hostile = HOSTILE[name]
    small, large = (tmp_path / f"{size}.{hostile.suffix}" for size in ("small", "large"))
    small.write_bytes(hostile.write(1))
    large.write_bytes(hostile.write(hostile.size))
    found = measure(tmp_path / "lake", small, large, **hostile.settings)
    print(f"{name}: {found.grown_bytes // MIB} MiB")
    assert found.error == ""
    assert (found.records <= 1) == hostile.rejected
    assert found.grown_bytes < DECLARED
