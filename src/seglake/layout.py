"""Build and parse the object keys of a lake. No other module does this.

    catalog/log/                                                  Delta: the catalog
    catalog/log.unfinished/rebuild                                a rebuild of the catalog has begun
    catalog/log.unfinished/rebuilt                                the last rebuild that has ended
    catalog/quarantine/                                           Delta: rejected input rows
    catalog/deletions                                             notifies readers of deleted logs
    catalog/tags/<attempt>/version.json                           the version that a tag names
    catalog/tags/<attempt>/kind=<kind>/topic=<topic>/<file>       the rows of that version
    topics/<topic>-<partition>/<attempt>/<base offset>.<suffix>   a segment's files, immutable
    topics/<topic>-<partition>/<attempt>/<base offset>.link       a link to a log outside the lake
    attempts/<attempt>/manifest.json | success                    its manifest; its success marker
    attempts/<attempt>/manifest-<n>.json                          its manifest after n lost races
    chronicles/<name>                                             manifest archive
    chronicles/tombstones                                         the removed-files list
    attempts/<attempt>/begun                                      its announcement
    attempts/<attempt>/fate                                       its claim: whether it may commit
    attempts/<attempt>/blobs/<name>                               blobs between map and reduce
    attempts/<attempt>/clock                                      written to read storage's clock
    attempts/<attempt>/rejects | rejects-<n>                      rejects that an erasure removes
    attempts/<attempt>/report.json                                why an attempt failed
    attempts/<digest of topic and run id>/failed/<digest>         the last failure of a pipeline
    tables/<topic>/                                               Delta: a published table

A key is relative to the root, and "/" separates its parts. No part is arbitrary text: topics follow
Kafka's rule, attempts are UUIDs, and run ids are hashed.
"""

import hashlib
import json
import re
import uuid
from typing import Any, Literal, NamedTuple, get_args
from urllib.parse import unquote

from seglake.errors import CorruptData, UsageError
from seglake.limits import INT32_MAX, INT64_MAX

CATALOG = "catalog"
LOG_TABLE = "catalog/log"
REBUILDING = "catalog/log.unfinished/rebuild"
REBUILT = "catalog/log.unfinished/rebuilt"
QUARANTINE_TABLE = "catalog/quarantine"
DELETIONS = "catalog/deletions"
TAGS = "catalog/tags"
WHOLE_LAKE = "@lake"  # topic of rows that belong to no topic; no topic can have this name
TOPICS = "topics"
ATTEMPTS = "attempts"
CHRONICLES = "chronicles"
TOMBSTONES = "chronicles/tombstones"
TABLES = "tables"
FOLDERS = (CATALOG, TOPICS, ATTEMPTS, CHRONICLES, TABLES)  # all folders below the root of a lake

RequiredSuffix = Literal["log", "index", "timeindex", "zonemap"]
OptionalSuffix = Literal["keyindex"]
Suffix = Literal[RequiredSuffix, OptionalSuffix]
SUFFIXES: tuple[Suffix, ...] = get_args(RequiredSuffix)  # every segment has these files
OPTIONAL_SUFFIXES: tuple[Suffix, ...] = get_args(OptionalSuffix)
ALL_SUFFIXES = SUFFIXES + OPTIONAL_SUFFIXES  # the log is the first, all others are index files
LINK: Literal["link"] = "link"

_UUID = "[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}"
_TOPIC = "[a-zA-Z0-9._-]{1,249}"
_NUMBER = "0|[1-9][0-9]{0,9}"
_AGAIN = "(?:-[1-9][0-9]{0,8})?"  # the number of a later try
_ATTEMPT_KEY = re.compile(
    rf"{ATTEMPTS}/({_UUID})/"
    rf"(manifest{_AGAIN}\.json|success|begun|fate|clock|rejects{_AGAIN}|report\.json|"
    rf"(?:blobs|failed)/{_UUID})"
)
_SEGMENT_KEY = re.compile(
    rf"{TOPICS}/(?!\.{{1,2}}-[0-9]+/)({_TOPIC})-({_NUMBER})/"
    rf"({_UUID})/([0-9]{{20}})\.({'|'.join(ALL_SUFFIXES)}|{LINK})"
)


class SegmentFile(NamedTuple):
    """The parts of the key of a segment's file, or of the link that replaces its log."""

    topic: str
    partition: int
    attempt_id: str
    base_offset: int
    suffix: Suffix | Literal["link"]

    @property
    def is_log(self) -> bool:
        """Return whether this is the log or the link that replaces it, not an index file."""
        return self.suffix in {"log", LINK}


DECODED_ROOT = r"the path of a lake must not have a backslash, or % with two digits. Rename it"


def is_decoded(root: str) -> bool:
    """Return whether delta-rs would read and write another folder than `root`.

    delta-rs decodes `%20` even in a path and in a decoded URI, and treats a backslash as a slash.
    """
    return re.search(r"%[0-9A-Fa-f]{2}|\\", unquote(root) if "://" in root else root) is not None


def is_topic_name(name: str) -> bool:
    """Return whether Kafka accepts the name of a topic (`Topic.validate`)."""
    return name not in {".", ".."} and re.fullmatch(_TOPIC, name) is not None


def is_topic_id(text: str) -> bool:
    """Return whether this is a topic id of Kafka, 128 bits in base64 that are not all zero."""
    return re.fullmatch("[A-Za-z0-9_-]{22}", text) is not None and text != "A" * 22


def check_topic(topic: str) -> None:
    """Raise UsageError unless Kafka accepts the name of the topic."""
    if not is_topic_name(topic):
        raise UsageError(
            f"{topic!r} is not the name of a topic. Use 1 to 249 characters from a-z A-Z 0-9 . _ "
            f"-, but not '.' or '..'"
        )


def check_attempt(attempt_id: str) -> None:
    """Raise UsageError unless the id is a UUID in its canonical lower-case form."""
    if not re.fullmatch(_UUID, attempt_id):
        raise UsageError(f"attempt id {attempt_id!r} is not a UUID in lower case with hyphens")


def new_attempt() -> str:
    """Return a new attempt id."""
    return str(uuid.uuid4())


def attempt_folder(topic: str, partition: int, attempt_id: str) -> str:
    """Return the folder of the segments that one attempt writes for one log partition.

    Raises UsageError if an argument is out of range.
    """
    if not 0 <= partition <= INT32_MAX:
        raise UsageError(f"partition {partition} of {topic!r} is not between 0 and {INT32_MAX}")
    check_topic(topic)
    check_attempt(attempt_id)
    return f"{TOPICS}/{topic}-{partition}/{attempt_id}"


def segment_key(file: SegmentFile) -> str:
    """Return the key of a segment's file. Raises UsageError if a part of it is out of range."""
    if not 0 <= file.base_offset <= INT64_MAX:
        raise UsageError(f"base offset {file.base_offset} is not between 0 and {INT64_MAX}")
    if file.suffix not in {*ALL_SUFFIXES, LINK}:
        raise UsageError(f"a segment has no file with the suffix {file.suffix!r}")
    folder = attempt_folder(file.topic, file.partition, file.attempt_id)
    return f"{folder}/{file.base_offset:020d}.{file.suffix}"


def parse_segment_key(key: str) -> SegmentFile:
    """Parse a key from `segment_key`. Raises CorruptData if it is not a key of a segment's file."""
    match = _SEGMENT_KEY.fullmatch(key)
    if match is None or int(match[2]) > INT32_MAX or int(match[4]) > INT64_MAX:
        raise CorruptData("this is not the key of a segment's file", file=key)
    suffix: Any = match[5]  # the pattern matches only a `Suffix` or "link"
    return SegmentFile(match[1], int(match[2]), match[3], int(match[4]), suffix)


def manifest_key(attempt_id: str, lost_races: int = 0) -> str:
    """Return the key of the manifest that an attempt writes after a number of lost races."""
    number = f"-{lost_races}" if lost_races else ""
    return _attempt_key(attempt_id, f"manifest{number}.json")


def lost_races(name: str) -> int | None:
    """Return the number of lost races in the file name of a manifest, or None for other names."""
    match = re.fullmatch(r"manifest(?:-(\d+))?\.json", name)
    return match and int(match[1] or 0)


def parse_manifest_key(key: str) -> str | None:
    """Return the attempt whose manifest has this key, or None for another key."""
    match = _ATTEMPT_KEY.fullmatch(key)
    return match[1] if match is not None and match[2].startswith("manifest") else None


def new_archive_key() -> str:
    """Return a unique key for a manifest archive, because two vacuums may run at the same time."""
    return f"{CHRONICLES}/{uuid.uuid4()}"


def is_archive_key(key: str) -> bool:
    """Return whether `key` is the key of a manifest archive, and not of an unfinished write."""
    return re.fullmatch(rf"{CHRONICLES}/{_UUID}", key) is not None


def is_of_commit(name: str) -> bool:
    """Return whether an attempt's file with this name only describes or decides the commit."""
    return name in {"success", "fate"} or lost_races(name) is not None


def success_key(attempt_id: str) -> str:
    """Return the key of the success marker of an attempt."""
    return _attempt_key(attempt_id, "success")


def attempt_objects(attempt_id: str) -> str:
    """Return the folder of everything that an attempt writes, except segments and rejects."""
    check_attempt(attempt_id)
    return f"{ATTEMPTS}/{attempt_id}"


def announcement_key(attempt_id: str) -> str:
    """Return the key of the announcement that an attempt is in progress."""
    return _attempt_key(attempt_id, "begun")


def claim_key(attempt_id: str) -> str:
    """Return the key of the claim that decides whether an attempt may commit."""
    return _attempt_key(attempt_id, "fate")


def new_clock_key() -> str:
    """Return a unique key for an object that is written only to read its modification time."""
    return _attempt_key(new_attempt(), "clock")


def report_key(attempt_id: str) -> str:
    """Return the key of the report of a failed attempt."""
    return _attempt_key(attempt_id, "report.json")


def rejects_key(attempt_id: str, tries_before: int) -> str:
    """Return the key of an erasure's list of rejects to remove, after `tries_before` tries."""
    return _attempt_key(attempt_id, f"rejects-{tries_before}" if tries_before else "rejects")


def is_rejects_key(key: str) -> bool:
    """Return whether this is the key of a list of rejects, see `rejects_key`."""
    match = _ATTEMPT_KEY.fullmatch(key)
    return match is not None and match[2].startswith("rejects")


def blobs_folder(attempt_id: str) -> str:
    """Return the folder of an attempt's blobs."""
    return _attempt_key(attempt_id, "blobs")


def new_blobs_key(attempt_id: str) -> str:
    """Return a unique key for blobs, because two tries of a task may run at the same time."""
    return f"{blobs_folder(attempt_id)}/{uuid.uuid4()}"


def _attempt_key(attempt_id: str, name: str) -> str:
    return f"{attempt_objects(attempt_id)}/{name}"


def tag_folder(attempt_id: str) -> str:
    """Return the folder with the files of a tagged version and the object that lists them."""
    check_attempt(attempt_id)
    return f"{TAGS}/{attempt_id}"


def tag_key(attempt_id: str) -> str:
    """Return the key of the object that lists the files of a tagged version."""
    return f"{tag_folder(attempt_id)}/version.json"


def parse_tag_key(key: str) -> str | None:
    """Return the attempt that wrote an object of a tagged version, or None for another key."""
    match = re.match(rf"{TAGS}/({_UUID})/", key)
    return match and match[1]


def failed_folder(topic: str, run_id: str) -> str:
    """Return the folder that contains the `failed_key` of each pipeline for a topic and run id."""
    return f"{ATTEMPTS}/{_digest(topic, run_id)}/failed"


def failed_key(topic: str, pipeline: str, run_id: str) -> str:
    """Return the key of the object that contains the id of the last failed attempt at a run."""
    return f"{failed_folder(topic, run_id)}/{_digest(pipeline)}"


def _digest(*names: str) -> uuid.UUID:
    text = json.dumps(names).encode()
    return uuid.UUID(bytes=hashlib.sha256(text).digest()[:16])


def parse_attempt_key(key: str) -> tuple[str, str]:
    """Return the attempt (or the digest of topic and run id) and the file name in a key.

    Raises CorruptData if this is not the key of a file in `attempts/`.
    """
    match = _ATTEMPT_KEY.fullmatch(key)
    if match is None:
        raise CorruptData("this is not the key of an attempt's file", file=key)
    return match[1], match[2]
