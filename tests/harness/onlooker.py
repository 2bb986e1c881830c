"""A reader in a loop beside writers, who also holds on to the first version that it saw."""

from collections import Counter
from typing import Any

import seglake
from seglake.errors import UnknownTopic, UsageError
from seglake.read.lake import Lake
from seglake.read.log import Log
from tests.harness.observed import records_of


class Onlooker:
    """Sees whole files only, each of `lines` records, in logs that grow at their ends alone."""

    def __init__(self, root: str, lines: int) -> None:
        self._root, self._lines = root, lines
        self._lake: Lake | None = None
        self._held: tuple[Log, list[Any]] | None = None
        self._logs: dict[int, list[Any]] = {}
        self.versions: list[int] = []
        self.files: list[int] = []  # seen at each look

    def look(self) -> None:
        """Refresh, read everything, and compare it with what was there before."""
        try:
            self._lake = self._lake.refresh() if self._lake else seglake.open(self._root)
            log = self._lake.topic("events")
        except (UnknownTopic, UsageError):  # nobody has committed yet
            return
        self._held = self._held or (log, _answers(log))
        assert _answers(self._held[0]) == self._held[1]
        self.versions.append(self._lake.version)
        self.files.append(self._read(self._lake))

    def _read(self, lake: Lake) -> int:
        logs: dict[int, list[Any]] = {}
        for record in records_of(lake):
            logs.setdefault(record[1], []).append(record)
        for partition, log in logs.items():
            assert [record[2] for record in log] == list(range(len(log)))
            before = self._logs.get(partition, [])
            assert log[: len(before)] == before
        assert logs.keys() >= self._logs.keys()
        self._logs = logs
        values = (record[-1] for log in logs.values() for record in log)
        files = Counter(value.split(b'"n": "')[1].split(b":")[0] for value in values)
        assert set(files.values()) <= {self._lines}
        return len(files)

    def assert_moved_on(self) -> None:
        """Each look saw at least what the one before it saw; the held version is an older one."""
        assert self.versions == sorted(self.versions)
        assert self.files == sorted(self.files)
        assert self._held is not None
        assert self._lake is not None
        held, now = self._held[0].end_offsets(), self._lake.topic("events").end_offsets()
        assert sum(held.values()) < sum(now.values())


def _answers(log: Log) -> list[Any]:
    """Ends, lookups by time and by offset, and a window."""
    ends = log.end_offsets()
    middles = {partition: end // 2 for partition, end in ends.items() if end}
    records = [log.record_at(partition, offset) for partition, offset in middles.items()]
    times = [record.timestamp for record in records]
    return [
        ends,
        records,
        [log.offsets_for_times(dict.fromkeys(ends, time)) for time in times],
        log.read_range(min(times), max(times) + 1, columns=["partition", "offset"]).read_all(),
    ]
