"""`seglake check`: what an ingest would read, and what it would make of some of the rows."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterable, Iterator
from functools import partial
from itertools import starmap
from json import dumps
from typing import TYPE_CHECKING, Annotated, Any

import typer

from seglake.cli.arguments.options import Conf, Json, Source
from seglake.cli.terminal.progress import step_display
from seglake.cli.terminal.tables import Listing, show
from seglake.shown import (
    Column,
    counted,
    folded,
    in_common,
    keeping_ends,
    number,
    path_ends,
    printable,
    prose,
    terminal_width,
    without_middle,
)
from seglake.times.instants import format_ms

if TYPE_CHECKING:
    from seglake.write.check import Checked, SampledRow

_begin = partial(without_middle, end=0)
_RECORDS = [
    Column("time", "time", fit="whole"),
    number("partition", "partition", rank=1),
    Column("key", "key", least=10),
    Column("headers", "headers", rank=3),
    Column("value", "value", least=12, shorten=_begin),
]
_REJECTS = [prose("reason", "reason"), Column("value", "raw", shorten=_begin)]


def check(
    conf_file: Conf,
    sample: Annotated[int, typer.Option(min=1, max=10_000, help="How many rows to show.")] = 20,
    source: Source = None,
    json: Json = False,
) -> None:
    """Show which files a pipeline reads and what becomes of some rows. Nothing is written.

    Settings that the topic of the lake refuses are an error.
    Exit code 3 if a row is rejected, or if times of January 1970 would stop a run.
    """
    with step_display("reading the settings") as tell:
        from seglake.config import load
        from seglake.write.check import TEXT_BYTES, topic_remark
        from seglake.write.check import check as checked_input

        pipeline = load(conf_file, {"input.paths": source} if source else {})
        tell("looking at the files")
        remark = topic_remark(pipeline)
        whole = json or terminal_width() is None  # a pipe leads to `grep` and `less -S`
        checked = checked_input(pipeline, sample, None if whole else TEXT_BYTES)
    if json:
        rows = [{**dataclasses.asdict(row), "time": _time(row)} for row in checked.rows]
        print(dumps({**checked.as_dict(), "rows": rows, "remark": remark}, ensure_ascii=False))
    else:
        _show(checked, remark)
    raise typer.Exit(checked.exit_code)


def _show(checked: Checked, remark: str) -> None:
    for line in _files(checked):
        print(line)
    place = places_of(checked)
    places = Column("place", "file:line", shorten=keeping_parts(map(place, checked.rows)), least=28)
    records = [_shown(row, place(row)) for row in checked.rows if not row.reason]
    rejects = [_shown(row, place(row)) for row in checked.rows if row.reason]
    rows = counted(len(checked.rows), "row")
    if records:
        show(f"{counted(len(records), 'record')} in {rows}", Listing([places, *_RECORDS], records))
    if rejects:
        show(f"{counted(len(rejects), 'reject')} in {rows}", Listing([places, *_REJECTS], rejects))
    if not checked.rows:
        print(_nothing(checked))
    for finding in checked.findings:
        print(folded(str(finding)))
    if remark:
        print(folded(remark))


def keeping_parts(places: Iterable[str]) -> Callable[[str, int], str]:
    """A `Column.shorten` that cuts what all files end with first, then what all begin with.

    Spark names the files of a write alike but for the folder and the number.
    """
    names = {place.rpartition(":")[0] for place in places}
    tail = in_common({name[::-1] for name in names})
    begin = keeping_ends(name[: len(name) - tail] for name in names)

    def shorten(text: str, width: int) -> str:
        name, _, line = text.rpartition(":")
        differing, end = name[: len(name) - tail], f"…:{line}" if tail else f":{line}"
        room = width - len(end)
        cut = differing if len(differing) <= room else begin(differing, room)
        return f"{cut}{end}"

    return shorten


def _files(checked: Checked) -> Iterator[str]:
    counts = (checked.files, "file"), (checked.size_bytes, "byte"), (checked.splits, "split")
    yield ", ".join(starmap(counted, counts))
    for path, size, packing in checked.first_files:
        rest = f"  {size:,} bytes  {packing}".rstrip()
        yield f"  {_fitting(printable(path), len(rest) + 2)}{rest}"
    if checked.files > len(checked.first_files):
        yield f"  … and {checked.files - len(checked.first_files):,} more"
    for reason in dict.fromkeys(checked.left_out.values()):
        paths = [path for path, why in checked.left_out.items() if why == reason]
        yield f"{counted(len(paths), 'file')} left out by {reason}:"
        yield from (f"  {printable(path)}" for path in paths[:5])


def _fitting(path: str, beside: int) -> str:
    """A path, without its middle if a line of the terminal has no room for it and the rest."""
    width = terminal_width()
    if width is None or len(path) <= width - beside:
        return path
    room = max(20, width - beside)
    return without_middle(path, room, room * 2 // 3)


def _nothing(checked: Checked) -> str:
    """Why there is no row."""
    if checked.size_bytes or not checked.files:
        return "There is no row in the sample."
    return "The file is empty." if checked.files == 1 else f"All {checked.files:,} files are empty."


def places_of(checked: Checked) -> Callable[[SampledRow], str]:
    """A function that names the file and line of one of the sampled rows, as "a.jsonl:31".

    Where files of the input have one name, the folders stand before it that tell them apart.
    A member of an archive has its whole name behind that of the archive: "a.tar!x/a.jsonl:31".
    """
    files = {*checked.paths}
    end = path_ends([*checked.paths, *(row.path for row in checked.rows)])

    def name(path: str) -> str:
        marks = (at for at, letter in enumerate(path) if letter == "!" and path not in files)
        archive = next((path[:at] for at in marks if path[:at] in files), "")
        return f"{end(archive)}{path[len(archive) :]}" if archive else end(path)

    def place(row: SampledRow) -> str:
        after = f" after byte {row.start}" if row.start else ""
        return f"{name(row.path)}{after}:{row.line}"

    return place


def _shown(row: SampledRow, place: str) -> dict[str, Any]:
    headers = [f"{name}={'-' if value is None else value}" for name, value in row.headers or []]
    value = row.value
    if value is not None and not value.strip():
        value = repr(value)  # so that it can be seen
    reason = row.reason if row.time_value is None else f"{row.reason}: {row.time_value!r}"
    cells = {"place": place, "time": _time(row), "headers": " ".join(headers) or None}
    cells["value"] = value
    cells["reason"] = reason
    return {**dataclasses.asdict(row), **cells}


def _time(row: SampledRow) -> str | None:
    """ISO 8601 in UTC; None if the row has no timestamp, or gets that of the run."""
    return None if row.timestamp is None or row.timestamp < 0 else format_ms(row.timestamp)
