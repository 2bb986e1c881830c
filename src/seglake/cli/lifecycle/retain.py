"""`seglake retain`: the oldest records of a log go, as its settings say."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

import sys
from collections.abc import Sequence
from json import dumps
from shlex import quote

from seglake.cli.arguments.options import DryRun, Json, OneOrAll, Root
from seglake.cli.lifecycle.log_starts import show_moves

_NO_LIMIT = (
    "retention.ms and retention.bytes are -1: no limit is set; `seglake alter {} {} "
    "retention.ms=30d` sets one"
)


def retain(root: Root, topic: OneOrAll = None, dry_run: DryRun = False, json: Json = False) -> None:
    """Remove the oldest segments, as retention.ms and retention.bytes of each topic say."""
    from seglake.maintain.expiry.retention import retain as apply_retention

    reports = apply_retention(root, topic, dry_run=dry_run)
    if json:
        print(dumps([report.as_dict() for report in reports], ensure_ascii=False))
        return
    moves = [(report.topic, move) for report in reports for move in report.moved]
    show_moves(moves, dry_run=dry_run)
    topics = [report.topic for report in reports]
    if not moves and _are_kept_for_ever(root, topics):
        print(_NO_LIMIT.format(quote(root), topics[0] if len(topics) == 1 else "TOPIC"))
    for blocked in (move for report in reports for move in report.blocked):
        print(f"seglake: {blocked.help}", file=sys.stderr)


def _are_kept_for_ever(root: str, topics: Sequence[str]) -> bool:
    """Whether each of some topics would lose its oldest segments, but has no limit."""
    from seglake.catalog.table import CatalogTable
    from seglake.maintain.topic_settings import topic_of
    from seglake.store import open_store

    snapshot = CatalogTable.open(open_store(root)).snapshot()
    settings = [topic_of(snapshot.topic(topic)) for topic in topics]
    return bool(settings) and all(
        "delete" in each.cleanup_policy and each.retention_ms == each.retention_bytes == -1
        for each in settings
    )
