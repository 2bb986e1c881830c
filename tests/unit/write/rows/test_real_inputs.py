"""The example pipelines on the real logs they are written for; nginx.toml on a few lines."""

import functools
from collections.abc import Callable
from datetime import UTC, datetime
from pathlib import Path

import pytest

from seglake.config import Pipeline, load
from tests.makers.files import Result, read

EXAMPLES = Path(__file__).parents[4] / "conf" / "examples"


def example(name: str, data_dir: Path, **overrides: object) -> Pipeline:
    file = EXAMPLES / f"{name}.toml"
    paths = [str(data_dir / path.removeprefix("data/")) for path in load(file).input.paths]
    return load(file, {"input.paths": paths, **overrides})


@pytest.fixture(scope="module")
def whole(data_dir: Path) -> Callable[[str], Result]:
    """What an example gives, read once."""
    return functools.cache(lambda name: read(example(name, data_dir)))


def span(found: Result) -> tuple[str, str]:
    times = [row.timestamp for row in found.rows]
    shown = [datetime.fromtimestamp(ms / 1000, UTC) for ms in (min(times), max(times))]
    return shown[0].isoformat(), shown[1].isoformat()


@pytest.mark.parametrize(
    ("name", "rows", "rejected", "first", "last"),
    [
        (
            "nginx-plus",
            500,
            0,
            "2015-10-30T23:58:19.322000+00:00",
            "2015-10-31T00:40:53.399000+00:00",
        ),
        ("apache", 10_000, 0, "2015-05-17T10:05:00+00:00", "2015-05-20T21:05:59+00:00"),
        ("auth", 7_121, 0, "2016-03-27T13:06:56+00:00", "2016-04-20T14:14:29+00:00"),
        pytest.param(
            "earthquakes",
            38_315,
            0,
            "2016-01-01T00:30:04.910000+00:00",
            "2016-11-14T12:02:14.650000+00:00",
            marks=pytest.mark.slow,
        ),
        (
            "kafka-brokers",
            22_164,
            0,
            "2016-12-19T15:31:46.143000+00:00",
            "2016-12-19T23:11:18.570000+00:00",
        ),
        pytest.param(
            "retail",
            95_054,
            0,
            "2010-12-01T08:26:00+00:00",
            "2011-02-18T17:24:00+00:00",
            marks=pytest.mark.slow,
        ),
    ],
)
def test_examples(
    name: str, rows: int, rejected: int, first: str, last: str, whole: Callable[[str], Result]
) -> None:
    found = whole(name)
    assert (len(found.rows), len(found.rejects)) == (rows, rejected)
    assert span(found) == (first, last)


@pytest.mark.parametrize("name", ["nginx-plus", "apache", "auth", "kafka-brokers"])
def test_cuts_and_chunks_change_nothing(
    name: str, data_dir: Path, whole: Callable[[str], Result]
) -> None:
    uncut = whole(name)
    tasks = {"task.split_bytes": 100_003, "task.chunk_bytes": 50_021}
    if name == "kafka-brokers":
        tasks["input.multiline_max_bytes"] = 20_000
    cut = read(example(name, data_dir, **tasks))
    assert cut.chunks > uncut.chunks
    assert cut.rows == uncut.rows
    assert cut.rejects == uncut.rejects


# As nginx writes them: a byte of a request that is no text is escaped, a user may have a blank.
NGINX = r"""
93.180.71.3 - - [17/May/2015:08:05:32 +0000] "GET /a/1 HTTP/1.1" 304 0 "-" "APT-HTTP/1.3 (0.8.16)"
2001:db8::7 - jo doe [17/May/2015:10:05:33 +0200] "GET /q?a=\x22[b]\x22 HTTP/2.0" 200 9 "-" "-"
10.0.0.9 - - [17/May/2015:08:05:34 +0000] "\x16\x03\x01" 400 157 "-" "-"
10.0.0.9 - - [17/May/2015:08:05:35 +0000] "" 408 0 "-" "-"
93.180.71.3 - - [17/May/2015:08:05:36 +0000] "GET /cut
"""


def test_an_access_log_of_nginx(tmp_path: Path) -> None:
    (tmp_path / "nginx").mkdir()
    (tmp_path / "nginx" / "access.log-20150518").write_text(NGINX[1:])
    found = read(example("nginx", tmp_path))
    lines = NGINX.encode().splitlines()[1:]
    assert [row.value for row in found.rows] == lines[:4]
    assert [row.timestamp - 1_431_849_932_000 for row in found.rows] == [0, 1_000, 2_000, 3_000]
    assert [row.key for row in found.rows] == [b"93.180.71.3", b"2001:db8::7", *[b"10.0.0.9"] * 2]
    assert [dict(row.headers)[b"status"] for row in found.rows] == [b"304", b"200", b"400", b"408"]
    assert [reject.raw for reject in found.rejects] == lines[4:]
