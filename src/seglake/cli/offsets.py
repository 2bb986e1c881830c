"""`seglake offsets`: the offset of each partition at a time."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

from typing import TYPE_CHECKING, Annotated

import typer

from seglake.cli.arguments.options import Json, Partition, Root, Topic, Version, Zone
from seglake.cli.arguments.window import absolute
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import moment, number

if TYPE_CHECKING:
    from seglake.read.log import Log


def offsets(
    root: Root,
    topic: Topic,
    time: Annotated[
        str, typer.Option(help="ISO 8601 with a zone, epoch ms, earliest, latest or max-timestamp.")
    ],
    zone: Zone = None,
    partition: Partition = None,
    version: Version = None,
    json: Json = False,
) -> None:
    """Find the first record at a time or later, in each partition."""
    import seglake

    log = seglake.open(root, version).topic(topic)
    rows = offset_rows(log, absolute(time, zone) or time, partition)
    show(f"offsets of {topic} at {time}", rows, as_json=json)


def offset_rows(log: Log, time: str, partition: int | None) -> Listing:
    """A row for each partition: its offset at a time, or at one of Kafka's special times."""
    columns = [
        number("partition", "partition"),
        number("offset", "offset"),
        moment("timestamp", "timestamp"),
    ]
    chosen = log.partitions() if partition is None else [partition]
    names = [column.field for column in columns]
    places = _find(log, time, chosen)
    return Listing(
        columns, [dict(zip(names, (p, *place), strict=True)) for p, place in places.items()]
    )


def _find(log: Log, time: str, chosen: list[int]) -> dict[int, tuple[int | None, int | None]]:
    if time == "earliest":
        return {p: (offset, None) for p, offset in log.beginning_offsets(chosen).items()}
    if time == "latest":
        return {p: (offset, None) for p, offset in log.end_offsets(chosen).items()}
    if time == "max-timestamp":
        places = log.max_timestamps(chosen)
    else:
        places = log.offsets_for_times(dict.fromkeys(chosen, time))
    return {p: answer or (None, None) for p, answer in places.items()}
