"""What a campaign did, as the tables of tests/chaos/README.md."""

from __future__ import annotations

import datetime as dt
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import NamedTuple

from tests.chaos.attempts import ANYTHING, Hit

BEGIN, END = "<!-- Written by `make chaos`; do not edit from here. -->", "<!-- To here. -->"
MOMENTS = ("before", "during", "after")
LOCAL, S3, SPARK = "local disk", "S3", "Spark"
UPKEEP, UPKEEP_S3 = "local disk, maintenance", "S3, maintenance"


class Kill(NamedTuple):
    """A kill that hit, what readers saw afterwards (old or new), and whether it was as it must."""

    where: str  # LOCAL, UPKEEP, S3, UPKEEP_S3 or SPARK
    shape: str
    hit: Hit
    seen: str


class Difference(NamedTuple):
    """Something that was not as without a kill; `last` is the kill before it."""

    where: str
    round: int
    problem: str
    last: Kill | None


class Account(NamedTuple):
    """All kills and differences of a campaign."""

    seed: int
    command: str
    kills: list[Kill]
    differences: list[Difference]

    @staticmethod
    def begun(seed: int, command: str) -> Account:
        """Of a campaign that begins."""
        return Account(seed, command, [], [])

    def document(self, path: Path) -> None:
        """Replace the tables in a document."""
        text = path.read_text()
        head, rest = text.split(BEGIN)
        path.write_text(f"{head}{BEGIN}\n\n{self.tables()}\n\n{END}{rest.split(END)[1]}")

    def tables(self) -> str:
        """The tables, and how they came about."""
        date = dt.datetime.now(dt.UTC).date()
        totals = f"{len(self.kills):,} kills, {len(self.differences)} differences"
        parts = [f"`{self.command}` on {date}, seed {self.seed}: {totals}."]
        for where in (LOCAL, UPKEEP, S3, UPKEEP_S3, SPARK):
            kills = [kill for kill in self.kills if kill.where == where]
            if kills:
                rows = self._by_process(kills) if where == SPARK else self._by_step(kills)
                parts += [f"On {where}:", "\n".join(rows)]
        shapes = Counter(kill.shape for kill in self.kills)
        rows = [_row(("story", "kills")), "|---|--:|", *map(_row, shapes.items())]
        parts += ["By story:", "\n".join(rows)]
        return "\n\n".join(parts)

    def _by_step(self, kills: Sequence[Kill]) -> list[str]:
        return [
            _row(("killed", *MOMENTS, "readers saw the old version", "the new one", "differences")),
            "|---|--:|--:|--:|--:|--:|--:|",
            *self._rows(kills, MOMENTS, lambda kill: kill.hit.moment),
        ]

    def _by_process(self, kills: Sequence[Kill]) -> list[str]:
        ends = ("run ended", "run went on")
        return [
            _row(("killed", *ends, "readers saw the old version", "the new one", "differences")),
            "|---|--:|--:|--:|--:|--:|",
            *self._rows(kills, ends, lambda kill: ends[not kill.hit.code]),
        ]

    def _rows(
        self, kills: Sequence[Kill], columns: tuple[str, ...], column: Callable[[Kill], str]
    ) -> Iterable[str]:
        names = sorted({kill.hit.what for kill in kills}, key=lambda n: (n == ANYTHING, n))
        for name in names:
            mine = [kill for kill in kills if kill.hit.what == name]
            counts = Counter(map(column, mine)) + Counter(kill.seen for kill in mine)
            wrong = sum(found.last in mine for found in self.differences)
            yield _row((name, *(counts[each] for each in (*columns, "old", "new")), wrong))


def killed_in(document: str, where: str = LOCAL) -> set[tuple[str, str]]:
    """The moments and steps that a document's table of a place says were hit."""
    table = document.partition(BEGIN)[2].partition(f"On {where}:\n\n")[2].partition("\n\n")[0]
    found = set()
    for line in table.splitlines()[2:]:
        name, *counts = (cell.strip() for cell in line.strip("|").split("|"))
        found |= {(m, name) for m, count in zip(MOMENTS, counts, strict=False) if int(count)}
    return found


def _row(cells: Iterable[object]) -> str:
    return f"| {' | '.join(map(str, cells))} |"
