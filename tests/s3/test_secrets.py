"""Credentials are in the environment and nowhere else: everything that is written is searched."""

import io
import json
import logging
import pickle
import secrets
import traceback
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from pyspark import cloudpickle

import seglake
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.config import load
from seglake.engine import Item, LocalEngine, Result, Task
from seglake.errors import ConfigError, SeglakeError, StoreError
from seglake.store import open_store
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.harness.counting import CountingStore
from tests.harness.s3_server import BUCKET, REGION, Server
from tests.makers.lakes import create_catalog
from tests.makers.raw_events import TINY, Line, T, pipeline_of, read_lake, write_file
from tests.s3.proxy import Fault, Proxy
from tests.s3.test_flow import upload

TOKEN = "token" + secrets.token_hex(20)


@pytest.fixture
def hidden(server: Server) -> list[str]:
    """What must not be found anywhere."""
    return [server.secret_key, server.access_key, TOKEN]


def assert_hidden(text: str | bytes, hidden: list[str], where: str = "") -> None:
    found = text if isinstance(text, bytes) else text.encode()
    for secret in hidden:
        assert secret.encode() not in found, where


dumped: Callable[[Any], bytes] = cloudpickle.dumps


class PicklingEngine(LocalEngine):
    """Tasks go through the pickles in which Spark sends them; `sent` keeps those."""

    def __init__(self) -> None:
        super().__init__()
        self.sent: dict[str, bytes] = {}

    def map(self, task: Task[Item, Result], items: Sequence[Item]) -> list[Result]:
        sent = self.sent[type(task).__name__] = dumped((task, items))
        arrived_task, arrived = pickle.loads(sent)
        return super().map(arrived_task, arrived)


def texts(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file, and what is compressed in it."""
    for path in folder.rglob("*"):
        if path.is_file():
            yield str(path), path.read_bytes()
            if path.suffix == ".parquet":
                yield str(path), str(pq.read_table(io.BytesIO(path.read_bytes()))).encode()
                rows = pq.read_table(io.BytesIO(path.read_bytes())).to_pylist()
                yield str(path), json.dumps(rows, default=repr).encode()


def test_nothing_that_an_ingest_writes_sends_or_logs_has_keys(
    place: str,
    server: Server,
    hidden: list[str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
    capfd: pytest.CaptureFixture[str],
) -> None:
    caplog.set_level(logging.DEBUG)
    made = [Line(T + n * 37 % 100, "k", broken=None if n % 5 else "{") for n in range(100)]
    one, two = (write_file(tmp_path / name, made) for name in ("a.jsonl", "b.jsonl"))
    storage = {"endpoint": server.endpoint, "region": REGION, "allow_http": "true"}
    lake, engine, said = f"{place}/lake", PicklingEngine(), []
    mine, other = (
        pipeline_of(lake, upload(path, f"{place}/in"), storage=storage, task=TINY, name=path.stem)
        for path in (one, two)
    )

    def progress(step: str) -> None:
        """The other run commits first, so that this one has to move its segments."""
        said.append(step)
        if step == "commit":
            said.append(str(ingest_files(LocalEngine(), other, DeclaredRun("1"), said.append)))

    report = ingest_files(engine, mine, DeclaredRun("1"), progress)
    assert report.rebased == 1
    assert set(engine.sent) == {
        "MapUnits",
        "WritePieces",
        "Quarantine",
        "RebaseTask",
        "CountSpanningBlobs",
    }
    for name, sent in engine.sent.items():
        assert_hidden(sent, hidden, name)
    written = list(texts(server.folder / place.removeprefix("s3://")))
    assert {Path(path).suffix for path, _ in written} >= {".log", ".json", ".parquet", ".jsonl"}
    for path, content in written:
        assert_hidden(content, hidden, path)
    told = [report.as_json(), repr(report), *said, repr(mine), mine.model_dump_json()]
    told += [repr(seglake.open(lake).history()), caplog.text, "".join(capfd.readouterr())]
    for text in told:
        assert_hidden(text, hidden)
    assert "write segments" in said


def test_pickled_readers_have_no_keys_and_work(
    place: str, server: Server, hidden: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Keys that a caller gave as options stay with it: a worker has its own."""
    path = write_file(tmp_path / "a.jsonl", [Line(T + n) for n in range(20)])
    ingest_files(LocalEngine(), pipeline_of(place, path), DeclaredRun("1"))
    given = {
        "AWS_ACCESS_KEY_ID": server.access_key,
        "AWS_SECRET_ACCESS_KEY": server.secret_key,
        "endpoint": server.endpoint,
    }
    with monkeypatch.context() as without:
        without.delenv("AWS_ACCESS_KEY_ID")
        without.delenv("AWS_SECRET_ACCESS_KEY")
        store = open_store(place, given)
        lake = seglake.open(place, storage_options=given)
        log = lake.topic("events")
        assert sum(len(batch) for batch in log.read_range(0, 2 * T)) == 20
        values = [store, CountingStore(store).public_options, lake, log]
        sent = [dumps(value) for value in values for dumps in (pickle.dumps, cloudpickle.dumps)]
        described = [repr(value) + str(value) for value in (*values, CountingStore(store))]
    for text in [*sent, *described]:
        assert_hidden(text, hidden)
    arrived = pickle.loads(sent[-1])
    assert sum(len(batch) for batch in arrived.read_range(0, 2 * T)) == 20


def failures(root: str, options: dict[str, str]) -> Iterator[tuple[str, Callable[[], Any]]]:
    """Every way to ask storage for something, with what the error must name."""
    store = open_store(root, options)

    def stream() -> None:
        with store.writer("k") as writer:
            writer.write(bytes(2**20))

    yield f"{root}/k: ", lambda: store.size("k")
    yield f"{root}/k: ", lambda: store.read("k", 0, 1)
    yield f"{root}/k: ", lambda: store.read_ranges("k", [0], [1])
    yield f"{root}/k: ", lambda: store.read_all("k")
    yield f"{root}/k: ", lambda: store.put("k", b"x")
    yield f"{root}/k: ", lambda: store.put_if_absent("k", b"x")
    yield f"{root}/k: ", lambda: store.delete(["k"])
    yield f"{root}/k: ", stream
    yield f"{root}/f: ", lambda: list(store.list("f"))
    lake = f"{root}/lake"
    yield f"{lake}/catalog/log: ", lambda: create_catalog(lake, options)
    yield f"{lake}/catalog/log: ", lambda: seglake.open(lake, storage_options=options)
    made: list[Any] = [pa.table({})]
    yield (
        f"{lake}/catalog/quarantine/_delta_log: ",
        lambda: QuarantineTable(open_store(lake, options)).add_files(made, ""),
    )
    settings = pipeline_of(lake, f"{root}/in", storage=options)
    yield f"{lake}/catalog/log: ", lambda: ingest_files(LocalEngine(), settings, DeclaredRun("1"))


def assert_each_is_refused(
    root: str, options: dict[str, str], hidden: list[str], code: str
) -> None:
    for named, call in failures(root, options):
        with pytest.raises(StoreError) as caught:
            call()
        error = caught.value
        assert str(error).startswith(named)
        assert code in str(error) or "HEAD" in str(error)  # to that there is no answer to read
        printed = "".join(traceback.format_exception(error))
        for text in (str(error), repr(error), printed):
            assert_hidden(text, hidden, named)
        assert_hidden(pickle.dumps(error), hidden, named)
        assert "\n" not in str(error)
        assert len(str(error)) < 700


def test_a_wrong_key_is_an_error_that_names_the_object(
    place: str, server: Server, hidden: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    create_catalog(f"{place}/lake")
    wrong = "wrong" + secrets.token_hex(20)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", wrong)
    assert_each_is_refused(place, {}, [*hidden, wrong], "SignatureDoesNotMatch")


def test_an_expired_token_is_not_repeated(
    place: str, proxy: Proxy, hidden: list[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """S3 answers with the token itself, and with the headers of the request that it refused."""
    create_catalog(f"{place}/lake")
    monkeypatch.setenv("AWS_SESSION_TOKEN", TOKEN)
    proxy.choice = lambda _method, _path: Fault.REFUSED
    options = {"endpoint": proxy.endpoint}
    assert_each_is_refused(place, options, hidden, "The provided token has expired")


def test_an_error_of_a_task_has_no_keys_either(
    place: str, hidden: list[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    path = write_file(tmp_path / "a.jsonl", [Line(T)])
    settings = pipeline_of(f"{place}/lake", upload(path, f"{place}/in"))

    def progress(step: str) -> None:
        if step == "write segments":
            monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "wrong")

    with pytest.raises(StoreError, match=r"/blobs/.*SignatureDoesNotMatch") as caught:
        ingest_files(PicklingEngine(), settings, DeclaredRun("1"), progress)
    assert_hidden("".join(traceback.format_exception(caught.value)), hidden)
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", hidden[0])
    ingest_files(PicklingEngine(), settings, DeclaredRun("1"))
    assert sum(map(len, read_lake(f"{place}/lake").values())) == 1


@pytest.mark.parametrize(
    "line",
    [
        'storage.aws_secret_access_key = "{}"',
        'storage.AWS_SESSION_TOKEN = "{}"',
        'input.paths = ["s3://key:{}@bucket/in"]',
        'pipeline.root = "s3://key:{}@bucket/lake"',
    ],
)
def test_settings_with_a_secret_are_refused_without_repeating_it(tmp_path: Path, line: str) -> None:
    tables: dict[str, str] = {
        "pipeline.root": '"s3://bucket/lake"', "input.paths": '["in"]', "input.format": '"text"',
        "topic.name": '"events"', "value.from": '"line"',
    }  # fmt: skip
    name, _, value = line.format(TOKEN).partition(" = ")
    file = tmp_path / "web.toml"
    file.write_text("\n".join(f"{key} = {text}" for key, text in {**tables, name: value}.items()))
    with pytest.raises(ConfigError, match="environment") as caught:
        load(file)
    assert_hidden("".join(traceback.format_exception(caught.value)), [TOKEN])


def test_options_and_uris_with_a_secret_are_refused_without_repeating_it(server: Server) -> None:
    for uri, options in (
        (f"s3://key:{TOKEN}@{BUCKET}", {}),
        (f"s3://{BUCKET}", {"endpoint": f"http://key:{TOKEN}@127.0.0.1:1"}),
        (f"s3://{BUCKET}", {"aws_secret_acces_key": TOKEN}),
    ):
        with pytest.raises(SeglakeError) as caught:
            open_store(uri, options).size("k")
        assert isinstance(caught.value, ConfigError), caught.value
        assert_hidden("".join(traceback.format_exception(caught.value)), [TOKEN])
