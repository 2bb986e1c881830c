"""Turn findings into English. This is the only place with sentences about input.

A sentence says what was found, and what to do. `{count:row}` in a template is the count with its
noun, such as "1 row" or "12 rows".
"""

from __future__ import annotations

import string
from collections.abc import Mapping
from typing import Any

from seglake.shown import counted

_SENTENCES = {
    # which files
    "other-files": "{count:file} of other kinds are left out, such as {subject}.",
    "partition-folder": "Folders such as {folder} are entered, but {subject} is not a field. "
    "headers.source = true keeps the path of each record's file.",
    "file-left-out": "A file is left out with input.exclude: {why}",
    "encoding": "The files are not UTF-8. Check that input.encoding = {encoding!r} reads letters "
    "correctly.",
    "other-encoding": "{count:file} have another encoding, such as {subject}. Leave them out with "
    "input.exclude.",
    "other-format": "{subject} has no {kind}. Leave it out with input.exclude.",
    # which rows
    "not-json": "{count:,} of {lines:,} sampled lines are not JSON objects, and become rejects.",
    "no-match": "{count:,} of {lines:,} sampled lines do not match {subject}, and become rejects.",
    "continued-lines": "{count:,} of {lines:,} sampled lines do not begin with a time, so they "
    "continue the event before them.",
    "no-header": "The first line does not name the columns, so a pattern calls them c1, c2 and so "
    "on. Add a header to use input.format = 'csv'.",
    "uneven-rows": "{count:,} of {rows:,} sampled rows do not have {width} columns, and become "
    "rejects.",
    "unusable-column": "The header has the column {subject!r} without a name, or twice, so it is "
    "not a field.",
    "array-of-objects": "{subject} is an array of objects. If these are the events, write one "
    "event a line: jq -c '.{subject}[]' FILE",
    # the time
    "no-time": "No field is a time in nearly all rows, so records get the time of the run. If "
    "there is one, set timestamp.field and timestamp.format, and remove pipeline.order and "
    "topic.message.timestamp.type. Fields: {fields}.",
    "other-times": "These fields have times, too: {fields}.",
    "mixed-formats": "{count:,} of {rows:,} times of {subject} are not in the format {format!r}, "
    "and become rejects.",
    "no-year": "The times of {subject} have no year. timestamp.year = {year} is a guess.",
    "no-zone": "{count:,} of {rows:,} times of {subject} have no zone. Set timestamp.zone if it "
    "is not 'UTC'.",
    "zone-name": "The times of {subject} end with {zone}, which is not read. Set timestamp.zone to "
    "the region, such as 'Europe/Berlin'.",
    "date-order": "Days and months of {subject} may be the other way round: timestamp.format = "
    "{other!r}.",
    "whole-days": "{subject} has whole days. If another field has the time of day, set "
    "timestamp.fields to both.",
    "times-ahead": "{subject} has times up to {last}, which is in the future.",
    "before-1970": "{count:,} of {rows:,} times of {subject} are before 1970, and become rejects.",
    "doubtful-number": "{subject} has numbers that are times if they are {format}, but its name "
    "does not say so.",
    # the key
    "no-key-field": "No field is used as the key, so records go to any log partition. Set "
    "key.fields if one is.",
    "other-keys": "These fields could be keys, too: {fields}.",
    "no-key": "{count:,} of {rows:,} sampled rows have no {subject}, which is the key.",
}


class _Words(string.Formatter):
    """Formats counts with their nouns, and lists as text."""

    def format_field(self, value: Any, format_spec: str) -> str:
        if format_spec.isalpha() and isinstance(value, int):
            return counted(value, format_spec)
        if isinstance(value, list):
            return ", ".join(map(str, value)) or "none"
        return str(super().format_field(value, format_spec))


def describe(code: str, subject: str, facts: Mapping[str, Any], count: int) -> str:
    """Return the sentence for a finding, see `Finding`.

    Example:
        >>> describe("no-zone", "ts", {"rows": 40}, 12)
        "12 of 40 times of ts have no zone. Set timestamp.zone if it is not 'UTC'."
    """
    values = {"subject": subject, "count": count, **facts}
    return _Words().vformat(_SENTENCES[code], (), values)
