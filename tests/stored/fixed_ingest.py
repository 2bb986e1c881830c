"""What a fixed ingest writes: checksums of every object, the rows in full, the records summed.

The clock stands, ids count, and paths are the same in every folder, so the bytes are the same, too.
`python -m tests.stored.fixed_ingest --write` writes them anew into `fixed-ingest.json`. Whoever
changes these bytes adds here when and why.

Changes:
- Commits name their operation: a merge of the catalog's files is an OPTIMIZE (one commit).
- 2026-11-22: no run writes `inputs.json` any more, so the ids that count are others from there on,
  in every key and row. A run's report names the fields that no row has, if there are any. The bytes
  of segments are the same.
- 2026-11-22: an attempt puts its fate before it commits, and so do moved segments. That object
  takes an id of the series for its temporary name. So all later ids changed, and with them the
  names of attempts, the manifests, and the checksums of the catalog's files. Segments and records
  stayed.
- 2026-11-22: run rows have `sequence`, `state` and `offset_ranges`, the table their columns, and
  manifests are of format 2. So the checksums of manifests and of data files of runs are others.
- 2026-11-22: the table has the column `leader_epoch`, so its first commit has another checksum.
- 2026-11-22: segment rows have the column `external`, null except for attached logs. So the first
  commit, the data files of segments and the manifests have other checksums.

Not compared are what delta-rs draws or dates itself (a table's id, its time and place, checkpoints)
and blobs, which no run leaves. The bytes of gzip depend on the machine's zlib: of its logs the
batches are compared after decompression, and of its indexes what does not tell a position.
- 2026-11-23: an attempt announces itself; Seglake writes a table's first commit and, on a local
  disk, puts its checkpoints. These objects take ids of the series for their temporary names, so the
  later ids are others, and with them manifests and files of the catalog. Segments stayed.
- 2026-11-24: manifests and the first commit of the catalog have the lake's identity, so their
  checksums are others. Everything else stayed.
- 2026-11-24: a try after a lost race has a manifest of its own, `manifest-1.json`. There are two,
  and their temporary names take ids of the series: later ids are others. Segments stayed.
- 2026-11-25: the report of a run with rows that are not UTF-8 has a hint at `input.encoding`. Three
  runs have one: their rows and manifests, and the first commits, have other checksums.
- 2026-11-26: commits have the statistics of names, and the table asks for those of all columns. A
  merge sorts files by name. So all commits of the catalog and one merged file have other checksums.
- 2026-11-26: rejects have the columns `member` and `member_line`, null except in archives. So the
  files and commits of the quarantine have other checksums, and its rows two values more.
- 2026-11-29: the catalog has format 6, with all columns from the first commit on, and manifests
  have format 3 and leave out what is null. The bytes of segments are the same.
- 2026-11-29: the catalog has format 7, with the column `interval_records` of runs, and reports have
  it, too. So run rows, manifests and the first commits have other checksums, not segments.
- 2026-11-29: times before 1970 have a reason of their own. So three run rows, their manifests, the
  quarantine and their commits have other checksums. The bytes of segments are the same.
"""

import hashlib
import json
import struct
import sys
import zlib
from collections.abc import Iterator, Sequence
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import seglake
from tests.stored import runs
from tests.stored.answers import FOREVER, catalog_rows, digest, plain, quarantine_rows, summed
from tests.stored.events import put_inputs
from tests.stored.kept import STORED, compact
from tests.stored.steady import steady

EXPECTED = STORED / "fixed-ingest.json"
LIBRARIES = ("cramjam", "deltalake", "lz4", "pyarrow", "zstandard")


def pinned() -> dict[str, Any]:
    """Everything that is compared."""
    with TemporaryDirectory() as folder, TemporaryDirectory() as other:
        lake, packed = filled(Path(folder), runs.runs()), filled(Path(other), [*runs.of_gzip()])
        return {
            "libraries": {name: version(name) for name in LIBRARIES},
            "objects": dict(objects(lake)),
            "catalog": {**catalog_rows(lake), "quarantine": quarantine_rows(lake)},
            "records": {**dict(records(lake)), **dict(records(packed))},
            "gzip": dict(gzip_segments(packed)),
        }


def filled(folder: Path, wanted: Sequence[runs.Run]) -> Path:
    """A lake that these runs made."""
    put_inputs(folder)
    with steady(folder) as clock:
        for each in wanted:
            runs.run(clock, each)
    return folder / "lake"


def objects(lake: Path) -> Iterator[tuple[str, str]]:
    """The key and a checksum of every object."""
    for path in sorted(each for each in lake.rglob("*") if each.is_file()):
        yield path.relative_to(lake).as_posix(), checksum(path)


def checksum(path: Path) -> str:
    """SHA-256 of a file, shortened; of what delta-rs writes only what it does not draw."""
    if path.name.endswith(("checkpoint.parquet", "_last_checkpoint")):
        return "written by delta-rs"
    if path.name == f"{0:020}.json":
        return digest(first_commit(path))
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


def first_commit(path: Path) -> list[dict[str, Any]]:
    """The actions that make a table, without its id, its times and its place."""
    actions = [json.loads(line) for line in path.read_bytes().splitlines()]
    drawn = {"id", "createdTime", "timestamp", "operationParameters"}
    return [
        {kind: {name: each for name, each in action.items() if name not in drawn}}
        for line in actions
        for kind, action in line.items()
    ]


def records(lake: Path) -> Iterator[tuple[str, Any]]:
    """The number of records in each log partition, and their digest."""
    opened = seglake.open(str(lake))
    for log in map(opened.topic, opened.topics()):
        for partition in log.partitions():
            found = log.plan_offsets({partition: (0, FOREVER)}).execute()
            yield f"{log.topic}-{partition}", summed(found)


# ------------------------------------------------------------------ segments whose codec is gzip


def gzip_segments(lake: Path) -> Iterator[tuple[str, Any]]:
    """What each segment holds beside the sizes of its batches."""
    for path in sorted(lake.glob("topics/*/*/*.log")):
        entries = path.with_suffix(".index").read_bytes()
        told = {
            "batches": digest([*batches(path.read_bytes())]),
            "offsets": [offset for offset, _ in struct.iter_unpack(">ii", entries)],
            "times": checksum(path.with_suffix(".timeindex")),
            "zones": digest(zones(path.with_suffix(".zonemap").read_bytes())),
        }
        yield path.relative_to(lake).as_posix(), told


def batches(log: bytes) -> Iterator[list[Any]]:
    """The headers of batches, without length and checksum, and their records."""
    at = 0
    while at < len(log):
        (length,) = struct.unpack_from(">i", log, at + 8)
        end = at + 12 + length
        header = log[at : at + 8] + log[at + 12 : at + 17] + log[at + 21 : at + 61]
        yield plain([header, zlib.decompress(log[at + 61 : end], 16 + zlib.MAX_WBITS)])
        at = end


def zones(content: bytes) -> list[Any]:
    """Offset and times of each block."""
    (_, _, _, _, fences, _, _, _) = struct.unpack_from("<4sHHIIQII", content)
    entries = struct.iter_unpack("<iiqq", content[32 + 40 * fences :])
    return [[offset, low, high] for offset, _, low, high in entries]


if __name__ == "__main__":
    if sys.argv[1:] != ["--write"]:
        sys.exit("python -m tests.stored.fixed_ingest --write")
    EXPECTED.write_text(compact(json.loads(json.dumps(pinned()))))
