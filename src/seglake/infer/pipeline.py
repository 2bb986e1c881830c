"""Infer a pipeline from a sample of the input, with a reason for each inferred setting."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from os.path import commonprefix
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

from seglake.advice.finding import Finding
from seglake.config import Pipeline, from_tables
from seglake.errors import UsageError
from seglake.infer.fields import KeyChoice, TimeChoice, choose_key, choose_time
from seglake.infer.recognise import Sample, read_sample
from seglake.terminal.wording import counted, short_bytes, suggest_or_list

_PARTITION_BYTES = 2**30
_MOST_PARTITIONS = 64


class Choice(NamedTuple):
    """The inferred value of a setting, and the reason for it, which may be ""."""

    value: Any
    reason: str


@dataclass(frozen=True)
class InferredPipeline:
    """An inferred pipeline. `toml` is the text of its file.

    `files` and `size_bytes` are the number and the decompressed size of the input files. `choices`
    maps settings to their values and reasons. `findings` are about uncertain settings.
    """

    topic: str
    toml: str
    files: int
    size_bytes: int
    choices: dict[str, Choice] = field(default_factory=dict)
    findings: list[Finding] = field(default_factory=list)

    def pipeline(self, name: str) -> Pipeline:
        """Return the checked settings. `name` is the name of the pipeline. Raises ConfigError."""
        tables = tomllib.loads(self.toml)
        tables["pipeline"].setdefault("name", name)  # the default when a file is loaded
        return from_tables(tables)

    def as_dict(self) -> dict[str, Any]:
        """Return the pipeline, and its findings as sentences, as a dictionary of JSON values."""
        choices = {setting: choice._asdict() for setting, choice in self.choices.items()}
        warnings = [*map(str, self.findings)]
        return {**asdict(self), "choices": choices, "warnings": warnings}


def infer_pipeline(
    paths: Sequence[str],
    *,
    root: str = "./lake",
    topic: str | None = None,
    storage: Mapping[str, str] | None = None,
    output: Path | None = None,
) -> InferredPipeline:
    """Infer a pipeline that ingests files, from a sample of their rows.

    Args:
        paths: Files, folders and globs, as in `input.paths`.
        root: The root of the lake.
        topic: The name of the topic; by default derived from the names of the files.
        storage: Options of the object store.
        output: The pipeline file that will be written. It is left out of the input.

    Raises:
        InputError: No file was found, all files are empty, or their format was not recognised.
    """
    sample = read_sample(paths, storage or {}, root, output)
    return infer_settings(sample, root, topic or _topic_name(paths))


def infer_settings(
    sample: Sample,
    root: str,
    topic: str,
    settings: Mapping[str, Any] = MappingProxyType({}),
    *,
    time: Sequence[str] = (),
    key: Sequence[str] | None = None,
) -> InferredPipeline:
    """Infer a pipeline that ingests the input of a sample.

    Args:
        sample: Rows of the input.
        root: The root of the lake.
        topic: The name of the topic.
        settings: Settings that replace inferred ones, by dotted key.
        time: The fields with the event time. By default, they are inferred.
        key: The fields of the key. By default, they are inferred.

    Raises:
        UsageError: The sample has no field of `time` or `key`, or fields of `time` have no times.
    """
    chosen, other_times = choose_time(_with_fields(sample, "time", time) if time else sample)
    if time and (chosen is None or {*chosen.fields} != {*time}):
        raise UsageError(
            f"time names {' and '.join(time)}, but many sampled values are not times in a known "
            "format. Name another field, or write a pipeline with timestamp.format"
        )
    chosen_key, other_keys = choose_key(sample, chosen.fields if chosen else ())
    if key is not None:
        _with_fields(sample, "key", key)
        chosen_key, other_keys, settings = None, [], {"key.fields": [*key], **settings}
    choices = dict(_choices(sample, chosen, chosen_key))
    choices |= {name: Choice(value, "") for name, value in settings.items()}
    no_time = Finding("no-time", facts={"fields": [*sample.fields][:20]})
    findings = [*sample.findings, *([no_time] if chosen is None else chosen.findings)]
    if other_times:
        findings.append(Finding("other-times", facts={"fields": other_times[:10]}))
    if chosen_key is not None:
        findings += chosen_key.findings
    elif key is None:
        findings.append(Finding("no-key-field"))
    if other_keys:
        findings.append(Finding("other-keys", facts={"fields": other_keys[:10]}))
    tables: dict[str, dict[str, Any]] = {"pipeline": {"root": root}, "input": {**sample.settings}}
    tables |= {"timestamp": {}, "key": {}, "topic": {"name": topic}}
    for setting, choice in choices.items():
        table, _, last = setting.partition(".")
        tables.setdefault(table, {})[last] = choice.value
    toml = "".join(_document(tables, choices, findings))
    return InferredPipeline(topic, toml, sample.files, sample.size_bytes, choices, findings)


def _with_fields(sample: Sample, argument: str, names: Sequence[str]) -> Sample:
    """Return the sample with only the fields `names`. Raises UsageError for an unknown field.

    `argument` is the name of the caller's argument, for the message.
    """
    for name in {*names} - {*sample.fields}:
        near = suggest_or_list(name, [*sample.fields])
        raise UsageError(f"no sampled row has a field {name!r} ({argument}) with one value. {near}")
    return sample._replace(fields={name: sample.fields[name] for name in names})


def _choices(
    sample: Sample, time: TimeChoice | None, key: KeyChoice | None
) -> Iterator[tuple[str, Choice]]:
    if time is None:
        yield "pipeline.order", Choice("arrival", "no time was found")
    size = f"; {counted(sample.files, 'file')}, about {short_bytes(sample.size_bytes)}"
    reason = f"{sample.reason}{size if sample.files else ''}"
    yield "input.format", Choice(sample.settings["format"], reason)
    if time is not None:
        setting = "timestamp.field" if len(time.fields) == 1 else "timestamp.fields"
        value = time.fields[0] if len(time.fields) == 1 else [*time.fields]
        yield setting, Choice(value, time.reason)
        for name, value in time.settings.items():
            yield f"timestamp.{name}", Choice(value, "")
    if key is not None:
        yield "key.fields", Choice([key.field], key.reason)
    partitions = -(-sample.size_bytes // _PARTITION_BYTES)
    partitions = min(1 << max(partitions - 1, 0).bit_length(), _MOST_PARTITIONS)
    yield "topic.partitions", Choice(partitions, "one for each GiB of the input")
    if time is None:
        yield "topic.message.timestamp.type", Choice("LogAppendTime", "records get the run's time")


def _topic_name(paths: Sequence[str]) -> str:
    """Return a topic name from the common prefix of the paths' names, or else their folder."""
    names = {_last_name(path) for path in paths}
    if len(names) == 1:
        return names.pop()
    common = commonprefix(sorted(names)).rstrip("0123456789-_")  # noqa: RUF071  of characters
    if common and not any(name[len(common) :][:1].isalpha() for name in names):
        return common
    above = {path.rstrip("/").rpartition("/")[0] for path in paths}
    return _last_name(above.pop()) if len(above) == 1 else _last_name(paths[0])


def _last_name(path: str) -> str:
    """Return the last name in a path without wildcards, converted to a valid topic name."""
    parts = [p for p in re.split(r"[/\\]+", path) if p.strip(".") and not re.search(r"[*?\[]", p)]
    last = parts[-1] if parts else "" if "://" in path else Path(path).resolve().name
    stem = last.removeprefix(".").split(".")[0] if "." in last.strip(".") else last
    return re.sub(r"[^A-Za-z0-9_-]+", "-", stem).strip("-")[:100] or "events"


# ---------------------------------------------------------------- the text


def _document(
    tables: Mapping[str, Mapping[str, Any]],
    choices: Mapping[str, Choice],
    findings: Sequence[Finding],
) -> Iterator[str]:
    yield "# Inferred by Seglake from a sample of the input.\n"
    yield from (_comment(f"Not certain: {each}") for each in findings)
    for table, items in tables.items():
        yield f"\n[{table}]\n" if items else ""
        for key, value in items.items():
            choice = choices.get(f"{table}.{key}")
            if choice is not None and choice.reason:
                yield _comment(choice.reason)
            yield f"{json.dumps(key) if '.' in key else key} = {_value(value)}\n"


def _comment(text: str) -> str:
    """Return `text` as a TOML comment. Unprintable characters become "?"."""
    return f"# {''.join(each if each.isprintable() else '?' for each in text)}\n"


def _value(value: Any) -> str:
    """Return a value as TOML. A text with backslashes becomes a literal string (in ''')."""
    if isinstance(value, list):
        return f"[{', '.join(map(_value, value))}]"
    if isinstance(value, str):
        if "\\" in value and "'''" not in value and value.isprintable():
            return f"'''{value}'''"
        return json.dumps(value, ensure_ascii=False).replace("\x7f", "\\u007f")
    return json.dumps(value)
