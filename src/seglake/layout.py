"""The keys of a lake: the one place that spells them, and the one that reads them back.

    catalog/log/                                                  Delta: the only truth
    catalog/log.unfinished/rebuild                                while the table is made again
    catalog/quarantine/                                           Delta: rejected input rows
    topics/<topic>-<partition>/<attempt>/<base offset>.<suffix>   immutable, one attempt's own
    attempts/<attempt>/manifest.json | success                    what an attempt wrote
    attempts/<attempt>/blobs/<name>                               between its stages; then deleted
    attempts/<digest of the run's key>/inputs.json                what a run reads

A key is relative to the root, its parts are separated by "/", and no part of it is data: topics are
checked against Kafka's rule, attempts are UUIDs, and run ids, which may hold anything, are hashed.
"""

from __future__ import annotations

import hashlib
import json
import re
import uuid
from typing import Literal, NamedTuple, get_args

from seglake.errors import CorruptData, UsageError
from seglake.limits import INT32_MAX, INT64_MAX

CATALOG = "catalog"
LOG_TABLE = "catalog/log"
REBUILDING = "catalog/log.unfinished/rebuild"
QUARANTINE_TABLE = "catalog/quarantine"
TOPICS = "topics"
ATTEMPTS = "attempts"

Suffix = Literal["log", "index", "timeindex", "zonemap"]
SUFFIXES: tuple[Suffix, ...] = get_args(Suffix)

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TOPIC = "[a-zA-Z0-9._-]{1,249}"
_NUMBER = "0|[1-9][0-9]{0,9}"
_ATTEMPT_KEY = re.compile(
    rf"{ATTEMPTS}/({_UUID})/(manifest\.json|success|inputs\.json|blobs/{_UUID})"
)
_SEGMENT_KEY = re.compile(
    rf"{TOPICS}/(?!\.{{1,2}}-[0-9]+/)({_TOPIC})-({_NUMBER})/"
    rf"({_UUID})/([0-9]{{20}})\.({'|'.join(SUFFIXES)})"
)


class SegmentFile(NamedTuple):
    """One of the four files of a segment, identified by what its key says."""

    topic: str
    partition: int
    attempt_id: str
    base_offset: int
    suffix: Suffix


def is_topic_name(name: str) -> bool:
    """Whether Kafka would accept the name of a topic (`Topic.validate`)."""
    return name not in {".", ".."} and re.fullmatch(_TOPIC, name) is not None


def check_topic(topic: str) -> str:
    """`topic` itself, if Kafka would accept the name; else UsageError."""
    if not is_topic_name(topic):
        raise UsageError(
            f"topic {topic!r}: a name has 1 to 249 characters out of a-z A-Z 0-9 . _ - "
            "and is neither '.' nor '..'"
        )
    return topic


def check_attempt(attempt_id: str) -> str:
    """`attempt_id` itself, if it is a UUID in its canonical lower-case form; else UsageError."""
    if not re.fullmatch(_UUID, attempt_id):
        raise UsageError(f"attempt {attempt_id!r} is not a UUID in lower case with hyphens")
    return attempt_id


def new_attempt() -> str:
    """A fresh attempt id."""
    return str(uuid.uuid4())


def attempt_folder(topic: str, partition: int, attempt_id: str) -> str:
    """The folder that holds what one attempt wrote for one log partition."""
    if not 0 <= partition <= INT32_MAX:
        raise UsageError(f"partition {partition} of {topic!r} is not in 0..{INT32_MAX}")
    return f"{TOPICS}/{check_topic(topic)}-{partition}/{check_attempt(attempt_id)}"


def segment_key(file: SegmentFile) -> str:
    """The key of a segment's file; UsageError if a part of it has no place in a key."""
    if not 0 <= file.base_offset <= INT64_MAX:
        raise UsageError(f"base offset {file.base_offset} is not in 0..{INT64_MAX}")
    if file.suffix not in SUFFIXES:
        raise UsageError(f"suffix {file.suffix!r} is not one of {', '.join(SUFFIXES)}")
    folder = attempt_folder(file.topic, file.partition, file.attempt_id)
    return f"{folder}/{file.base_offset:020d}.{file.suffix}"


def parse_segment_key(key: str) -> SegmentFile:
    """The inverse of `segment_key`; CorruptData if no segment's file can have this key."""
    match = _SEGMENT_KEY.fullmatch(key)
    if match is None or int(match[2]) > INT32_MAX or int(match[4]) > INT64_MAX:
        raise CorruptData("this is not the key of a segment's file", file=key)
    suffix: Suffix = match[5]  # type: ignore[assignment]  # the pattern admits these four only
    return SegmentFile(match[1], int(match[2]), match[3], int(match[4]), suffix)


def manifest_key(attempt_id: str) -> str:
    """Where an attempt says which files it wrote."""
    return f"{ATTEMPTS}/{check_attempt(attempt_id)}/manifest.json"


def success_key(attempt_id: str) -> str:
    """The mark that an attempt wrote all it had to."""
    return f"{ATTEMPTS}/{check_attempt(attempt_id)}/success"


def blobs_folder(attempt_id: str) -> str:
    """Where the tasks of an attempt leave what other tasks of it shall read."""
    return f"{ATTEMPTS}/{check_attempt(attempt_id)}/blobs"


def new_blobs_key(attempt_id: str) -> str:
    """A fresh key there: two tries of one task may write at once."""
    return f"{blobs_folder(attempt_id)}/{uuid.uuid4()}"


def inputs_key(topic: str, pipeline: str, run_id: str) -> str:
    """Where a run's input list is frozen: the same for every attempt at this run key."""
    name = json.dumps([topic, pipeline, run_id]).encode()
    digest = uuid.UUID(bytes=hashlib.sha256(name).digest()[:16])
    return f"{ATTEMPTS}/{digest}/inputs.json"


def parse_attempt_key(key: str) -> tuple[str, str]:
    """The attempt (or the run's digest) and the file name in an `attempts/` key, or CorruptData."""
    match = _ATTEMPT_KEY.fullmatch(key)
    if match is None:
        raise CorruptData("this is not the key of an attempt's file", file=key)
    return match[1], match[2]
