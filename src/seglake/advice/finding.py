"""Define `Finding`, a problem that `init`, `check` or a run noticed, and a sentence for each kind.

`_SENTENCES` has the sentence for each code: the problem and its remedy. `{count:row}` in a sentence
is replaced by the count with its noun, such as "1 row" or "12 rows".
"""

from __future__ import annotations

import string
from collections.abc import Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any

from seglake.terminal.wording import counted


@dataclass(frozen=True)
class Finding:
    """Something that `init`, `check` or a run noticed about its input, usually a problem.

    `code` names the kind of finding, and `subject` the setting, field or file that it is about.
    `facts` has the values that its sentence contains. `count` is the number of rows, times or files
    with the problem, or 0 if there is nothing to count.
    """

    code: str
    subject: str = ""
    facts: Mapping[str, Any] = field(default_factory=dict)
    count: int = 0

    def __str__(self) -> str:
        """Return the finding as a sentence.

        Example:
            >>> str(Finding("no-zone", "ts", {"rows": 40}, 12))
            "12 of 40 times of ts have no zone. Set timestamp.zone if it is not 'UTC'."
        """
        values = {"subject": self.subject, "count": self.count, **self.facts}
        if self.code == "absent-field":
            near, has = " or ".join(map(repr, values["near"])), ", ".join(map(repr, values["has"]))
            question = f"Did you mean {near}?"
            values["near_or_has"] = question if near else f"A row has {has or 'no field'}."
        return _Words().vformat(_SENTENCES[self.code], (), values)

    def as_dict(self) -> dict[str, Any]:
        """Return the finding as a dictionary of JSON values."""
        return asdict(self)


def merge_findings(findings: Iterable[Finding]) -> list[Finding]:
    """Merge findings with equal codes and time formats into the first one. Add up their counts."""
    counts = dict[tuple[str, Any], Finding]()
    for each in findings:
        key = each.code, each.facts.get("format")
        before = counts.get(key)
        counts[key] = each if before is None else replace(before, count=before.count + each.count)
    return [*counts.values()]


_SENTENCES = {
    # which files
    "other-files": "Left out {count:file} of other kinds, such as {subject}.",
    "partition-folder": "Files in folders such as {folder} are read, but {subject} is not a "
    "field of their rows. To keep the path of each record's file, set headers.source = true.",
    "file-left-out": "input.exclude leaves out a file: {why}",
    "encoding": "The files are not UTF-8. Check that input.encoding = {encoding!r} reads letters "
    "correctly.",
    "other-encoding": "Found {count:file} with another encoding, such as {subject}. Leave such "
    "files out with input.exclude.",
    "other-format": "{subject} has no {kind}. Leave it out with input.exclude.",
    # which rows
    "not-json": "{count:,} of {lines:,} sampled lines are not JSON objects, and become rejects.",
    "no-match": "{count:,} of {lines:,} sampled lines do not match {subject}, and become rejects.",
    "continued-lines": "{count:,} of {lines:,} sampled lines do not begin with a time, so they "
    "continue the event before them.",
    "no-header": "The first line does not name the columns, so they are named c1, c2 and so on. "
    "Add a header line to use input.format = 'csv'.",
    "uneven-rows": "{count:,} of {rows:,} sampled rows do not have {width} columns, and become "
    "rejects.",
    "unusable-column": "The header has the column {subject!r} without a name or more than once, "
    "so it is not a field.",
    "events-in-array": "The events are taken to be in {subject}. Other members of the documents "
    "are left out, except those in input.inherit. If a document is an event, set input.records = "
    "'.'.",
    # the time
    "no-time": "No field has a time in nearly all rows, so records get the time of the run. If one "
    "of the fields is the time, set timestamp.field and timestamp.format, and remove "
    "pipeline.order and topic.message.timestamp.type. Fields: {fields}.",
    "other-times": "These fields also have times: {fields}.",
    "mixed-formats": "{count:,} of {rows:,} times of {subject} are not in the format {format!r}, "
    "and become rejects.",
    "no-year": "The times of {subject} have no year. timestamp.year = {year} is a guess.",
    "no-zone": "{count:,} of {rows:,} times of {subject} have no zone. Set timestamp.zone if it "
    "is not 'UTC'.",
    "zone-name": "The times of {subject} end with the zone {zone}, which Seglake cannot read. Set "
    "timestamp.zone to the region, such as 'Europe/Berlin'.",
    "date-order": "Days and months of {subject} may be swapped. If so, set timestamp.format = "
    "{other!r}.",
    "whole-days": "{subject} has dates without a time of day. If another field has the time of "
    "day, set timestamp.fields to both.",
    "times-ahead": "{subject} has times in the future, up to {last}. Check its unit and time zone.",
    "before-1970": "{count:,} of {rows:,} times of {subject} are before 1970, and become rejects. "
    "Kafka has no such times. Set another timestamp.field, or topic.message.timestamp.type = "
    "'LogAppendTime' and pipeline.order = 'arrival'.",
    "doubtful-number": "The numbers of {subject} could be times in {format}, but its name does not "
    "suggest a time. Check that it is the time.",
    # rows that cannot be read
    "is-parquet": "{subject} is a Parquet file. Set input.format = 'parquet'.",
    "is-utf-16": "{subject} begins like UTF-16. Set input.encoding = 'utf-16'.",
    "not-utf-8": "{subject} has rows that are not UTF-8. If all its rows are in another encoding, "
    "set input.encoding to it, such as 'cp1252' or 'latin-1'. Otherwise correct these rows.",
    "documents": "Read the events of {count:document} as rows.",
    "json-documents": "The JSON documents in {subject} are not one event per line. Set "
    "input.records = {records!r}.",
    "nan-constants": "Some rows have NaN or Infinity, which are not JSON, though Python's "
    "json.dumps writes them. Write null instead.",
    "not-json-lines": "{subject} is not JSON lines: in {rows:row} at its start, no row is a JSON "
    "object. Set input.format to csv or text, or let `seglake init` write a pipeline file.",
    "no-match-at-start": "{subject} does not match input.pattern: in {rows:row} at its start, no "
    "row matches. Correct the pattern, or leave the file out with input.exclude.",
    "no-event-start": "{subject} has no event at its start: in {lines:line}, no line matches "
    "input.multiline_start_pattern, so all lines become one event. Correct the pattern, or leave "
    "the file out with input.exclude.",
    "escaped-quotes": "Found {count:unreadable row} with a backslash before a quote, as Spark and "
    "MySQL write it. Set input.escape = '\\'.",
    "comments": "Found {count:unreadable row} with '#' at the start. If these rows are comments, "
    "set input.comment = '#'.",
    "continued-times": "Found {count:line} with a time at the start, but inside an event. If a new "
    "event begins at such a line, correct input.multiline_start_pattern and input.pattern.",
    "two-backslashes": "Found {count:line} with two backslashes in quotes. Both are kept. If the "
    "writer escapes a backslash with another one, as Spark and MySQL do, set input.escape = '\\'.",
    "absent-field": "{subject} {name!r} is not a field of any row. {near_or_has}",
    # times that cannot be read, or are suspicious
    "all-times-in-format": "{subject}: {count:row} can be read as {format}, none as {given!r}. Set "
    "timestamp.format = {format!r}.",
    "times-in-two-orders": "{subject}: {count:row} can be read as {format}, none as {given!r}. Set "
    "timestamp.format = {format!r}, or {other!r} if days and months are in that order.",
    "times-in-region": "{subject}: {count:row} can be read as {format}, none as {given!r}. Set "
    "timestamp.format = {format!r} and timestamp.zone = {zone!r}.",
    "times-in-named-zone": "{subject}: {count:row} can be read as {format}, none as {given!r}. Set "
    "timestamp.format = {format!r}, and timestamp.zone to the region, such as 'Europe/Berlin': "
    "{zone} is not read.",
    "some-times-in-format": "{subject}: {count:row} can be read as {format}, and {records:other} "
    "as {given!r}. Correct these rows, or ingest them with a separate pipeline.",
    "other-order": "{subject}: {count:row} can be read as {format}, and {records:other} as "
    "{given!r}, where days and months are swapped. If all rows are in the first format, set "
    "timestamp.format = {format!r}. Otherwise correct the rows in the wrong format.",
    "fraction-in-some-times": "{subject}: {count:row} differ from timestamp.format only in the "
    "fraction. Set timestamp.format = {format!r}, which reads both.",
    "several-zones": "{subject}: the times end with the zones {zones}, which a format cannot read. "
    "Remove the zones and set timestamp.zone to the region, such as 'America/Los_Angeles', or use "
    "a pipeline for each zone.",
    "no-zone-in-times": "{count:time} without a zone are read in UTC. Set timestamp.zone to their "
    "region, or to 'UTC'.",
    "ambiguous-times": "{count:local time} occur twice in {subject}. timestamp.ambiguous = {way!r} "
    "selects how they are read.",
    "nonexistent-times": "{count:local time} do not exist in {subject}. timestamp.nonexistent = "
    "{way!r} selects how they are read.",
    "january-1970": "{subject}: all times are in January 1970, the latest at {newest} ({count:such "
    "file}). With timestamp.format = {format!r}, the latest is {then}. If January 1970 is right, "
    "set timestamp.allow_1970 = true.",
    "january-1970-unknown-unit": "{subject}: all times are in January 1970, the latest at {newest} "
    "({count:such file}). Correct the unit, or the field that timestamp.field names. If January "
    "1970 is right, set timestamp.allow_1970 = true.",
    "some-in-january-1970": "{early:,} of {records:time} of {subject} are in January 1970 "
    "({count:such file}). Check their unit, and the clock that wrote them.",
    "times-go-back": "{subject}: times go back from {from} to {to} ({count:such file}). They have "
    "no year, so timestamp.year = {year} applies to all of them. Ingest the lines of each year "
    "from separate files.",
    "times-not-read": "{subject} is not read, because message.timestamp.type = 'LogAppendTime' "
    "gives records the time of the run. Remove one of the two.",
    "run-time-only": "No timestamp.field is set, so records get the time of the run.",
    "no-timestamps": "No timestamp.field is set, so records have no timestamp.",
    "outside-interval": "No record is in the declared interval {start} to {end}: {count:record} "
    "have times from {low} to {high}. Such a run does not close its interval. If the input belongs "
    "to another interval, undo the run if it was committed, and ingest the input with that "
    "interval.",
    # the run and its topic
    "no-keys-to-compact": "No key.fields is set, but {subject} = {policy!r}, and compaction "
    "removes records without a key. Set key.fields, or cleanup.policy = 'delete'.",
    "more-partitions": "This run raises the topic's partitions from {before} to {now}. New "
    "records of a key may go to another partition than before, and topic.partitions cannot be "
    "lowered again.",
    "other-value-format": "The topic has {subject} = {has!r}, but this input has {own!r}, so "
    "readers cannot find the fields of its values. Ingest it into another topic, or change the "
    "setting with `seglake alter`.",
    "other-pipeline": "Pipeline {subject!r} ingested these files, but this pipeline is named "
    "{own!r}. To continue as the same pipeline, set pipeline.name = {subject!r}.",
    "missing-path": "{subject} does not exist, so a run reads no rows from it.",
    "unsplit-encoding": "Files in {encoding} cannot be split, so one task reads all {size:,} bytes "
    "of the largest file.",
    "archive-member": "The sample of {subject} ends in its member {member}. Later members were not "
    "read.",
    # the key
    "no-key-field": "No field is used as the key, so a record may go to any log partition. To "
    "use one, set key.fields.",
    "other-keys": "These fields could also be keys: {fields}.",
    "no-key": "{count:,} of {rows:,} sampled rows have no {subject}, which is the key.",
}


class _Words(string.Formatter):
    """A formatter that writes counts with their nouns, such as "12 rows", and lists with commas."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.replace(" ", "").isalpha() and isinstance(value, int):
            return counted(value, format_spec)
        if isinstance(value, list):
            return ", ".join(map(str, value)) or "none"
        return str(super().format_field(value, format_spec))
