"""Write records in one of five forms, for the commands `read` and `find`."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

import json
import os
import stat
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager, contextmanager, suppress
from functools import partial
from pathlib import Path
from typing import IO, Any, NamedTuple

import pyarrow as pa

from seglake.cli.record_formats import csv_rows, iso_batches, iso_schema, json_lines
from seglake.cli.terminal.output import complete_file
from seglake.cli.terminal.progress import Display, display
from seglake.errors import UsageError
from seglake.limits import INT64_MAX
from seglake.log.execute import ReadStats
from seglake.read.consumers import offset_of_last
from seglake.read.fields import FieldReader, Fields
from seglake.read.log import Log
from seglake.read.window.find import FIND_COLUMNS, FIND_NAMES, FindPlan, newest_of
from seglake.read.window.reader import PLAN_COLUMNS, Plan, WindowReader
from seglake.terminal.progress import WAITED_S, periodically
from seglake.terminal.tables import Column, Listing, moment, number, show
from seglake.terminal.wording import counted, wrap
from seglake.times.instants import format_ms
from seglake.write.rows.rows import similar_names_hint

_TABLE_ROWS = 100  # limit of the records in a table, unless an option sets it
_BAR_S = 0.25  # interval between two updates of a bar


class ReadRequest(NamedTuple):
    """The options of `seglake read` that choose records."""

    partition: int | None
    offset: int | None
    start: str | None
    end: str | None
    order: str
    tail: int | None = None
    fields: Fields | None = None
    iso: bool = False


def parse_conditions(pairs: list[str] | None, option: str) -> dict[str, list[str]]:
    """Return name → values, from NAME=VALUE pairs. A record may have any value of a name."""
    conditions: dict[str, list[str]] = {}
    for pair in pairs or ():
        name, equal, value = pair.partition("=")
        if not name or not equal:
            raise UsageError(f"{option} {pair!r} is not of the form NAME=VALUE")
        conditions.setdefault(name, []).append(value)
    return conditions


def plan(log: Log, request: ReadRequest) -> Plan:
    """Plan the read. Raises UsageError for options that contradict each other."""
    partitions = log.partitions() if request.partition is None else [request.partition]
    in_window = (request.start, request.end) != (None, None)
    if request.tail is not None:
        if in_window or request.offset is not None or request.order == "time":
            raise UsageError("--tail contradicts --offset, a window and --order. Keep one")
        last = {p: offset_of_last(log.reader(p), request.tail) for p in partitions}
        return log.plan_offsets({p: (offset, INT64_MAX) for p, offset in last.items()})
    if in_window and request.offset is None:
        return log.plan_range(request.start, request.end, partitions=partitions)
    if request.offset is None:
        return log.plan_offsets(dict.fromkeys(partitions, (0, INT64_MAX)))
    if in_window:
        raise UsageError("--offset contradicts --start and --end. Keep one")
    if len(partitions) > 1:
        raise UsageError("--offset needs --partition, because offsets count within a partition")
    log.read(partitions[0], request.offset, max_records=0)  # raises for an offset outside the log
    return log.plan_offsets({partitions[0]: (request.offset, INT64_MAX)})


def plan_rows(planned: Plan) -> Listing:
    """Return a row for each segment of a plan, and a row with their sums."""
    total = {
        "segment": f"{counted(len(planned.pieces), 'segment')} of version {planned.version}",
        "ranges": planned.ranges,
        "bytes": planned.size_bytes,
        "of_bytes": sum(piece.segment.log_bytes for piece in planned.pieces),
        "records_at_most": planned.records_at_most,
        "byte_ranges": None,
    }
    rows = [
        {**row, "byte_ranges": [*zip(starts.tolist(), ends.tolist(), strict=True)]}
        for row, (starts, ends) in zip(planned.rows(), planned.spans, strict=True)
    ]
    return Listing(PLAN_COLUMNS, [*rows, total])


def write(
    log: Log, request: ReadRequest, form: str, max_records: int | None, output: Path | None
) -> int:
    """Read records, write them as jsonl, csv, table, arrow or parquet, and return their count.

    Memory does not grow with the number of records.
    """
    planned, stats = plan(log, request), ReadStats()
    reader = _reader(log, planned, request, stats)
    cut = form == "table" and max_records is None and request.tail is None
    first = _Records(reader, _TABLE_ROWS if cut else max_records, ahead=cut)
    schema, batches = reader.schema, iter(first)
    if request.fields is not None:
        added = FieldReader(request.fields, None, log.value_format)
        schema, batches = added.schema(schema), added.batches(batches, stats.misfits)
    if request.iso:
        schema, batches = iso_schema(schema), iso_batches(batches)
    progress = _progress(f"reading {log.topic}", output, first, stats, planned)
    _write(log, schema, batches, form, output, progress)
    if first.more:
        most = planned.records_at_most
        _print_more(f" of at most {most:,}", f"--max-records {most}")
    print_misfits(log.topic, stats)
    return first.records


def _write(
    log: Log,
    schema: pa.Schema,
    batches: Iterable[pa.RecordBatch],
    form: str,
    output: Path | None,
    progress: AbstractContextManager[None],
) -> None:
    """Write records in the form `form` to a file, or to standard output without `output`."""
    written = _Records(batches)
    if form == "table":
        columns = [_column(field) for field in schema if field.name not in _NOT_SHOWN]
        show(f"records of {log.topic}", Listing(columns, _rows(written)))
        return
    with _sink(output, binary=form in {"arrow", "parquet"}) as sink, progress:
        if form == "jsonl":
            sink.writelines(map(json_lines, written))
        else:
            with _writer(form, output, schema, sink) as writer:
                for batch in written:
                    writer.write_batch(csv_rows(batch) if form == "csv" else batch)
    if output is not None:
        print(f"{counted(written.records, 'record')} written to {output}", file=sys.stderr)


class _Records:
    """An iterable of batches with the first `most` records, or with all records without `most`.

    `records` counts the records so far. With `ahead`, `more` is True if other records follow.
    Without `ahead`, no batch after the last record is read.
    """

    def __init__(
        self, batches: Iterable[pa.RecordBatch], most: int | None = None, *, ahead: bool = False
    ) -> None:
        self._batches, self._most = batches, INT64_MAX if most is None else most
        self._ahead, self.records, self.more = ahead, 0, False

    def __iter__(self) -> Iterator[pa.RecordBatch]:
        for batch in self._batches if self._most or self._ahead else ():
            left = self._most - self.records
            self.more = self._ahead and len(batch) > left
            self.records += min(left, len(batch))
            if left:
                yield batch.slice(0, left)
            if self.more or (self.records == self._most and not self._ahead):
                return


def print_misfits(topic: str, stats: ReadStats) -> None:
    """Print the count of values that do not fit the type of their field to standard error."""
    for name, count in stats.misfits.items():
        records = f"{counted(count, 'record')}, where the value has another type"
        print(f"{topic}: {name!r} is null in {records}", file=sys.stderr)


def find_rows(planned: FindPlan) -> Listing:
    """Return a row for each log partition of a search, and a row with their sums."""
    sums = [sum(row[name] for row in planned.rows) for name in FIND_NAMES]
    total = dict(zip(("partition", *FIND_NAMES), (None, *sums), strict=True))
    columns = [FIND_COLUMNS[0]._replace(none="all"), *FIND_COLUMNS[1:]]
    return Listing(columns, [*map(dict, planned.rows), total])


def write_matches(
    reader: WindowReader,
    log: Log,
    form: str,
    output: Path | None,
    stats: ReadStats,
    newest: int | None = None,
) -> int:
    """Write the records that a search finds, like `write`, and return their count.

    A table has the first 100 records, or all of them with `newest`.
    """
    cut = _TABLE_ROWS if form == "table" and newest is None else None
    first = _Records(reader, cut, ahead=True)
    progress = _progress(f"searching {log.topic}", output, first, stats)
    _write(log, reader.schema, first, form, output, progress)
    if first.more:
        _print_more("", "--newest N for the N newest")
    print_misfits(log.topic, stats)
    return first.records


def print_no_records(log: Log, partitions: Iterable[int]) -> None:
    """Print that a read found nothing, and the time of the newest record, to standard error."""
    columns = [log.reader(partition).view.segments for partition in partitions]
    newest = max((int(each.max_timestamps.max(initial=-1)) for each in columns), default=-1)
    if newest >= 0:
        there = f"the newest record is from {format_ms(newest)}"
    elif any(each.details["record_count"].any() for each in columns):
        there = "the records have no timestamp"
    else:
        there = "the topic has no records"
    _print_hint(log, f"no record was found: {there}")


def print_no_match(log: Log, fields: Iterable[str], when: str) -> None:
    """Print that a search found nothing, and fields that a sample of the values does not have."""
    _print_hint(log, f"no matching record was found {when}".rstrip())
    names = [field.name for field in log.fields().fields] if fields else []
    for name in (name for name in fields if names and name not in names):
        hint = similar_names_hint(name, names, "A value")
        _print_hint(log, f"the sampled values have no field {name!r}. {hint}")


def _print_hint(log: Log, sentence: str) -> None:
    print(wrap(f"{log.topic}: {sentence}", sys.stderr), file=sys.stderr)


def follow(log: Log, request: ReadRequest) -> None:
    """Write the records of later commits as JSON lines, until Ctrl-C."""
    sink = sys.stdout.buffer
    with suppress(KeyboardInterrupt):
        chosen = None if request.partition is None else [request.partition]
        batches = log.follow(partitions=chosen)
        if request.fields is not None:
            beside = FieldReader(request.fields, None, log.value_format)
            batches = beside.batches(batches, None)
        for batch in iso_batches(batches) if request.iso else batches:
            sink.write(json_lines(batch))
            sink.flush()


def _reader(
    log: Log, planned: Plan, request: ReadRequest, stats: ReadStats
) -> WindowReader | pa.RecordBatchReader:
    if request.tail is not None:
        ends = planned.execute(stats=stats)
        newest = partial(newest_of, count=request.tail, schema=ends.schema)
        return ends.mapped(ends.schema, newest)
    if request.order == "offset":
        return planned.execute(stats=stats)
    if request.offset is not None:
        raise UsageError("--order time contradicts --offset. Use --start and --end")
    partitions = log.partitions() if request.partition is None else [request.partition]
    return log.read_range(
        request.start, request.end, partitions=partitions, order="time", stats=stats
    )


def _print_more(of: str, how: str) -> None:
    """Print that a table has only the first records, and how to get the others."""
    print(f"Only the first {_TABLE_ROWS} records{of} are shown. For more: {how}, or --format jsonl")


def _writer(form: str, output: Path | None, schema: pa.Schema, sink: Any) -> Any:
    """Return a writer. The form arrow is a stream in `.arrows` and standard output, else a file."""
    if form == "parquet":
        from pyarrow import parquet

        return parquet.ParquetWriter(sink, schema)
    if form == "csv":
        from pyarrow import csv

        return csv.CSVWriter(sink, csv_rows(pa.RecordBatch.from_pylist([], schema)).schema)
    if output is None or output.suffix.lower() == ".arrows":
        return pa.ipc.new_stream(sink, schema)
    return pa.ipc.new_file(sink, schema)


_NOT_SHOWN = ("topic", "timestamp_type")


def _column(field: Any) -> Column:
    """Return the column of a log column or of a field. Times of fields look like timestamps."""
    if field.name in {"partition", "offset"}:
        return number(field.name, field.name)
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
        raise UsageError(
            "a binary format cannot be printed to a terminal. Name a file with --output"
        )
    else:
        yield sys.stdout.buffer
        sys.stdout.buffer.flush()


@contextmanager
def _progress(
    what: str, output: Path | None, written: _Records, stats: ReadStats, planned: Plan | None = None
) -> Iterator[None]:
    """Show the progress of a read or a search on a terminal, unless records are printed there.

    With an output file, show a bar. With a pipe, show only lines, because a program such as `jq`
    may write to the same terminal. A search has no total.
    """
    if not sys.stderr.isatty() or (output is None and sys.stdout.isatty()):
        yield
        return

    def update(shown: Display) -> None:
        if planned is None:
            shown.step(f"{what}: {counted(written.records, 'record')} found so far")
        else:
            shown.amount(min(stats.bytes_fetched, planned.size_bytes), planned.size_bytes)

    if output is None and stat.S_ISFIFO(os.fstat(sys.stdout.fileno()).st_mode):
        lines = Display(what, "bytes of log", lambda line, *_: print(line, file=sys.stderr))
        with periodically(lambda: update(lines), WAITED_S):
            yield
        return
    with display(what) as bar, periodically(lambda: update(bar), _BAR_S):
        yield
