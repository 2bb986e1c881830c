"""`seglake retain`: the oldest records of a log go, as its settings say."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

import sys
from json import dumps

from seglake.cli.arguments.options import DryRun, Json, OneOrAll, Root
from seglake.cli.lifecycle.log_starts import show_moves


def retain(root: Root, topic: OneOrAll = None, dry_run: DryRun = False, json: Json = False) -> None:
    """Remove the oldest segments, as retention.ms and retention.bytes of each topic say."""
    from seglake.maintain.expiry.retention import retain as apply_retention

    reports = apply_retention(root, topic, dry_run=dry_run)
    if json:
        print(dumps([report.as_dict() for report in reports], ensure_ascii=False))
        return
    moves = [(report.topic, move) for report in reports for move in report.moved]
    show_moves(moves, dry_run=dry_run)
    for blocked in (move for report in reports for move in report.blocked):
        print(f"seglake: {blocked.help}", file=sys.stderr)
