"""`seglake erase`: record keys leave the topic. No key is printed."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from seglake.maintain.erasure.erase import Erased


class What(NamedTuple):
    """What to erase: keys, keys in a file, rejected rows that contain a text."""

    keys: list[str]
    keys_from: Path | None
    raw_containing: str | None


def run(
    root: str, topic: str, what: What, grace_hours: float, *, vacuum: bool, wait: bool,
    dry_run: bool, as_json: bool,
) -> int:  # fmt: skip
    """Erase, or say what would be erased. Returns the exit code."""
    from seglake.cli.maintain import bar
    from seglake.maintain.erasure.erase import erase
    from seglake.maintain.erasure.wanted import keys_given

    keys = keys_given(what.keys, what.keys_from)
    with bar("looking" if dry_run else "erasing") as progress:
        report = erase(
            root, topic, keys, raw_containing=what.raw_containing, vacuum=vacuum, wait=wait,
            dry_run=dry_run, grace_hours=grace_hours, progress=progress,
        )  # fmt: skip
    if as_json:
        print(report.as_json())
    else:
        _tell(report)
    return report.exit_code


def _tell(report: Erased) -> None:
    for key in report.deleted:
        print(key)
    counts = (
        f"{report.records:,} records in {report.segments:,} segments, "
        f"{report.rejects + report.samples:,} rejected rows"
    )
    if report.dry_run:
        print(f"would erase {counts}; {len(report.deleted):,} old objects would be deleted")
    elif report.version < 0:
        print(f"nothing to erase; {len(report.deleted):,} old objects are deleted")
    else:
        print(
            f"version {report.version} has no record of the keys: {counts} are gone, "
            f"{len(report.deleted):,} old objects are deleted"
        )
    for attempt_id in report.running:
        now = "may still run" if report.dry_run else "ran meanwhile: erase again when it has ended"
        print(f"attempt {attempt_id} {now}")
