"""Input files that are the same bytes on every machine: events by number, in every format.

What is random comes from SHA-256. Gzip members hold stored blocks, because the bytes of deflated
ones depend on the machine's zlib. Modification times are fixed, because source rows hold them.
"""

import bz2
import hashlib
import io
import json
import os
import struct
import tarfile
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq
import zstandard

START = 1_700_000_000_000
MODIFIED_NS = START * 1_000_000
WORDS = ("käse", "quite a long word", "né", '"quoted"', "a,b", "x" * 40, "", "plain")
USERS = ("hot", "hot", "hot", "ann", "bob", "", "çelik", "d" * 20)


class Event(NamedTuple):
    """One event; what is None is missing from its row."""

    number: int
    ts: int
    user: str | None
    partition: int
    level: str | None
    text: str | None


def chance(name: str, below: int) -> int:
    """A number in 0..below-1 that follows from the name."""
    return int.from_bytes(hashlib.sha256(name.encode()).digest()[:8], "big") % below


def events(name: str, count: int, start: int = START, step: int = 250) -> list[Event]:
    """Events mostly in order of time: one in 17 is a minute late, some times are equal."""
    return [_event(f"{name}/{number}", number, start, step) for number in range(count)]


def _event(name: str, number: int, start: int, step: int) -> Event:
    late = 60_000 if number % 17 == 16 else chance(f"{name} late", 3 * step)
    return Event(
        number,
        start + number // 2 * 2 * step - late,
        None if number % 11 == 5 else USERS[chance(f"{name} user", len(USERS))],
        chance(f"{name} partition", 3),
        None if number % 7 == 3 else ("info", "warn")[number % 2],
        None if number % 13 == 6 else WORDS[chance(f"{name} text", len(WORDS))] * (1 + number % 4),
    )


# ------------------------------------------------------------------ formats


def jsonl(rows: Sequence[Event], bad: Sequence[bytes] = ()) -> bytes:
    """A line for each event; bad lines and an empty one stand among them."""
    lines = [_json_line(row) for row in rows]
    for number, line in enumerate(bad):
        lines.insert(3 + 5 * number, line)
    lines.insert(2, b"")
    return b"\n".join(lines) + b"\n"


def _json_line(row: Event) -> bytes:
    fields = {"n": row.number, "ts": row.ts, "p": row.partition, "user": row.user}
    fields |= {"level": row.level, "text": row.text}
    told = {name: value for name, value in fields.items() if value is not None}
    return json.dumps(told, ensure_ascii=False).encode()


def csv(rows: Sequence[Event], *, breaks: bool = False) -> bytes:
    """A header and a row for each event; with `breaks` some quoted fields have two lines."""
    lines = ["time,user,level,text,n"]
    for row in rows:
        text = (row.text or "") + ("\nmore" if breaks and row.number % 5 == 0 else "")
        quoted = '"' + text.replace('"', '""') + '"'
        lines.append(f"{iso(row.ts)},{row.user or ''},{row.level or ''},{quoted},{row.number}")
    lines.insert(7, "no time,ann,info,,7")
    return "\r\n".join(lines).encode() + b"\r\n"


def iso(ms: int) -> str:
    """A time of day of 2023-11-14, in ISO 8601; the late ones may be a day before."""
    days, rest = divmod(ms - (START - START % 86_400_000), 86_400_000)
    seconds, millis = divmod(rest, 1000)
    clock = f"{seconds // 3600:02}:{seconds // 60 % 60:02}:{seconds % 60:02}.{millis:03}"
    return f"2023-11-{14 + days:02}T{clock}Z"


def text(rows: Sequence[Event]) -> bytes:
    """A line of a log for each event; one matches no pattern."""
    lines = []
    for row in rows:
        time = iso(row.ts).replace("T", " ").replace("Z", "")
        lines.append(f"{time} {(row.level or 'none').upper()} [{row.user or '-'}] {row.text or ''}")
    lines.insert(4, "\tat a stack trace")
    return "\n".join(lines).encode() + b"\n"


def parquet(rows: Sequence[Event]) -> bytes:
    """Typed columns, nested ones among them, in row groups of 20."""
    table = pa.table(
        {
            "at": pa.array([_time(row) for row in rows], pa.timestamp("us")),
            "user": pa.array([row.user for row in rows]),
            "level": pa.array([row.level for row in rows]).dictionary_encode(),
            "size": pa.array([row.number / 8 for row in rows]),
            "tags": pa.array([[row.text, "t"][: row.number % 3] for row in rows]),
            "place": pa.array([{"p": row.partition, "ok": row.number % 2 == 0} for row in rows]),
        }
    )
    sink = io.BytesIO()
    pq.write_table(table, sink, row_group_size=20)
    return sink.getvalue()


def _time(row: Event) -> int | None:
    return None if row.number % 19 == 8 else row.ts * 1000


# ------------------------------------------------------------------ packing


def gzip(data: bytes) -> bytes:
    """One member of stored blocks."""
    parts = [data[at : at + 60_000] for at in range(0, len(data), 60_000)] or [b""]
    blocks = b"".join(
        struct.pack("<BHH", part is parts[-1], len(part), len(part) ^ 0xFFFF) + part
        for part in parts
    )
    head = b"\x1f\x8b\x08\x00" + bytes(5) + b"\xff"
    return head + blocks + struct.pack("<II", zlib.crc32(data), len(data))


def tar(members: dict[str, bytes]) -> bytes:
    """An archive of files."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for name, data in members.items():
            entry = tarfile.TarInfo(name)
            entry.size = len(data)
            archive.addfile(entry, io.BytesIO(data))
    return sink.getvalue()


PACKED: dict[str, Callable[[bytes], bytes]] = {
    ".gz": gzip,
    ".bz2": bz2.compress,
    ".zst": zstandard.ZstdCompressor(level=3).compress,
}


def put(path: Path, data: bytes) -> None:
    """Write a file, packed as its name says."""
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(PACKED.get(path.suffix, bytes)(data))
    os.utime(path, ns=(MODIFIED_NS, MODIFIED_NS))


BAD: tuple[Any, ...] = (
    b"{",
    b'{"n": 1, "user": "ann", "p": 0}',
    b'{"ts": "soon", "user": "ann", "p": 0}',
    b'{"ts": -5, "user": "ann", "p": 0}',
    b'{"ts": 1700000000000, "user": "\xff", "p": 0}',
    b'{"ts": 1700000000000, "n": "no key", "p": 0}',
    b'{"ts": 1700000000000, "user": "ann", "p": 9}',
    b'{"ts": 1700000000000, "user": "ann", "p": 0, "text": "' + b"too large " * 100 + b'"}',
)


def put_inputs(folder: Path) -> None:
    """All input files that the runs of this folder read, in `in/` below a folder."""
    here = folder / "in"
    put(here / "web/a.jsonl", jsonl(events("a", 120), BAD))
    put(here / "web/b.jsonl.gz", jsonl(events("b", 60)))
    put(here / "web/c.jsonl.bz2", jsonl(events("c", 50), BAD[:2]))
    put(here / "web/d.jsonl.zst", jsonl(events("d", 30)))
    put(here / "more/e.jsonl", jsonl(events("e", 70, START + 40_000)))
    put(here / "more/f.jsonl", jsonl(events("f", 40, START + 45_000)))
    put(here / "csv/a.csv", csv(events("g", 90)))
    put(here / "csv/b.csv.zst", csv(events("h", 40)))
    put(here / "breaks/a.csv", csv(events("i", 60), breaks=True))
    put(here / "text/a.log", text(events("j", 80)))
    put(here / "text/b.log.gz", text(events("k", 30)))
    put(here / "parquet/a.parquet", parquet(events("l", 90)))
    put(here / "parquet/b.parquet", parquet(events("m", 30)))
    members = {f"{name}.jsonl": jsonl(events(name, 25)) for name in ("n", "o")}
    put(here / "tar/a.tar.gz", tar(members))
    put(here / "tar/b.tar.zst", tar({"p.jsonl": jsonl(events("p", 20))}))
    put(here / "empty/a.jsonl", b"")
    for number in range(20):
        put(here / f"ticks/{number:02}.jsonl", _tick(number))


def _tick(number: int) -> bytes:
    rows = events(f"tick {number}", 1 + number % 3, START + number * 60_000, 10_000)
    return b"\n".join(map(_json_line, rows)) + b"\n"
