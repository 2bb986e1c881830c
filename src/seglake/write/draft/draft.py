"""A pipeline file for files that nobody has described yet, with a reason beside each choice."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from itertools import islice
from os.path import commonprefix
from pathlib import Path
from typing import Any, NamedTuple

from seglake.errors import InputError
from seglake.shown import counted, short_bytes
from seglake.write.draft.keys import KeyChoice, key_of
from seglake.write.draft.sample import PACKED, Sample, sample_of
from seglake.write.draft.times import (
    TimeChoice,
    time_of,
    times_of_some_rows,
    unread_ticks,
    unread_times,
)
from seglake.write.rows.arrays import lines_of

_BYTES_OF_A_PARTITION = 2**30
_MOST_PARTITIONS = 64
_SHOWN = 5  # fields that are named each with a value


class Choice(NamedTuple):
    """The value of a setting, and why it is this one."""

    value: Any
    reason: str


@dataclass(frozen=True)
class Draft:
    """A pipeline's TOML text, the choices in it by setting, and what is not sure, in sentences."""

    topic: str
    toml: str
    files: int
    size_bytes: int
    choices: dict[str, Choice] = field(default_factory=dict)
    doubts: list[str] = field(default_factory=list)

    def as_dict(self) -> dict[str, Any]:
        """The draft as plain values."""
        choices = {setting: choice._asdict() for setting, choice in self.choices.items()}
        return {**asdict(self), "choices": choices}


def draft(
    paths: Sequence[str],
    *,
    root: str = "./lake",
    topic: str | None = None,
    storage: Mapping[str, str] | None = None,
    output: Path | None = None,
) -> Draft:
    """Look at files, and write the pipeline that ingests them, as a text of TOML.

    `paths` are those of `input.paths`; the text will be in the file `output`. Some rows from the
    beginnings of up to eight files are read. Raises InputError if there is nothing to read, or
    nothing that Seglake can read.
    """
    if not paths:
        raise InputError("no path is given: name files, folders or globs")
    sample = sample_of(paths, storage or {}, root, output)
    time = time_of(sample)
    key = key_of(sample, time.field if time else None)
    choices = dict(_choices(sample, time, key))
    doubts = [*sample.doubts, *_doubts(sample, time, key)]
    name = topic or _topic_name(paths)
    if name is None:
        name = _name_of(paths[0])
        doubts.append(f"topic.name = {name!r} is from the first path; the others have other names")
    tables: dict[str, dict[str, Any]] = {
        "pipeline": {"root": root},
        "input": {"paths": list(paths), **sample.settings},
        "timestamp": {},
        "key": {},
        "topic": {"name": name},
    }
    for setting, choice in choices.items():
        table, _, last = setting.partition(".")
        tables[table][last] = choice.value
    toml = "".join(_document(tables, choices, doubts))
    return Draft(name, toml, sample.files, sample.size_bytes, choices, doubts)


def _choices(
    sample: Sample, time: TimeChoice | None, key: KeyChoice | None
) -> Iterator[tuple[str, Choice]]:
    """The settings that are chosen, in the order of the file."""
    if time is None:
        yield "pipeline.order", Choice("arrival", "no time is known")
    size = short_bytes(sample.size_bytes)
    guess = f", if unpacked files are {PACKED} times as large" if sample.packed else ""
    reason = f"{counted(sample.files, 'file')}; {size}{guess}{_of_rows(sample.settings)}"
    yield "input.format", Choice(sample.settings["format"], reason)
    if time is not None:
        if not time.beside:
            yield "timestamp.field", Choice(time.field, time.reason)
        else:
            yield "timestamp.fields", Choice([time.field, *time.beside], time.reason)
        for name, value in time.settings.items():
            yield f"timestamp.{name}", Choice(value, "")
    if key is not None:
        yield "key.fields", Choice([key.field], key.reason)
    partitions = _partitions(sample.size_bytes)
    reason = "one for each GiB of a run" if partitions > 1 else "the files are small"
    yield "topic.partitions", Choice(partitions, f"{reason}; more let more consumers read at once")
    if time is None:
        yield "topic.message.timestamp.type", Choice("LogAppendTime", "records get the run's time")


def _of_rows(settings: Mapping[str, Any]) -> str:
    """What makes a row, if the format alone does not say so."""
    if settings["format"] == "csv":
        return f"; {settings.get('delimiter', ',')!r} between columns"
    if settings["format"] != "text":
        return ""
    if "multiline_start_pattern" in settings:
        return "; a line that begins no event continues the one before"
    return "; each line is a record"


def _doubts(sample: Sample, time: TimeChoice | None, key: KeyChoice | None) -> Iterator[str]:
    fields = f"; fields: {', '.join(list(sample.fields)[:20])}" if sample.fields else ""
    if time is None:
        yield from _of_arrays(sample)
        yield from islice(times_of_some_rows(sample), _SHOWN)
        yield from islice(unread_times(sample), _SHOWN)
        yield (
            "no field has times that are read in nearly all rows; if there is one, set "
            "timestamp.field and timestamp.format, and take pipeline.order and "
            f"topic.message.timestamp.type away{fields}"
        )
    else:
        yield from time.doubts
        yield from islice(unread_ticks(sample, time.field), _SHOWN)
    if key is None:
        yield (
            f"no field is the key, so records go to any log partition; else set key.fields{fields}"
        )
    else:
        yield from key.doubts


def _of_arrays(sample: Sample) -> Iterator[str]:
    """What is said of arrays whose objects may be the events, which then have a time."""
    path = sample.parts[0][0] if sample.parts else ""
    for name in sample.arrays[:_SHOWN]:
        yield f"{name} is an array of objects; if these are the events, {lines_of(name, path)}"


def _partitions(size_bytes: int) -> int:
    """A power of two: one log partition for each GiB."""
    count = -(-size_bytes // _BYTES_OF_A_PARTITION)
    return min(1 << max(count - 1, 0).bit_length(), _MOST_PARTITIONS)


def _topic_name(paths: Sequence[str]) -> str | None:
    """A name for the topic: what the names of the paths begin with, or else of the folder above.

    None if there is no such folder.
    """
    names = {_name_of(path) for path in paths}
    if len(names) == 1:
        return names.pop()
    common = commonprefix([*names]).rstrip("0123456789-_")  # noqa: RUF071  of characters
    if common and not any(name[len(common) :][:1].isalpha() for name in names):
        return common
    above = {tuple(_parts(path)[:-1]) for path in paths}
    return _name_of("/".join(above.pop())) if len(above) == 1 and (*above,) != ((),) else None


def _parts(path: str) -> list[str]:
    """The parts of a path without wildcards."""
    return [
        part
        for part in re.split(r"[/\\]+", path)
        if part.strip(".") and not re.search(r"[*?\[]", part)
    ]


def _name_of(path: str) -> str:
    """The name of the last folder or file of a path, as a topic may have it."""
    parts = _parts(path)
    last = parts[-1] if parts else "" if "://" in path else Path(path).resolve().name
    stem = last.removeprefix(".").split(".")[0] if "." in last.strip(".") else last
    name = re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")
    return name[:100] or "events"


# ---------------------------------------------------------------- the text


def _document(
    tables: Mapping[str, Mapping[str, Any]], choices: Mapping[str, Choice], doubts: Sequence[str]
) -> list[str]:
    lines = ["# Drafted by `seglake init` from a sample of the files.\n"]
    lines += [_comment(f"Not sure: {doubt}") for doubt in doubts]
    for table, items in tables.items():
        lines.append(f"\n[{table}]\n" if items else "")
        for key, value in items.items():
            choice = choices.get(f"{table}.{key}")
            if choice is not None and choice.reason:
                lines.append(_comment(choice.reason))
            lines.append(f"{_key(key)} = {_value(value)}\n")
    return lines


def _comment(text: str) -> str:
    """A line of TOML; names of fields in the text may have any characters."""
    return f"# {''.join(each if each.isprintable() else '?' for each in text)}\n"


def _key(key: str) -> str:
    return json.dumps(key) if "." in key else key


def _value(value: Any) -> str:
    """A value of TOML; a text with backslashes stands as it is."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        if "\\" in value and "'''" not in value and value.isprintable():
            return f"'''{value}'''"
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)
