"""Refuse the records of producers. Other APIs that would change something are not advertised.

Produce is advertised. Without it librdkafka reads no record, because it derives the message format
from the versions of Produce and Fetch (KAFKA-18659). Its old releases require version 0.
"""

from __future__ import annotations

from itertools import count
from typing import Any

from kafka.protocol import producer

from seglake.serve.api import Api, CloseConnection, in_turns
from seglake.serve.codes import Code
from seglake.serve.connection import Connection

_WHY = "this server is read-only. To change its lake, use `seglake ingest`"
_IDS = count(1)  # ids of producers


async def _produce(request: Any, connection: Connection) -> Any:
    """Answer Produce, versions 0 to 9: TOPIC_AUTHORIZATION_FAILED for each partition.

    With acks=0 a producer reads no response, so the connection is closed.
    """
    if request.acks == 0:
        raise CloseConnection("a producer sends with acks=0, but this server is read-only")
    code, topics = Code.TOPIC_AUTHORIZATION_FAILED, []
    connection.count_error(code)
    kind = producer.ProduceResponse.TopicProduceResponse
    async for topic in in_turns(request.topic_data):
        partitions = [
            kind.PartitionProduceResponse(
                index=each.index, error_code=code, base_offset=-1, log_append_time_ms=-1,
                log_start_offset=-1, record_errors=[], error_message=_WHY,
            )
            for each in topic.partition_data
        ]  # fmt: skip
        topics.append(kind(name=topic.name, partition_responses=partitions))
    return producer.ProduceResponse(responses=topics)


async def _init_producer_id(request: Any, connection: Connection) -> Any:
    """Answer InitProducerId, versions 0 to 5: give an id to an idempotent producer.

    Frameworks open such a producer even if it never sends a record. A transactional producer gets
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED, as from a broker where it may not use its id.
    """
    code = Code.NONE
    half_known = (request.producer_id == -1) != (request.producer_epoch == -1)
    if half_known or request.transactional_id == "":
        code = Code.INVALID_REQUEST
    elif request.transactional_id is not None:
        code = Code.TRANSACTIONAL_ID_AUTHORIZATION_FAILED
    connection.count_error(code)
    if code:
        return producer.InitProducerIdResponse(error_code=code, producer_id=-1, producer_epoch=-1)
    return producer.InitProducerIdResponse(
        error_code=code, producer_id=next(_IDS), producer_epoch=0
    )


APIS = (
    Api(producer.ProduceRequest, 0, 9, _produce),
    Api(producer.InitProducerIdRequest, 0, 5, _init_producer_id),
)
