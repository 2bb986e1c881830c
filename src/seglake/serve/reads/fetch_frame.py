"""The frame of a Fetch response, by hand: so its records are never copied.

Everything else of the protocol is encoded by kafka-python.
"""

from __future__ import annotations

import struct
import uuid
from collections.abc import Sequence
from typing import NamedTuple

from seglake.serve.codes import Code
from seglake.serve.connection import Part, Reply
from seglake.serve.frames import varint
from seglake.serve.records.taking import Taken

_FLEXIBLE = 12
_NO_TAGS = b"\x00"


class Answer(NamedTuple):
    """A partition of the answer: its error, where its log starts and ends, its records."""

    number: int
    code: Code
    start: int
    end: int
    taken: Taken


class TopicAnswer(NamedTuple):
    """A topic of the answer; versions below 13 have its name, the others its id."""

    name: str
    id: uuid.UUID
    partitions: Sequence[Answer]


def frame_of(
    topics: Sequence[TopicAnswer], version: int, correlation_id: int, committed: bool
) -> Reply:
    """The answer. `committed`: the client asked only for committed records."""
    out = _ResponseFrame(version, correlation_id, Code.NONE)
    out.count(len(topics))
    for topic in topics:
        out.topic(topic)
        out.count(len(topic.partitions))
        for answer in topic.partitions:
            out.partition(answer, committed)
        out.tags()
    out.tags()
    return out.reply()


def refusal(version: int, correlation_id: int, code: Code) -> Reply:
    """An answer without a topic, for version 7 and newer."""
    out = _ResponseFrame(version, correlation_id, code)
    out.count(0)
    out.tags()
    return out.reply()


class _ResponseFrame:
    def __init__(self, version: int, correlation_id: int, code: Code) -> None:
        self._version, self._flexible = version, version >= _FLEXIBLE
        self._parts, self._head = list[Part](), bytearray()
        self._put(">i", correlation_id)
        self.tags()  # of the header
        self._put(">i", 0)  # throttled for 0 ms
        if version >= 7:
            self._put(">hi", code, 0)  # no session

    def reply(self) -> Reply:
        self._flush()
        return Reply(self._parts)

    def tags(self) -> None:
        """An empty list of tagged fields, in versions that have such lists."""
        if self._flexible:
            self._head += _NO_TAGS

    def count(self, size: int) -> None:
        """The length of an array."""
        if self._flexible:
            self._head += varint(size + 1)
        else:
            self._put(">i", size)

    def topic(self, topic: TopicAnswer) -> None:
        """Its name or id."""
        if self._version >= 13:
            self._head += topic.id.bytes
            return
        name = topic.name.encode()
        if self._flexible:
            self._head += varint(len(name) + 1)
        else:
            self._put(">h", len(name))
        self._head += name

    def partition(self, answer: Answer, committed: bool) -> None:
        """One partition with its records; without any, these are empty and not null."""
        self._put(">ihqq", answer.number, answer.code, answer.end, answer.end)
        if self._version >= 5:
            self._put(">q", answer.start)
        if committed:
            self.count(0)  # no transaction was aborted
        elif self._flexible:
            self._head += varint(0)  # null
        else:
            self._put(">i", -1)
        if self._version >= 11:
            self._put(">i", -1)  # no other replica to read from
        self.count(answer.taken.size)
        if answer.taken.size:
            self._flush()
            self._parts += answer.taken.parts
        self.tags()

    def _put(self, form: str, *values: int) -> None:
        self._head += struct.pack(form, *values)

    def _flush(self) -> None:
        if self._head:
            self._parts.append(self._head)
            self._head = bytearray()
