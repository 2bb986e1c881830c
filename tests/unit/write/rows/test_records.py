"""From rows to records: every reason to reject one, keys, values, headers, partitions."""

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.write.rows.rows import Reason
from tests.makers.files import Reject, Row, read_bytes

TIME = {"field": "t", "format": "epoch_ms"}
BEFORE_1970 = Reason.TIMESTAMP_BEFORE_1970.text
PARTITIONED: dict[str, Any] = {"topic": {"partition_field": "p", "partitions": 3}}


def rejects(line: str | bytes, form: str = "jsonl", **tables: Any) -> list[tuple[str, bytes]]:
    data = line if isinstance(line, bytes) else line.encode()
    return [(reject.reason, reject.raw) for reject in read_bytes(data, form, **tables).rejects]


@pytest.mark.parametrize(
    ("line", "tables", "reason"),
    [
        ("{", {}, "not parseable"),
        (b'{"a":"\xff"}', {}, "invalid UTF-8"),
        (
            '{"a":"%s"}' % ("x" * 100),
            {"topic": {"max.message.bytes": 150, "batch.size": 99}},
            "record too large",
        ),
        ("{}", {"timestamp": TIME}, "timestamp missing"),
        ('{"t":null}', {"timestamp": TIME}, "timestamp missing"),
        ('{"t":"now"}', {"timestamp": TIME}, "timestamp unreadable"),
        ('{"t":[1]}', {"timestamp": TIME}, "timestamp unreadable"),
        ('{"t":-1}', {"timestamp": TIME}, BEFORE_1970),
        ('{"t":"1969-12-31T23:59:59Z"}', {"timestamp": {**TIME, "format": "iso8601"}}, BEFORE_1970),
        ('{"t":253402300800000}', {"timestamp": TIME}, "timestamp out of range"),
        ("{}", {"key": {"fields": ["k"], "required": True}}, "key missing"),
        ('{"k":null}', {"key": {"fields": ["k"], "required": True}}, "key missing"),
        ("{}", PARTITIONED, "partition out of range"),
        ('{"p":3}', PARTITIONED, "partition out of range"),
        ('{"p":-1}', PARTITIONED, "partition out of range"),
        ('{"p":1.0}', PARTITIONED, "partition out of range"),
        ('{"p":1e999}', PARTITIONED, "partition out of range"),
    ],
)
def test_reasons(line: str | bytes, tables: dict[str, Any], reason: str) -> None:
    raw = line if isinstance(line, bytes) else line.encode()
    assert rejects(line, **tables) == [(reason, raw)]


def test_rejected_rows_are_cut_off_at_64_kib() -> None:
    assert rejects("x" * 100_000) == [("not parseable", b"x" * 65_536)]


def test_good_rows_stay_in_order_among_bad_ones() -> None:
    data = b"".join(b'{"t":%d,"k":"%d"}\n' % (100 - k, k) if k % 3 else b"bad\n" for k in range(30))
    found = read_bytes(data, timestamp=TIME, key={"fields": ["k"]}, headers={"fields": ["t"]})
    good = [k for k in range(30) if k % 3]
    assert [(row.key, row.timestamp) for row in found.rows] == [(b"%d" % k, 100 - k) for k in good]
    assert [row.headers for row in found.rows] == [((b"t", b"%d" % (100 - k)),) for k in good]
    assert [reject.line for reject in found.rejects] == list(range(0, 30, 3))


def test_a_list_of_key_fields_is_the_first_that_is_not_null() -> None:
    rows = [{"after": {"id": 1}}, {"before": {"id": 2}, "after": None}, {"after": {"id": None}}, {}]
    rows.append({"before": {"id": 3}, "after": {"id": 4}})
    data = "".join(f"{json.dumps(row)}\n" for row in rows).encode()
    key: dict[str, Any] = {"fields": [["after.id", "before.id"]]}
    assert [row.key for row in read_bytes(data, key=key).rows] == [b"1", b"2", None, None, b"4"]
    required = read_bytes(data, key={**key, "required": True})
    assert [reject.line for reject in required.rejects] == [2, 3]
    with_other = {"fields": ["x", ["y", "z"]], "separator": "|"}
    cells = read_bytes(b"x,y,z\n1,,3\n1,2,3\n1,,\n", "csv", key=with_other)
    assert [row.key for row in cells.rows] == [b"1|3", b"1|2", None]


def test_keys_of_several_fields() -> None:
    data = b'{"a":"x","b":1}\n{"a":"x"}\n{"a":"","b":"\\u0041"}'
    found = read_bytes(data, key={"fields": ["a", "b"]})
    assert [row.key for row in found.rows] == [b"x\x001", None, b"\x00A"]
    other = read_bytes(data, key={"fields": ["b", "a"], "separator": "é|"})
    assert [row.key for row in other.rows] == ["1é|x".encode(), None, "Aé|".encode()]
    assert [row.key for row in read_bytes(data).rows] == [None] * 3


def test_values() -> None:
    data = b'{"a":"x\\n","n":{"b":[1, 2]}}'
    assert read_bytes(data, value={"from": "field", "field": "a"}).rows == [Row(-1, None, b"x\n")]
    columns = {"from": "columns", "columns": ["n.b", "a", "none"]}
    wanted = b'{"n.b":[1, 2],"a":"x\\n","none":null}'
    assert read_bytes(data, value=columns).rows == [Row(-1, None, wanted)]
    assert read_bytes(b"{}", value={"from": "field", "field": "a"}).rows == [Row(-1, None, None)]


def test_headers() -> None:
    data = b'{"a":"x\\ty","b":null}\n\n{"a":1}'
    found = read_bytes(data, headers={"fields": ["a", "b"], "source": True})
    for row, (value, line) in zip(found.rows, [(b"x\ty", b"1"), (b"1", b"3")], strict=True):
        names, values = zip(*row.headers, strict=True)
        assert names == (b"a", b"b", b"seglake.source.file", b"seglake.source.line")
        assert values[:2] == (value, None)
        assert str(values[2]).endswith("/file'")
        assert values[3] == line


def test_partitions_from_a_field() -> None:
    data = b'{"p":0}\n{"p":7}\n{"p":"2"}\n{"p":1}'
    found = read_bytes(data, **PARTITIONED)
    assert found.partitions == [0, 2, 1]
    assert found.rejects == [Reject(1, "partition out of range", b'{"p":7}')]


@given(st.integers(0, 60), st.integers(0, 30), st.integers(100, 220))
def test_the_bound_on_records(key: int, header: int, bound: int) -> None:
    """The sum that the settings page names: 82, 5 for each length, and the bytes."""
    line = b'{"k":"%s","h":"%s"}' % (b"k" * key, b"h" * header)
    topic = {"max.message.bytes": bound, "batch.size": 1}
    found = read_bytes(line, key={"fields": ["k"]}, headers={"fields": ["h"]}, topic=topic)
    size = 82 + 5 + key + 5 + len(line) + 5 + 1 + 5 + header
    assert len(found.rejects) == (size > bound)


def test_without_a_timestamp_field_the_clock_of_the_run_is_meant() -> None:
    assert [row.timestamp for row in read_bytes(b"{}\n{}").rows] == [-1, -1]


ALL: dict[str, Any] = {
    "topic": {"partition_field": "p", "partitions": 3, "max.message.bytes": 250, "batch.size": 99},
    "timestamp": TIME,
    "key": {"fields": ["k"], "required": True},
}
FLAWS: list[
    tuple[str, dict[str, object]]
] = [  # in the order of Reason; each member is wrong in one way
    ("record too large", {"x": "x" * 200}),
    ("timestamp missing", {"t": None}),
    ("timestamp unreadable", {"t": "soon"}),
    ("timestamp out of range", {"t": 253402300800000}),
    ("key missing", {"k": None}),
    ("partition out of range", {"p": 9}),
    (BEFORE_1970, {"t": -1}),
]


@given(st.lists(st.sampled_from(range(len(FLAWS))), min_size=1, unique=True))
def test_of_several_reasons_the_first_in_their_order_counts(chosen: list[int]) -> None:
    row: dict[str, object] = {"t": 1, "k": "a", "p": 0}
    for at in sorted(chosen, reverse=True):
        row |= FLAWS[at][1]
    assert [reason for reason, _ in rejects(json.dumps(row), **ALL)] == [FLAWS[min(chosen)][0]]
