"""`seglake alter`: other settings of a topic."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from collections.abc import Sequence
from json import loads
from shlex import quote
from typing import Annotated, Any

import typer

from seglake.cli.arguments.options import DryRun, Json, Root, Topic
from seglake.errors import UsageError


def alter(
    root: Root,
    topic: Topic,
    given: Annotated[
        list[str] | None, typer.Argument(metavar="[KEY=VALUE]...", help=r"Settings of \[topic].")
    ] = None,
    delete: Annotated[
        list[str] | None, typer.Option(help="A setting that goes back to its default.")
    ] = None,
    dry_run: DryRun = False,
    json: Json = False,
) -> None:
    """Change settings of a topic, from its next run and maintenance on."""
    from seglake.maintain.topic_settings import alter as change
    from seglake.shown import counted

    report = change(root, topic, _settings(given or []), delete=delete or [], dry_run=dry_run)
    if json:
        print(report.as_json())
        return
    would = "would be changed" if dry_run else "changed"
    for key, (old, new) in report.changes.items():
        print(f"{key}: {old} {would} to {new}")
    if _compacts_now(*report.changes.get("cleanup.policy", ("", ""))):
        count = f"`seglake compact {quote(root)} {topic} --dry-run`"
        print(
            f"compaction removes records without a key, which {count} counts once the topic has "
            "this policy: a pipeline gives records keys by key.fields"
        )
    if report.unindexed:
        segments = counted(report.unindexed, "segment")
        have = "has" if report.unindexed == 1 else "have"
        reindex = f"`seglake reindex {quote(root)} {topic}`"
        print(f"{segments} {have} no index of it yet: {reindex} makes it")
    if not report.changes:
        print(f"{topic} has these settings already.")


def _compacts_now(old: str, new: str) -> bool:
    """Whether a change of a topic's cleanup.policy turns compaction on."""
    return "compact" in new and "compact" not in old


def _settings(texts: Sequence[str]) -> dict[str, Any]:
    """The settings of KEY=VALUE; a value that is no JSON is text. Raises UsageError."""
    settings: dict[str, Any] = {}
    for setting in texts:
        key, equals, text = setting.partition("=")
        if not equals:
            raise UsageError(_without_value(key))
        if not text and key in {"index.fields", "index.headers"}:
            raise UsageError(f"{key}= is an empty name; --delete {key} removes the setting")
        if key in settings:
            raise UsageError(f"{key} is given twice: keep one")
        try:
            settings[key] = loads(text)
        except ValueError:
            settings[key] = text
    return settings


def _without_value(key: str) -> str:
    """What to say of a text without an equals sign."""
    from seglake.config.topic import DEFAULTS

    if key in DEFAULTS:
        return f"{key} has no value: write {key}=VALUE"
    return f"{key!r} is no setting: write KEY=VALUE"
