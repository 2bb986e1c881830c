"""What a fixed ingest writes: checksums of the files of segments, and the records summed.

The clock does not move and paths are the same in every folder, so the bytes are the same, too.
`python -m tests.stored.fixed_ingest --write` writes them again into `fixed-ingest.json`. Add here
when and why they changed:

- The index files of five topics have other intervals since these are in bytes only.

The catalog is not compared: `independent_reader.py` reads it by its documents. The bytes of gzip
depend on the machine's zlib. Of its logs the batches are compared after decompression, and of its
indexes what does not name a position.
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
from tests.stored.answers import FOREVER, digest, plain, summed
from tests.stored.events import put_inputs
from tests.stored.steady import steady

EXPECTED = Path(__file__).with_name("fixed-ingest.json")
LIBRARIES = ("cramjam", "lz4", "pyarrow", "zstandard")


def pinned() -> dict[str, Any]:
    """Everything that is compared."""
    with TemporaryDirectory() as folder, TemporaryDirectory() as other:
        lake, packed = filled(Path(folder), runs.runs()), filled(Path(other), [*runs.of_gzip()])
        return {
            "libraries": {name: version(name) for name in LIBRARIES},
            "segments": segments(lake),
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


def segments(lake: Path) -> dict[str, list[str]]:
    """The checksums of all files of segments, by log partition and name, for all attempts."""
    found: dict[str, list[str]] = {}
    for path in lake.glob("topics/*/*/*"):
        found.setdefault(name_of(path), []).append(checksum(path))
    return {name: sorted(found[name]) for name in sorted(found)}


def name_of(path: Path) -> str:
    """The log partition and the name of a file of a segment, without the attempt."""
    return f"{path.parts[-3]}/{path.name}"


def checksum(path: Path) -> str:
    """SHA-256 of a file, shortened."""
    return hashlib.sha256(path.read_bytes()).hexdigest()[:32]


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
        yield name_of(path), told


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
    EXPECTED.write_text(json.dumps(pinned(), indent=1) + "\n")
