"""Print hints to standard error if a read, a search or a field has no result.

The hints suggest another search. They need a sample of the newest records, which is read only in
this case.
"""

import json
import sys
from base64 import b64encode
from collections.abc import Collection, Iterable, Iterator, Mapping
from shlex import quote
from typing import Any, NamedTuple

import pyarrow as pa

from seglake.read.log import Log
from seglake.terminal.wording import wrap
from seglake.times.instants import format_ms
from seglake.write.rows.rows import similar_names_hint

_KEYS = 100  # number of sampled keys
_SAYS_HOW = "value.format=csv value.columns=…` gives them fields"


class Query(NamedTuple):
    """The conditions of a search. `when` describes its window."""

    keys: Collection[bytes]
    fields: Mapping[str, Collection[str]]
    headers: Collection[str]
    when: str

    def print_no_match(self, log: Log) -> None:
        """Print that nothing was found, and suggest another search."""
        _print_hint(log, f"no matching record was found {self.when}".rstrip())
        if self.keys:
            _print_key_hints(log, self.keys)
        if self.headers:
            _print_header_hints(log, self.headers)
        if self.fields:
            print_field_hints(log, self.fields, "--where")


def describe(start: str | None, end: str | None, last: str | None, offset: int | None) -> str:
    """Describe the records of a read, as in "in the last 1h". Return "" for all records."""
    if last is not None:
        return f"in the last {last}"
    if offset is not None:
        return f"from offset {offset} on"
    if start is None:
        return "" if end is None else f"before {end}"
    return f"from {start} on" if end is None else f"from {start} to {end}"


def print_no_records(log: Log, partitions: Iterable[int], asked: str) -> None:
    """Print that a read found nothing, and the time of the newest record."""
    columns = [log.reader(partition).view.segments for partition in partitions]
    newest = max((int(each.max_timestamps.max(initial=-1)) for each in columns), default=-1)
    if newest >= 0:
        there = f"the newest record is from {format_ms(newest)}"
    elif any(each.details["record_count"].any() for each in columns):
        there = "the records have no timestamp"
    else:
        there = "the topic has no records"
    _print_hint(log, f"no record was found {asked}: {there}" if asked else there)


def with_field_hints(
    batches: Iterable[pa.RecordBatch], log: Log, names: Collection[str]
) -> Iterator[pa.RecordBatch]:
    """Yield the batches. Call `print_field_hints` for columns in `names` that have only nulls."""
    empty, records = [*names], 0
    for batch in batches:
        empty = [name for name in empty if batch[name].null_count == len(batch)]
        records += len(batch)
        yield batch
    if records and empty:
        print_field_hints(log, empty, "--fields")


def print_field_hints(log: Log, names: Iterable[str], option: str) -> None:
    """Print hints about fields of an option that a sample of the values does not have."""
    sample = log.fields()
    field_names = [field.name for field in sample.fields]
    if sample.sampled and not sample.objects:
        instead = "Leave out --fields" if option == "--fields" else _other_ways(log)
        _print_hint(log, f"{_no_fields(log)}, so they have no fields. {instead}")
        if not log.value_format:
            alter = f"`seglake alter {quote(log.store.uri)} {log.topic} {_SAYS_HOW}"
            _print_hint(log, f"if the values are CSV or lines of text, {alter}")
        return
    for name in names if sample.objects else ():
        if name not in field_names:
            _print_hint(log, _of_field(name, field_names))


def _no_fields(log: Log) -> str:
    if not log.value_format:
        return "the values are not JSON objects"
    settings: dict[str, Any] = json.loads(log.settings.settings)
    said = {key: value for key, value in settings.items() if key.startswith("value.")}
    shown = ", ".join(f"{key} = {value!r}" for key, value in said.items())
    return f"the values do not have the format in the topic's settings ({shown})"


def _of_field(name: str, field_names: list[str]) -> str:
    inside = next((each for each in field_names if each.startswith(f"{name}.")), None)
    if inside is not None:
        return f"the field {name!r} is an object. Name a field of it, such as {inside!r}"
    hint = similar_names_hint(name, field_names, "A value")
    return f"the sampled values have no field {name!r}. {hint}"


def _print_key_hints(log: Log, asked: Collection[bytes]) -> None:
    """Print a hint if sampled records have no keys, or binary keys while the query is text."""
    keys: list[bytes | None] = _sampled(log, "key").to_pylist()
    present = [key for key in keys if key is not None]
    binary = [key for key in present if not _is_text(key)]
    if keys and not present:
        fields = log.fields().objects > 0
        instead = "Search with --where" if fields else _other_ways(log)
        _print_hint(log, f"no sampled record has a key. {instead}")
    elif 2 * len(binary) > len(present) and all(map(_is_text, asked)):
        example = b64encode(min(binary, key=len)).decode()
        _print_hint(log, f"the keys are binary, not text. Write them as in --key base64:{example}")


def _print_header_hints(log: Log, asked: Iterable[str]) -> None:
    """Print a hint about headers that a sample of the records does not have."""
    sampled = _sampled(log, "headers").to_pylist()
    names = sorted({header["key"] for headers in sampled for header in headers or ()})
    if sampled and not names:
        _print_hint(log, "no sampled record has a header. Search with --key or --where")
    for name in asked if names else ():
        if name not in names:
            hint = similar_names_hint(name, names, "A record")
            _print_hint(log, f"no sampled record has the header {name!r}. {hint}")


def _other_ways(log: Log) -> str:
    """Return a suggestion: search by key or header if sampled records have them, else use grep."""
    ways = []
    if any(key is not None for key in _sampled(log, "key").to_pylist()):
        ways.append("--key")
    if any(_sampled(log, "headers").to_pylist()):
        ways.append("--header")
    if not ways:
        return "Search the output of `seglake read` with grep"
    return f"Search with {' or '.join(ways)}"


def _sampled(log: Log, column: str) -> Any:
    """Return a column of the newest records."""
    return log.tail(1 + _KEYS, columns=[column]).read_all()[column]


def _is_text(key: bytes) -> bool:
    try:
        return key.decode().isprintable()
    except UnicodeDecodeError:
        return False


def _print_hint(log: Log, sentence: str) -> None:
    print(wrap(f"{log.topic}: {sentence}", sys.stderr), file=sys.stderr)
