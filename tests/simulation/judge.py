"""Whether a lake, as its readers see it, is what the model has."""

import json
import struct
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

import pyarrow as pa

import seglake
from seglake.catalog.quarantine.open_rejects import open_attempts
from seglake.catalog.quarantine.table import QuarantineTable
from seglake.catalog.table import CatalogTable
from seglake.read.lake import Lake
from tests.simulation import stage
from tests.simulation.deeds import LAKE
from tests.simulation.model import EVENTS, Record, State, Wrong
from tests.simulation.storage import Object

COLUMNS = ["partition", "offset", "timestamp", "key", "value"]


class Broken(Wrong):
    """Something that must not be; `kind` is the same for one fault, whatever the history."""

    def __init__(self, kind: str, what: str) -> None:
        super().__init__(f"{kind}: {what}")
        self.kind = kind


def seen(
    lake: Lake, topic: str
) -> tuple[dict[tuple[int, int], Record], dict[int, int], dict[int, int]]:
    """All records of a topic, and its bounds, as a reader finds them."""
    log = lake.topic(topic)
    starts, ends = log.beginning_offsets(), log.end_offsets()
    found: dict[tuple[int, int], Record] = {}
    plan = log.plan_offsets({p: (starts[p], ends[p]) for p in ends}, columns=COLUMNS)
    for batch in plan.execute():
        for place, record in records_of(batch):
            if place in found:
                raise Broken("offset twice", f"{topic} has {place} twice")
            found[place] = record
    return found, starts, ends


def records_of(batch: pa.RecordBatch) -> Iterator[tuple[tuple[int, int], Record]]:
    """The place, (partition, offset), and the record of each row."""
    times = batch["timestamp"].cast(pa.int64()).to_pylist()
    columns = [times if n == "timestamp" else batch[n].to_pylist() for n in COLUMNS]
    for partition, offset, *rest in zip(*columns, strict=True):
        yield (partition, offset), Record(*rest)


def require_same(lake: Lake, state: State) -> None:
    """Raise Broken unless a version of the lake holds what the model has."""
    topics = [topic for topic, ends in state.ends.items() if ends]
    if lake.topics() != sorted(topics):
        raise Broken("topics", f"{lake.topics()} in the lake, {topics} by right")
    for topic in topics:
        records, starts, ends = seen(lake, topic)
        wanted = state.records[topic]
        if lost := wanted.keys() - records.keys():
            raise Broken("lost", f"version {lake.version} of {topic} lacks {sorted(lost)[:4]}")
        if more := records.keys() - wanted.keys():
            told = {place: records[place] for place in sorted(more)[:4]}
            raise Broken("more", f"version {lake.version} of {topic} also has {told}")
        if wrong := [place for place in wanted if wanted[place] != records[place]]:
            place = wrong[0]
            raise Broken("other", f"{topic} {place} is {records[place]}, not {wanted[place]}")
        if (starts, ends) != (dict(state.starts[topic]), dict(state.ends[topic])):
            bounds = (state.starts[topic], state.ends[topic])
            raise Broken("bounds", f"{topic} has {starts} to {ends}, not {bounds}")


def require_found(lake: Lake, state: State, keys: Sequence[bytes]) -> int:
    """Each key's records are found, by key and by field, and no others; the last is the last.

    Returns how many segments key indexes decided. Raises Broken.
    """
    if EVENTS not in lake.topics():
        return 0
    log = lake.topic(EVENTS)
    for key in keys:
        wanted = {place: r for place, r in state.records[EVENTS].items() if r.key == key}
        text = key.decode(errors="replace")
        of_field = {p: r for p, r in state.records[EVENTS].items() if _field(r.value) == text}
        asked: list[tuple[dict[str, Any], Any]]
        asked = [({"key": key}, wanted), ({"where": {"k": text}}, of_field)]
        for how, right in asked:
            table = log.find(**how, columns=COLUMNS).read_all()
            found = dict(each for batch in table.to_batches() for each in records_of(batch))
            if (len(table), found) != (len(right), right):
                raise Broken("find", f"{how} of version {lake.version}: {found}, not {right}")
        last, places = log.last(key), sorted(wanted)  # a key has one partition
        if (last and (last.partition, last.offset)) != (places[-1] if places else None):
            raise Broken("last", f"{key!r} of version {lake.version}: {last}, not {places[-1:]}")
    return log.plan_find(keys=keys).by_index


def _field(value: bytes | None) -> str | None:
    """The text of the field "k" of a value that is a JSON object."""
    try:
        members = json.loads(value or b"")
    except ValueError:
        return None
    text = members.get("k") if isinstance(members, dict) else None
    return text if isinstance(text, str) else None


def old_key_indexes(objects: Mapping[str, Object]) -> list[str]:
    """The key indexes of a topic whose log is gone: no log has their place and number of bytes.

    Whether a version names them does not matter. Another one may have replaced an index of a log
    that stays.
    """
    found = [key for key in objects if key.endswith(".keyindex") and f"/{EVENTS}-" in key]
    logs = {(*_place(key), len(each.data)) for key, each in objects.items() if key.endswith(".log")}
    return [key for key in found if (*_place(key), _log_bytes(objects[key].data)) not in logs]


def _place(key: str) -> tuple[str, str]:
    """The log partition and the base offset in the key of a segment's file."""
    *_, partition, _, name = key.split("/")
    return partition, name.partition(".")[0]


def _log_bytes(index: bytes) -> int:
    """What a key index says of its log: docs/format.md."""
    size: int = struct.unpack_from("<q", index, 16)[0]
    return size


def require_all(state: State) -> None:
    """Records, rejects, input files and runs of the newest version are those of the model."""
    if not any(state.ends.values()):
        return
    require_same(seglake.open(LAKE), state)
    table = CatalogTable.open(stage.open_store(LAKE))
    snapshot = table.snapshot()
    for topic in [topic for topic, ends in state.ends.items() if ends]:
        runs = table.rows.runs(snapshot, topic)
        found = {(run.pipeline, run.run_id) for run in runs}
        wanted = {*state.runs} if topic == EVENTS else set()
        if found != wanted:
            raise Broken("runs", f"{sorted(found ^ wanted)} are in one of lake and model")
    if state.ends.get(EVENTS):
        paths = set(map(str, table.rows.all(snapshot, "source", EVENTS)["path"].to_pylist()))
        if paths != set(state.sources):
            raise Broken("sources", f"{sorted(paths ^ set(state.sources))} are in one of both")
        _compare_rejects(table, snapshot, state)


def _compare_rejects(table: CatalogTable, snapshot: Any, state: State) -> None:
    attempts = open_attempts(table.rows.runs(snapshot, EVENTS))
    taken = {run.taken for run in state.runs.values()}
    wanted = sorted(
        (line.path, line.number)
        for run in state.runs.values()
        if run.attempt_id not in taken
        for line in run.rejects
    )
    expired = {
        attempt
        for row in table.rows.maintenance(snapshot, EVENTS)
        if row.operation == "expire-rejects"
        for attempt in json.loads(row.report)["attempts"]
    }
    quarantine = QuarantineTable(table.store)
    for key in quarantine.all_keys(EVENTS):
        table.store.size(key)  # else SQL over the quarantine fails
    tables = quarantine.read(EVENTS, set(attempts) - expired)
    columns: list[Any] = [
        (each["source_file"].to_pylist(), each["line"].to_pylist()) for each in tables
    ]
    found = sorted(pair for each in columns for pair in zip(*each, strict=True))
    if found != wanted:
        raise Broken("rejects", f"{found} are open, not {wanted}")
