"""A sample of input files: their format, and rows from the beginnings of some, by field."""

from __future__ import annotations

import csv
import json
import re
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import suppress
from functools import partial
from itertools import islice
from pathlib import Path, PurePosixPath
from shlex import quote
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from seglake.config import Input
from seglake.config.rules import flat
from seglake.errors import InputError
from seglake.shown import counted
from seglake.write.draft.encoding import Beginning, encoding_of
from seglake.write.draft.shapes import ENOUGH, Shape, log_shape_of, logfmt_shape_of, shape_of
from seglake.write.input.content import InputStore
from seglake.write.input.encodings import UTF_8
from seglake.write.input.files import PARQUET_MARK, SourceFile
from seglake.write.input.listing import ListedInputs, find_inputs
from seglake.write.rows.hints import LINES_OF_AN_ARRAY

_FILES, _LARGEST = 5, 3  # that rows are taken from
_HEAD_BYTES = 1 << 18  # read of each
_ROWS = 1000  # taken of each
_MOST = 0.9  # of the lines must agree with a format
_HALF = 0.5  # of them are enough for JSON: nothing else is taken for an object
_LONG_BYTES = 1 << 24  # read for the sake of a first line
PACKED = 5  # times as large may files be when they are unpacked
_DELIMITERS = (",", ";", "\t", "|")
_SUFFIX = re.compile(r"\.([A-Za-z]\w*?)(?:\.(?:gz|bz2|zst|zstd|[\d_T:-]+))*$")
_COMMA_IN_A_TIME = re.compile(r":\d{2},\d{3}[\s\])]")  # Java's milliseconds
_NAME = re.compile(r"[A-Za-z_][\w .#/()-]*")  # the name of a column, whatever stands below it

Fields = dict[str, list[str | None]]


class Sample(NamedTuple):
    """What some files hold.

    `settings` are the keys of `[input]` that read them, without `paths`. `fields` has the value of
    each field in each sampled row, as text; those of `times` have a time type, and need no format.
    `size_bytes` is what all the files have, about that if they are `packed`. `doubts` are
    sentences.
    """

    settings: dict[str, Any]
    fields: Fields
    rows: int
    files: int
    size_bytes: int
    doubts: list[str]
    times: frozenset[str] = frozenset()
    packed: bool = False


def sample_of(
    paths: Sequence[str], storage: Mapping[str, str], root: str, output: Path | None
) -> Sample:
    """A sample of the files that these paths name, as `input.paths` would, but those of the lake.

    The settings leave out a pipeline file `output` that lies in one of the folders.

    Raises InputError if there are none, if they are empty, or if no format reads them.
    """
    store = InputStore(storage)
    listed = _listed(paths, store, root)
    if listed.missing:
        raise InputError(f"{', '.join(listed.missing)}: does not exist; correct the path")
    files = [file for file in listed.files if file.size]
    if not files:
        raise InputError(f"{', '.join(paths)}: there is no file with any bytes; name other paths")
    beside = output is not None and any(_holds(path, output) for path in paths)
    chosen, settings, doubts = _one_kind(files, beside=beside)
    if settings and len(paths) > 1:
        for path in paths:
            _require_some(path, _listed([path], store, root).files, _suffix(chosen[0]))
    some = _some(chosen)
    head = _parquet(some, store) or _lines(some, store)
    size = sum(file.size for file in chosen)
    packed = head.settings["format"] != "parquet" and bool(store.packing(some[0]))
    return head._replace(
        settings=settings | head.settings,
        files=len(chosen),
        size_bytes=size * (PACKED if packed else 1),
        packed=packed,
        doubts=doubts + head.doubts,
    )


def _listed(paths: Sequence[str], store: InputStore, root: str) -> ListedInputs:
    return find_inputs(Input(paths=tuple(paths), format="text", on_empty="ok"), store, root)


def _require_some(path: str, files: Sequence[SourceFile], suffix: str) -> None:
    """Raise InputError if a path has files, and none with this suffix: a run would read nothing."""
    if files and all(_suffix(file) != suffix for file in files):
        names = ", ".join(PurePosixPath(file.path).name for file in files[:3])
        more = f" and {len(files) - 3:,} more" if len(files) > 3 else ""
        kind = f"with the suffix .{suffix}" if suffix else "without a suffix"
        raise InputError(
            f"{path}: holds no file {kind}, as most bytes of these paths are in, but {names}"
            f"{more}; draft a pipeline of its own: seglake init {quote(path)}"
        )


def _holds(path: str, output: Path) -> bool:
    return Path(path).is_dir() and output.absolute().is_relative_to(Path(path).absolute())


def _one_kind(
    files: list[SourceFile], *, beside: bool
) -> tuple[list[SourceFile], dict[str, Any], list[str]]:
    """The files with the suffix that has most bytes, the setting that chooses them, and doubts."""
    sizes = Counter[str]()
    for file in files:
        sizes[_suffix(file)] += file.size
    if len(sizes) == 1 and not beside:
        return files, {}, []
    ((suffix, _),) = sizes.most_common(1)
    chosen = [file for file in files if _suffix(file) == suffix]
    others = len(files) - len(chosen)
    doubts = [f"files of other kinds are left out: {others:,}"] if others else []
    globs = [
        f"*.{each}{end}" for each in ([suffix] if suffix else sizes) if each for end in ("", ".*")
    ]
    globs += ["*.toml"] * (beside and not suffix)
    return chosen, {"include" if suffix else "exclude": globs}, doubts


def _suffix(file: SourceFile) -> str:
    """What the name of a file ends with, but for codecs and numbers of rotation."""
    match = _SUFFIX.search(file.path.rpartition("/")[2])
    return match[1] if match else ""


def _some(files: Sequence[SourceFile]) -> list[SourceFile]:
    """Files that lie far apart, and the largest ones: a folder may hold several kinds of lines."""
    spread = {at * (len(files) - 1) // (_FILES - 1) for at in range(_FILES)}
    largest = sorted(range(len(files)), key=lambda at: -files[at].size)[:_LARGEST]
    return [files[at] for at in sorted({*spread, *largest})]


# ---------------------------------------------------------------- columns


def _parquet(files: Sequence[SourceFile], store: InputStore) -> Sample | None:
    """A sample of Parquet files; None if the first file is none."""
    if (store.raw(files[0]).read(len(PARQUET_MARK)) or b"") != PARQUET_MARK:
        return None
    fields, times, rows = Fields(), set[str](), 0
    for file in files:
        try:
            table = _first_rows(file, store)
        except pa.ArrowException as problem:
            raise InputError(f"{file.path}: is no Parquet file: {problem}; leave it out") from None
        for name, column in zip(table.column_names, table.columns, strict=True):
            values = ["" if item is None else str(item) for item in _plain(column).to_pylist()]
            fields.setdefault(name, []).extend(item or None for item in values)
            if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
                times.add(name)
        rows += len(table)
    return Sample({"format": "parquet"}, fields, rows, 0, 0, [], frozenset(times))


def _plain(column: Any) -> Any:
    """A column with times in microseconds: without pandas, Python has no nanoseconds."""
    kind = column.type
    if not pa.types.is_timestamp(kind) or kind.unit != "ns":
        return column
    return column.cast(pa.timestamp("us", kind.tz), safe=False)


def _first_rows(file: SourceFile, store: InputStore) -> pa.Table:
    parquet = pq.ParquetFile(pa.PythonFile(store.raw(file), "r"))
    batch = next(parquet.iter_batches(_ROWS), None)
    flattened = parquet.schema_arrow.empty_table() if batch is None else pa.table(batch)
    while any(pa.types.is_struct(field.type) for field in flattened.schema):
        flattened = flattened.flatten()
    return flattened


# ---------------------------------------------------------------- lines


def _lines(files: Sequence[SourceFile], store: InputStore) -> Sample:
    """A sample of files of lines. Raises InputError if they are none."""
    texts = [_beginning(file, store) for file in files]
    encoding, doubts = encoding_of(texts)
    heads = [_head(text, encoding) for text in texts]
    lines = [line for head in heads for line in head.lines]
    if not lines:
        raise InputError(f"{files[0].path}: has no lines; name other files")
    readers = (partial(_json, path=files[0].path), partial(_log, heads=heads),
               partial(_logfmt, heads=heads), partial(_csv, heads=heads),
               partial(_text, heads=heads))  # fmt: skip
    for read in readers:
        sample = read(lines)
        if sample is not None:
            settings = {} if encoding == UTF_8 else {"encoding": encoding}
            if read is readers[-1]:
                doubts += _no_csv(heads)
            others = _of_another_format(files, heads, sample.settings)
            return sample._replace(
                settings=sample.settings | settings, doubts=[*doubts, *others, *sample.doubts]
            )
    raise InputError(
        f"{files[0].path}: its lines are neither JSON nor CSV, and no time is found in them: write "
        "the pipeline by hand (docs/settings.md), with input.format = 'text' and input.pattern"
        + "".join(f"; {each}" for each in (*_no_csv(heads), *_header_alone(lines)))
    )


def _beginning(file: SourceFile, store: InputStore) -> Beginning:
    """The first bytes of a file, or of the first member of an archive."""
    path, content = next(store.contents(file))
    data = bytearray()
    most, whole = _HEAD_BYTES, False
    while len(data) < most and not whole:
        more = content.read(most - len(data))
        data += more
        whole = not more
        if len(data) == most and not (b"\n" in data or b"\r" in data):
            most = min(2 * most, _LONG_BYTES)  # the first line is longer
    return Beginning(path, bytes(data), whole=whole)


class _Head(NamedTuple):
    """The first lines of a file, and the number of each, from 1."""

    path: str
    lines: list[str]
    numbers: list[int]


def _head(beginning: Beginning, encoding: str) -> _Head:
    """The first whole lines of a file, without the empty ones."""
    text = beginning.text(encoding).removeprefix("\ufeff")
    if "\0" in text:
        raise InputError(
            f"{beginning.path}: is no text: bytes of zero stand in it; name other files"
        )
    lines = re.split(r"\r\n|\r|\n", text)
    if not beginning.whole and len(lines) > 1:
        lines.pop()  # it may be cut
    rows = list(islice(((n, line) for n, line in enumerate(lines, 1) if line.strip()), _ROWS))
    return _Head(beginning.path, [line for _, line in rows], [number for number, _ in rows])


def _of_another_format(
    files: Sequence[SourceFile], heads: Sequence[_Head], settings: Mapping[str, Any]
) -> Iterator[str]:
    """Which files have lines of another format than the settings say, and what to do with them."""
    if settings["format"] == "csv":  # whose headers a run compares
        return
    pattern = settings.get("pattern")
    fits: Callable[[str], object] = re.compile(pattern).match if pattern else _is_object
    what = "matches input.pattern" if pattern else "is a JSON object"
    counts = [sum(map(bool, map(fits, head.lines))) for head in heads]
    enough = [count >= ENOUGH * len(each.lines) for count, each in zip(counts, heads, strict=True)]
    for file, head, count, fine in zip(files, heads, counts, enough, strict=True):
        if any(enough) and not fine:
            yield (
                f"{head.path} has another format: {f'{count:,}' if count else 'none'} of "
                f"{counted(len(head.lines), 'sampled line')} {what}; leave {_leave_out(file)}, "
                f"and draft a pipeline of its own: seglake init {quote(file.path)}"
            )


def _leave_out(file: SourceFile) -> str:
    name = file.path.rpartition("/")[2]
    return f"{name} out with input.exclude = [{json.dumps(name, ensure_ascii=False)}]"


def _json(lines: Sequence[str], path: str) -> Sample | None:
    """A sample of JSON lines; None if they are none. Raises InputError for an array."""
    if re.match(r"\s*\[\s*(?:[{\[]|$)", lines[0]):
        raise InputError(
            f"{path}: is a JSON array; one JSON object a line is wanted: {LINES_OF_AN_ARRAY}"
        )
    rows = [row for line in lines if isinstance(row := _parsed(line), dict)]
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
    doubts = [f"{wrong:,} of {len(lines):,} sampled lines are no JSON objects"] if wrong else []
    return Sample({"format": "jsonl"}, fields, len(rows), 0, 0, doubts)


def _is_object(line: str) -> bool:
    return isinstance(_parsed(line), dict)


def _parsed(line: str) -> Any:
    try:
        return json.loads(line)
    except ValueError:
        return None


def _as_text(value: Any) -> str | None:
    if value is None or isinstance(value, str):
        return value
    return json.dumps(value)


def _csv(lines: Sequence[str], heads: Sequence[_Head]) -> Sample | None:
    """A sample of CSV files; None if no delimiter cuts the lines into as many fields each."""
    for delimiter in _DELIMITERS[bool(_COMMA_IN_A_TIME.search(lines[0])) :]:
        if len(lines) > 1 and lines[0].count(delimiter):
            try:
                tables = [list(csv.reader(each.lines, delimiter=delimiter)) for each in heads]
            except csv.Error:  # as at a field of more than 128 KiB
                continue
            tables = [table for table in tables if table]
            rows = [row for table in tables for row in table]
            width = len(rows[0])
            even = sum(len(row) == width for row in rows)
            if width > 1 and even >= _MOST * len(rows):
                return _table(tables, delimiter)
    return None


def _no_csv(heads: Sequence[_Head]) -> Iterator[str]:
    """Why files that look like CSV are not taken for it: the first row that is of another width.

    They do if their name says so, or if half of the rows have as many fields as the first line.
    """
    head = next(each for each in heads if each.lines)
    delimiter = max(_DELIMITERS, key=head.lines[0].count)
    rows = list[tuple[int, int]]()
    reader = csv.reader(head.lines, delimiter=delimiter)
    with suppress(csv.Error):  # as at a field of more than 128 KiB
        for row in reader:
            rows.append((head.numbers[reader.line_num - 1], len(row)))
    width = rows[0][1] if rows else 0
    uneven = [(line, fields) for line, fields in rows if fields != width]
    named = re.search(r"\.[ct]sv\b", head.path.rpartition("/")[2])
    if uneven and width > 1 and (named or 2 * len(uneven) <= len(rows)):
        line, fields = uneven[0]
        yield (
            f"not taken as CSV: line {line:,} of {head.path} has {fields:,} fields, and the first "
            f"one {width:,}; {len(uneven):,} of {len(rows):,} sampled rows have another number"
        )


def _header_alone(lines: Sequence[str]) -> Iterator[str]:
    """A sentence if the only line of the files could be the header of CSV."""
    if len(lines) == 1 and any(each in lines[0] for each in _DELIMITERS):
        yield "there is one line alone, as a header of CSV without rows: add rows, or other files"


def _table(tables: list[list[list[str]]], delimiter: str) -> Sample:
    """A sample of CSV; without a header line, of text whose pattern cuts it into columns."""
    header, doubts = tables[0][0], list[str]()
    named = _is_header(header, tables[0][1:])
    rows = [row for table in tables for row in table[named:] if len(row) == len(header)]
    settings: dict[str, Any] = {"format": "csv"}
    if delimiter != ",":
        settings["delimiter"] = delimiter
    names = header
    if not named:
        names = [f"c{number}" for number in range(1, len(header) + 1)]
        cell = f"[^{delimiter}]*".replace("\t", r"\t")
        cells = re.escape(delimiter).join(f"(?P<{name}>{cell})" for name in names)
        settings = {"format": "text", "pattern": cells.replace("\t", "t")}
        doubts.append("the first line names no columns, so they are c1, c2, … of a pattern")
    uneven = sum(len(table) - named for table in tables) - len(rows)
    if uneven:
        doubts.append(f"{uneven:,} sampled rows have another number of fields than the header")
    columns = zip(*rows, strict=True) if rows else [()] * len(names)
    fields: Fields = {
        name: [cell or None for cell in column] for name, column in zip(names, columns, strict=True)
    }
    return Sample(settings, fields, len(rows), 0, 0, doubts)


def _is_header(first: Sequence[str], rows: Sequence[Sequence[str]]) -> bool:
    """Whether the first line names the columns: by its names, or because others have values."""
    if len({*first}) < len(first) or not all(cell.strip() and cell.isprintable() for cell in first):
        return False
    if all(map(_NAME.fullmatch, first)):
        return True
    even = [row for row in rows if len(row) == len(first)]
    return not any(map(_is_value, first)) and any(map(_are_values, zip(*even, strict=True)))


def _are_values(column: Sequence[str]) -> bool:
    cells = [cell for cell in column if cell]
    return bool(cells) and sum(map(_is_value, cells)) >= _MOST * len(cells)


def _is_value(cell: str) -> bool:
    """Whether a text is a number or a time rather than words: it has more digits than letters."""
    return sum(map(str.isdecimal, cell)) > sum(map(str.isalpha, cell))


def _log(lines: Sequence[str], heads: Sequence[_Head]) -> Sample | None:
    """A sample of a log of a well-known shape, though its lines may look like CSV, too."""
    return _shaped(heads, log_shape_of(lines))


def _logfmt(lines: Sequence[str], heads: Sequence[_Head]) -> Sample | None:
    """A sample of lines of `key=value`; None if they are none."""
    return _shaped(heads, logfmt_shape_of(lines))


def _text(lines: Sequence[str], heads: Sequence[_Head]) -> Sample | None:
    """A sample of text with a time in the lines; None if there is none."""
    return _shaped(heads, shape_of(lines))


def _shaped(heads: Sequence[_Head], shape: Shape | None) -> Sample | None:
    """A sample of the files in which some lines have a shape."""
    if shape is None:
        return None
    has = shape.expression.match
    lines = [line for head in heads if any(map(has, head.lines)) for line in head.lines]
    matches = [match for line in lines if (match := has(line))]
    fields: Fields = {
        name: [match[name] for match in matches] for name in shape.expression.groupindex
    }
    settings: dict[str, Any] = {"format": "text", "pattern": shape.pattern}
    settings |= _continued(shape, lines)
    return Sample(settings, fields, len(matches), 0, 0, _doubts(shape, lines, len(matches)))


def _continued(shape: Shape, lines: Sequence[str]) -> dict[str, Any]:
    """The setting for events of several lines: lines without a time continue the one before.

    The sample may have none of them, such as a stack trace; an access log never has.
    """
    several = shape.start is not None and shape.expression.match(lines[0]) is not None
    return {"multiline_start_pattern": shape.start} if several else {}


def _doubts(shape: Shape, lines: Sequence[str], matches: int) -> list[str]:
    doubts, others = list[str](), len(lines) - matches
    if others and _continued(shape, lines):
        doubts.append(f"{others:,} of {len(lines):,} lines have no time: they continue an event")
    elif others:
        doubts.append(f"{others:,} of {len(lines):,} lines do not match input.pattern")
    return doubts
