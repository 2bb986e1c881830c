"""`seglake describe`: the settings of a topic, and the tags that hold it."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

import dataclasses
from json import dumps

from seglake.cli.arguments.options import Json, Root, Topic
from seglake.cli.lifecycle.tags import tag_rows
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
    """Show the settings of a topic, with their defaults, and what tags hold of it."""
    from seglake.catalog.table import CatalogTable
    from seglake.maintain.tagging import holds
    from seglake.maintain.topic_settings import settings_of
    from seglake.store import open_store

    table = CatalogTable.open(open_store(root))
    settings = [dataclasses.asdict(setting) for setting in settings_of(table, topic)]
    tags = holds(table, topic=topic)
    if json:
        document = {"settings": settings, "tags": [hold.as_dict() for hold in tags]}
        print(dumps(document, ensure_ascii=False))
        return
    show(f"settings of {topic}", Listing(_COLUMNS, settings))
    if tags:
        show(f"tags that hold {topic}", tag_rows(tags))
