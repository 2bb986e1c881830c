"""Settings: what is accepted, what each mistake is answered with, what the fingerprint covers."""

import copy
import json
import random
import re
import tomllib
from pathlib import Path
from typing import Any, get_args

import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import ValidationError

from seglake.catalog.table import CatalogTable
from seglake.config import Pipeline, from_tables, load
from seglake.config.input import INPUT_FORMATS, FormatName, Input
from seglake.config.loading import SECTIONS
from seglake.errors import ConfigError, UsageError
from seglake.store import open_store
from seglake.write.rows.formats.registry import FORMATS
from tests import settings_page

CONF = Path(__file__).parents[3] / "conf"

GOOD = """
[pipeline]
root = "lake"
[input]
paths = ["*.jsonl"]
format = "jsonl"
[timestamp]
field = "ts"
format = "epoch_ms"
[topic]
name = "web"
"""


def write(folder: Path, text: str) -> Path:
    file = folder / "web.toml"
    file.write_text(text)
    return file


def problem(folder: Path, text: str = GOOD, **overrides: Any) -> str:
    with pytest.raises(ConfigError) as caught:
        load(write(folder, text), overrides)
    return str(caught.value).replace(str(folder), "")


@pytest.mark.parametrize("root", ["{}/a%2Fx", "{}/a\\b", "file://{}/a%5Cb", "s3://b/a%2520b"])
def test_a_root_that_is_decoded_is_refused_without_a_write(tmp_path: Path, root: str) -> None:
    root = root.format(tmp_path)
    assert "pipeline.root" in problem(tmp_path, **{"pipeline.root": root})
    with pytest.raises(UsageError, match="Rename it"):
        CatalogTable.create(open_store(root))
    assert len([*tmp_path.iterdir()]) == 1  # the pipeline


def test_defaults_are_those_of_kafka(tmp_path: Path) -> None:
    made = load(write(tmp_path, GOOD))
    assert (made.name, made.order, made.value_source) == ("web", "time", "line")
    topic = made.topic.model_dump(by_alias=True)
    assert {name: value for name, value in topic.items() if value is not None} == {
        "name": "web",
        "partitions": 1,
        "message.timestamp.type": "CreateTime",
        "segment.bytes": 2**30,
        "segment.ms": 2**63 - 1,  # Kafka's: a week
        "index.interval.bytes": 4096,
        "index.keys": False,
        "index.fields": (),
        "index.headers": (),
        "value.format": "json",
        "value.columns": (),
        "value.delimiter": ",",
        "value.quote": '"',
        "segment.index.bytes": 10 * 2**20,
        "compression.type": "zstd",
        "compression.zstd.level": 1,  # Kafka's: 3
        "compression.gzip.level": -1,
        "max.message.bytes": 1048588,
        "batch.size": 16384,
        "retention.ms": -1,  # Kafka's: a week
        "retention.bytes": -1,
        "cleanup.policy": "delete",
        "delete.retention.ms": 24 * 3600 * 1000,
        "min.compaction.lag.ms": 0,
        "max.compaction.lag.ms": 2**63 - 1,
        "min.cleanable.dirty.ratio": 0.5,
        "message.timestamp.before.max.ms": 2**63 - 1,
        "message.timestamp.after.max.ms": 2**63 - 1,  # Kafka's: an hour
        "quarantine.retention.ms": -1,
    }


def test_keys_of_kafka_with_and_without_quotes(tmp_path: Path) -> None:
    quoted = load(write(tmp_path, GOOD + '"segment.bytes" = 1000\n"index.interval.bytes" = 60000'))
    plain = load(write(tmp_path, GOOD + "segment.bytes = 1000\nindex.interval.bytes = 60000"))
    assert quoted == plain
    assert plain.topic.segment_bytes == 1000
    assert plain.topic.index_interval_bytes == 60000


def test_overrides_replace_single_settings(tmp_path: Path) -> None:
    given = {"pipeline.root": "/other", "topic.segment.bytes": 65536, "input.paths": "a.jsonl"}
    made = load(write(tmp_path, GOOD), {**given, "headers.source": True})
    assert (made.root, made.topic.segment_bytes, made.input.paths) == (
        "/other",
        65536,
        ("a.jsonl",),
    )
    assert made.headers.source


CSV = {"input.format": "csv", "timestamp.format": "iso8601"}
MISTAKES = [
    (
        {"topic.compression": "zstd"},
        "topic.compression is an unknown key. Did you mean topic.compression",
    ),
    ({"topic.segment_bytes": 3}, "topic.segment_bytes is an unknown key. Did you mean"),
    ({"pipeline.input": "x"}, "pipeline.input is an unknown key. Use one of pipeline.name"),
    ({"topic.order": "time"}, "topic.order is an unknown key. Did you mean pipeline.order?"),
    ({"pipeline.format": "csv"}, "pipeline.format is an unknown key. Did you mean input.format"),
    ({"topics.name": "x"}, "[topics] is an unknown table. Did you mean topic?"),
    ({"pipeline.order": "random"}, "pipeline.order: 'random' should be 'time' or 'arrival'"),
    ({"topic.partitions": 0}, "topic.partitions: 0 should be greater than or equal to 1"),
    ({"topic.partitions": "3"}, "topic.partitions: '3' should be a valid integer"),
    ({"headers.source": 1}, "headers.source: 1 should be true or false. Change the value"),
    ({"key.fields": [1]}, "key.fields.0: 1 is not a field. Write a name, or a list of names"),
    ({"key.fields": [["a", ""]]}, "key.fields.0: ['a', ''] is not a field. Write a name"),
    ({"timestamp.format": "%F %R" + "[%S]" * 4}, "timestamp.format: at most three parts"),
    ({"key.fields": 1}, "key.fields: 1 should be a valid list"),
    ({"topic.segment.bytes": 2**31}, "topic.segment.bytes: 2147483648 should be less than"),
    ({"pipeline.max_quarantine_ratio": 5}, "pipeline.max_quarantine_ratio: 5 should be less than"),
    ({"topic.name": "a b"}, "topic.name: a topic name must have 1 to 249 characters"),
    ({"timestamp.format": "%Y-%m-%d %Q"}, "timestamp.format: %Q is not supported. Use %Y"),
    ({"timestamp.format": "unix"}, "timestamp.format: 'unix' is not a format. Use epoch_s"),
    ({"timestamp.format": "%d %b"}, "timestamp.format has no year. Add timestamp.year"),
    ({"timestamp.format": "%H:%M"}, "timestamp.format has no date. Write"),
    ({"timestamp.format": "%m %H:%M", "timestamp.year": 2016}, "timestamp.format has no day"),
    ({"timestamp.format": "%Y %d"}, "timestamp.format has no month. Add %m"),
    ({"timestamp.format": "%F %I"}, "timestamp.format has %I without %p"),
    ({"timestamp.format": "%F", "timestamp.year": 2016}, "timestamp.year contradicts the year in"),
    ({"timestamp.year": 2016}, "timestamp.year needs a strptime pattern"),
    ({"timestamp.fields": ["d", "c"]}, "timestamp.field contradicts timestamp.fields. Remove one"),
    ({"timestamp.zone": "CET+1"}, "timestamp.zone: 'CET+1' is not an IANA zone. Use a name"),
    ({"input.delimiter": ";"}, "input.delimiter contradicts input.format = 'jsonl'. Remove one"),
    ({"input.multiline": True}, "input.multiline contradicts input.format = 'jsonl'"),
    ({**CSV, "input.quote": ","}, "input.delimiter and input.quote are the same character"),
    ({**CSV, "input.quote": "''"}, "input.quote: "),
    ({**CSV, "input.delimiter": "é"}, "input.delimiter: 'é' is not one ASCII character. Write one"),
    ({**CSV, "input.format": "tsv"}, "input.format: 'tsv' should be 'jsonl', 'csv', "),
    ({"input.pattern": "x"}, "input.pattern contradicts input.format = 'jsonl'. Remove one"),
    ({"input.format": "text", "input.pattern": "(?P<ts>"}, "input.pattern: Invalid regular"),
    ({"input.format": "text", "input.pattern": "(x)"}, "input.pattern: Regular expression"),
    (
        {"input.format": "text", "input.multiline_start_pattern": "(x"},
        "input.multiline_start_pattern: Invalid regular expression: missing ): ^(?:(x)",
    ),
    ({**CSV, "input.escape": '"'}, "input.escape: '\"' is not a backslash. If quotes are doubled"),
    ({**CSV, "input.escape": "\\", "input.quote": "\\"}, "input.quote and input.escape are the"),
    ({**CSV, "input.comment": ","}, "input.delimiter and input.comment are the same character"),
    ({**CSV, "input.comment": "//"}, "input.comment: '//' is not one ASCII character. Write one"),
    ({**CSV, "input.skip_lines": -1}, "input.skip_lines: -1 should be greater than or equal to 0"),
    ({"input.comment": "#"}, "input.comment contradicts input.format = 'jsonl'. Remove one"),
    ({"input.null_values": ["-"]}, "input.null_values contradicts input.format = 'jsonl'. Remove"),
    ({"input.format": "text", "input.escape": "\\"}, "input.escape contradicts input.format = 'te"),
    ({"input.include": ""}, "input.include.0: "),
    ({"input.format": "text"}, "field 'ts' is not a named group of input.pattern. Add (?P<ts>...)"),
    ({"input.format": "parquet", "input.compression": "gzip"}, "input.compression contradicts"),
    ({"input.format": "parquet", "value.from": "line"}, "value.from = 'line' contradicts input"),
    ({"input.order_column": "id"}, "input.order_column contradicts input.format = 'jsonl'"),
    ({"input.paths": []}, "input.paths: [] should have at least 1 item"),
    ({"input.paths": ["s3://key:secret@bucket/x"]}, "input.paths.0: credentials do not belong in"),
    ({"input.paths": ["abfs://b@a/x?sig=secret"]}, "input.paths.0: credentials do not belong in"),
    ({"pipeline.root": "s3://key:secret@bucket"}, "pipeline.root: credentials do not belong"),
    ({"key.required": True}, "key.required needs key.fields"),
    ({"key.fields": ["a"], "key.separator": "|"}, "key.separator needs two or more key.fields"),
    ({"value.field": "a"}, "value.field contradicts value.from = 'line'. Remove one"),
    ({"value.from": "field"}, "value.from = 'field' needs value.field. Add it"),
    ({"value.from": "line", "value.columns": ["a"]}, "value.columns contradicts value.from"),
    ({"value.from": "columns"}, "value.from = 'columns' needs value.columns with input.format"),
    ({"topic.compression.gzip.level": 5}, "topic.compression.gzip.level contradicts topic.compr"),
    ({"topic.batch.size": 2_000_000}, "topic.batch.size is above topic.max.message.bytes"),
    ({"storage.aws_secret_access_key": "x"}, "storage: aws_secret_access_key is a secret"),
]


def test_formats_and_their_own_keys() -> None:
    assert tuple(INPUT_FORMATS) == get_args(FormatName)
    assert set(FORMATS) == {name for name, form in INPUT_FORMATS.items() if form.in_files}
    own_keys = {key for form in INPUT_FORMATS.values() for key in form.own_keys}
    assert own_keys <= set(Input.model_fields)


@pytest.mark.parametrize(("overrides", "text"), MISTAKES, ids=lambda m: str(m)[:60])
def test_mistakes(tmp_path: Path, overrides: dict[str, Any], text: str) -> None:
    assert problem(tmp_path, **overrides).startswith(f"/web.toml: {text}")


def test_tables_are_checked_as_a_file_is() -> None:
    tables = tomllib.loads(GOOD)
    tables["topic"]["segment"] = {"bytes": 1000}
    with pytest.raises(ConfigError, match=r"^settings: pipeline\.name is missing"):
        from_tables(tables)
    tables["pipeline"]["name"] = "web"
    assert from_tables(tables).topic.segment_bytes == 1000
    tables["inputs"] = {}
    with pytest.raises(ConfigError, match=r"^settings: \[inputs\] is .*. Did you mean input"):
        from_tables(tables)


def test_a_long_name_needs_room_for_the_partition(tmp_path: Path) -> None:
    file = write(tmp_path, GOOD)
    assert load(file, {"topic.name": "x" * 249, "topic.partitions": 100_000})
    assert load(file, {"topic.name": "x" * 249, "topic.partitions": 1})


@pytest.mark.parametrize("table", ["pipeline", "input", "topic"])
def test_a_missing_table_or_key(tmp_path: Path, table: str) -> None:
    text = re.sub(rf"\[{table}\]\n(?:[^\[].*\n)*", "", GOOD)
    wanted = "pipeline.root is missing. Add it" if table == "pipeline" else "] is missing. Add it"
    assert wanted in problem(tmp_path, text)
    assert "topic.name is missing" in problem(
        tmp_path, GOOD.replace('name = "web"', "partitions = 1")
    )


def test_times_are_needed_unless_the_clock_of_the_run_counts(tmp_path: Path) -> None:
    text = GOOD.replace('[timestamp]\nfield = "ts"\nformat = "epoch_ms"\n', "")
    told = problem(tmp_path, text)
    assert "time of the run instead, set topic.message" in told
    clock = {"topic.message.timestamp.type": "LogAppendTime"}
    assert "pipeline.order = 'time' needs it" in problem(tmp_path, text, **clock)
    advised = dict(re.findall(r"([a-z.]+) = '(\w+)'", told))
    assert advised == {**clock, "pipeline.order": "arrival"}
    path = tmp_path / "web.toml"
    assert load(path, advised).order == "arrival"
    made = load(write(tmp_path, text), {**clock, "pipeline.order": "arrival"})
    assert made.timestamp.field is None
    without = GOOD.replace('format = "epoch_ms"', "")
    assert "timestamp.format is missing" in problem(tmp_path, without)
    two = GOOD.replace('field = "ts"', 'fields = ["day", "clock"]')
    assert load(write(tmp_path, two)).timestamp.names == ("day", "clock")
    one = GOOD.replace('field = "ts"', 'fields = ["day"]')
    assert "timestamp.fields needs at least two names. Use timestamp.field" in problem(
        tmp_path, one
    )
    bare = two.replace('format = "epoch_ms"', "")
    assert "timestamp.fields needs timestamp.format. Set the format" in problem(tmp_path, bare)
    assert load(write(tmp_path, without), {"input.format": "parquet"}).value_source == "columns"


def test_every_mistake_has_its_line(tmp_path: Path) -> None:
    mistakes: dict[str, Any] = {"topic.partitions": 0, "input.format": "xml"}
    lines = problem(tmp_path, **mistakes).splitlines()
    assert [line.split(":")[1].strip() for line in lines] == ["input.format", "topic.partitions"]


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot be read .*. Check the path"):
        load(tmp_path / "nope.toml")
    assert "is not TOML" in problem(tmp_path, "[topic\n")
    for key, tables in {
        "zone": "[timestamp]",
        "partitions": "[topic]",
        "multiline_start_pattern": "[input]",
        "fields": "[timestamp] or [key] or [headers]",
        "root": "[pipeline]",
        "nonsense": "[pipeline]",
    }.items():
        told = f"the key {key} is not in a table. Put it under {tables}"
        assert told in problem(tmp_path, f'{key} = "x"\n')


def test_a_byte_order_mark_is_no_statement(tmp_path: Path) -> None:
    path = write(tmp_path, GOOD)
    path.write_bytes(b"\xef\xbb\xbf" + path.read_bytes())
    assert load(path).topic.partitions == load(write(tmp_path, GOOD)).topic.partitions


def test_storage_options_are_text(tmp_path: Path) -> None:
    text = GOOD + '[storage]\nendpoint = "http://host"\nallow_http = true\ntimeout = 5\n'
    made = load(write(tmp_path, text))
    assert made.storage == {"endpoint": "http://host", "allow_http": "true", "timeout": "5"}


def test_settings_do_not_change(tmp_path: Path) -> None:
    made = load(write(tmp_path, GOOD))
    with pytest.raises(ValueError, match="frozen"):
        made.topic.partitions = 5


DOCUMENT: dict[str, Any] = {
    "name": "a",
    "root": "b",
    "input": {"paths": ["x"], "format": "csv", "delimiter": ";"},
    "timestamp": {"field": "t", "format": "iso8601", "zone": "Asia/Tokyo"},
    "key": {"fields": ["k", "l"], "separator": "|"},
    "topic": {"name": "c", "partitions": 3, "segment.bytes": 1000},
}


def test_a_dataframe_needs_an_order_column() -> None:
    document = {"name": "a", "root": "b", "topic": {"name": "c"}, "timestamp": {"field": "t"}}
    given = {"format": "dataframe", "order_column": "id"}
    made = Pipeline.model_validate({**document, "input": given})
    with pytest.raises(ValidationError, match=r"input\.order_column is missing. Name a column"):
        Pipeline.model_validate({**document, "input": {"format": "dataframe"}})
    with pytest.raises(ValidationError, match=r"headers\.source contradicts input\.format"):
        Pipeline.model_validate({**document, "input": given, "headers": {"source": True}})
    other = Pipeline.model_validate({**document, "input": {**given, "order_column": "number"}})
    assert made.fingerprint() != other.fingerprint()


def fingerprint(document: dict[str, Any]) -> str:
    return Pipeline.model_validate(document).fingerprint()


def test_fingerprints_are_those_of_older_runs() -> None:
    assert fingerprint(DOCUMENT) == (
        "bd474dd46d02e870d364018b336530e81589ad6ca7308e8eecbda7083168821a"
    )


@given(st.randoms())
def test_the_fingerprint_does_not_depend_on_order(rng: random.Random) -> None:
    def shuffled(value: Any) -> Any:
        if not isinstance(value, dict):
            return value
        items = list(value.items())
        rng.shuffle(items)
        return {key: shuffled(item) for key, item in items}

    assert fingerprint(shuffled(DOCUMENT)) == fingerprint(DOCUMENT)
    assert re.fullmatch("[0-9a-f]{64}", fingerprint(DOCUMENT))


@pytest.mark.parametrize(
    ("place", "value", "same"),
    [
        (("root",), "elsewhere", True),
        (("name",), "other", True),
        (("max_quarantine_ratio",), 0.5, True),
        (("on_changed_source",), "skip", True),
        (("storage",), {"region": "x"}, True),
        (("input", "on_empty"), "ok", True),
        (("order",), "time", True),
        (("order",), "arrival", False),
        (("input", "delimiter"), ",", False),
        (("timestamp", "zone"), "UTC", False),
        (("key", "separator"), "/", False),
        (("topic", "name"), "d", False),
        (("topic", "segment.bytes"), 1001, False),
        (("topic", "segment.ms"), 1001, False),
        (("topic", "segment.ms"), "7d", False),
        (("topic", "batch.size"), 1001, False),
        (("topic", "retention.ms"), 1000, True),
        (("topic", "message.timestamp.after.max.ms"), 1000, True),
        (("topic", "cleanup.policy"), "compact", True),
        (("task",), {"split_bytes": 5}, False),
    ],
)
def test_the_fingerprint_covers_what_decides_the_bytes(
    place: tuple[str, ...], value: object, same: bool
) -> None:
    changed = copy.deepcopy(DOCUMENT)
    table = changed
    for name in place[:-1]:
        table = table[name]
    table[place[-1]] = value
    assert (fingerprint(changed) == fingerprint(DOCUMENT)) == same


CONSTANTS = ["chunk_bytes", "split_bytes", "blob_bytes", "merge_bytes", "piece_bytes"]  # of [task]


@pytest.mark.parametrize("key", CONSTANTS)
def test_a_file_cannot_set_a_constant(key: str, tmp_path: Path) -> None:
    """Tests can, in Python."""
    document = {**DOCUMENT, "task": {key: 1000}}
    assert getattr(Pipeline.model_validate(document).task, key) == 1000
    (tmp_path / "web.toml").write_text(f"[task]\n{key} = 1000\n")
    with pytest.raises(ConfigError, match=f"task.{key} is an unknown key"):
        load(tmp_path / "web.toml")
    assert f"`{key}`" not in settings_page.reference("")


def test_the_reference_names_every_key() -> None:
    text = settings_page.reference("")
    for table, model in SECTIONS.items():
        if table == "task":
            continue
        section = text.split(f"## [{table}]")[1].split("\n## ")[0]
        fields = model.model_fields.items()
        constants = {"multiline_max_lines", "multiline_max_bytes"}
        for name, info in (each for each in fields if each[0] not in constants):
            row = next(
                r for r in section.splitlines() if r.startswith(f"| `{info.alias or name}` |")
            )
            assert info.description
            assert len(re.split(r"(?<!\\)\|", row)) == 6
    assert "| `segment.bytes` | integer | `1073741824` |" in text
    assert "| `root` | text | required |" in text
    assert "## [storage]" in text


@pytest.mark.parametrize("file", sorted(CONF.glob("**/*.toml")), ids=lambda file: file.stem)
def test_the_examples_are_valid(file: Path) -> None:
    made = load(file)
    assert made.name == file.stem
    assert json.loads(made.model_dump_json(by_alias=True))
