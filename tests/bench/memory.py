"""What memory an ingest takes, as the kernel counts it (Linux)."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from threading import Event, Thread

EVERY_S = 0.5


class Peaks:
    """The largest resident sets in bytes, of a driver and of any of its Python workers.

    0 where /proc does not tell.
    """

    driver = worker = 0

    def look(self, driver: int) -> None:
        """Take in what the kernel says of a driver and the processes below it."""
        parents, peaks = {}, {}
        for process in Path("/proc").glob("[0-9]*"):
            try:
                status = (process / "status").read_text()
                command = (process / "cmdline").read_bytes()
            except OSError:  # it has ended
                continue
            number = int(process.name)
            lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
            parents[number] = int(lines["PPid"])
            if "VmHWM" in lines and (number == driver or b"pyspark.daemon" in command):
                peaks[number] = int(lines["VmHWM"].split()[0]) * 1024
        self.driver = max(self.driver, peaks.pop(driver, 0))
        ours = (peak for process, peak in peaks.items() if _below(driver, process, parents))
        self.worker = max(self.worker, *ours, 0)


def _below(ancestor: int, process: int, parents: dict[int, int]) -> bool:
    while process not in (0, ancestor):
        process = parents.get(process, 0)
    return process != 0


@contextmanager
def watched(driver: int) -> Iterator[Peaks]:
    """The peaks of a process and those below it, looked at again and again until the end."""
    peaks, ended = Peaks(), Event()

    def look() -> None:
        while not ended.wait(EVERY_S):
            peaks.look(driver)

    thread = Thread(target=look, daemon=True)
    thread.start()
    try:
        yield peaks
    finally:
        ended.set()
        thread.join()
