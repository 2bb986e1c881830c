"""Requests to `seglake serve` as a test makes them, and what their answers say."""

import uuid
from collections.abc import Iterator
from typing import Any, NamedTuple

from kafka.protocol.consumer import (
    FetchRequest,
    FetchResponse,
    ListOffsetsRequest,
    ListOffsetsResponse,
)
from kafka.protocol.metadata import MetadataRequest, MetadataResponse

from seglake.format.decode import decode_batches, scan_batches
from seglake.format.records import Spans
from tests.harness.lake_server import Wire
from tests.makers.lakes import Written

LATEST, EARLIEST, MAX_TIMESTAMP = -1, -2, -3


class Fetched(NamedTuple):
    """A partition of an answer."""

    code: int
    end: int
    start: int
    stable: int
    data: bytes


class Wanted(NamedTuple):
    """A partition of a request."""

    number: int
    offset: int
    max_bytes: int = 2**20


def topic_id(wire: Wire, topic: str) -> uuid.UUID:
    """The id that metadata gives."""
    (found,) = metadata(wire, [topic], 12).topics
    assert found.error_code == 0, found
    return uuid.UUID(str(found.topic_id))


def metadata(wire: Wire, topics: list[str] | None, version: int) -> Any:
    """The response about some topics, or all."""
    one = MetadataRequest.MetadataRequestTopic
    some = None if topics is None else [one(name=name) for name in topics]
    request = MetadataRequest(topics=some, allow_auto_topic_creation=False)
    return wire.ask(request, MetadataResponse, version)


def fetch_request(
    topic: str,
    wanted: list[Wanted],
    *,
    id_of: uuid.UUID | None = None,
    max_bytes: int = 2**26,
    max_wait_ms: int = 0,
    min_bytes: int = 1,
    committed: bool = False,
    session: int = 0,
) -> Any:
    """A Fetch for some partitions of one topic."""
    kind = FetchRequest.FetchTopic
    partitions = [
        kind.FetchPartition(
            partition=each.number, current_leader_epoch=-1, fetch_offset=each.offset,
            last_fetched_epoch=-1, log_start_offset=-1, partition_max_bytes=each.max_bytes,
        )
        for each in wanted
    ]  # fmt: skip
    return FetchRequest(
        replica_id=-1, max_wait_ms=max_wait_ms, min_bytes=min_bytes, max_bytes=max_bytes,
        isolation_level=int(committed), session_id=session, session_epoch=-1,
        topics=[kind(topic=topic, topic_id=id_of, partitions=partitions)], rack_id="",
        forgotten_topics_data=[],
    )  # fmt: skip


def fetch(
    wire: Wire, topic: str, wanted: list[Wanted], version: int = 12, **how: Any
) -> list[Fetched]:
    """The partitions of the answer, which are those asked for, in the order of the request."""
    id_of = topic_id(wire, topic) if version >= 13 else None
    request = fetch_request(topic, wanted, id_of=id_of, **how)
    response = wire.ask(request, FetchResponse, version)
    if version >= 7:
        assert (response.error_code, response.session_id) == (0, 0)
    (answer,) = response.responses
    assert answer.topic_id == id_of if version >= 13 else answer.topic == topic
    place_of = {each.number: place for place, each in enumerate(wanted)}
    partitions = sorted(answer.partitions, key=lambda each: place_of[each.partition_index])
    assert sorted(place_of) == sorted(each.partition_index for each in partitions)
    found = []
    for each in partitions:  # a broker puts those with errors first
        assert each.records is not None
        if each.error_code == 0 and each.aborted_transactions is not None:
            assert (each.aborted_transactions, how.get("committed")) == ([], True)
        start = each.log_start_offset if version >= 5 else -1
        found.append(Fetched(each.error_code, each.high_watermark, start,
                             each.last_stable_offset, bytes(each.records)))  # fmt: skip
    return found


def offset_at(wire: Wire, topic: str, number: int, time: int, version: int = 7) -> Any:
    """ListOffsets of one partition: (error, offset, timestamp)."""
    kind = ListOffsetsRequest.ListOffsetsTopic
    one = kind.ListOffsetsPartition(partition_index=number, current_leader_epoch=-1, timestamp=time)
    request = ListOffsetsRequest(
        replica_id=-1, isolation_level=0, topics=[kind(name=topic, partitions=[one])]
    )
    (answer,) = wire.ask(request, ListOffsetsResponse, version).topics
    (found,) = answer.partitions
    return found.error_code, found.offset, found.timestamp


def everything(
    wire: Wire, topic: str, number: int, version: int = 12, max_bytes: int = 2**20
) -> Iterator[bytes]:
    """The records of every fetch from the log start to the high watermark."""
    _, offset, _ = offset_at(wire, topic, number, EARLIEST)
    _, end, _ = offset_at(wire, topic, number, LATEST)
    while offset < end:
        (got,) = fetch(wire, topic, [Wanted(number, offset, max_bytes)], version)
        assert (got.code, got.end, got.stable) == (0, end, end)
        assert got.data
        table = scan_batches(got.data)  # whole batches alone
        assert table[0]["last_offset"] >= offset
        yield got.data
        offset = int(table[-1]["last_offset"]) + 1
    assert offset == end


def records_in(data: bytes, partition: int, start: int = 0) -> list[Written]:
    """The records of some batches with offsets from `start` on, their checksums checked."""
    if not data:
        return []
    decoded = decode_batches(data, scan_batches(data))
    records, found = decoded.records, []
    for row, offset in enumerate(decoded.offsets.tolist()):
        headers = list[tuple[str, bytes | None]]()
        if records.headers is not None:
            items = range(int(records.headers.firsts[row]), int(records.headers.firsts[row + 1]))
            headers = [
                ((text_at(records.headers.keys, item) or b"").decode(),
                 text_at(records.headers.values, item))
                for item in items
            ]  # fmt: skip
        if offset >= start:
            found.append(Written(
                partition, offset, int(records.timestamps[row]),
                int(decoded.timestamp_types[row]), text_at(records.keys, row),
                text_at(records.values, row), headers,
            ))  # fmt: skip
    return found


def text_at(spans: Spans, row: int) -> bytes | None:
    """A key or a value; None for null."""
    start, length = int(spans.starts[row]), int(spans.lengths[row])
    return None if length < 0 else bytes(spans.data[start : start + length])
