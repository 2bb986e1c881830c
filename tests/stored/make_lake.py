"""Makes the stored lake and its answers: `python -m tests.stored.make_lake`.

It is run on the commit whose format is to be kept, and not again: a lake of another format gets
another name beside this one. It works in /tmp/seglake-v1, because Delta's first commit holds the
absolute path of the table, and leaves nothing there.

The lake is an archive, because its few thousand records stand in 700 small files that have most of
their bytes in common.
"""

from __future__ import annotations

import io
import shutil
import tarfile
from pathlib import Path

import zstandard

from tests.stored import answers, runs
from tests.stored.events import put_inputs
from tests.stored.kept import NAME, STORED, compact, unpack
from tests.stored.steady import CLOCK_MS, steady

FOLDER = Path("/tmp/seglake-v1")


def main() -> None:
    """Make both files."""
    FOLDER.mkdir()
    try:
        put_inputs(FOLDER)
        with steady(FOLDER) as clock:
            for each in [*runs.runs(), *runs.of_gzip()]:
                runs.run(clock, each)
            answers.told("reindex", "lake", "csv", "--index-interval-records", 4)
            answers.told("reindex", "lake", "stamped")
        (STORED / f"{NAME}.tar.zst").write_bytes(packed(FOLDER / "lake"))
        told = answers.of_lake(unpack(FOLDER / "unpacked"))
        (STORED / f"{NAME}.json").write_text(compact(told))
    finally:
        shutil.rmtree(FOLDER)


def packed(folder: Path) -> bytes:
    """All files below a folder, as an archive."""
    sink = io.BytesIO()
    with tarfile.open(fileobj=sink, mode="w", format=tarfile.USTAR_FORMAT) as archive:
        for path in sorted(each for each in folder.rglob("*") if each.is_file()):
            entry = tarfile.TarInfo(path.relative_to(folder).as_posix())
            entry.size, entry.mtime = path.stat().st_size, CLOCK_MS // 1000
            archive.addfile(entry, io.BytesIO(path.read_bytes()))
    return zstandard.ZstdCompressor(level=22).compress(sink.getvalue())


if __name__ == "__main__":
    main()
