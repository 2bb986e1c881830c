"""Convert the observations of all chunks, with the settings, to the findings of a run.

`check` and `ingest` use the same `RULES`. To add a finding, add a rule here or a check in
`observe`, and add its sentence to `finding`.
"""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, NamedTuple

from seglake.advice.file_times import FEBRUARY_MS, HALF_A_YEAR_MS, FileTimes
from seglake.advice.finding import Finding
from seglake.advice.observe import PLAUSIBLE_MS
from seglake.config import Pipeline
from seglake.terminal.wording import nearest
from seglake.times.candidates import (
    date_orders,
    is_region,
    with_optional_fraction,
    without_fraction,
    zone_in,
)
from seglake.times.grammar import EPOCH_POWERS
from seglake.times.instants import format_ms

JANUARY = "january-1970"
"""The code of the finding that stops a run."""
_DIRECTIVE = re.compile("%.")
_NAMES, _NAME_LENGTH = 200, 100  # limits of the remembered member names of one row
_LISTED = 10


class AbsentFields(NamedTuple):
    """The fields that the settings use and no row has, to detect misspelt names.

    `fields` is None if no row was checked. `names` has the field names of one row, which are
    suggested instead. Only JSON lines can have such fields, because a missing field is an error in
    other formats.
    """

    fields: list[str] | None = None
    names: Sequence[str] = ()

    @staticmethod
    def from_row(fields: list[str], row: bytes) -> AbsentFields:
        """Create the object for a chunk with the missing `fields`. `row` is one JSON row of it."""
        return AbsentFields(fields, [*islice(_member_names(row), _NAMES)] if fields else [])

    def merge(self, others: AbsentFields) -> AbsentFields:
        """Return the fields that are missing in these rows and also in the rows of `others`."""
        if self.fields is None or others.fields is None:
            return others if self.fields is None else self
        fields = [name for name in self.fields if name in others.fields]
        return AbsentFields(fields, self.names or others.names)


class Observations(NamedTuple):
    """The observations about the input of a run, or about a sample of it.

    `findings` are the merged findings of all chunks. `records` counts the records and the
    rows that were already in the log. `files` maps paths to the times of each file.
    """

    findings: Sequence[Finding]
    records: int
    absent: AbsentFields
    files: Mapping[str, FileTimes]


def conclude(pipeline: Pipeline, observed: Observations) -> list[Finding]:
    """Return the findings of a run. See `is_blocking` for findings that prevent the commit."""
    return [finding for rule in RULES for finding in rule(pipeline, observed)]


def merge_times(parts: Iterable[tuple[str, FileTimes]]) -> dict[str, FileTimes]:
    """Return path → times of the file, from pairs (path, times of a part of the file).

    The parts of a file must be in the order of the file.
    """
    files = dict[str, FileTimes]()
    for path, times in parts:
        files[path] = files.get(path, FileTimes()).merge(times)
    return files


# ---------------------------------------------------------------- fields and rows


def _absent_fields(pipeline: Pipeline, observed: Observations) -> Iterator[Finding]:
    """Yield a finding for each field that the settings name and no row has. It may be misspelt."""
    timestamp, headers, topic = pipeline.timestamp, pipeline.headers, pipeline.topic
    absent = observed.absent.fields or ()
    settings: dict[str, Sequence[str | None]] = {
        "timestamp.field": [timestamp.field],
        "timestamp.fields": timestamp.fields,
        "key.fields": [each[0] for each in pipeline.key.choices if {*each} <= {*absent}],
        "value.field": [pipeline.value.field],
        "value.columns": pipeline.value.columns,
        "headers.fields": headers.fields,
        "headers.array_field": [headers.array_field],
        "topic.partition_field": [topic.partition_field],
        "topic.offset_field": [topic.offset_field],
        "timestamp.type_field": [timestamp.type_field],
    }
    names = observed.absent.names
    for setting, fields in settings.items():
        for name in (each for each in fields if each and each in absent):
            near = nearest(name, reversed(names))
            facts = {"name": name, "near": near, "has": [*names[:_LISTED]]}
            yield Finding("absent-field", setting, facts)


def _member_names(row: bytes) -> Iterator[str]:
    """Yield the names of the members of a JSON object, and of nested members as in "a.b"."""
    try:
        level: list[tuple[str, Any]] = [("", json.loads(row))]
    except (ValueError, RecursionError):
        return
    while level:
        below = []
        for prefix, members in level:
            for name, value in members.items():
                yield f"{prefix}{name}"[:_NAME_LENGTH]
                if isinstance(value, dict):
                    below.append((f"{prefix}{name}.", value))
        level = below


def _rows(_: Pipeline, observed: Observations) -> Iterator[Finding]:
    """Yield the findings of `observe`, except findings that another rule or finding replaces."""
    is_parquet = any(each.code == "is-parquet" for each in observed.findings)
    hidden = {"times-in-format", *["not-utf-8"] * is_parquet}
    yield from (each for each in observed.findings if each.code not in hidden)


def _without_times(pipeline: Pipeline, _: Observations) -> Iterator[Finding]:
    settings = pipeline.timestamp
    by_run = pipeline.topic.message_timestamp_type == "LogAppendTime"
    if settings.names and by_run:
        yield Finding("times-not-read", settings.named)
    elif not settings.names:
        yield Finding("run-time-only" if by_run else "no-timestamps")


def _without_keys(pipeline: Pipeline, _: Observations) -> Iterator[Finding]:
    policy = pipeline.topic.cleanup_policy
    if not pipeline.key.fields and "compact" in policy:
        yield Finding("no-keys-to-compact", "cleanup.policy", {"policy": policy})


# ---------------------------------------------------------------- times


def _unread_times(pipeline: Pipeline, observed: Observations) -> Iterator[Finding]:
    """Yield a finding with another format for the times that the configured format cannot read.

    If there are several such formats, the finding has the format that reads most of these times.
    """
    counts = dict[str, int]()
    for each in observed.findings:
        if each.code == "times-in-format":
            counts[each.facts["format"]] = each.count
    if not counts:
        return
    settings, given = pipeline.timestamp, pipeline.timestamp.format or ""
    zones = sorted({zone_in(form) for form in (*counts, given) if "%z" not in form} - {""})
    if len(zones) > 1:
        yield Finding("several-zones", settings.named, {"zones": zones})
        return
    most = max(counts.values())
    best = [form for form, count in counts.items() if count == most]
    best.sort(key=lambda form: form[:2] != given[:2])
    others = [form for form in best[1:] if form in date_orders(best[0])]
    facts = {"format": best[0], "given": given, "records": observed.records}
    if without_fraction(best[0]) == without_fraction(given):
        both = with_optional_fraction(best[0] if "%f" in best[0] else given)
        yield Finding("fraction-in-some-times", settings.named, {"format": both}, most)
        return
    if observed.records:
        code = "other-order" if _is_another_order(best[0], given) else "some-times-in-format"
        yield Finding(code, settings.named, facts, most)
        return
    zone = zone_in(best[0]) if "%z" not in best[0] else ""
    facts |= {"other": next(iter(others), ""), "zone": zone}
    if zone:
        code = "times-in-region" if is_region(zone) else "times-in-named-zone"
    else:
        code = "times-in-two-orders" if others else "all-times-in-format"
    yield Finding(code, settings.named, facts, most)


def _is_another_order(form: str, other: str) -> bool:
    """Return whether two formats differ only in the order of their fields, such as %d and %m."""
    fields = {tuple(sorted(_DIRECTIVE.findall(each))) for each in (form, other)}
    return len(fields) == len({_DIRECTIVE.sub("", each) for each in (form, other)}) == 1


def _january_1970(pipeline: Pipeline, observed: Observations) -> Iterator[Finding]:
    """Yield findings about files with times in January 1970.

    If all times of a file are in January 1970, the finding makes the run fail. Times are not
    checked if records get the append time, or if their offsets and times come from a broker.
    """
    stamped = pipeline.topic.message_timestamp_type == "LogAppendTime"
    settings = pipeline.timestamp
    if settings.allow_1970 or stamped or pipeline.topic.offset_field is not None:
        return
    early = {path: each for path, each in observed.files.items() if each.early}
    whole = {path: each for path, each in early.items() if each.newest_ms < FEBRUARY_MS}
    some = {path: each for path, each in early.items() if each.newest_ms >= FEBRUARY_MS}
    for path, times in islice(whole.items(), 1):
        facts: dict[str, Any] = {"newest": format_ms(times.newest_ms), "format": "", "then": ""}
        for other in EPOCH_POWERS if settings.format in EPOCH_POWERS else ():
            powers = EPOCH_POWERS[other] - EPOCH_POWERS[settings.format or ""]
            meant_ms = times.newest_ms * 10 ** max(powers, 0)
            if meant_ms in PLAUSIBLE_MS:
                facts |= {"format": other, "then": format_ms(meant_ms)}
                break
        code = JANUARY if facts["format"] else f"{JANUARY}-unknown-unit"
        yield Finding(code, path, facts, len(whole))
    for path, times in islice(some.items(), 1):
        facts = {"early": times.early, "records": times.records}
        yield Finding("some-in-january-1970", path, facts, len(some))


def is_blocking(finding: Finding) -> bool:
    """Return whether a finding prevents the commit of the run."""
    return finding.code.startswith(JANUARY)


def _years(pipeline: Pipeline, observed: Observations) -> Iterator[Finding]:
    """Yield a finding if times without a year go back by more than half a year within a file.

    Then the file has lines of two years.
    """
    stamped = pipeline.topic.message_timestamp_type == "LogAppendTime"
    if pipeline.timestamp.year is None or not pipeline.input.kind.in_files or stamped:
        return
    files = observed.files.items()
    back = {path: each for path, each in files if each.from_ms - each.to_ms > HALF_A_YEAR_MS}
    for path, times in islice(back.items(), 1):
        facts = {"from": format_ms(times.from_ms), "to": format_ms(times.to_ms)}
        year = {"year": pipeline.timestamp.year}
        yield Finding("times-go-back", path, facts | year, len(back))


Rule = Callable[[Pipeline, Observations], Iterator[Finding]]
RULES: tuple[Rule, ...] = (
    _absent_fields, _rows, _without_times, _without_keys, _unread_times, _january_1970, _years,
)  # fmt: skip
