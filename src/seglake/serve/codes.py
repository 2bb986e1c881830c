"""The error codes of Kafka in this server's answers (`org.apache.kafka.common.protocol.Errors`)."""

import logging
from enum import IntEnum

from seglake.errors import (
    CorruptData,
    OffsetOutOfRange,
    SeglakeError,
    StoreError,
    UnknownTopic,
    UsageError,
)

_log = logging.getLogger(__name__)


class Code(IntEnum):
    """Kafka's error codes by name."""

    UNKNOWN_SERVER_ERROR = -1
    NONE = 0
    OFFSET_OUT_OF_RANGE = 1
    CORRUPT_MESSAGE = 2
    UNKNOWN_TOPIC_OR_PARTITION = 3
    NOT_LEADER_OR_FOLLOWER = 6
    OFFSET_METADATA_TOO_LARGE = 12
    COORDINATOR_NOT_AVAILABLE = 15
    INVALID_TOPIC_EXCEPTION = 17
    ILLEGAL_GENERATION = 22
    INCONSISTENT_GROUP_PROTOCOL = 23
    INVALID_GROUP_ID = 24
    UNKNOWN_MEMBER_ID = 25
    INVALID_SESSION_TIMEOUT = 26
    REBALANCE_IN_PROGRESS = 27
    TOPIC_AUTHORIZATION_FAILED = 29
    UNSUPPORTED_SASL_MECHANISM = 33
    ILLEGAL_SASL_STATE = 34
    UNSUPPORTED_VERSION = 35
    INVALID_REQUEST = 42
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53
    KAFKA_STORAGE_ERROR = 56
    SASL_AUTHENTICATION_FAILED = 58
    NON_EMPTY_GROUP = 68
    GROUP_ID_NOT_FOUND = 69
    FETCH_SESSION_ID_NOT_FOUND = 70
    FENCED_LEADER_EPOCH = 74
    UNKNOWN_LEADER_EPOCH = 75
    MEMBER_ID_REQUIRED = 79
    GROUP_MAX_SIZE_REACHED = 81
    FENCED_INSTANCE_ID = 82
    UNKNOWN_TOPIC_ID = 100


def error_code(error: SeglakeError) -> Code:
    """Return the code of an error.

    Log the error, unless it is a client's mistake, or damage, which is logged where it is found.
    """
    match error:
        case UnknownTopic():
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        case OffsetOutOfRange():
            return Code.OFFSET_OUT_OF_RANGE
        case UsageError():  # an invalid name, or a version that is no longer retained
            _log.warning("%s", error)
            return Code.INVALID_TOPIC_EXCEPTION
        case CorruptData():
            return Code.CORRUPT_MESSAGE  # logged where it was found
        case StoreError():
            _log.error("%s", error)
            return Code.KAFKA_STORAGE_ERROR
    _log.error("%s", error)
    return Code.UNKNOWN_SERVER_ERROR
