"""In and out of Kafka: how fast partition folders come in and go out, beside a plain copy."""

from __future__ import annotations

import os
import struct
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any
from unittest.mock import patch

import crc32c
import lz4.frame
import zstandard

from seglake.kafka.exporting import export_logs
from seglake.kafka.importing import import_logs
from tests.bench.measure import Contender, Goal, Samples, Section, Table, race
from tests.bench.workbench import TOPIC, Workbench, require

MB = 10**6
COPY_BYTES = 8 * 2**20
LEAST_MB = 400.0  # of log a second and core, which is the goal
OF_ZSTD = 0.7  # and of an import with zstd this part of the speed of its decompression alone
CODECS = ("none", "lz4", "zstd")

_TEXT = """\
One thread imports the partition folders of a broker, with {records:,} records in one partition, and
exports them again. *Copy* reads and writes the same logs and syncs each file, *copy and CRC*
computes one checksum of them too. An import decodes every record as well: zone maps need each time.
*Decompress* does nothing but that, batch by batch, with the same library. Zstd alone is slower than
the goal of the other codecs, so the goal of an import with zstd is a part of that speed.
"""


def run(bench: Workbench) -> Section:
    """Measure."""
    section = Section("kafka", "In and out of Kafka", _TEXT.format(records=bench.sizes.events))
    for codec in CODECS:
        megabytes, samples = _race(bench, codec)
        section.tables.append(_table(codec, megabytes, samples))
        section.goals += _goals(codec, megabytes, {each.name: each for each in samples})
    return section


def _goals(codec: str, megabytes: float, samples: dict[str, Samples]) -> Iterator[Goal]:
    for name in ("import", "export"):
        if (codec, name) == ("zstd", "import"):
            share = samples[name].times_as_fast_as(samples["decompress"])[1]
            yield Goal("Import as a multiple of decompression alone, zstd", share, OF_ZSTD)
            continue
        rate = megabytes / samples[name].spread()[1]
        yield Goal(f"MB of log per second and core, {name}, {codec}", rate, LEAST_MB)


def _race(bench: Workbench, codec: str) -> tuple[float, list[Samples]]:
    """MB of log, and the samples of both copies, decompression, the import and the export."""
    root = bench.lake("arrival", partitions=1, compression_type=codec)
    folders = bench.folder / f"folders-{codec}"
    export_logs(root, TOPIC, str(folders))
    logs = sorted(folders.glob("*/*.log"))
    size, target, lake = sum(log.stat().st_size for log in logs), "copied", f"imported-{codec}"
    imported = str(bench.scratch(lake))
    import_logs(imported, [str(folders)])
    contenders = [
        Contender("copy", partial(_copy, logs, bench.folder / target), prepare=_no(bench, target)),
        Contender(
            "copy and CRC", partial(_copy, logs, bench.folder / target, checked=True),
            prepare=_no(bench, target),
        ),
        *(
            [Contender("decompress", partial(_decompress, logs, codec))]
            if codec != "none" else []
        ),
        Contender(
            "import", partial(_import, bench.folder / "again", folders), _all_of(bench),
            _no(bench, "again"),
        ),
    ]  # fmt: skip
    export = Contender(
        "export", partial(_export, imported, bench.folder / "out"), prepare=_no(bench, "out"),
        reads=[imported],
    )  # fmt: skip
    with patch.object(os, "cpu_count", return_value=1):
        contenders = [each._replace(reads=[folders]) for each in contenders]
        return size / MB, race([*contenders, export], bench.sizes.runs)


def _no(bench: Workbench, name: str) -> Callable[[], None]:
    def prepare() -> None:
        bench.scratch(name)

    return prepare


def _all_of(bench: Workbench) -> Callable[[Any], None]:
    def check(reports: Any) -> None:
        require(reports[0].records == bench.sizes.events, "an import lost records")

    return check


def _import(root: Path, folders: Path) -> Any:
    return import_logs(str(root), [str(folders)])


def _export(root: str, dest: Path) -> Any:
    return export_logs(root, TOPIC, str(dest))


def _copy(logs: list[Path], folder: Path, *, checked: bool = False) -> None:
    folder.mkdir()
    for log in logs:
        with log.open("rb") as source, (folder / log.name).open("wb") as target:
            crc = 0
            while data := source.read(COPY_BYTES):
                crc = crc32c.crc32c(data, crc) if checked else 0
                target.write(data)
            target.flush()
            os.fsync(target.fileno())


def _decompress(logs: list[Path], codec: str) -> None:
    """The records of each batch, by the codec's library alone."""
    zstd = zstandard.ZstdDecompressor()
    for log in logs:
        data, at = memoryview(log.read_bytes()), 0
        while at < len(data):
            end = at + 12 + struct.unpack_from(">i", data, at + 8)[0]
            records = data[at + 61 : end]
            if codec == "zstd":
                zstd.decompressobj().decompress(records)
            else:
                lz4.frame.LZ4FrameDecompressor().decompress(records)
            at = end


def _table(codec: str, megabytes: float, samples: list[Samples]) -> Table:
    copy = samples[0]
    rows: list[list[Any]] = []
    for each in samples:
        low, middle, high = each.spread()
        speeds = [megabytes / high, megabytes / middle, megabytes / low]
        rows.append([each.name, megabytes, *speeds, each.times_as_fast_as(copy)[1]])
    columns = ["one thread", "MB of log", "MB per second: min", "median", "max"]
    return Table(f"Codec {codec}", [*columns, "times as fast as a copy"], rows)
