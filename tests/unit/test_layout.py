"""Keys: what is spelled is read back, and nothing else is read at all."""

import re
import uuid

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake import layout
from seglake.errors import CorruptData, UsageError
from seglake.layout import SegmentFile

TOPICS = st.text("abzAZ09._-", min_size=1, max_size=249).filter(
    lambda name: name not in {".", ".."}
)
ATTEMPTS = st.uuids().map(str)
FILES = st.builds(
    SegmentFile,
    topic=TOPICS,
    partition=st.integers(0, 2**31 - 1),
    attempt_id=ATTEMPTS,
    base_offset=st.integers(0, 2**63 - 1),
    suffix=st.sampled_from(layout.SUFFIXES),
)
ATTEMPT = "0b6e6a3c-4a53-4a8e-9d0b-6f1f5f0b7a11"


@given(FILES)
def test_segment_key__is_read_back(file: SegmentFile) -> None:
    key = layout.segment_key(file)
    assert layout.parse_segment_key(key) == file
    assert key.startswith(f"topics/{file.topic}-{file.partition}/{file.attempt_id}/")
    assert len(key.rsplit("/", 1)[1].split(".")[0]) == 20


@given(st.text("a1-./\\ \n%é", max_size=60))
def test_parse_segment_key__refuses_anything_else(key: str) -> None:
    for wrong in (key, f"topics/{key}", f"topics/t-0/{ATTEMPT}/{key}"):
        with pytest.raises(CorruptData, match="segment"):
            layout.parse_segment_key(wrong)


@pytest.mark.parametrize(
    "key",
    [
        f"topics/..-0/{ATTEMPT}/00000000000000000000.log",
        f"topics/.-0/{ATTEMPT}/00000000000000000000.log",
        f"topics/t-00/{ATTEMPT}/00000000000000000000.log",
        f"topics/t-2147483648/{ATTEMPT}/00000000000000000000.log",
        f"topics/t-0/{ATTEMPT.upper()}/00000000000000000000.log",
        f"topics/t-0/{ATTEMPT}/99999999999999999999.log",
        f"topics/t-0/{ATTEMPT}/0.log",
        f"topics/t-0/{ATTEMPT}/00000000000000000000.tmp",
        f"topics/t-0/{ATTEMPT}/00000000000000000000.log\n",
        f"/topics/t-0/{ATTEMPT}/00000000000000000000.log",
        f"topics/t-0/{ATTEMPT}/../00000000000000000000.log",
        f"topics/{'t' * 250}-0/{ATTEMPT}/00000000000000000000.log",
    ],
)
def test_parse_segment_key__refuses(key: str) -> None:
    with pytest.raises(CorruptData):
        layout.parse_segment_key(key)


@pytest.mark.parametrize("topic", ["", ".", "..", "a/b", "a b", "t" * 250, "é", "a\n"])
def test_check_topic__refuses(topic: str) -> None:
    with pytest.raises(UsageError, match="topic"):
        layout.check_topic(topic)
    with pytest.raises(UsageError, match="topic"):
        layout.attempt_folder(topic, 0, ATTEMPT)


@pytest.mark.parametrize("topic", ["...", ".a", "a.", "-", "..-", "a-1", "T" * 249])
def test_check_topic__accepts_what_kafka_accepts(topic: str) -> None:
    layout.check_topic(topic)
    file = SegmentFile(topic, 3, ATTEMPT, 7, "log")
    assert layout.parse_segment_key(layout.segment_key(file)) == file


def test_segment_key__refuses_numbers_out_of_range() -> None:
    good = SegmentFile("t", 0, ATTEMPT, 0, "log")
    wrong: list[dict[str, object]] = [
        {"partition": -1},
        {"partition": 2**31},
        {"base_offset": -1},
        {"base_offset": 2**63},
        {"attempt_id": "../../etc"},
        {"suffix": "txt"},
    ]
    for change in wrong:
        with pytest.raises(UsageError):
            layout.segment_key(good._replace(**change))  # type: ignore[arg-type]


@given(ATTEMPTS)
def test_attempt_keys__are_read_back(attempt: str) -> None:
    assert layout.parse_attempt_key(layout.manifest_key(attempt)) == (attempt, "manifest.json")
    again = layout.manifest_key(attempt, 12)
    assert layout.parse_attempt_key(again) == (attempt, "manifest-12.json")
    names = ("manifest.json", "manifest-12.json", "manifest-.json", "success")
    assert [*map(layout.lost_races, names)] == [0, 12, None, None]
    assert layout.parse_attempt_key(layout.success_key(attempt)) == (attempt, "success")
    assert layout.parse_attempt_key(layout.report_key(attempt)) == (attempt, "report.json")


RUN_KEYS = st.tuples(st.text(), st.text(), st.text())


@given(st.lists(RUN_KEYS, min_size=2, max_size=2, unique=True))
def test_failed_key__is_one_per_run_key_and_holds_no_data(keys: list[tuple[str, str, str]]) -> None:
    one, other = (layout.failed_key(*key) for key in keys)
    assert one != other
    assert one == layout.failed_key(*keys[0])
    digest, name = layout.parse_attempt_key(one)
    assert str(uuid.UUID(digest)) == digest
    assert re.fullmatch(r"failed/[0-9a-f-]{36}", name)
    topic, _, run_id = keys[0]
    assert one.startswith(f"{layout.failed_folder(topic, run_id)}/")


def test_failed_key__never_changes() -> None:
    key = layout.failed_key("orders", "daily", "scheduled__2026-01-01T00:00:00+00:00")
    folder, _, name = key.rpartition("/")
    assert folder == "attempts/e4fba268-537c-b89c-704b-35439baed5b7/failed"
    assert name == "e0a7468e-743b-344d-256f-364fda7577ae"
    assert layout.failed_key("a", "b", "c,d") != layout.failed_key("a,c", "b", "d")


@pytest.mark.parametrize("key", ["attempts/../success", f"attempts/{ATTEMPT}/x", "attempts/"])
def test_parse_attempt_key__refuses(key: str) -> None:
    with pytest.raises(CorruptData):
        layout.parse_attempt_key(key)


def test_new_attempt__is_fresh_and_valid() -> None:
    layout.check_attempt(layout.new_attempt())
    assert layout.new_attempt() != layout.new_attempt()
