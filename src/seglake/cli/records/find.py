"""`seglake find`: the records of some keys, fields or headers."""

# ruff: noqa: A002, PLC0415, PLR0913, PLR0917  # an option is an argument of its name

from __future__ import annotations

from pathlib import Path
from typing import Annotated, Any

import typer

from seglake.cli.arguments.options import (
    End,
    Fields,
    Json,
    Last,
    Partition,
    Root,
    Start,
    Topic,
    Version,
    Zone,
)
from seglake.cli.arguments.window import window
from seglake.cli.records.read import OutputFormat, check_options, form_of
from seglake.cli.terminal.tables import show


def find(
    root: Root,
    topic: Topic,
    key: Annotated[list[str] | None, typer.Option(help="A record key; base64:… for bytes.")] = None,
    keys_from: Annotated[Path | None, typer.Option(help="A file with a key in each line.")] = None,
    where: Annotated[
        list[str] | None, typer.Option(help="FIELD=VALUE of the value; each must hold.")
    ] = None,
    header: Annotated[list[str] | None, typer.Option(help="NAME=VALUE of a header.")] = None,
    fields: Fields = None,
    partition: Partition = None,
    start: Start = None,
    end: End = None,
    last: Last = None,
    zone: Zone = None,
    newest: Annotated[
        int | None, typer.Option(min=0, help="Only the last ones of each partition.")
    ] = None,
    format: Annotated[
        OutputFormat | None,
        typer.Option(help="How to write; default by a file's suffix, else jsonl."),
    ] = None,
    output: Annotated[Path | None, typer.Option(help="A file; default standard output.")] = None,
    version: Version = None,
    explain: Annotated[
        bool, typer.Option("--explain", help="Show what would be read, and by which way.")
    ] = False,
    json: Json = False,
) -> None:
    """Find every record of some keys, fields or headers, in a window of time or ever.

    A key index (setting `index.keys`) says where to look; without one, and without a key, all is
    read.
    """
    import seglake
    from seglake.cli.records import write as records
    from seglake.cli.records.nothing import Sought
    from seglake.maintain.erasure.wanted import keys_given

    start, end = window(start, end, last, zone)
    how = {"--format": format, "--newest": newest, "--output": output, "--fields": fields}
    check_options(how, explain=explain, as_json=json)
    form = form_of(format, output, json)
    what: dict[str, Any] = {
        "keys": keys_given(key or [], keys_from) if key or keys_from else None,
        "where": records.conditions_of(where, "--where"),
        "headers": records.conditions_of(header, "--header"),
    }
    records.require_some(what)
    log = seglake.open(root, version).topic(topic)
    partitions = None if partition is None else [partition]
    if explain:
        plan = log.plan_find(**what, start=start, end=end, partitions=partitions)
        show("what is read", records.find_rows(plan), as_json=json)
        return
    stats = seglake.ReadStats()
    chosen = None if fields is None else seglake.Fields.parse(fields)
    reader = log.find(
        **what, start=start, end=end, partitions=partitions, newest=newest,
        fields=chosen, stats=stats,
    )  # fmt: skip
    when = "" if start is None and end is None else "in the time that is asked for"
    sought = Sought(what["keys"] or [], what["where"], what["headers"], when)
    records.write_matches(reader, log, sought, form, output, stats, chosen, newest)
