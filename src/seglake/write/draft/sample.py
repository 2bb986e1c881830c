"""A sample of input files: their format, and rows from the beginnings of some, by field."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain
from pathlib import Path
from shlex import quote
from types import MappingProxyType
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from seglake.config.rules import flat
from seglake.errors import InputError
from seglake.shown import counted
from seglake.write.draft.files import choose, columns_in_paths, some_of, without
from seglake.write.draft.headers import DELIMITERS, has_words, is_header
from seglake.write.draft.heads import Head, Refused, each_of, heads_of
from seglake.write.draft.remarks import header_alone, of_clocks, of_header, of_lines, of_objects
from seglake.write.draft.shapes import (
    ENOUGH,
    Shape,
    clocks_before,
    columns_in_times,
    has_time,
    led_otherwise,
    log_shape_of,
    logfmt_shape_of,
    other_numbers,
    other_times,
    rests_behind,
    shape_of,
    times_inside,
    zones_behind,
)
from seglake.write.input.content import InputStore
from seglake.write.input.encodings import UTF_8
from seglake.write.input.files import PARQUET_MARK, SourceFile
from seglake.write.rows.arrays import NO_CONSTANTS, arrays_in, has_constants
from seglake.write.rows.arrow_json import text_of
from seglake.write.rows.objects import is_object, parsed

_NAMELESS = (
    "the first line names no columns, so they are c1, c2, … of a pattern, which cuts at delimiters "
    "in quotes, too: with a line of names in front of each file, input.format = 'csv' does not"
)
_NAMELESS_SO_FAR = (
    "in another encoding than {}, which is a guess, the first line may name columns: if it does, "
    "set input.encoding and input.format = 'csv', and take input.pattern out"
)
_CELL_BEHIND = re.compile(r",\d+$")
_SHOWN = 60  # characters of a line
_NAMED = 3  # files
_ROWS = 1000  # taken of each
_MOST = 0.9  # of the lines must agree with a format
_NEARLY = 0.99  # with blanks, which may also be those of sentences
_HALF = 0.5  # of them are enough for JSON: nothing else is taken for an object
PACKED = 5  # times as large may files be when they are unpacked
_DECIMAL_COMMAS = re.compile(r"(?:[^,]|(?<=\d),(?=\d))*")
_LOOKED_AT = 100  # lines
_COMMA_IN_A_TIME = re.compile(r":\d{2},\d{3}[\s\])]")  # Java's milliseconds


Fields = dict[str, list[str | None]]


class Sample(NamedTuple):
    """What some files hold.

    `settings` are the keys of `[input]` that read them, without `paths`. `fields` has the value of
    each field in each sampled row, as text; those of `times` have a time type, and need no format.
    `size_bytes` is what all the files have, about that if they are `packed`. `doubts` are
    sentences. `refused` says why the settings leave some files out. `zones` are the names of zones
    that stand behind times, and belong to no field. `arrays` are those of objects, which are no
    fields. `parts` are the rows of each file, but for those of Parquet.
    """

    settings: dict[str, Any]
    fields: Fields
    rows: int
    files: int
    size_bytes: int
    doubts: list[str]
    times: frozenset[str] = frozenset()
    packed: bool = False
    refused: Mapping[SourceFile, str] = MappingProxyType({})
    zones: frozenset[str] = frozenset()
    arrays: tuple[str, ...] = ()
    parts: tuple[tuple[str, int], ...] = ()


def sample_of(
    paths: Sequence[str], storage: Mapping[str, str], root: str, output: Path | None
) -> Sample:
    """A sample of the files that these paths name, as `input.paths` would, but those of the lake.

    The settings leave out a pipeline file `output` that lies in one of the folders.

    Raises InputError if there are none, if they are empty, or if no format reads them.
    """
    store = InputStore(storage)
    chosen = choose(paths, store, root, output)
    some = some_of(chosen.files)
    head = _parquet(some, store) or _lines(some, store)
    files, settings, doubts = without(head.refused, chosen, paths, store, root)
    packed = head.settings["format"] != "parquet" and bool(store.packing(files[0]))
    size = sum(file.size for file in files)
    return head._replace(
        settings=settings | head.settings,
        files=len(files),
        size_bytes=size * (PACKED if packed else 1),
        packed=packed,
        doubts=[*doubts, *head.doubts, *columns_in_paths(files, head.fields)],
    )


# ---------------------------------------------------------------- columns


def _parquet(files: Sequence[SourceFile], store: InputStore) -> Sample | None:
    """A sample of Parquet files; None if the first file is none."""
    if (store.raw(files[0]).read(len(PARQUET_MARK)) or b"") != PARQUET_MARK:
        return None
    every, unread = each_of(files, partial(_first_rows, store=store))
    names = {file: batch.schema.names for file, batch in every.items()}
    others = _differing({file: frozenset(each) for file, each in names.items()}, names)
    fields, times, rows = Fields(), set[str](), 0
    for table in (_flattened(batch) for file, batch in every.items() if file not in others):
        for name, column in zip(table.column_names, table.columns, strict=True):
            fields.setdefault(name, []).extend(_texts_of(column))
            if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
                times.add(name)
        rows += len(table)
    refused = unread | others
    return Sample({"format": "parquet"}, fields, rows, 0, 0, [], frozenset(times), refused=refused)


def _differing(
    kinds: Mapping[SourceFile, object], names: Mapping[SourceFile, Sequence[str]]
) -> Refused:
    """The files of another kind than most, and in which `names` of columns they differ."""
    ((most, _),) = Counter(kinds.values()).most_common(1)
    first = next(file for file, kind in kinds.items() if kind == most)
    refused = Refused()
    for file in (file for file, kind in kinds.items() if kind != most):
        here, there = names[first], names[file]
        differing = [name for name in chain(here, there) if (name in here) != (name in there)]
        refused[file] = (
            f"{file.path}: its columns differ from those of {first.path} "
            f"({', '.join(differing) or 'order of columns'}); {_own_pipeline(file)}"
        )
    return refused


def _own_pipeline(file: SourceFile) -> str:
    return f"draft a pipeline of its own: seglake init {quote(file.path)}"


def _texts_of(column: Any) -> list[str | None]:
    """The values as an ingest takes them; None for null, for no text, and for what is no field."""
    try:
        texts = text_of(column.combine_chunks(), "")
    except InputError:  # the type has no text
        return [None] * len(column)
    return [text.decode("utf-8", "replace") if text else None for text in texts.tolist()]


def _first_rows(file: SourceFile, store: InputStore) -> pa.Table:
    """Some rows of a Parquet file. Raises InputError."""
    try:
        source = pa.PythonFile(store.raw(file), "r")
        parquet = pq.ParquetFile(source, page_checksum_verification=True)
        batch = next(parquet.iter_batches(_ROWS), None)
        return parquet.schema_arrow.empty_table() if batch is None else pa.table(batch)
    except pa.ArrowException as problem:
        raise InputError(f"{file.path}: is no Parquet file: {problem}; leave it out") from None


def _flattened(table: pa.Table) -> pa.Table:
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


# ---------------------------------------------------------------- lines


def _lines(files: Sequence[SourceFile], store: InputStore) -> Sample:
    """A sample of files of lines. Raises InputError if they are none."""
    heads, encoding, doubts, refused = heads_of(files, store)
    lines = [line for head in heads for line in head.lines]
    if not lines:
        raise InputError(f"{files[0].path}: has no lines; name other files")
    readers = (partial(_json, heads=heads), partial(_log, heads=heads),
               partial(_logfmt, heads=heads), partial(_csv_or_log, heads=heads),
               partial(_text, heads=heads))  # fmt: skip
    for read in readers:
        sample = read(lines)
        if sample is not None:
            settings = {} if encoding == UTF_8 else {"encoding": encoding}
            if doubts and _NAMELESS in sample.doubts:
                doubts += [_NAMELESS_SO_FAR.format(encoding)]
            if sample.settings["format"] == "text":
                doubts += of_objects(lines)
            if read is readers[-1]:
                doubts += of_lines(heads)
            others = _of_another_format(heads, sample.settings)
            return sample._replace(
                settings=sample.settings | settings,
                doubts=[*doubts, *others, *sample.doubts],
                refused={**refused, **sample.refused},
            )
    raise InputError(
        f"{heads[0].path}: its lines are neither JSON nor CSV, and no time is found in them: write "
        "the pipeline by hand (docs/settings.md), with input.format = 'text' and input.pattern"
        + "".join(
            f"; {each}"
            for each in chain(
                of_clocks(lines), of_objects(lines), of_lines(heads), header_alone(lines)
            )
        )
    )


def _of_another_format(heads: Sequence[Head], settings: Mapping[str, Any]) -> Iterator[str]:
    """Which files have lines of another format than the settings say, and what to do with them."""
    if settings["format"] == "csv":  # whose headers a run compares
        return
    pattern = settings.get("pattern")
    fits: Callable[[str], object] = re.compile(pattern).match if pattern else is_object
    what = "matches input.pattern" if pattern else "is a JSON object"
    counts = [sum(map(bool, map(fits, head.lines))) for head in heads]
    enough = [count >= ENOUGH * len(each.lines) for count, each in zip(counts, heads, strict=True)]
    for head, count, fine in zip(heads, counts, enough, strict=True):
        if any(enough) and not fine:
            lines = counted(len(head.lines), "sampled line")
            yield (
                f"{head.path} has another format: {f'{count:,}' if count else 'none'} of {lines} "
                f"{what}; leave {_leave_out(head.file)}, and {_own_pipeline(head.file)}"
            )


def _leave_out(file: SourceFile) -> str:
    name = file.path.rpartition("/")[2]
    return f"{name} out with input.exclude = [{json.dumps(name, ensure_ascii=False)}]"


def _json(lines: Sequence[str], heads: Sequence[Head]) -> Sample | None:
    """A sample of JSON lines; None if they are none."""
    objects = [
        (head.path, [row for line in head.lines if isinstance(row := parsed(line), dict)])
        for head in heads
    ]
    rows = [row for _, some in objects for row in some]
    if len(rows) < _HALF * len(lines):
        return None
    items = [dict(flat(row)) for row in rows]
    names = dict.fromkeys(name for item in items for name in item)
    fields: Fields = {
        name: [_as_text(item.get(name)) for item in items]
        for name in names
        if not any(isinstance(item.get(name), list) for item in items)
    }
    wrong = len(lines) - len(rows)
    doubts = [f"no JSON objects: {_part(wrong, lines, 'sampled line')}"] if wrong else []
    if constants := sum(has_constants(line.encode("utf-8", "replace")) for line in lines):
        doubts.append(f"rejects: {_part(constants, lines, 'sampled line')}, with {NO_CONSTANTS}")
    arrays = tuple(dict.fromkeys(name for row in rows for name in arrays_in(row)))
    parts = tuple((path, len(some)) for path, some in objects)
    sample = Sample({"format": "jsonl"}, fields, len(rows), 0, 0, doubts)
    return sample._replace(arrays=arrays, parts=parts)


def _part(count: int, lines: Sequence[str], noun: str) -> str:
    return f"{count:,} of {counted(len(lines), noun)}"


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def _csv(lines: Sequence[str], heads: Sequence[Head]) -> Sample | None:
    """A sample of CSV files; None if no delimiter cuts the lines into as many fields each."""
    delimiters = DELIMITERS[_comma_cuts_nothing(lines) :]
    for delimiter in (*delimiters, *" " * has_words(lines[0])):
        if len(lines) > 1 and lines[0].count(delimiter):
            try:
                tables = [list(csv.reader(each.lines, delimiter=delimiter)) for each in heads]
            except csv.Error:  # as at a field of more than 128 KiB
                continue
            by_file = {head.file: rows for head, rows in zip(heads, tables, strict=True) if rows}
            refused = _other_headers(by_file)
            kept = {file.path: rows for file, rows in by_file.items() if file not in refused}
            rows = [*chain.from_iterable(kept.values())]
            width = len(rows[0])
            even = sum(len(row) == width for row in rows)
            if width > 1 and even >= (_NEARLY if delimiter == " " else _MOST) * len(rows):
                table = _table(kept, delimiter, lines)
                doubts = [*table.doubts, *of_header(heads, rows[0])]
                return table._replace(refused=refused, doubts=doubts)
    return None


def _comma_cuts_nothing(lines: Sequence[str]) -> bool:
    """Whether the comma is a part of times or, beside another delimiter, of numbers."""
    if _COMMA_IN_A_TIME.search(lines[0]):
        return True
    others = any(each in lines[0] for each in DELIMITERS[1:])
    return others and all(map(_DECIMAL_COMMAS.fullmatch, lines[:_LOOKED_AT]))


def _csv_or_log(lines: Sequence[str], heads: Sequence[Head]) -> Sample | None:
    """A sample of CSV files, or of a log whose lines have as many commas each, but no header.

    The times of CSV are whole cells; those of a log stand among other words.
    """
    table = _csv(lines, heads)
    if table is None or (table.settings["format"] == "csv" and not has_time(lines[0])):
        return table
    log = _text(lines, heads)
    if log is None or log.rows < _MOST * len(lines):
        return table
    cells = {cell.strip() for column in table.fields.values() for cell in column if cell}
    matches = filter(None, map(re.compile(log.settings["pattern"]).match, lines))
    whole = sum(not cells.isdisjoint(_ways_to_cut(match["time"])) for match in matches)
    return table if 2 * whole >= log.rows else log


def _ways_to_cut(time: str) -> tuple[str, str]:
    """A time, and what is left of it if a number behind a comma is the next cell."""
    return time, _CELL_BEHIND.sub("", time)


def _other_headers(tables: Mapping[SourceFile, list[list[str]]]) -> Refused:
    """The files whose header is not that of most; none if that is no header."""
    headers = {file: tuple(rows[0]) for file, rows in tables.items()}
    ((header, _),) = Counter(headers.values()).most_common(1)
    rows = next(tables[file] for file in tables if headers[file] == header)
    return _differing(headers, headers) if is_header(header, rows[1:]) else {}


def _table(tables: Mapping[str, list[list[str]]], delimiter: str, lines: Sequence[str]) -> Sample:
    """A sample of CSV; without a header line, of text whose pattern cuts it into columns."""
    header, *below = next(iter(tables.values()))
    named, doubts = is_header(header, below), list[str]()
    even = {
        path: [row for row in table[named:] if len(row) == len(header)]
        for path, table in tables.items()
    }
    rows = [*chain.from_iterable(even.values())]
    settings: dict[str, Any] = {"format": "csv"}
    if delimiter != ",":
        settings["delimiter"] = delimiter
    names = header
    if not named:
        names = [f"c{number}" for number in range(1, len(header) + 1)]
        padded = all(f" {delimiter} " in line for line in lines[:_LOOKED_AT])
        settings = {"format": "text", "pattern": _cutting(names, delimiter, lines, padded=padded)}
        rows = [[cell.strip(" ") for cell in row] for row in rows] if padded else rows
        doubts.append(_NAMELESS)
    uneven = sum(len(table) - named for table in tables.values()) - len(rows)
    if uneven:
        first = "header" if named else "first line"
        doubts.append(f"more or fewer fields than the {first}: {counted(uneven, 'sampled row')}")
    doubts += _no_fields(names)
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    fields: Fields = {
        name: [cell or None for cell in column]
        for name, column in zip(names, columns, strict=True)
        if name and names.count(name) == 1
    }
    parts = tuple((path, len(some)) for path, some in even.items())
    return Sample(settings, fields, len(rows), 0, 0, doubts, parts=parts)


def _cutting(names: Sequence[str], delimiter: str, lines: Sequence[str], *, padded: bool) -> str:
    """A pattern with a group for each cell of a line, without the blanks of `padded` cells."""
    quote = '"?' if any('"' in line for line in lines) else ""
    between, lazy, end = re.escape(delimiter).replace("\t", "t"), "", ""
    if padded:
        between, lazy, end = f" *{between} *", "?", " *$"
    cell = f"[^{delimiter}{quote[:1]}]*{lazy}".replace("\t", r"\t")
    return between.join(f"{quote}(?P<{name}>{cell}){quote}" for name in names) + end


def _no_fields(names: Sequence[str]) -> Iterator[str]:
    """What is said of columns that a header does not name, and of those of one name."""
    for name in dict.fromkeys(name for name in names if name and names.count(name) > 1):
        yield (
            f"the header has {name!r} {names.count(name)} times, so it is no field: rename all "
            "but one where that field is wanted"
        )
    for number in (at for at, name in enumerate(names, 1) if not name):
        yield f"column {number} has no name in the header, so it is no field"


def _log(lines: Sequence[str], heads: Sequence[Head]) -> Sample | None:
    """A sample of a log of a well-known shape, though its lines may look like CSV, too."""
    return _shaped(heads, log_shape_of(lines))


def _logfmt(lines: Sequence[str], heads: Sequence[Head]) -> Sample | None:
    """A sample of lines of `key=value`; None if they are none."""
    return _shaped(heads, logfmt_shape_of(lines))


def _text(lines: Sequence[str], heads: Sequence[Head]) -> Sample | None:
    """A sample of text with a time in the lines; None if there is none."""
    return _shaped(heads, shape_of(lines))


def _shaped(heads: Sequence[Head], shape: Shape | None) -> Sample | None:
    """A sample of the files in which some lines have a shape."""
    if shape is None:
        return None
    has = shape.expression.match
    found = {head.path: head.lines for head in heads if any(map(has, head.lines))}
    lines = [*chain.from_iterable(found.values())]
    matches = [match for line in lines if (match := has(line))]
    fields: Fields = {
        name: [match[name] for match in matches] for name in shape.expression.groupindex
    }
    settings: dict[str, Any] = {"format": "text", "pattern": shape.pattern}
    before = sum(_before(shape, some) for some in found.values())
    several = _continued(shape, lines, before, len(matches))
    settings |= several
    doubts = _doubts(shape, lines, len(lines) - len(matches), before if several else None)
    if "time" in fields:
        doubts += _of_times(shape, matches)
        doubts += _begun_otherwise(shape, heads)
    zones = zones_behind(matches) if "time" in fields else frozenset[str]()
    parts = tuple((path, sum(map(bool, map(has, some)))) for path, some in found.items())
    return Sample(settings, fields, len(matches), 0, 0, doubts, zones=zones, parts=parts)


def _continued(shape: Shape, lines: Sequence[str], before: int, matches: int) -> dict[str, Any]:
    """The setting for events of several lines: lines without a time continue the one before.

    The sample may have none of them, such as a stack trace; an access log never has. Lines about
    the program may stand before the first event, if most of the others continue one, or if half of
    those without a time are indented.
    """
    indented = sum(line[:1].isspace() for line in lines if not shape.expression.match(line))
    continuing = len(lines) - matches - before
    most = matches < _HALF * len(lines) or 2 * indented >= continuing > 0
    several = not _before(shape, lines) or (before <= matches and most)
    return {"multiline_start_pattern": shape.start} if shape.start and several else {}


def _before(shape: Shape, lines: Sequence[str]) -> int:
    """How many lines stand before the first event."""
    return next((at for at, line in enumerate(lines) if shape.expression.match(line)), len(lines))


def _doubts(shape: Shape, lines: Sequence[str], others: int, before: int | None) -> list[str]:
    """What is not sure of lines: `before` stand before the first event, if events go on in them."""
    if before is None:
        what = "no match of input.pattern"
        return [f"{what}: {_part(others, lines, 'sampled line')}"] if others else []
    inside = min(len(times_inside(shape, lines)), others - before)
    said = {
        "no time, before the first line of the file that has one, so they are rejects": before,
        "a time that they do not begin with, so they continue an event": inside,
        "no time, so they continue an event": others - before - inside,
    }
    return [f"{what}: {_part(n, lines, 'sampled line')}" for what, n in said.items() if n]


def _of_times(shape: Shape, matches: Sequence[re.Match[str]]) -> Iterator[str]:
    """The doubts about the times that a shape finds in lines, if others may be meant."""
    yield from _inside(shape, matches)
    yield from _of_numbers(shape, matches)
    if others := other_times(matches):
        yield (
            f"the lines have another time, such as {others[0]!r}, beside that which is taken, such "
            f"as {matches[0]['time']!r}: if the other is meant, correct input.pattern"
        )
    if columns := columns_in_times(matches):
        yield (
            f"{columns[0]!r} is taken as the fraction of the second of {matches[0]['time']!r}: if "
            "it is the next column, take it out of input.pattern and timestamp.format"
        )
    if rests := rests_behind(matches):
        yield (
            f"behind the time {matches[0]['time']!r} stands {rests[0]!r}, which is not read: if it "
            "belongs to the time, correct input.pattern and timestamp.format"
        )
    if not shape.is_anywhere:
        return
    if clocks := clocks_before(matches):
        yield (
            f"in front of the time {matches[0]['time']!r} stands {clocks[0]!r}: if that is the "
            "time, correct input.pattern"
        )
    if lines := led_otherwise(matches):
        yield (
            f"{len(lines):,} of {counted(len(matches), 'sampled time')} stand behind other text "
            f"than most, such as {lines[0][:_SHOWN]!r}: if these lines continue an event, correct "
            "input.pattern and input.multiline_start_pattern"
        )


def _begun_otherwise(shape: Shape, heads: Sequence[Head]) -> Iterator[str]:
    """The doubt about lines whose time stands behind another character than that of most, or none.

    Files whose lines are all such may be other logs.
    """
    if not shape.may_begin_otherwise:
        return
    found = {head.path: [*filter(None, map(shape.expression.match, head.lines))] for head in heads}
    lines = {*led_otherwise([*chain.from_iterable(found.values())])}
    if not lines:
        return
    others = [path.rpartition("/")[2] for path, matches in found.items()
              if matches and lines.issuperset(match.string for match in matches)]  # fmt: skip
    named = f"{', '.join(others[:_NAMED])}: " if others else ""
    yield (
        f"{named}{counted(len(lines), 'sampled line')} begin{'s' * (len(lines) == 1)} otherwise "
        f"than most, such as {min(lines)[:_SHOWN]!r}: if they are of another log, leave its files "
        "out with input.exclude"
    )


def _of_numbers(shape: Shape, matches: Sequence[re.Match[str]]) -> Iterator[str]:
    """The doubt about numbers inside of lines, which may be no times at all."""
    if shape.is_anywhere and matches[0]["time"].replace(".", "").isdigit():
        others = other_numbers(matches)
        beside = f", or others such as {others[0]} are meant" if others else ""
        yield (
            f"the lines have no time but numbers such as {matches[0]['time']}: look whether these "
            f"count from 1970{beside}"
        )


def _inside(shape: Shape, matches: Sequence[re.Match[str]]) -> Iterator[str]:
    """The doubt about times inside of lines, if most lines begin with theirs."""
    inside = sum(match.start("time") > 1 for match in matches) if shape.is_anywhere else 0
    if 0 < 2 * inside <= len(matches):
        yield (
            f"{inside:,} of {counted(len(matches), 'sampled time')} stand inside of their lines, "
            "which become events of their own: if they continue one, take .*? from the beginning "
            "of input.pattern and of input.multiline_start_pattern"
        )
