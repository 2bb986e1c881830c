"""`seglake describe` and `seglake alter`: the settings of a topic."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from typing import Any

from seglake.cli.terminal.tables import Column, Rows, show
from seglake.errors import UsageError


def describe(root: str, topic: str, *, as_json: bool) -> None:
    """Show every setting of a topic."""
    from seglake.maintain.topic_settings import describe as settings_of

    columns = [
        Column("key", "setting"),
        Column("value", "value", right=True),
        Column("is_set", "", lambda is_set: "set" if is_set else "default"),
        Column("default", "default", right=True),
        Column("meaning", "meaning"),
    ]
    rows = [dataclasses.asdict(each) for each in settings_of(root, topic)]
    show(f"settings of {topic}", Rows(columns, rows), as_json=as_json)


def alter(
    root: str,
    topic: str,
    given: Sequence[str],
    deleted: Sequence[str],
    *,
    dry_run: bool,
    as_json: bool,
) -> int:
    """Change settings that are given as KEY=VALUE. Returns the exit code."""
    from seglake.maintain.topic_settings import alter as change

    report = change(root, topic, settings(given), delete=deleted, dry_run=dry_run)
    if as_json:
        print(report.as_json())
        return 0
    would = "would be changed" if dry_run else "changed"
    for key, (old, new) in report.changes.items():
        print(f"{key}: {old} {would} to {new}")
    if not report.changes:
        print(f"{topic} has these settings already.")
    return 0


def settings(given: Sequence[str]) -> dict[str, Any]:
    """The settings of KEY=VALUE; a value that is no JSON is text. Raises UsageError."""
    found: dict[str, Any] = {}
    for each in given:
        key, equals, text = each.partition("=")
        if not equals:
            raise UsageError(f"{each!r} is no setting: write KEY=VALUE")
        if key in found:
            raise UsageError(f"{key} is given twice: keep one")
        try:
            found[key] = json.loads(text)
        except ValueError:
            found[key] = text
    return found
