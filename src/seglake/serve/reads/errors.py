"""Kafka's error code for each of Seglake's errors."""

import logging

from seglake.errors import (
    CorruptData,
    OffsetOutOfRange,
    SeglakeError,
    StoreError,
    UnknownTopic,
    UsageError,
)
from seglake.serve.codes import Code

_log = logging.getLogger(__name__)


def code_of(error: SeglakeError) -> Code:
    """The code of an error. The error is logged, unless it is the client's fault alone."""
    match error:
        case UnknownTopic():
            return Code.UNKNOWN_TOPIC_OR_PARTITION
        case OffsetOutOfRange():
            return Code.OFFSET_OUT_OF_RANGE
        case UsageError():  # a name without sense, a version that is no longer retained
            _log.warning("%s", error)
            return Code.INVALID_TOPIC_EXCEPTION
        case CorruptData():
            return Code.CORRUPT_MESSAGE  # logged where it was found
        case StoreError():
            _log.error("%s", error)
            return Code.KAFKA_STORAGE_ERROR
    _log.error("%s", error)
    return Code.UNKNOWN_SERVER_ERROR
