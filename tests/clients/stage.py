"""What every client family reads: two lakes behind servers, and what must come of a read.

One lake is a broker's, imported; the other is ours. What must come is what the library reads.
"""

import signal
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import trustme

import seglake
from seglake.cached import cached_property
from seglake.kafka.importing import import_logs
from tests.clients.program import Program, Record, checksum
from tests.harness.lake_server import Wire
from tests.harness.server_process import ServerProcess
from tests.judges.kafka_judge import Kafka
from tests.judges.oracle import as_written
from tests.makers import broker_logs
from tests.makers.fetches import LATEST, offset_at
from tests.makers.gaps import lossy_lake
from tests.makers.lakes import LakeMaker, Shape
from tests.makers.served import CODECS, SPAN_MS, T, events, rich_lake, time_name
from tests.makers.strategies import T as BROKER_T

MECHANISMS = ("PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512")
USER, PASSWORD = "alice", "open sesame"
OURS = "events"
PLAIN = "plain"  # as OURS, but every header has a value
LOSSY = ("some", "tail", "headers", "emptied")
CLEANED = ("compacted", "compacted.transactions")


class Window(NamedTuple):
    """A part of a topic that a client asks for by name."""

    topic: str
    start: int
    end: int

    @property
    def name(self) -> str:
        """The topic that it is."""
        return f"{self.topic}.{time_name(self.start)}.{time_name(self.end)}"


OUR_WINDOWS = [Window(topic, T + 1234, T + 2 * SPAN_MS + 995) for topic in (OURS, PLAIN)]
THEIR_WINDOW = Window("transactions", BROKER_T + 100, BROKER_T + 390)
TAG = "half"


class Version(NamedTuple):
    """A topic as a version or a tag of the lake has it, that a client asks for by name."""

    topic: str
    version: int | str

    @property
    def name(self) -> str:
        """The topic that it is."""
        prefix = "v" if isinstance(self.version, int) else ""
        return f"{self.topic}.{prefix}{self.version}"


OUR_VERSIONS = [Version(OURS, 3), Version(PLAIN, 7)]
OUR_TAGS = [Version(OURS, TAG), Version(PLAIN, TAG)]


class Served:
    """A lake behind a server of its own, as the library reads it."""

    def __init__(self, root: Path, server: ServerProcess) -> None:
        self.root, self.server = root, server
        self._read: dict[tuple[str, int | str | None], dict[int, list[Record]]] = {}

    @property
    def address(self) -> str:
        """Where it serves."""
        return str(self.server.address)

    def restart(self) -> None:
        """Kill the server, and start it again."""
        self.server.stop(signal.SIGKILL)
        self.server.start()

    def topics(self) -> dict[str, int]:
        """Those of the lake, and how many partitions they have."""
        lake = seglake.open(str(self.root))
        return {name: len(lake.topic(name).partitions()) for name in lake.topics()}

    def stamps(self, topic: str) -> bool:
        """Whether the times of its records are those of appending."""
        log = seglake.open(str(self.root)).topic(topic)
        return log.settings.timestamp_type == "LogAppendTime"

    def records(self, topic: str, version: int | str | None = None) -> dict[int, list[Record]]:
        """By partition, of a topic of the lake, in its newest or another version."""
        if (topic, version) not in self._read:
            log = seglake.open(str(self.root), version=version).topic(topic)
            starts, ends = log.beginning_offsets(), log.end_offsets()
            bounds = {p: (starts[p], ends[p]) for p in log.partitions()}
            table = log.plan_offsets(bounds).execute().read_all()
            self._read[topic, version] = by_partition(table, log.partitions())
        return self._read[topic, version]

    def window(self, window: Window) -> dict[int, list[Record]]:
        """By partition, those of a window."""
        log = seglake.open(str(self.root)).topic(window.topic)
        table = log.read_range(window.start, window.end).read_all()
        return by_partition(table, log.partitions())

    def ends(self, name: str, partitions: int) -> dict[int, int]:
        """The ends of any topic, as the server tells them."""
        with Wire(self.server.address) as wire:
            return {p: offset_at(wire, name, p, LATEST)[1] for p in range(partitions)}


def by_partition(table: pa.Table, partitions: list[int]) -> dict[int, list[Record]]:
    """The records of a table of the library."""
    found: dict[int, list[Record]] = {p: [] for p in partitions}
    for r in as_written(table):
        found[r.partition].append(Record(r.offset, r.timestamp, r.key, r.value, tuple(r.headers)))
    return found


def told(program: Program, records: dict[int, list[Record]]) -> dict[str, list[Any]]:
    """What a program answers that reads these."""
    shown = {p: [program.seen(each) for each in some] for p, some in records.items()}
    return {str(p): [len(some), checksum(some)] for p, some in shown.items()}


class Stage:
    """The lakes behind their servers, and one with users; each is made when it is first asked."""

    def __init__(self, folder: Path, stack: ExitStack) -> None:
        self._folder, self._stack = folder, stack

    @cached_property
    def ours(self) -> Served:
        """Five codecs, gaps, nulls, headers, an empty partition; a tag before the last runs."""
        maker = rich_lake(self._folder / "ours", OURS)
        add_plain(maker)
        seglake.tag(str(maker.root), TAG, maker.versions[-2])
        return self._served("ours", maker.root)

    @cached_property
    def theirs(self) -> Served:
        """What a broker wrote."""
        root = self._folder / "theirs"
        with Kafka() as kafka:
            written = write_logs(kafka, self._folder / "broker")
        import_logs(str(root), [str(written)])
        return self._served("theirs", root)

    @cached_property
    def lossy(self) -> Served:
        """Logs that lost records, each in a way of its own."""
        lossy_lake(self._folder / "lossy")
        return self._served("lossy", self._folder / "lossy")

    @cached_property
    def closed(self) -> Served:
        """Our lake, for users alone, over TLS."""
        folder = self._folder / "closed"
        folder.mkdir()
        authority = trustme.CA()
        authority.cert_pem.write_to_path(str(self.ca))
        issued = authority.issue_cert("127.0.0.1", "localhost")
        issued.private_key_and_cert_chain_pem.write_to_path(str(folder / "both.pem"))
        users = folder / "users"
        users.write_text(f"{USER}:{PASSWORD}\n")
        users.chmod(0o600)
        settings = (
            f'[tls]\ncertificate = "{folder}/both.pem"\nkey = "{folder}/both.pem"\n'
            f'[sasl]\nusers = "{users}"\n"sasl.enabled.mechanisms" = {list(MECHANISMS)}\n'
        )
        return self._served("closed", self.ours.root, settings)

    @property
    def ca(self) -> Path:
        """The certificate of who signed the server's."""
        return self._folder / "ca.pem"

    def _served(self, name: str, root: Path, settings: str = "") -> Served:
        folder = self._folder / f"{name} server"
        folder.mkdir()
        server = self._stack.enter_context(ServerProcess(root, folder, settings=settings))
        return Served(root, server)


@contextmanager
def staged(folder: Path) -> Iterator[Stage]:
    """A stage whose servers end with it."""
    with ExitStack() as stack:
        yield Stage(folder, stack)


def add_plain(maker: LakeMaker) -> None:
    """A topic that no client refuses."""
    maker.topic = PLAIN
    for number, codec in enumerate(CODECS):
        rows = [
            event._replace(headers=tuple(each for each in event.headers if each[1] is not None))
            for event in events(number)
        ]
        maker.run({0: rows[:50], 1: rows[50:]}, Shape(codec, batch_bytes=700, segment_bytes=5000))


def write_logs(kafka: Kafka, folder: Path) -> Path:
    """A stopped broker's log.dir, cleaned, some records deleted."""
    with broker_logs.begun(kafka, folder) as (broker, producers):
        broker_logs.write_all(producers, 1)
        waiting = broker_logs.write_open(producers, 3)
        producers.delete_records("deleted", 0, 33)
        broker_logs.await_cleaning(broker.folder, CLEANED, behind={})
        broker.stop()
        waiting.close()
        return broker.folder
