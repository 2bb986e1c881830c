"""Run ids in a table: long texts, of which an end that is a time stays."""

import re

from seglake.shown import Column, without_middle

_TIME_AT_END = re.compile(r"(T\d\d:\d\d(?::(?!00)\d\d)?)(?::00)?(?:\.\d+)?(?:Z|[+-]\d\d:\d\d)$")
_MINUTE = len("2026-11-20T10:00…")


def run_column(least: int) -> Column:
    """The column of run ids. Where there is no room, so many characters of an id stay."""
    return Column("run_id", "run", least=least, shorten=_short)


def _short(run_id: str, width: int) -> str:
    """A run id that is cut; if a time is its end, as with Airflow, this tells the runs apart."""
    timed = _TIME_AT_END.sub(r"\1…", run_id)
    if timed == run_id:
        return without_middle(run_id, width, (width - 1) // 3)
    return timed if len(timed) <= width else without_middle(timed, width, min(width - 1, _MINUTE))
