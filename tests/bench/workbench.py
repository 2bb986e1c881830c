"""What the parts of the benchmark share, made when first needed: events, lakes, Spark, a broker."""

from __future__ import annotations

import os
import shutil
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from itertools import count
from pathlib import Path
from typing import TYPE_CHECKING, Any
from unittest.mock import patch

import seglake
from seglake.cached import cached_property
from seglake.config import Pipeline
from seglake.engine import Engine, SparkEngine
from seglake.session import spark_session
from seglake.write.driver.run import DeclaredRun, ingest_files
from tests.bench import writers
from tests.bench.events import Events, generate
from tests.bench.measure import say
from tests.bench.wire import Wire, wire
from tests.harness.jars import delta_settings
from tests.harness.s3_server import BUCKET, NoServerError, Server, environment, s3_server
from tests.judges.kafka_broker import Broker
from tests.judges.kafka_judge import Kafka

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

    from seglake.read.log import Log

HERE = Path(__file__).parent
TOPIC = "events"


@dataclass(frozen=True)
class Sizes:
    """The options of a run."""

    events: int = 4_000_000
    partitions: int = 4
    files: int = 16
    lateness_ms: int = 2000
    runs: int = 3
    lookups: int = 2000
    windows: int = 20
    latency_ms: int = 5  # of every request to the object store
    seed: int = 1  # of the order of the contenders


class Remote:
    """An S3 server behind a wire of some ms, which the environment names, and a slower one."""

    slow_ms = 40

    def __init__(self, server: Server, wire: Wire, slow: Wire) -> None:
        self.server, self.wire, self.slow = server, wire, slow
        self._numbers = count()

    def uri(self, name: str) -> str:
        """The URI of a prefix."""
        return f"s3://{BUCKET}/{name}"

    def fresh(self, name: str) -> str:
        """The URI of a prefix that has nothing yet; what others of this name had is removed."""
        for path in (self.server.folder / BUCKET).glob(f"fresh-{name}-*"):
            shutil.rmtree(path)
        return self.uri(f"fresh-{name}-{next(self._numbers)}")


class TunedBroker(Broker):
    """A broker whose JVM is set up for work, not for a quick start."""

    java_options = (
        "-Xms1g",
        "-Xmx1g",
        "-XX:+UseG1GC",
        "-Dorg.slf4j.simpleLogger.defaultLogLevel=warn",
    )


class Workbench:
    """Everything under one folder, which the caller removes. Close it when done.

    `engine` ingests for the parts that do not measure ingest; by default it is Spark's.
    """

    def __init__(self, sizes: Sizes, folder: Path, engine: Engine | None = None) -> None:
        self.sizes, self.folder = sizes, folder
        self.skipped: list[str] = []
        self._engine, self._stack = engine, ExitStack()
        self._lakes: dict[str, str] = {}

    def __enter__(self) -> Workbench:
        return self

    def __exit__(self, *_: object) -> None:
        self._stack.close()

    # events and lakes

    @cached_property
    def events(self) -> Events:
        """The events of this run."""
        sizes = self.sizes
        say(f"generating {sizes.events:,} events")
        return generate(
            self.folder / "events", events=sizes.events, files=sizes.files,
            lateness_ms=sizes.lateness_ms,
        )  # fmt: skip

    def pipeline(self, root: str, order: str, files: list[Path], **topic: object) -> Pipeline:
        """Settings that ingest `files`; "_" in a topic setting's name stands for Kafka's dot."""
        dotted = {name.replace("_", "."): value for name, value in topic.items()}
        return Pipeline.model_validate({
            "name": "bench", "root": root, "order": order,
            "input": {"paths": [str(path) for path in files], "format": "jsonl"},
            "timestamp": {"field": "ts", "format": "epoch_ms"},
            "key": {"fields": ["user"]},
            "topic": {"name": TOPIC, "partitions": self.sizes.partitions, **dotted},
        })  # fmt: skip

    def lake(self, order: str, **topic: object) -> str:
        """The root of a lake with all events; ingested when first asked for."""
        chosen = self.events
        name = "-".join(["lake", order, *map(str, topic)])
        if name not in self._lakes:
            root = str(self.folder / name)
            say(f"ingesting {len(chosen.times):,} events in order of {order}")
            records = self.ingest(self.pipeline(root, order, chosen.files, **topic))
            require(records == len(chosen.times), "an ingest lost records")
            self._lakes[name] = root
        return self._lakes[name]

    def ingest(self, pipeline: Pipeline, run_id: str = "bench") -> int:
        """Run a pipeline on the engine of this bench; the number of its records."""
        engine = self._engine or SparkEngine(self.spark)
        return ingest_files(engine, pipeline, DeclaredRun(run_id)).records

    def log(self, order: str) -> Log:
        """The log of such a lake, opened anew: nothing is cached."""
        return seglake.open(self.lake(order)).topic(TOPIC)

    def scratch(self, name: str) -> Path:
        """A path where nothing is."""
        path = self.folder / name
        shutil.rmtree(path, ignore_errors=True)
        path.unlink(missing_ok=True)
        return path

    # engines of others

    @cached_property
    def spark(self) -> SparkSession:
        """A local session with Delta's jars."""
        _ = self.remote  # its place and keys must be in the environment of Spark's workers
        say("starting Spark")
        conf = {
            **delta_settings(), "spark.ui.enabled": "false", "spark.driver.memory": "4g",
            "spark.sql.warehouse.dir": str(self.folder / "warehouse"),
        }  # fmt: skip
        session = spark_session("seglake-bench", conf=conf)
        self._stack.callback(session.stop)
        return session

    @cached_property
    def remote(self) -> Remote | None:
        """An object store, if there is a server; from then on the environment names it."""
        folder = self.folder / "remote"
        folder.mkdir(parents=True)
        try:
            server = self._stack.enter_context(s3_server(folder))
        except NoServerError as reason:
            self.skipped.append(f"The object store: {reason}")
            return None
        wires = [
            self._stack.enter_context(wire(server.endpoint, delay_ms))
            for delay_ms in (self.sizes.latency_ms, Remote.slow_ms)
        ]
        place = environment(server) | {"AWS_ENDPOINT_URL": wires[0].endpoint}
        self._stack.enter_context(patch.dict(os.environ, place))
        return Remote(server, *wires)

    @cached_property
    def kafka(self) -> Kafka:
        """Kafka's classes in a JVM of their own."""
        return self._stack.enter_context(Kafka())

    def timing(self) -> Any:
        """A new instance of Timing.java."""
        return self.kafka.instance("Timing", HERE)

    @cached_property
    def broker(self) -> Broker:
        """A broker that serves what `order = "arrival"` wrote, indexes and all."""
        logs = {(TOPIC, p): self.partition_folder(p) for p in range(self.sizes.partitions)}
        say("starting a broker on the segments")
        served = TunedBroker.serve(self.kafka, self.folder / "broker", logs)
        return self._stack.enter_context(served)

    def consumer(self, fetch_bytes: int) -> Any:
        """A Timing whose consumer is connected to the broker."""
        timing = self.timing()
        timing.connect(self.broker.address, TOPIC, self.sizes.partitions, fetch_bytes)
        self._stack.callback(timing.disconnect)
        return timing

    def partition_folder(self, partition: int) -> Path:
        """Links to the segments of a partition, in order of arrival, in one folder as Kafka's."""
        folder = self.folder / "partitions" / str(partition)
        if not folder.exists():
            folder.mkdir(parents=True)
            found = Path(self.lake("arrival"), "topics").glob(f"{TOPIC}-{partition}/*/*")
            for path in found:
                if path.suffix in (".log", ".index", ".timeindex"):
                    (folder / path.name).symlink_to(path)
        return folder

    # the sorted Parquet file and the Delta table, for reading

    @cached_property
    def parquet(self) -> Path:
        """All events as Parquet sorted by time, in row groups of 8192: best for short windows."""
        path = self.scratch("sorted.parquet")
        say("writing the sorted Parquet file")
        writers.duckdb_parquet(self.events.files, path, row_group_size=8192)
        return path

    @cached_property
    def delta_by_time(self) -> Path:
        """All events as a Delta table whose files follow each other in time."""
        path = self.scratch("delta-by-time")
        say("writing the Delta table that is laid out by time")
        with adaptive(self.spark):
            writers.spark_delta_by_time(self.spark, self.events.files, path, self.sizes.files)
        return path

    @cached_property
    def delta(self) -> Path:
        """All events as a Delta table, hash-partitioned and sorted by time."""
        path = self.scratch("delta")
        say("writing the Delta table")
        writers.spark_delta_line(self.spark, self.events.files, path, self.sizes.partitions)
        return path


@contextmanager
def adaptive(spark: SparkSession) -> Iterator[None]:
    """Adaptive execution as Spark comes with it; sessions of Seglake have it off."""
    name = "spark.sql.adaptive.enabled"
    before = spark.conf.get(name) or "false"
    spark.conf.set(name, "true")
    try:
        yield
    finally:
        spark.conf.set(name, before)


def require(holds: bool, otherwise: str) -> None:
    """Stop the benchmark where a contender's result is wrong: its time would mean nothing."""
    if not holds:
        raise AssertionError(otherwise)
