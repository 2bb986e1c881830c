"""Kafka's own classes as the independent judge of the files this project writes and reads.

A JVM with Kafka's jars is started once per test session and driven through py4j. The Java side is
`Judge.java`, compiled in memory by Janino (a jar of pyspark's), so that a Java runtime and pip are
all it takes. Whole batches, files and lists cross over as JSON text: a file of 100,000 records is
judged in a few seconds.

Nothing here knows the format: each answer is Kafka's, each refusal is raised as `KafkaError`
with the class and the message of Kafka's exception.
"""

from __future__ import annotations

import json
import re
import subprocess
from base64 import b64decode, b64encode
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, fields
from pathlib import Path
from typing import Any, NamedTuple

from py4j.java_gateway import GatewayParameters, JavaGateway, launch_gateway
from py4j.protocol import Py4JJavaError

from seglake.session import find_java
from tests.judges.kafka_jars import class_path, pyspark_jar

HERE = Path(__file__).parent
SEGMENT_INDEX_BYTES = 10 * 1024 * 1024  # the default of segment.index.bytes

Header = tuple[str, bytes | None]


class Record(NamedTuple):
    """One record: absolute offset, timestamp in ms, and bytes; null is None."""

    offset: int
    timestamp: int
    key: bytes | None
    value: bytes | None
    headers: tuple[Header, ...] = ()


@dataclass(frozen=True)
class Batch:
    """A record batch that Kafka is to build; the defaults are those of a plain producer.

    A batch without records and without `control` is the bare header that compaction leaves
    behind; it needs both offsets and `max_timestamp`. `control` is COMMIT or ABORT. Offsets left
    at -1 are those of the first and last record.
    """

    records: tuple[Record, ...] = ()
    codec: str = "none"
    timestamp_type: str = "CreateTime"
    append_time: int = -1  # under LogAppendTime
    base_offset: int = -1
    last_offset: int = -1
    max_timestamp: int = -1  # of a batch without records; otherwise Kafka computes it
    leader_epoch: int = 0
    producer_id: int = -1
    producer_epoch: int = -1
    base_sequence: int = -1
    transactional: bool = False
    control: str | None = None
    coordinator_epoch: int = 0  # of a control batch
    delete_horizon_ms: int = -1  # set by compaction on a batch that holds a tombstone
    magic: int = 2


@dataclass(frozen=True)
class StoredBatch:
    """A record batch as Kafka read it from a file. `count` is None for magic 0 and 1."""

    position: int
    size: int
    base_offset: int
    last_offset: int
    count: int | None
    max_timestamp: int
    magic: int
    codec: str
    timestamp_type: str
    leader_epoch: int
    producer_id: int
    producer_epoch: int
    base_sequence: int
    transactional: bool
    control: bool
    delete_horizon_ms: int  # -1: none
    crc: int
    records: tuple[Record, ...]


@dataclass(frozen=True)
class Dump:
    """What DumpLogSegments printed: parsed lines, and whatever it complained about."""

    batches: list[dict[str, str]]
    records: list[dict[str, str]]
    entries: list[dict[str, str]]  # of index files
    problems: list[str]


class KafkaError(Exception):
    """Kafka threw: `kind` is the simple name of its exception class."""

    def __init__(self, kind: str, message: str) -> None:
        super().__init__(f"{kind}: {message}")
        self.kind = kind
        self.message = message


class Kafka:
    """Kafka 4.2's classes in a JVM of their own. Close it, or use it in a `with` block."""

    def __init__(self) -> None:
        compiler = [pyspark_jar("janino"), pyspark_jar("commons-compiler")]
        port, token, self._process = launch_gateway(
            jarpath=str(pyspark_jar("py4j")),
            classpath=class_path(*compiler),
            javaopts=[
                "-Xmx1g",
                "-XX:TieredStopAtLevel=1",
                "-XX:+UseSerialGC",
                "-Dorg.slf4j.simpleLogger.defaultLogLevel=off",
            ],
            java_path=str(find_java()),
            die_on_exit=True,
            daemonize_redirect=True,
            enable_auth=True,
            return_proc=True,
        )
        self._gateway = JavaGateway(
            gateway_parameters=GatewayParameters(port=port, auth_token=token)
        )
        self._classes: dict[str, Any] = {}
        self._judge = self.instance("Judge")

    def __enter__(self) -> Kafka:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Ends the JVM."""
        self._gateway.shutdown()
        self._process.stdin.close()  # the JVM lives no longer than this pipe
        try:
            self._process.wait(10)
        except subprocess.TimeoutExpired:
            self._process.kill()

    def instance(self, name: str, folder: Path = HERE) -> Any:
        """A new instance of the class `name` of the Java source in `folder`."""
        if name not in self._classes:  # py4j remembers methods by class name: compile once
            compiler = self._gateway.jvm.org.codehaus.janino.SimpleCompiler()
            compiler.setTargetVersion(8)  # static methods of interfaces
            compiler.cook((folder / f"{name}.java").read_text())
            self._classes[name] = compiler.getClassLoader().loadClass(name)
        constructor = self._classes[name].getDeclaredConstructor(self._array("Class", []))
        return constructor.newInstance(self._array("Object", []))

    # ---------------------------------------------------------------- segments

    def write_segment(
        self,
        folder: Path,
        base_offset: int,
        batches: Iterable[Batch],
        *,
        index_interval_bytes: int = 4096,
        segment_index_bytes: int = SEGMENT_INDEX_BYTES,
    ) -> None:
        """Appends each batch with LogSegment.append to a new segment in `folder` and closes it."""
        text = json.dumps([_plain(batch) for batch in batches])
        self.call(
            "writeSegment", str(folder), base_offset, text, index_interval_bytes,
            segment_index_bytes,
        )  # fmt: skip

    def encode_batch(self, batch: Batch) -> bytes:
        """The bytes Kafka's MemoryRecordsBuilder makes of a batch."""
        return bytes(self.call("encodeBatch", json.dumps(_plain(batch))))

    def recover(self, folder: Path, base_offset: int, *, index_interval_bytes: int) -> int:
        """LogSegment.recover: checks every CRC, rebuilds the indexes in place.

        Returns the bytes it cut off the end of the log (0: all batches are valid).
        """
        cut = self.call(
            "recover", str(folder), base_offset, index_interval_bytes, SEGMENT_INDEX_BYTES
        )
        return int(cut)

    def read_batches(self, log: Path, *, records: bool = True) -> list[StoredBatch]:
        """All batches of a .log file, each checked with ensureValid, with their records.

        Bytes at the end which Kafka's iteration passes over in silence raise too.
        """
        found = json.loads(self.call("readBatches", str(log), records))
        return [_stored(batch) for batch in found]

    def read_records(self, log: Path) -> list[Record]:
        """The records of a .log file in file order, control records left out."""
        batches = self.read_batches(log)
        return [record for batch in batches if not batch.control for record in batch.records]

    # ---------------------------------------------------------------- lookups

    def find_by_timestamp(
        self,
        folder: Path,
        base_offset: int,
        timestamps: Sequence[int],
        *,
        starting_offset: int | None = None,
    ) -> list[tuple[int, int] | None]:
        """LogSegment.findOffsetByTimestamp for each: (record timestamp, offset), or None.

        `starting_offset` (the base offset if None) is what a broker gives as log start offset.
        The files are left as they are; all three must exist.
        """
        start = base_offset if starting_offset is None else starting_offset
        answer = self.call("findByTimestamp", str(folder), base_offset, _numbers(timestamps), start)
        return _pairs_or_none(answer)

    def find_by_offset(
        self, folder: Path, base_offset: int, offsets: Sequence[int]
    ) -> list[tuple[int, int] | None]:
        """LogSegment.translateOffset: (base offset, position) of the batch a read starts at."""
        return _pairs_or_none(
            self.call("findByOffset", str(folder), base_offset, _numbers(offsets))
        )

    def index_entries(
        self, index: Path, base_offset: int, asked: Sequence[int] | None = None
    ) -> list[tuple[int, int]]:
        """Entries: (offset, position) of an .index, (timestamp, offset) of a .timeindex.

        Returns all entries, or for each number in `asked` what the index's own `lookup` finds: the
        floor entry; without one, (base, 0) of an .index and (-1, base) of a .timeindex.
        """
        kind = "timeIndex" if index.suffix == ".timeindex" else "offsetIndex"
        numbers = None if asked is None else _numbers(asked)
        return _pairs(self.call(kind, str(index), base_offset, numbers))

    def sanity_check(self, *indexes: Path) -> None:
        """AbstractIndex.sanityCheck of each file; the base offset is taken from its name."""
        for index in indexes:
            self.call("sanityCheck", str(index), int(index.stem))

    # ---------------------------------------------------------------- DumpLogSegments

    def dump(self, *files: Path, verify: bool = True) -> Dump:
        """Runs DumpLogSegments on .log, .index and .timeindex files.

        It exits 0 whatever it finds, so its output is read: any line on standard error, an invalid
        batch or trailing bytes are problems. With `verify` problems are raised as
        KafkaError("DumpLogSegments"). Gaps between offsets are problems to it, and so is a batch
        that compaction emptied.
        """
        for file in files:
            file.stat()  # an index that is missing would be created
        arguments = ["--files", ",".join(map(str, files)), "--deep-iteration"]
        out, err = self.call("dump", self._array("String", arguments))
        dump = _parse_dump(out, err)
        if verify and dump.problems:
            raise KafkaError("DumpLogSegments", "\n".join(dump.problems))
        return dump

    # ---------------------------------------------------------------- hashes

    def murmur2(self, keys: Sequence[bytes]) -> list[int]:
        """Kafka's Utils.murmur2 of each key, a signed 32-bit number."""
        found: list[int] = json.loads(self.call("murmur2", json.dumps([_text(k) for k in keys])))
        return found

    def crc32c(self, data: bytes) -> int:
        """Kafka's CRC-32C, unsigned."""
        return int(self.call("crc32c", bytearray(data)))

    # ---------------------------------------------------------------- the bridge

    def call(self, method: str, *arguments: object, on: Any = None) -> Any:
        """A method of Judge, or of another compiled class; Java exceptions become KafkaError."""
        try:
            return getattr(on or self._judge, method)(*arguments)
        except Py4JJavaError as error:
            thrown = error.java_exception
            raise KafkaError(thrown.getClass().getSimpleName(), str(thrown.getMessage())) from error

    def _array(self, kind: str, items: list[str]) -> Any:
        array = self._gateway.new_array(getattr(self._gateway.jvm.java.lang, kind), len(items))
        for number, item in enumerate(items):
            array[number] = item
        return array


class JavaJudge:
    """An instance of one of the Java classes beside this module, which are its methods."""

    java_class: str

    def __init__(self, kafka: Kafka) -> None:
        self._kafka, self._java = kafka, kafka.instance(self.java_class)

    def call(self, method: str, *arguments: object) -> Any:
        """Call a method of the Java class."""
        return self._kafka.call(method, *arguments, on=self._java)


def _text(data: bytes | None) -> str | None:
    return None if data is None else b64encode(data).decode()


def _bytes(plain: str | dict[str, Any] | None) -> bytes | None:
    if isinstance(plain, dict):  # a long value of a golden file
        return b64decode(plain["repeat"]) * int(plain["times"])
    return None if plain is None else b64decode(plain)


def record_to_json(record: Record) -> list[Any]:
    """[offset, timestamp, key, value, [[header key, header value], …]], the bytes in base64."""
    headers = [[key, _text(value)] for key, value in record.headers]
    return [record.offset, record.timestamp, _text(record.key), _text(record.value), headers]


def record_from_json(plain: Sequence[Any]) -> Record:
    """The inverse of `record_to_json`."""
    offset, timestamp, key, value, headers = plain
    return Record(
        offset, timestamp, _bytes(key), _bytes(value), tuple((k, _bytes(v)) for k, v in headers)
    )


def _plain(batch: Batch) -> dict[str, Any]:
    first = batch.records[0].offset if batch.records else -1
    last = batch.records[-1].offset if batch.records else batch.base_offset
    plain = {field.name: getattr(batch, field.name) for field in fields(batch)}
    plain["records"] = [record_to_json(record) for record in batch.records]
    plain["base_offset"] = first if batch.base_offset < 0 else batch.base_offset
    plain["last_offset"] = last if batch.last_offset < 0 else batch.last_offset
    return plain


def _stored(plain: dict[str, Any]) -> StoredBatch:
    records = tuple(record_from_json(record) for record in plain.pop("records"))
    return StoredBatch(**plain, records=records)


def batch_to_json(batch: StoredBatch) -> dict[str, Any]:
    """A stored batch with its records as plain JSON values."""
    plain = asdict(batch)
    plain["records"] = [record_to_json(record) for record in batch.records]
    return plain


def _numbers(values: Sequence[int]) -> str:
    return json.dumps([int(value) for value in values])


def _pairs(text: str) -> list[tuple[int, int]]:
    return [(first, second) for first, second in json.loads(text)]


def _pairs_or_none(text: str) -> list[tuple[int, int] | None]:
    return [None if pair is None else (pair[0], pair[1]) for pair in json.loads(text)]


_FIELD = re.compile(r"(\w+): (\S+)")


def _parse_dump(out: str, err: str) -> Dump:
    dump = Dump([], [], [], [line for line in err.splitlines() if line.strip()])
    for line in out.splitlines():
        found = dict(_FIELD.findall(line))
        if line.startswith("| offset: "):
            dump.records.append(found)
        elif line.startswith("baseOffset: ") or "magic" in found:
            dump.batches.append(found)
        elif line.startswith(("offset: ", "timestamp: ")):
            dump.entries.append(found)
        if found.get("isvalid") == "false" or line.startswith(("Found ", "Mismatches ")):
            dump.problems.append(line)
    return dump
