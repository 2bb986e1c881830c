"""What memory an ingest takes, as the kernel counts it (Linux)."""

from pathlib import Path
from typing import NamedTuple


class Peaks:
    """The largest resident sets in bytes: of a driver, its JVM and any of its Python workers.

    `whole` is the largest sum over the driver and all processes below it, which counts what they
    share more than once. 0 where /proc does not tell.
    """

    driver = jvm = worker = whole = 0

    def look(self, driver: int) -> None:
        """Take in what the kernel says of a driver and the processes below it."""
        processes = _processes()
        ours = {number for number in processes if _below(driver, number, processes)}
        self.whole = max(self.whole, sum(processes[number].peak for number in ours))
        for number in ours:
            kind = "driver" if number == driver else processes[number].kind
            if kind:
                setattr(self, kind, max(getattr(self, kind), processes[number].peak))


class _Process(NamedTuple):
    """One that runs: its parent, whether it is a jvm or a worker, its largest resident set."""

    parent: int
    kind: str
    peak: int


def _processes() -> dict[int, _Process]:
    return dict(filter(None, map(_process, Path("/proc").glob("[0-9]*"))))


def _process(folder: Path) -> tuple[int, _Process] | None:
    try:
        status = (folder / "status").read_text()
        command = (folder / "cmdline").read_bytes()
    except OSError:  # it has ended
        return None
    lines = dict(line.split(":", 1) for line in status.splitlines() if ":" in line)
    peak = int(lines.get("VmHWM", "0 kB").split()[0]) * 1024  # nothing of a thread of the kernel
    kind = "worker" if b"pyspark.worker" in command else ""
    if command.partition(b"\0")[0].endswith(b"java"):
        kind = "jvm"
    return int(lines["Pid"]), _Process(int(lines["PPid"]), kind, peak)


def _below(ancestor: int, number: int, processes: dict[int, _Process]) -> bool:
    while number not in (0, ancestor):
        number = processes[number].parent if number in processes else 0
    return number != 0
