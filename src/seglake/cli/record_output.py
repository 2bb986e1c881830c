"""Records from an offset, in a window or all, in one of five forms: the work of `seglake read`."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

import json
import os
import stat
import sys
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa

from seglake.cli.search_hints import Sought, with_field_hints
from seglake.cli.terminal.csv_rows import csv_rows, csv_schema
from seglake.cli.terminal.json_lines import json_lines
from seglake.cli.terminal.output import complete_file
from seglake.cli.terminal.progress import awaited, byte_columns
from seglake.errors import UsageError
from seglake.format.records import Int64s
from seglake.limits import INT64_MAX
from seglake.log.execute import ReadStats
from seglake.log.piece import Piece
from seglake.read.consumers import offset_of_last
from seglake.read.fields import FieldReader, Fields
from seglake.read.lacking import without_hints
from seglake.read.log import Log
from seglake.read.window.find import FIND_COLUMNS, FIND_NAMES, FindPlan
from seglake.read.window.plan import Plan
from seglake.read.window.reader import WindowReader
from seglake.terminal.progress import Pace, told_in_time
from seglake.terminal.tables import Column, Listing, moment, number, show, size
from seglake.terminal.wording import counted

_TABLE_ROWS = 100  # unless an option says how many records are wanted

Advance = Callable[[Iterable[pa.RecordBatch]], Iterable[pa.RecordBatch]]


class ReadRequest(NamedTuple):
    """The options of `seglake read` that choose records."""

    partition: int | None
    offset: int | None
    start: str | None
    end: str | None
    order: str
    tail: int | None = None
    fields: Fields | None = None


def conditions_of(pairs: list[str] | None, option: str) -> dict[str, list[str]]:
    """The conditions of an option: NAME=VALUE. A repeated name may have either of its values."""
    conditions: dict[str, list[str]] = {}
    for pair in pairs or ():
        name, equal, value = pair.partition("=")
        if not name or not equal:
            raise UsageError(f"{option} {pair!r} is not NAME=VALUE")
        conditions.setdefault(name, []).append(value)
    return conditions


def plan(log: Log, request: ReadRequest) -> Plan:
    """Plan the read. Raises UsageError for options that contradict each other."""
    partitions = log.partitions() if request.partition is None else [request.partition]
    in_window = (request.start, request.end) != (None, None)
    if request.tail is not None:
        if in_window or request.offset is not None or request.order == "time":
            raise UsageError("--tail does not go with --offset, a window or an order: keep one")
        last = {p: offset_of_last(log.reader(p), request.tail) for p in partitions}
        return log.plan_offsets({p: (offset, INT64_MAX) for p, offset in last.items()})
    if in_window and request.offset is None:
        return log.plan_range(request.start, request.end, partitions=partitions)
    if request.offset is None:
        return log.plan_offsets(dict.fromkeys(partitions, (0, INT64_MAX)))
    if in_window:
        raise UsageError("--offset does not go with --start and --end")
    if len(partitions) > 1:
        raise UsageError("--offset needs --partition: offsets count within one partition")
    log.read(partitions[0], request.offset, max_records=0)  # raises for an offset outside the log
    return log.plan_offsets({partitions[0]: (request.offset, INT64_MAX)})


def plan_rows(planned: Plan) -> Listing:
    """A row for each segment of a plan, and a row with their sums."""
    columns = [
        Column("segment", "segment"),
        number("ranges", "ranges"),
        size("bytes", "bytes"),
        size("of_bytes", "of"),
        number("records_at_most", "records at most"),
    ]
    total = {
        "segment": f"{counted(len(planned.pieces), 'segment')} of version {planned.version}",
        "ranges": planned.ranges,
        "bytes": planned.size_bytes,
        "of_bytes": sum(piece.segment.log_bytes for piece in planned.pieces),
        "records_at_most": planned.records_at_most,
        "byte_ranges": None,
    }
    return Listing(columns, [*map(_piece_row, planned.pieces, planned.spans), total])


def _piece_row(piece: Piece, spans: tuple[Int64s, Int64s]) -> dict[str, Any]:
    starts, ends = (item.tolist() for item in spans)
    return {
        "segment": piece.segment.log_key,
        "ranges": len(starts),
        "bytes": sum(ends) - sum(starts),
        "of_bytes": piece.segment.log_bytes,
        "records_at_most": piece.records_at_most,
        "byte_ranges": [*zip(starts, ends, strict=True)],
    }


def write(
    log: Log, request: ReadRequest, form: str, max_records: int | None, output: Path | None
) -> int:
    """Read records and write them, in constant memory, as jsonl, csv, table, arrow or parquet.

    Returns how many they are.
    """
    planned, stats = plan(log, request), ReadStats()
    reader = _reader(log, planned, request, stats)
    cut = form == "table" and max_records is None and request.tail is None
    first = _FirstRows(reader, _TABLE_ROWS) if cut else _first(reader, max_records)
    schema, batches = reader.schema, iter(first)
    if request.fields is not None:
        beside = FieldReader(request.fields, None, log.value_format)
        schema, batches = beside.schema(schema), beside.batches(batches, stats.misfits)
        batches = with_field_hints(batches, log, request.fields.kinds)
    written = _Counted(batches)
    if form == "table":
        show(f"records of {log.topic}", _listing(schema, written), as_json=False)
        most = planned.records_at_most
        _tell_more(first, f" of at most {most:,}", f"--max-records {most} shows all")
        tell_misfits(log.topic, stats)
        return written.records
    with (
        _sink(output, binary=form in {"arrow", "parquet"}) as sink,
        _progress(planned, stats, written, output) as advance,
    ):
        _writer(form, output)(advance(written), schema, sink)
    _tell_written(written.records, output)
    tell_misfits(log.topic, stats)
    return written.records


def _tell_written(count: int, output: Path | None) -> None:
    if output is not None:
        print(f"{counted(count, 'record')} written to {output}", file=sys.stderr)


class _Counted:
    """Batches; `records` is how many records were taken so far."""

    def __init__(self, batches: Iterable[pa.RecordBatch]) -> None:
        self._batches, self.records = batches, 0

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches:
            self.records += len(batch)
            yield batch


def tell_misfits(topic: str, stats: ReadStats) -> None:
    """Say on standard error how many values a field's type could not hold."""
    for name, count in stats.misfits.items():
        records = f"{counted(count, 'record')} that {'does' if count == 1 else 'do'} not fit"
        print(f"{topic}: {name!r} is null in {records}", file=sys.stderr)


def require_some(what: Mapping[str, object]) -> None:
    """Raise UsageError unless something is searched for."""
    if not any(what.values()):
        raise UsageError("a search needs --key, --keys-from, --where or --header")


def find_rows(planned: FindPlan) -> Listing:
    """A row for each log partition of a search, and a row with their sums."""
    sums = [sum(row[name] for row in planned.rows) for name in FIND_NAMES]
    total = dict(zip(("partition", *FIND_NAMES), (None, *sums), strict=True))
    columns = [FIND_COLUMNS[0]._replace(none="all"), *FIND_COLUMNS[1:]]
    return Listing(columns, [*map(dict, planned.rows), total])


@without_hints()  # `sought` gives them
def write_matches(
    reader: WindowReader,
    log: Log,
    sought: Sought,
    form: str,
    output: Path | None,
    stats: ReadStats,
    fields: Fields | None = None,
    newest: int | None = None,
) -> None:
    """Write the records of a search, as `write` does; a table shows the first or `newest` ones.

    If there are none, lines on standard error say so, and what may be meant.
    """
    what = f"searching {log.topic}"
    found = awaited(reader, what) if form == "table" else reader
    first = _FirstRows(found, _TABLE_ROWS if form == "table" and newest is None else INT64_MAX)
    batches = with_field_hints(first, log, fields.kinds if fields is not None else ())
    written = _Counted(_or_hint(batches, partial(sought.tell_nothing, log)))
    if form == "table":
        show(f"records of {log.topic}", _listing(reader.schema, written), as_json=False)
        _tell_more(first, "", "--newest N shows the last N of each log partition")
        tell_misfits(log.topic, stats)
        return
    with (
        _sink(output, binary=form in {"arrow", "parquet"}) as sink,
        _search_progress(what, stats, written, output) as advance,
    ):
        _writer(form, output)(advance(written), reader.schema, sink)
    _tell_written(written.records, output)
    tell_misfits(log.topic, stats)


def _or_hint(
    batches: Iterable[pa.RecordBatch], tell: Callable[[], None]
) -> Iterator[pa.RecordBatch]:
    """The batches; without any record, `tell` is called."""
    records = 0
    for batch in batches:
        records += len(batch)
        yield batch
    if not records:
        tell()


def follow(log: Log, request: ReadRequest) -> None:
    """Write the records of later commits as lines, until a signal comes."""
    sink = sys.stdout.buffer
    with suppress(KeyboardInterrupt):
        chosen = None if request.partition is None else [request.partition]
        batches = log.follow(partitions=chosen)
        if request.fields is not None:
            beside = FieldReader(request.fields, None, log.value_format)
            batches = beside.batches(batches, None)
        for batch in batches:
            sink.write(json_lines(batch))
            sink.flush()


def _reader(
    log: Log, planned: Plan, request: ReadRequest, stats: ReadStats
) -> WindowReader | pa.RecordBatchReader:
    if request.order == "offset":
        return planned.execute(stats=stats)
    if request.offset is not None:
        raise UsageError("--order time is for a window, not for --offset")
    partitions = log.partitions() if request.partition is None else [request.partition]
    return log.read_range(
        request.start, request.end, partitions=partitions, order="time", stats=stats
    )


def _first(batches: Iterable[pa.RecordBatch], count: int | None) -> Iterator[pa.RecordBatch]:
    """The first `count` records; no batch after them is read."""
    left = INT64_MAX if count is None else count
    for batch in batches if left else ():
        yield batch.slice(0, left)
        left -= min(left, len(batch))
        if not left:
            return


class _FirstRows:
    """The first `count` records; after them, `more` says whether others follow."""

    def __init__(self, batches: Iterable[pa.RecordBatch], count: int) -> None:
        self._batches, self._count, self.more = batches, count, False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        left = self._count
        for batch in self._batches:
            self.more = len(batch) > left
            if left:
                yield batch.slice(0, left)
            if self.more:
                return
            left -= len(batch)


def _tell_more(first: object, of: str, how: str) -> None:
    """Say under a table which records it lacks, and how to get them."""
    if isinstance(first, _FirstRows) and first.more:
        print(f"the first {_TABLE_ROWS} records{of} are shown: {how}, --format jsonl too")


def _write_lines(batches: Iterable[pa.RecordBatch], _schema: pa.Schema, sink: Any) -> None:
    for batch in batches:
        sink.write(json_lines(batch))


def _write_arrow(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: Any) -> None:
    with pa.ipc.new_file(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_arrow_stream(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: Any) -> None:
    with pa.ipc.new_stream(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_parquet(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: Any) -> None:
    from pyarrow import parquet

    with parquet.ParquetWriter(sink, schema) as writer:
        for batch in batches:
            writer.write_batch(batch)


def _write_csv(batches: Iterable[pa.RecordBatch], schema: pa.Schema, sink: Any) -> None:
    from pyarrow import csv

    with csv.CSVWriter(sink, csv_schema(schema)) as writer:
        for batch in batches:
            writer.write_batch(csv_rows(batch))


_WRITERS = {
    "jsonl": _write_lines,
    "csv": _write_csv,
    "arrow": _write_arrow,
    "parquet": _write_parquet,
}


def _writer(form: str, output: Path | None) -> Callable[..., None]:
    """What writes a form. Arrow is a stream on standard output and as `.arrows`, else a file."""
    if form == "arrow" and (output is None or output.suffix.lower() == ".arrows"):
        return _write_arrow_stream
    return _WRITERS[form]


_COLUMNS = {
    "partition": number("partition", "partition"),
    "offset": number("offset", "offset"),
    "timestamp": moment("timestamp", "timestamp"),
    "key": Column("key", "key"),
    "value": Column("value", "value"),
    "headers": Column("headers", "headers"),
}
_NOT_SHOWN = ("topic", "timestamp_type")


def _listing(schema: pa.Schema, batches: Iterable[pa.RecordBatch]) -> Listing:
    """A table of records, with the columns of `schema` that people look at."""
    names = [name for name in schema.names if name not in _NOT_SHOWN]
    return Listing([_column(schema.field(name)) for name in names], _rows(batches))


def _column(field: Any) -> Column:
    """A column of the log, or one of a field, whose times look as those of records do."""
    if field.name in _COLUMNS:
        return _COLUMNS[field.name]
    if pa.types.is_timestamp(field.type):
        return moment(field.name, field.name)
    return Column(field.name, field.name)


def _rows(batches: Iterable[pa.RecordBatch]) -> Iterator[dict[str, Any]]:
    for batch in batches:
        for line in json_lines(batch).splitlines():
            yield {name: _shown(value) for name, value in json.loads(line).items()}


def _shown(value: Any) -> Any:
    if value is None or isinstance(value, (str, int, float)):
        return value
    return json.dumps(value, ensure_ascii=False) if value else None


@contextmanager
def _sink(output: Path | None, *, binary: bool) -> Iterator[IO[bytes]]:
    if output is not None:
        with complete_file(output) as file:
            yield file
    elif binary and sys.stdout.isatty():
        raise UsageError("this form is not for a terminal: name a file with --output, or pipe it")
    else:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


def _is_shown(output: Path | None) -> bool:
    """Whether a person sees the records as they come."""
    return output is None and sys.stdout.isatty()


def _is_piped(output: Path | None) -> bool:
    """Whether another program reads the records."""
    return output is None and stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode)


def _unchanged(batches: Iterable[pa.RecordBatch]) -> Iterable[pa.RecordBatch]:
    return batches


def _tell(line: str) -> None:
    print(line, file=sys.stderr)


@contextmanager
def _search_progress(
    what: str, stats: ReadStats, written: _Counted, output: Path | None
) -> Iterator[Advance]:
    """What shows on a terminal that a search goes on, as `_progress` does for a read.

    Nobody knows beforehand how much a search reads.
    """
    if not sys.stderr.isatty() or _is_shown(output):
        yield partial(awaited, what=what)
        return

    def line(_read: int = 0) -> str:
        return f"{what}: {counted(written.records, 'record')} found so far"

    if _is_piped(output):
        with told_in_time(lambda: stats.bytes_fetched, line, _tell):
            yield _unchanged
        return
    from rich.console import Console

    with Console(stderr=True).status(what) as status:

        def advance(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                status.update(line())
                yield batch

        yield advance


@contextmanager
def _progress(
    planned: Plan, stats: ReadStats, written: _Counted, output: Path | None
) -> Iterator[Advance]:
    """A bar on standard error, if that is a terminal and the records go to a file.

    At its end, a line with the records and bytes read, and the bytes per byte of matching batches.
    What reads a pipe, as `jq` does, may write to the same terminal, so there are lines then.
    """
    total, pace = planned.size_bytes, Pace("bytes of log")
    if not sys.stderr.isatty() or _is_shown(output):
        yield _unchanged
        return
    if _is_piped(output):
        with told_in_time(
            lambda: min(stats.bytes_fetched, total), lambda done: pace.text(done, total), _tell
        ):
            yield _unchanged
        return
    from rich.console import Console
    from rich.progress import Progress

    console = Console(stderr=True)
    with Progress(*byte_columns(), console=console, transient=True) as bar:
        task = bar.add_task("read", total=total)

        def advance(batches: Iterable[pa.RecordBatch]) -> Iterator[pa.RecordBatch]:
            for batch in batches:
                bar.update(task, completed=min(stats.bytes_fetched, total))
                yield batch

        yield advance
    console.print(_told_at_end(planned, stats, written.records))


def _told_at_end(planned: Plan, stats: ReadStats, records: int) -> str:
    """What a read took; in the order of time it may read a batch in several slices."""
    matching = min(stats.bytes_matching, planned.size_bytes)
    cost = replace(stats, bytes_matching=matching).amplification
    return (
        f"{counted(records, 'record')}; {counted(stats.bytes_fetched, 'byte')} read,"
        f" {cost:.2f} for each byte of a matching batch"
    )
