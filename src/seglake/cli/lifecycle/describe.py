"""`seglake describe`: the settings of a topic."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

import dataclasses

from seglake.cli.arguments.options import Json, Root, Topic
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import Column, prose

_COLUMNS = [
    Column("key", "setting", fit="whole"),
    Column("value", "value"),
    Column("is_set", "is", lambda is_set: "set" if is_set else "default", rank=2),
    Column("default", "default", rank=1),
    prose("meaning", "meaning"),
]


def describe(root: Root, topic: Topic, json: Json = False) -> None:
    """Show the settings of a topic, with their defaults."""
    from seglake.maintain.topic_settings import describe as settings_of

    rows = [dataclasses.asdict(setting) for setting in settings_of(root, topic)]
    show(f"settings of {topic}", Listing(_COLUMNS, rows), as_json=json)
