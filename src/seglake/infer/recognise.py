"""Recognise the format of input files, and read a sample of their rows.

`RECOGNISERS` has a function for each format of text lines that `seglake init` recognises. To add a
format, add a function.
"""

from __future__ import annotations

import csv
import json
import re
from collections import Counter, defaultdict
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from functools import partial
from itertools import chain, filterfalse
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from seglake.advice.finding import Finding
from seglake.advice.json_shapes import KNOWN, EventArray, parse_json
from seglake.config.input import INPUT_FORMATS
from seglake.config.rules import flat
from seglake.errors import InputError
from seglake.infer.files import (
    FirstLines,
    Refused,
    choose_files,
    exclude_refused,
    read_each,
    read_first_lines,
    sampled_files,
)
from seglake.times.candidates import candidate_formats, candidates_at_start, expression_for
from seglake.times.instants import format_ms
from seglake.write.input.binaries import AVRO_MARK
from seglake.write.input.content import InputStore
from seglake.write.input.encodings import UTF_8
from seglake.write.input.files import PARQUET_MARK, SourceFile
from seglake.write.rows.arrow import column_text
from seglake.write.rows.formats.avro import first_records
from seglake.write.rows.formats.csv import DELIMITERS

PATTERNS_PAGE = "docs/files.md#patterns-to-copy"
PACKED_FACTOR = 5  # assumed ratio of unpacked to packed size
_SAMPLED_ROWS = 1000
_MOST = 0.9  # share of rows that must have as many cells as the header
_COMMA_IN_A_CLOCK = re.compile(r":\d{2},\d{3}[^\d,]")
_COLUMN_NAME = re.compile(r"[^\W\d][\w \n.#/()*€$£%&'+°²³?:@-]*")
_MOST_SKIPPED = 5  # largest number of lines in front of a CSV header
_DOCUMENTS = EventArray(".")
_FIRST_LINES = 200  # number of lines in which a time is searched

Fields = dict[str, list[str | None]]


class Sample(NamedTuple):
    """A sample of the input's rows, and the settings of `[input]` with which they were read.

    `fields` maps each field to its values in the `rows` rows, as text, or None for a null.
    Fields in `typed` have a time type, so they need no format. `reason` explains the format.
    `refused` has file → reason for each file that was left out. `files` and `size_bytes` are the
    number and the decompressed size of all chosen files.
    """

    settings: dict[str, Any]
    fields: Fields
    rows: int
    reason: str = ""
    findings: tuple[Finding, ...] = ()
    typed: frozenset[str] = frozenset()
    refused: Mapping[SourceFile, str] = {}
    files: int = 0
    size_bytes: int = 0


def read_sample(
    paths: Sequence[str], storage: Mapping[str, str], root: str, output: Path | None
) -> Sample:
    """Read a sample of the files at `paths`, and recognise their format.

    Files of the lake at `root` and the pipeline file `output` are left out. Raises InputError if no
    file is found, if all files are empty, or if the format is not recognised.
    """
    if not paths:
        raise InputError("the paths are missing. Name files, folders or globs")
    store = InputStore(storage)
    chosen = choose_files(paths, store, root, output)
    some = sampled_files(chosen.files)
    sample = _parquet(some, store) or _avro(some, store) or _lines(some, store)
    chosen = exclude_refused({**sample.refused}, chosen, paths)
    columnar = INPUT_FORMATS[sample.settings["format"]].columnar
    packed = not columnar and bool(store.packing(chosen.files[0]))
    size = sum(file.size for file in chosen.files) * (PACKED_FACTOR if packed else 1)
    settings = {"paths": [*paths], **chosen.settings, **sample.settings}
    count, found = len(chosen.files), (*chosen.findings, *sample.findings)
    return sample._replace(settings=settings, files=count, size_bytes=size, findings=found)


def _lines(files: Sequence[SourceFile], store: InputStore) -> Sample:
    heads, encoding, findings, refused = read_first_lines(files, store)
    if any(head.events == _DOCUMENTS for head in heads):  # then read JSON lines as documents, too
        heads = [each._replace(events=each.events or _DOCUMENTS) for each in heads]
    weights = Counter[EventArray | None]()
    for head in heads:
        weights[head.events] += len(head.lines)
    events = weights.most_common(1)[0][0] if heads else None
    others = [head for head in heads if head.events != events]
    why = "has its events in another array than most files. Ingest it with a separate pipeline"
    refused |= {head.file: f"{head.path} {why}" for head in others}
    heads = [head for head in heads if head not in others]
    lines = [line for head in heads for line in head.lines]
    if not lines:
        raise InputError(f"{files[0].path} has no lines. Give other files")
    sample = _w3c(heads, lines) or _without_comments(heads) or _recognised(heads, lines)
    if sample is None:
        raise InputError(
            f"the format of {heads[0].path} is unknown. Its lines, such as line "
            f"{heads[0].numbers[0]:,}, are not JSON objects, not CSV with a header, and do not "
            f"begin with a time. Write a pipeline with input.pattern. {PATTERNS_PAGE} has examples"
        )
    settings = sample.settings | ({} if encoding == UTF_8 else {"encoding": encoding})
    if events:
        settings["records"] = events.records
        settings |= {"inherit": [*events.inherit]} if events.inherit else {}
        if events not in {*KNOWN.values(), _DOCUMENTS}:
            findings.append(Finding("events-in-array", events.records))
        sample = sample._replace(reason=f"events in {events.records}")
    refused |= sample.refused
    found = (*findings, *sample.findings)
    return sample._replace(settings=settings, refused=refused, findings=found)


def _recognised(heads: Sequence[FirstLines], lines: Sequence[str]) -> Sample | None:
    return next((found for each in RECOGNISERS if (found := each(heads, lines))), None)


def _without_comments(heads: Sequence[FirstLines]) -> Sample | None:
    """Read files of which some begin with a comment, if the comment is not the header.

    Return None for other files.
    """
    kept = [head._replace(lines=[*filterfalse(_is_comment, head.lines)]) for head in heads]
    lines = [line for head in kept for line in head.lines]
    comments = sum(len(head.lines) for head in heads) - len(lines)
    if not any(map(_is_comment, (head.lines[0] for head in heads if head.lines))):
        return None
    sample = None if len(lines) < comments else _recognised(kept, lines)
    if sample is None or sample.settings["format"] not in {"csv", "text"}:
        return None
    if any(each.code == "no-header" for each in sample.findings):
        return None
    return sample._replace(settings={**sample.settings, "comment": "#"})


def _is_comment(line: str) -> bool:
    return line.startswith("#")


# ---------------------------------------------------------------- Parquet


def _parquet(files: Sequence[SourceFile], store: InputStore) -> Sample | None:
    """Read some rows of Parquet files. Return None if the first file is not Parquet."""
    if (store.raw(files[0]).read(len(PARQUET_MARK)) or b"") != PARQUET_MARK:
        return None
    tables, unread = read_each(files, partial(_parquet_rows, store=store))
    others = _unlike_most({file: tuple(sorted(each.schema.names)) for file, each in tables.items()})
    read = [table for file, table in tables.items() if file not in others]
    found = sample_tables({"format": "parquet"}, read, "Parquet files")
    return found._replace(refused=unread | others)


def sample_tables(settings: dict[str, Any], tables: Iterable[pa.Table], reason: str) -> Sample:
    """Create a sample from the rows of Arrow tables, with `settings` of `[input]`."""
    fields, typed, rows = Fields(), set[str](), 0
    for table in map(_flattened, tables):
        for name, column in zip(table.column_names, table.columns, strict=True):
            fields.setdefault(name, []).extend(_texts_of(column))
            if pa.types.is_timestamp(column.type) or pa.types.is_date(column.type):
                typed.add(name)
        rows += len(table)
    return Sample(settings, fields, rows, reason, typed=frozenset(typed))


def _parquet_rows(file: SourceFile, store: InputStore) -> pa.Table:
    try:
        source = pa.PythonFile(store.raw(file), "r")
        parquet = pq.ParquetFile(source, page_checksum_verification=True)
        batch = next(parquet.iter_batches(_SAMPLED_ROWS), None)
        return parquet.schema_arrow.empty_table() if batch is None else pa.table(batch)
    except pa.ArrowException as problem:
        raise InputError(f"{file.path} is not a Parquet file ({problem}). Leave it out") from None


def _flattened(table: pa.Table) -> pa.Table:
    while any(pa.types.is_struct(field.type) for field in table.schema):
        table = table.flatten()
    return table


def _texts_of(column: Any) -> list[str | None]:
    """Return the values of a column as text, like in an ingest.

    A null is None. If the type of the column cannot be converted, all values are None.
    """
    try:
        texts = column_text(column.combine_chunks(), "")
    except InputError:
        return [None] * len(column)
    return [text.decode("utf-8", "replace") if text else None for text in texts.tolist()]


def _unlike_most(columns: Mapping[SourceFile, tuple[str, ...]]) -> Refused:
    """Return file → reason for the files whose columns differ from the columns of most files."""
    most = Counter(columns.values()).most_common(1)[0][0]
    return {
        file: f"{file.path} has other columns than most files "
        f"({', '.join(sorted({*names} ^ {*most})) or 'order of columns'}). Ingest it with a "
        f"separate pipeline"
        for file, names in columns.items()
        if names != most
    }


# ---------------------------------------------------------------- Avro


def _avro(files: Sequence[SourceFile], store: InputStore) -> Sample | None:
    """Read some records of Avro files. Return None if the first file is not Avro."""
    if (store.raw(files[0]).read(len(AVRO_MARK)) or b"") != AVRO_MARK:
        return None
    rows, unread = read_each(files, lambda file: first_records(file, store, _SAMPLED_ROWS))
    names = {file: tuple(sorted(parse_json(some[0]))) for file, some in rows.items() if some}
    others = _unlike_most(names)
    lines = [line for file, some in rows.items() if file not in others for line in some]
    sample = _json_lines((), lines) or Sample({}, {}, 0)
    return sample._replace(
        settings={"format": "avro"}, reason="Avro files", refused=unread | others
    )


# ---------------------------------------------------------------- JSON lines


def _json_lines(heads: Sequence[FirstLines], lines: Sequence[str]) -> Sample | None:
    objects = [row for line in lines if isinstance(row := parse_json(line), dict)]
    if 2 * len(objects) < len(lines):
        return None
    items = [dict(flat(_with_dates(row))) for row in objects]
    names = dict.fromkeys(name for item in items for name in item)
    lists = {name for item in items for name, value in item.items() if isinstance(value, list)}
    texts = {name: [_as_text(item.get(name)) for item in items] for name in names}
    fields: Fields = {name: column for name, column in texts.items() if name not in lists}
    found = list[Finding]()
    if wrong := len(lines) - len(objects):
        found.append(Finding("not-json", heads[0].path, {"lines": len(lines)}, wrong))
    return Sample({"format": "jsonl"}, fields, len(objects), "JSON lines", tuple(found))


def _with_dates(value: Any) -> Any:
    """Replace MongoDB's {"$date": …} in JSON objects by ISO 8601 text, or by its own value."""
    if isinstance(value, dict) and value.keys() == {"$date"}:
        date = value["$date"]
        ms = date.get("$numberLong") if isinstance(date, dict) else date
        return format_ms(int(str(ms))) if re.fullmatch(r"-?\d{1,19}", str(ms)) else ms
    if isinstance(value, dict):
        return {name: _with_dates(member) for name, member in value.items()}
    return value


def _as_text(value: Any) -> str | None:
    return value if value is None or isinstance(value, str) else json.dumps(value)


# ---------------------------------------------------------------- CSV


def _csv(heads: Sequence[FirstLines], lines: Sequence[str]) -> Sample | None:
    """Read CSV with the first delimiter that gives nearly all rows the same number of cells.

    Return None if there is no such delimiter.
    """
    in_clocks = _COMMA_IN_A_CLOCK.search(lines[-1]) is not None
    for delimiter in (*DELIMITERS[in_clocks:], *" " * _has_column_names(lines[0].split(" "), 4)):
        if len(lines) < 2 or delimiter not in lines[0] or lines[0].startswith("sep="):
            continue
        other = f"[^{re.escape(delimiter)}]"
        # An escaped quote is after a backslash, and neither ends a field nor is doubled.
        escaped = re.compile(rf'(?<!{other})"(?:[^"]|"")*?\\"(?!"){other}').search
        doubled = re.compile(rf'(?<!{other})"[^"]*\\\\[^"]*"(?!{other})').search
        null = re.compile(rf"(?<!{other})\\N(?!{other})")
        texts = {h.file: [null.sub("", f"{line}\n") for line in h.lines] for h in heads if h.lines}
        # Also try the escape if there is no match, because the quote may be in another line than
        # the beginning of its field.
        for escape in dict.fromkeys(["\\" if any(map(escaped, lines)) else None, "\\"]):
            how = {"delimiter": delimiter, "escapechar": escape}
            try:
                by_file = {file: [*csv.reader(text, **how)] for file, text in texts.items()}
            except csv.Error:  # a cell has more than 128 KiB
                continue
            headers = {file: tuple(rows[0]) for file, rows in by_file.items()}
            others = _unlike_most(headers) if all(map(_has_column_names, headers.values())) else {}
            rows = [*chain.from_iterable(by_file[file] for file in by_file if file not in others)]
            width = len(rows[0])
            if 2 * sum(map(bool, rows[0])) < width:  # a title
                continue
            if width > 1 and sum(len(row) == width for row in rows) >= _MOST * len(rows):
                found = _table(rows, delimiter, escape, lines, others)
                if found is not None and found.settings["format"] == "csv":
                    found.settings.update({"escape": escape} if escape else {})
                    count = 0 if escape else sum(doubled(line) is not None for line in lines)
                    own = [Finding("two-backslashes", count=count)] if count else []
                    found = found._replace(findings=(*found.findings, *own))
                    if any(map(null.search, lines)):
                        found.settings["null_values"] = [r"\N"]
                return found
    return None


def _csv_below_lines(heads: Sequence[FirstLines], _lines: Sequence[str]) -> Sample | None:
    """Read CSV after other lines at the beginning of each file, such as a title or `sep=;`."""
    for count in range(1, _MOST_SKIPPED + 1):
        longer = [head for head in heads if len(head.lines) > count]
        below = [h._replace(lines=h.lines[count:], numbers=h.numbers[count:]) for h in longer]
        skipped = {head.numbers[0] - 1 for head in below}
        found = _csv(below, [line for head in below for line in head.lines]) if below else None
        if found is not None and found.settings["format"] == "csv" and len(skipped) == 1:
            found.settings["skip_lines"] = skipped.pop()
            return found
    return None


def _table(
    rows: list[list[str]], delimiter: str, escape: str | None, lines: Sequence[str], others: Refused
) -> Sample | None:
    names, found = rows[0], list[Finding]()
    settings: dict[str, Any] = {"format": "csv"}
    if delimiter != ",":
        settings["delimiter"] = delimiter
    if _has_column_names(names) or not any(map(_is_value, names)):
        rows = [row for row in rows if row != names]
    elif any(candidate_formats(cell) for cell in names):
        # input.format = 'csv' needs a header, so a pattern names the columns.
        names = [f"c{number}" for number in range(1, len(names) + 1)]
        inner = r'(?:[^"\\]|\\.)*' if escape else '(?:[^"]|"")*'
        plain = f"[^{delimiter}]*".replace("\t", r"\t")
        between = re.escape(delimiter).replace("\\\t", r"\t")
        cell = re.compile(f'("{inner}"|{plain})(?:{between}|$)')
        columns = [*zip(*(cell.findall(line)[: len(names)] for line in lines), strict=False)]
        named = zip(names, columns, strict=False)
        cells = [_cell(name, column, inner, plain) for name, column in named]
        settings = {"format": "text", "pattern": between.join(cells)}
        found.append(Finding("no-header", "input.pattern"))
    else:
        return None
    even = [row for row in rows if len(row) == len(names)]
    if len(even) < len(rows):
        facts = {"rows": len(rows), "width": len(names)}
        found.append(Finding("uneven-rows", "", facts, len(rows) - len(even)))
    for name in (name for name, count in Counter(names).items() if count > 1 or not name.strip()):
        found.append(Finding("unusable-column", name))
    even = [*filter(any, even)]  # Excel writes rows without values
    columns = [*zip(*even, strict=True)] or [()] * len(names)
    usable = {name for name in names if name.strip() and names.count(name) == 1}
    pairs = [pair for pair in zip(names, columns, strict=True) if pair[0] in usable]
    fields: Fields = {name: [cell or None for cell in column] for name, column in pairs}
    reason = f"CSV; {delimiter!r} between columns"
    return Sample(settings, fields, len(even), reason, tuple(found), refused=others)


def _cell(name: str, column: Sequence[str], inner: str, plain: str) -> str:
    """Return a regular expression with a named group for the cells of a column.

    `inner` matches the text in quotes, and `plain` the text of a cell without quotes. If all cells
    have quotes, the group does not contain the quotes.
    """
    if all(cell.startswith('"') for cell in column):
        return f'"(?P<{name}>{inner})"'
    quoted = f'"{inner}"|' if any(cell.startswith('"') for cell in column) else ""
    return f"(?P<{name}>{quoted}{plain})"


def _has_column_names(cells: Sequence[str], at_least: int = 1) -> bool:
    """Return whether the cells are at least `at_least` distinct texts that look like names."""
    are_distinct = len({*cells}) == len(cells) >= at_least
    return are_distinct and all(map(_COLUMN_NAME.fullmatch, cells))


def _is_value(cell: str) -> bool:
    return sum(map(str.isdecimal, cell)) > sum(map(str.isalpha, cell))


# ---------------------------------------------------------------- W3C logs

_FIELDS = re.compile(r"#fields(?::|\t)(.*)", re.IGNORECASE)
_NO_VALUE = re.compile(r"#(?:unset|empty)_field\t(.+)")  # in files of Zeek


def _w3c(heads: Sequence[FirstLines], lines: Sequence[str]) -> Sample | None:
    """Read logs in which a comment `#Fields:` (IIS, CloudFront) or `#fields` (Zeek) names columns.

    Return None for other files.
    """
    named = {head.file: [*filter(None, map(_FIELDS.match, head.lines))] for head in heads}
    first = next(filter(None, named.values()), None)
    if first is None:
        return None
    data = [line for line in lines if not _is_comment(line)]
    usual = "," if "," in first[0][1] else " "
    delimiter = "\t" if any("\t" in line for line in data) else usual
    nulls = [*dict.fromkeys(["-", *(each[1] for each in map(_NO_VALUE.match, lines) if each)])]
    rows = [row for head in heads for row in _w3c_rows(head.lines, delimiter)]
    # Only names in the first comment of every file, because a run requires its fields to be there.
    firsts = [_names(each[0], delimiter) for each in named.values() if each]
    names = [name for name in firsts[0] if all(name in others for others in firsts)]
    cells: Fields = {name: [row.get(name) for row in rows] for name in names}
    fields = {name: [None if v in nulls else v for v in column] for name, column in cells.items()}
    found = list[Finding]()
    if len(rows) < len(data):
        facts = {"rows": len(data), "width": len(names)}
        found.append(Finding("uneven-rows", "", facts, len(data) - len(rows)))
    why = "has no line `#Fields:`, but other files have one. Ingest it with a separate pipeline"
    bare = (head for head in heads if head.lines and not named[head.file])
    refused = {head.file: f"{head.path} {why}" for head in bare}
    settings = {"format": "csv", "delimiter": delimiter, "comment": "#", "null_values": nulls}
    reason = "a W3C log: `#Fields:` names the columns"
    return Sample(settings, fields, len(rows), reason, tuple(found), refused=refused)


def _w3c_rows(lines: Sequence[str], delimiter: str) -> Iterator[dict[str, str]]:
    names = list[str]()
    for line in lines:
        cells = line.split(delimiter)
        if match := _FIELDS.match(line):
            names = _names(match, delimiter)
        elif not _is_comment(line) and len(cells) == len(names):
            yield dict(zip(names, cells, strict=True))


def _names(match: re.Match[str], delimiter: str) -> list[str]:
    return match[1].strip().split(delimiter if delimiter == "," else None)


# ---------------------------------------------------------------- text

_COMMON_LOG = r"\d{2}/[A-Z][a-z]{2}/\d{4}:\d{2}:\d{2}:\d{2} [+-]\d{4}"
_SYSLOG_TIME = r"[A-Z][a-z]{2} [ \d]?\d \d{2}:\d{2}:\d{2}(?:\.\d+)?"
_RFC_5424_TIME = r"\d{4}-\d{2}-\d{2}T\d{2}:\d{2}:\d{2}(?:\.\d+)?(?:Z|[+-]\d{2}:\d{2})"
_REQUEST = r'"(?P<request>(?:[^"\\]|\\.)*)" (?P<status>\d{3}|-)'
_LOGS = {  # by kind: the pattern of an event
    "an access log": (rf"(?P<client>\S+) \S+ (?P<user>\S+) \[(?P<time>{_COMMON_LOG})\] {_REQUEST}"),
    "an access log of S3": (
        rf"\S+ (?P<bucket>\S+) \[(?P<time>{_COMMON_LOG})\] (?P<client>\S+) (?P<user>\S+) "
    ),
    "an access log of AWS's load balancer": (
        rf"[a-z]\w+ (?P<time>{_RFC_5424_TIME}) (?P<balancer>\S+) (?P<client>\S+):\d+ "
    ),
    "syslog": (
        rf"(?:<\d{{1,3}}>)?(?P<time>{_SYSLOG_TIME}) (?P<host>[^\s\[\]]+) (?P<process>[^\s\[:]+)"
    ),
    "syslog (RFC 5424)": (
        rf"<\d{{1,3}}>1 (?P<time>{_RFC_5424_TIME}) (?P<host>\S+) (?P<process>\S+)"
    ),
}
_STARTS = {  # of events with several lines
    "syslog": rf"(?:<\d{{1,3}}>)?{_SYSLOG_TIME}",
    "syslog (RFC 5424)": r"<\d{1,3}>1 ",
}
_LEVEL = r"(?P<level>TRACE|DEBUG|INFO|NOTICE|WARN|WARNING|ERROR|SEVERE|CRITICAL|FATAL)\b"
_QUOTED = r'"(?:[^"\\]|\\.)*"'
_VALUE = rf'(?:{_QUOTED}|[^\s"]*)'
_PAIR = rf'[^\s="]+(?:={_VALUE})?'
_PAIRS = re.compile(rf'[^\s="]+={_VALUE}(?: +{_PAIR})+ *')
_KEY_AND_VALUE = re.compile(rf'([^\s="]+)=({_VALUE})(?: +|$)|{_PAIR}(?: +|$)')
_MOST_KEYS = 20


def _well_known_log(heads: Sequence[FirstLines], lines: Sequence[str]) -> Sample | None:
    for kind, pattern in _LOGS.items():
        start = _STARTS.get(kind, "")
        events = [line for line in lines if not start or re.match(start, line)]
        matches = sum(bool(re.match(pattern, line)) for line in events)
        if matches and matches >= 0.99 * len(events) and 2 * len(events) > len(lines):
            return _matched(heads, pattern, start, kind)
    return None


def _logfmt(heads: Sequence[FirstLines], lines: Sequence[str]) -> Sample | None:
    """Read lines of `key=value` pairs that all begin with the same key. Else return None."""
    items = [_KEY_AND_VALUE.findall(line) for line in lines if _PAIRS.fullmatch(line)]
    items = [item for item in items if sum(bool(key) for key, _ in item) > 1]
    firsts = {item[0][0] for item in items}
    if 2 * len(items) < len(lines) or len(firsts) != 1:
        return None
    (first,) = firsts
    at, values = defaultdict[str, list[int]](list), defaultdict[str, list[str]](list)
    for item in items:
        for place, (key, value) in enumerate(item):
            at[key].append(place)
            values[key].append(value)
    usual = [key for key in at if key.isidentifier() and 2 * len(at[key]) >= len(items)]
    usual.sort(key=lambda key: sum(at[key]) / len(at[key]))
    if first not in usual:
        return None
    others = [key for key in usual if key != first][:_MOST_KEYS]
    rest = [rf"(?:(?: +{_PAIR})*? +{_group(key, values[key])})?" for key in others]
    pattern = "".join([_group(first, values[first]), *rest])
    return _matched(heads, pattern, rf"{re.escape(first)}=", "lines of key=value")


def _group(key: str, values: Sequence[str]) -> str:
    if all(value.startswith('"') for value in values):
        return rf'{key}="(?P<{key}>(?:[^"\\]|\\.)*)"'
    return rf"{key}=(?P<{key}>{_QUOTED}|\S*)"


def _time_first(heads: Sequence[FirstLines], lines: Sequence[str]) -> Sample | None:
    """Read lines that begin with a time. One character such as "[" may be in front of it.

    Lines without a time continue the event before them. Return None if too few lines have a time.
    """
    found = Counter[tuple[str, int]]()
    for line in lines[:_FIRST_LINES]:
        skipped = int(not (line[0].isalnum() or line[0].isspace()))
        forms = candidates_at_start(line[skipped:])
        clocks = [each for each in forms if re.search("%[HI]|iso|epoch", each.form)]
        longest = [each for each in clocks if each.end == clocks[0].end]
        found.update((each.form, skipped) for each in longest[:1])
    if not found:
        return None
    (form, skipped), _ = found.most_common(1)[0]
    time = expression_for(form)
    mark = r"\W" if skipped else ""
    start = f"{mark}{time}"
    pattern = rf"{mark}(?P<time>{time})"
    levelled = rf"{pattern}\W+{_LEVEL}"
    begun = [line for line in lines if re.match(start, line)]
    if not begun or len(begun) < 0.02 * len(lines):
        return None
    if all(re.match(levelled, line) for line in begun):
        pattern = levelled
    return _matched(heads, pattern, start, "lines that begin with a time")


def _matched(heads: Sequence[FirstLines], pattern: str, start: str, kind: str) -> Sample:
    """Create a sample from the lines that match `pattern`, whose groups are the fields.

    If there is a `start` pattern, lines that do not match continue an event. `kind` names the
    format.
    """
    match = re.compile(pattern).match
    lines = [line for head in heads if any(map(match, head.lines)) for line in head.lines]
    matches = [each for line in lines if (each := match(line))]
    names = re.compile(pattern).groupindex
    fields: Fields = {name: [each[name] for each in matches] for name in names}
    settings: dict[str, Any] = {"format": "text", "pattern": pattern}
    found = list[Finding]()
    other = len(lines) - len(matches)
    if start and match(lines[0]):
        settings["multiline_start_pattern"] = start
        if other:
            found.append(Finding("continued-lines", "", {"lines": len(lines)}, other))
    elif other:
        found.append(Finding("no-match", "input.pattern", {"lines": len(lines)}, other))
    for head in heads:
        if not any(map(match, head.lines)):
            found.append(Finding("other-format", head.path, {"kind": kind}))
    return Sample(settings, fields, len(matches), kind, tuple(found))


Recogniser = Callable[[Sequence[FirstLines], Sequence[str]], Sample | None]
RECOGNISERS: tuple[Recogniser, ...] = (
    _json_lines, _well_known_log, _logfmt, _csv, _csv_below_lines, _time_first,
)  # fmt: skip
"""The recognisers of formats of text lines, in the order in which they are tried.

Before them, W3C logs are tried and comments are removed; see `_lines`.
"""
