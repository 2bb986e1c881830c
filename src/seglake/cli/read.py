"""Define the commands `read`, `find` and `dump`, which print records and segment files."""

# ruff: noqa: A002, PLC0415, PLR0913, PLR0917  # imports when a command runs; options are arguments

from __future__ import annotations

from collections.abc import Mapping
from enum import StrEnum
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
    TimeFormat,
    Times,
    Topic,
    Version,
    Zone,
)
from seglake.cli.arguments.window import window
from seglake.errors import UsageError
from seglake.terminal.tables import show

OutputFormat = StrEnum("OutputFormat", ["JSONL", "CSV", "TABLE", "ARROW", "PARQUET"])
Order = StrEnum("Order", ["OFFSET", "TIME"])  # order of the records of a window
_SUFFIXES = {f".{form}": form for form in OutputFormat if form != OutputFormat.TABLE}
_SUFFIXES |= {".json": OutputFormat.JSONL, ".arrows": OutputFormat.ARROW}


def read(
    root: Root,
    topic: Topic,
    partition: Partition = None,
    offset: int | None = None,
    tail: Annotated[int | None, typer.Option(min=0)] = None,
    follow: bool = False,
    max_records: Annotated[int | None, typer.Option(min=0)] = None,
    start: Start = None,
    end: End = None,
    last: Last = None,
    zone: Zone = None,
    fields: Fields = None,
    order: Order | None = None,
    format: OutputFormat | None = None,
    output: Path | None = None,
    times: Times = None,
    version: Version = None,
    explain: bool = False,
    json: Json = False,
) -> None:
    """Read all records, the newest, a window of time, or the records from an offset on.

    A record without a timestamp is in no window. With --order time, it is first.

    Args:
        offset: Read from this offset on. Needs --partition, if the topic has several partitions.
        tail: Read only this number of records, the newest ones.
        follow: Then print the records of later commits as they are added.
        max_records: Stop after this number of records.
        order: Order of the records: offset or time. Default: offset.
        format: Output format. Default: the format of the --output suffix, else jsonl.
        output: File to write. Default: standard output.
        explain: Show which parts of the logs would be read, without reading records.

    Examples:
        seglake read ./lake web --last 1h --format table
        seglake read ./lake web --start 2026-11-20T10:00Z --end 2026-11-20T11:00Z
        seglake read ./lake web --partition 0 --offset 10 --format csv
    """
    import seglake
    from seglake.cli import record_output as records

    start, end = window(start, end, last, zone)
    how: dict[str, object] = {
        "--format": format,
        "--order": order,
        "--max-records": max_records,
        "--output": output,
        "--fields": fields,
    }
    form = choose_form({**how, "--times": times}, explain=explain, as_json=json)
    if follow:
        how |= {"--start": start, "--end": end, "--version": version, "--explain": explain or None}
        if options := [name for name, value in how.items() if value not in {None, "jsonl"}]:
            raise UsageError(
                f"--follow prints lines until it is stopped, so leave out {', '.join(options)}"
            )
    log = seglake.open(root, version).topic(topic)
    chosen = None if fields is None else seglake.Fields.parse(fields)
    request = records.ReadRequest(
        partition, offset, start, end, order or "offset", tail, chosen, times == TimeFormat.ISO
    )
    if explain:
        show("byte ranges", records.plan_rows(records.plan(log, request)), as_json=json)
        return
    written = records.write(log, request, form, max_records, output)
    if not written and 0 not in {tail, max_records}:
        partitions = log.partitions() if partition is None else [partition]
        records.print_no_records(log, partitions)
    if follow:
        records.follow(log, request)


def choose_form(how: Mapping[str, Any], *, explain: bool, as_json: bool) -> OutputFormat:
    """Return the requested form, or else the form of the file's suffix, or else JSON lines.

    A name without a suffix may have any form. Raises UsageError if one of the options `how` would
    have no effect, if the suffix contradicts the requested form, or for an unknown suffix without a
    requested form.
    """
    options = [name for name, value in how.items() if value is not None]
    if explain and options:
        raise UsageError(f"--explain does not read records, so leave out {', '.join(options)}")
    form, output = how["--format"], how["--output"]
    if as_json and form not in (None, "jsonl"):
        raise UsageError(
            f"--json is short for --format jsonl, which contradicts --format {form}. Keep one"
        )
    if form == "table" and output is not None:
        raise UsageError(
            "--output needs another format than table. Use --format jsonl, csv, arrow or parquet"
        )
    asked = OutputFormat.JSONL if as_json else form
    suffix = "" if output is None else output.suffix.lower()
    named = _SUFFIXES.get(suffix)
    if suffix and asked is None and named is None:
        raise UsageError(
            f"--output {output} has an unknown suffix. Use {', '.join(_SUFFIXES)}, or set --format"
        )
    if asked is not None and named not in {None, asked}:
        option = "--json" if as_json else f"--format {asked}"
        raise UsageError(
            f"{option} contradicts --output {output}, whose suffix selects {named}. Change one"
        )
    chosen: OutputFormat = asked or named or OutputFormat.JSONL
    if how["--times"] is not None and chosen not in {OutputFormat.JSONL, OutputFormat.CSV}:
        raise UsageError(f"--times is for jsonl and csv, not for {chosen}. Leave it out")
    return chosen


def find(
    root: Root,
    topic: Topic,
    key: list[str] | None = None,
    keys_from: Path | None = None,
    where: list[str] | None = None,
    header: list[str] | None = None,
    fields: Fields = None,
    partition: Partition = None,
    start: Start = None,
    end: End = None,
    last: Last = None,
    zone: Zone = None,
    newest: Annotated[int | None, typer.Option(min=0)] = None,
    format: OutputFormat | None = None,
    output: Path | None = None,
    times: Times = None,
    version: Version = None,
    explain: bool = False,
    json: Json = False,
) -> None:
    """Find every record with the given keys, fields or headers, in all records or in a window.

    With a key index (setting `index.keys`), a search reads only parts of the logs. A search with
    neither a key nor a key index reads all records.

    Args:
        key: A record key. Repeatable: any of the keys matches. Write binary keys as base64:… .
        keys_from: A file with a key in each line.
        where: FIELD=VALUE in a value. Repeatable: all fields must match, with any of their values.
        header: NAME=VALUE of a header. Repeatable, like --where.
        newest: Show only this number of matches, the ones with the largest timestamps.
        format: Output format. Default: the format of the --output suffix, else jsonl.
        output: File to write. Default: standard output.
        explain: Show which parts of the logs would be read, and which indexes are used.

    Examples:
        seglake find ./lake web --key u140030
        seglake find ./lake web --key u140030 --last 1h --newest 10 --format table
        seglake find ./lake web --key u140030 --explain
    """
    import seglake
    from seglake.cli import record_output as records
    from seglake.cli.record_formats import iso_batches, iso_schema
    from seglake.maintain.erasure.criteria import parse_keys

    start, end = window(start, end, last, zone)
    how = {"--format": format, "--newest": newest, "--output": output, "--fields": fields}
    form = choose_form({**how, "--times": times}, explain=explain, as_json=json)
    what: dict[str, Any] = {
        "keys": parse_keys(key or [], keys_from) if key or keys_from else None,
        "where": records.parse_conditions(where, "--where"),
        "headers": records.parse_conditions(header, "--header"),
    }
    if not any(what.values()):
        raise UsageError("a search needs --key, --keys-from, --where or --header")
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
    if times == TimeFormat.ISO:
        reader = reader.mapped(iso_schema(reader.schema), iso_batches)
    if not records.write_matches(reader, log, form, output, stats, newest):
        when = "" if start is None and end is None else "in the requested time"
        records.print_no_match(log, what["where"], when)


def dump(file: str, deep: bool = False, times: Times = None, json: Json = False) -> None:
    """Print a segment's log or index as text, whichever program wrote it.

    Args:
        file: A file of a segment: .log, .index or .timeindex.
        deep: Print the records of a .log as JSON lines.

    Example:
        seglake dump topics/web-0/00000000000000000000.log --deep
    """
    from seglake.cli.segment_file import dump_file

    if times is not None and not deep:
        raise UsageError("--times needs --deep")
    dump_file(file, deep=deep, as_json=json, iso=times == TimeFormat.ISO)
