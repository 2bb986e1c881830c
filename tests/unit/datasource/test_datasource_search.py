"""Searches through the reader that Spark would use, against json and the plain list of records."""

import base64
import itertools
import json
import pickle
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import seglake
from seglake.datasource.batch import SparkBatchReader
from seglake.datasource.options import Options
from seglake.datasource.stream import SparkStreamReader
from seglake.errors import UsageError
from seglake.format.index import RECORD_KEYS, IndexPolicy, subjects_of
from seglake.format.partitioner import partition_of
from seglake.format.records import Spans
from seglake.maintain.merge import merge
from seglake.maintain.topic_settings import alter
from seglake.maintain.vacuum import vacuum
from tests.makers.lakes import Event, LakeMaker, Shape, T, Written
from tests.makers.strategies import examples
from tests.makers.versions import grow
from tests.unit.datasource.spark_rows import as_written, tables

KEYS = [b"", b"a", b"b", b"user-1", b"base64:YQ==", b"\xff\x00"]
ABSENT = b"in no record"
VALUES = [
    {"s": 200, "u": {"plan": "free"}}, {"s": "200"}, {"s": [200, 500]}, {"s": 2e2, "u.plan": "x"},
    {"s": None}, {}, {"s": {"s": 200}}, {"s": True}, {"u": {"plan": None}}, [200], "no object",
]  # fmt: skip
TEXTS = [None, b"", b"{", b"\xff", *(json.dumps(each).encode() for each in VALUES)]
HEADERS = [(), (("h", b"x"),), (("h", None), ("g", b"x")), (("h", b"y"), ("h", b"x"))]
events = st.lists(
    st.builds(
        Event, st.one_of(st.just(-1), st.integers(T, T + 40)), st.sampled_from([None, *KEYS]),
        st.sampled_from(TEXTS), st.sampled_from(HEADERS), st.sampled_from([0, 0, 0, 2]),
    ),
    max_size=40,
)  # fmt: skip
OF_ALL = subjects_of({"index.keys": True, "index.fields": ["a", "n"], "index.headers": ["g", "h"]})
shapes = st.builds(
    lambda codec, sizes, interval, subjects: Shape(
        codec, sizes[0], sizes[1], IndexPolicy(interval, subjects)
    ),
    st.sampled_from(["none", "zstd"]),
    st.sampled_from([(80, 700), (150, 2000), (400, 2**30)]),
    st.sampled_from([0, 300, 700]),
    st.sampled_from([(), (RECORD_KEYS,), OF_ALL]),
)
questions = st.fixed_dictionaries(
    {},
    optional={
        "keys": st.lists(st.sampled_from([*KEYS, ABSENT]), max_size=3),
        "where": st.sampled_from([
            {"s": 200}, {"s": "200"}, {"s": [None, True]}, {"u.plan": ["free", "x"]},
            {"s": 200.0, "u.plan": "free"},
        ]),
        "headers": st.sampled_from([{"h": "x"}, {"h": None}, {"h": ["y", None], "g": "x"}]),
        "window": st.tuples(st.integers(T, T + 40), st.integers(0, 30)),
        "size": st.sampled_from([{"bytesPerPartition": "90"}, {"maxRecordsPerPartition": "1"}]),
    },
).filter(lambda asked: asked.keys() & {"keys", "where", "headers"})  # fmt: skip


def meets(record: Written, asked: dict[str, Any]) -> bool:
    """Whether a record is one that a question asks for."""
    start, width = asked.get("window", (record.timestamp, 1))
    return (
        ("keys" not in asked or record.key in asked["keys"])
        and start <= record.timestamp < start + width
        and all(_has_field(record, *each) for each in asked.get("where", {}).items())
        and all(_has_header(record, *each) for each in asked.get("headers", {}).items())
    )


def _has_field(record: Written, name: str, wanted: Any) -> bool:
    try:
        whole = json.loads(record.value or b"")
    except ValueError:
        return False
    if not isinstance(whole, dict):
        return False
    value = whole.get(name)
    if name == "u.plan" and name not in whole and isinstance(whole.get("u"), dict):
        value = whole["u"].get("plan")
    here = value if isinstance(value, list) else [value]
    choices = wanted if isinstance(wanted, list) else [wanted]
    return any(_equal(one, other) for one in here for other in choices)


def _equal(value: Any, wanted: Any) -> bool:
    if isinstance(wanted, str):  # 2e2 is written 200.0
        return not isinstance(value, bool | dict) and str(value) == wanted
    return value == wanted and isinstance(value, bool) == isinstance(wanted, bool)


def _has_header(record: Written, name: str, wanted: Any) -> bool:
    choices = wanted if isinstance(wanted, list) else [wanted]
    texts = [each and each.encode() for each in choices]
    return any(key == name and value in texts for key, value in record.headers)


def options_of(asked: dict[str, Any]) -> dict[str, str]:
    """A question as options; every second one with few keys as the option `key`."""
    options: dict[str, str] = dict(asked.get("size", {}))
    if "keys" in asked:
        written = [f"base64:{base64.b64encode(key).decode()}" for key in asked["keys"]]
        one = len(written) == 1
        options |= {"key": written[0]} if one else {"keys": json.dumps(written)}
    options |= {name: json.dumps(asked[name]) for name in ("where", "headers") if name in asked}
    if "window" in asked:
        start, width = asked["window"]
        options |= {"startTime": str(start), "endTime": str(start + width)}
    return options


def read(root: Path, **options: str) -> list[Written]:
    shown = {} if {"columns", "fields"} & options.keys() else {"includeHeaders": "true"}
    given = {"path": str(root), "subscribe": "events", **shown, **options}
    reader = SparkBatchReader(Options(given))
    return as_written(tables(reader, reader.partitions()))


def placed(rows: Sequence[Event], partitions: int) -> dict[int, list[Event]]:
    """The rows by partition, as Kafka's partitioner places their keys; null keys go anywhere."""
    homes = partition_of(Spans.from_list([row.key for row in rows]), partitions)
    pairs = list(zip(rows, homes.tolist(), strict=True))
    return {p: [row for row, home in pairs if home == p] for p in range(partitions)}


@examples(40)
@given(st.lists(st.tuples(events, shapes), min_size=1, max_size=3), questions, st.integers(0, 9))
def test_what_is_found_is_what_the_plain_list_has(
    runs: list[tuple[list[Event], Shape]], asked: dict[str, Any], start: int
) -> None:
    """Also where partitions were added, the log has a new start, and only some have an index."""
    with tempfile.TemporaryDirectory() as folder:
        maker = LakeMaker(Path(folder) / "lake", partitions=2)
        for count, (rows, shape) in zip(itertools.count(2), runs, strict=False):
            if count > 2:
                grow(maker, count)
            maker.run(placed(rows, count), shape)
        if start < seglake.open(str(maker.root)).topic("events").end_offsets()[0]:
            maker.delete_records(0, start)
        found = read(maker.root, failOnDataLoss="false", **options_of(asked))
        assert found == [record for record in maker.records() if meets(record, asked)]


@pytest.fixture(scope="module")
def maker(tmp_path_factory: pytest.TempPathFactory) -> LakeMaker:
    """2000 events of 100 users with key indexes, in 4 partitions, in two runs of many blocks."""
    made = LakeMaker(tmp_path_factory.mktemp("search") / "lake", partitions=4)
    shape = Shape("none", 200, 20_000, IndexPolicy(400, subjects=(RECORD_KEYS,)))
    rows = [
        Event(T + n, b"u%d" % (n % 100), b'{"n":%d,"x":"%s"}' % (n, b"x" * 20)) for n in range(2000)
    ]
    for some in (rows[:1500], rows[1500:]):
        made.run(placed(some, 4), shape)
    return made


def pieces_of(root: Path, **options: str) -> list[Any]:
    reader = SparkBatchReader(Options({"path": str(root), "subscribe": "events", **options}))
    return [part.piece for task in reader.partitions() for part in task.value.parts]


def test_tasks_read_only_blocks_that_may_hold_the_key(maker: LakeMaker) -> None:
    whole = pieces_of(maker.root)
    some = pieces_of(maker.root, key="u7")
    home = int(partition_of(Spans.from_list([b"u7"]), 4)[0])
    assert {piece.segment.partition for piece in some} == {home}
    total = sum(piece.size_bytes for piece in whole if piece.segment.partition == home)
    assert 0 < sum(piece.size_bytes for piece in some) < total / 2
    plan = seglake.open(str(maker.root)).topic("events").plan_find("u7")
    assert plan.scanned == 0
    assert sum(piece.size_bytes for piece in some) == plan.size_bytes
    assert pieces_of(maker.root, keys="[]") == []


def test_a_merge_and_a_vacuum_after_the_plan_change_nothing(tmp_path: Path) -> None:
    made = LakeMaker(tmp_path / "lake", settings={"index.keys": True})
    rows = [Event(T + n, b"u%d" % (n % 20)) for n in range(200)]
    for _ in range(2):
        made.run({0: rows}, Shape("none", 200, 2_000, IndexPolicy(400, subjects=(RECORD_KEYS,))))
    options = {"path": str(made.root), "subscribe": "events", "includeHeaders": "true"}
    reader = SparkBatchReader(Options({**options, "key": "u7"}))
    planned = reader.partitions()
    merge(str(made.root), "events", everything=True)
    vacuum(str(made.root), dry_run=False, grace_hours=0, retention_hours=0)
    logs = [part.piece.segment.log_key for part in planned[0].value.parts]
    assert not any((made.root / key).exists() for key in logs)
    right = [record for record in made.records() if record.key == b"u7"]
    assert as_written(tables(reader, planned)) == right


def test_fields_and_columns_beside_a_search(maker: LakeMaker) -> None:
    options = {"key": "u7", "where": '{"n":[7,107,8]}', "fields": "n:int32", "columns": "offset"}
    reader = SparkBatchReader(Options({"path": str(maker.root), "subscribe": "events", **options}))
    (table,) = tables(reader, reader.partitions())
    assert table.column_names == ["offset", "n"]
    assert sorted(table["n"].to_pylist()) == [7, 107]  # type: ignore[type-var]


def test_a_stream_finds_in_each_micro_batch_what_it_adds(tmp_path: Path) -> None:
    made = LakeMaker(tmp_path / "lake", partitions=2)
    shape = Shape("none", 100, policy=IndexPolicy(0, subjects=(RECORD_KEYS,)))
    options = {"startingOffsets": "earliest", "key": "a", "where": '{"n":[1,3]}'}
    options |= {"path": str(made.root), "subscribe": "events", "includeHeaders": "true"}
    reader, start, seen = SparkStreamReader(Options(options)), dict[str, Any](), list[Written]()
    for run in range(3):
        values = [b'{"n":%d}' % (n % 5 if run != 1 else 0) for n in range(40)]
        rows = [Event(T, KEYS[1 + n % 2], value) for n, value in enumerate(values)]
        made.run(placed(rows, 2), shape)
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        found = as_written(tables(reader, reader.partitions(start, end)))
        assert bool(found) == (run != 1)
        start, seen = end, seen + found
    asked = {"keys": [b"a"], "where": {"n": [1, 3]}}
    right = [
        r for r in made.records() if r.key == b"a" and json.loads(r.value or b"")["n"] in (1, 3)
    ]
    assert sorted(seen) == right, asked


def test_a_stream_finds_fields_of_csv(tmp_path: Path) -> None:
    made = LakeMaker(tmp_path / "lake")
    made.run({0: []})
    alter(str(made.root), "events", {"value.format": "csv", "value.columns": ["n", "word"]})
    options = {"startingOffsets": "earliest", "where": '{"n":[1,3]}', "fields": "n:int32,word"}
    reader = SparkStreamReader(Options({"path": str(made.root), "subscribe": "events", **options}))
    start, seen = dict[str, Any](), list[dict[str, Any]]()
    for run in range(2):
        made.run({0: [Event(T, None, b'%d,"%d, %d"' % (n, run, n)) for n in range(5)]})
        end = reader.latestOffset(start, reader.getDefaultReadLimit())
        for table in tables(reader, reader.partitions(start, end)):
            seen += table.select(["n", "word"]).to_pylist()
        start = end
    assert seen == [{"n": n, "word": f"{run}, {n}"} for run in range(2) for n in (1, 3)]


def test_keys_are_not_shown(maker: LakeMaker) -> None:
    options = Options({"path": str(maker.root), "subscribe": "events", "key": "secret"})
    assert "secret" not in repr(options)
    assert b"secret" in pickle.dumps(options)  # tasks compare it


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"key": ""}, "option key: a key is empty. For records with an empty key, write base64:"),
        ({"key": "base64:?"}, "option key: a key is not base64"),
        ({"key": "a", "keys": '["b"]'}, "option key contradicts option keys. Put all keys"),
        ({"keys": "a,b"}, r'option keys must be JSON such as \["ann","base64:AAE="\], not \'a,b\''),
        ({"keys": "[1]"}, "option keys must be JSON such as"),
        ({"keys": '{"a":1}'}, "option keys must be JSON such as"),
        ({"keys": '["\\ud800"]'}, "option keys must be JSON such as"),
        ({"keys": '[""]'}, "option keys: a key is empty"),
        ({"keys": "[" * 100_000}, "option keys must be JSON such as"),
        ({"where": "status=500"}, 'option where must be JSON such as {"status":'),
        ({"where": "[1]"}, "option where must be JSON such as"),
        ({"where": '{"a":NaN}'}, "option where must be JSON such as"),
        ({"where": '{"a":1e99999999999999999999}'}, "option where must be JSON such as"),
        ({"where": "{}"}, "option where has no condition"),
        ({"where": '{"a":1,"a":2}'}, "option where has 'a' twice. Give it a list of values"),
        ({"where": '{"a":{"b":1}}'}, "option where: 'a' is compared with"),
        ({"where": '{"a":[]}'}, "option where: 'a' has no values to compare with"),
        ({"headers": '{"a":1}'}, "option headers: header 'a' is compared with 1"),
        ({"headers": "tenant=acme"}, 'option headers must be JSON such as {"tenant":"acme"}'),
    ],
)
def test_wrong_options_are_named(options: dict[str, str], words: str) -> None:
    with pytest.raises(UsageError, match=words) as caught:
        Options({"path": "lake", "subscribe": "events", **options})
    assert len(str(caught.value)) < 300
