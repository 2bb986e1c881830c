"""Logs that tests make up: what the records hold, the times they bear, how a topic stores them.

A log of hundreds of records is drawn as a few patterns that repeat with periods of their own, so
that it is made quickly and shrinks well.
"""

import itertools
import random
from typing import NamedTuple

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.strategies import DrawFn

from seglake.config import Pipeline, Topic
from seglake.format.codecs.compression import NAMES
from seglake.limits import INT64_MAX, INT64_MIN
from tests.makers.lakes import Event

T = 1_700_000_000_000
FAR = T + 10**12  # a record far in the future
STEADY_EXAMPLES = 100  # of the profile that tests/conftest.py loads
LEAST_EXAMPLES = 3  # also in the quick profile: one example says little
NOISE = random.Random(5).randbytes(150_000)  # more than a block of any codec, and incompressible


def examples(count: int) -> settings:
    """`count` examples in the steady profile, in others more or less, but three at least."""
    return settings(
        max_examples=max(LEAST_EXAMPLES, count * settings().max_examples // STEADY_EXAMPLES)
    )


contents = st.one_of(st.none(), st.binary(max_size=40), st.integers(60, 70).map(bytes))
headers = st.lists(st.tuples(st.text(max_size=5), contents), max_size=3).map(tuple)
patterns = st.builds(Event, st.just(T), contents, contents, st.one_of(st.just(()), headers))
large_values = st.one_of(
    st.integers(40_000, 300_000).map(lambda size: b"seglake." * (size // 8)),
    st.integers(40_000, len(NOISE)).map(lambda size: NOISE[:size]),
)

drifting = st.lists(st.integers(-30, 40), min_size=1, max_size=8).map(
    lambda steps: itertools.accumulate(itertools.cycle(steps), initial=T)
)  # late records, equal times; all equal where the one step is 0
scattered = st.lists(
    st.one_of(st.integers(T, T + 40), st.sampled_from([-1, 0, 1, T, FAR])), min_size=1, max_size=12
).map(itertools.cycle)
timelines = st.one_of(drifting, drifting, scattered, st.just(-1).map(itertools.repeat))


@st.composite
def event_lists(draw: DrawFn, *, min_size: int = 1, max_size: int = 300) -> list[Event]:
    """Events in the order of the log; no offset is left out."""
    count = draw(st.integers(min_size, max_size))
    repeated = itertools.cycle(draw(st.lists(patterns, min_size=1, max_size=11)))
    times = (max(time, -1) for time in draw(timelines))
    return [
        event._replace(timestamp=time, value=event.value and event.value + b"%d" % number)
        for number, event, time in zip(range(count), repeated, times, strict=False)
    ]


INTERVALS = (0, 1, 10, 100, 4096)
ROLLED = [  # for what reason, and at which multiple of a batch, time span or size
    (None, 0), (None, 0), ("segment_bytes", 1), ("segment_bytes", 3), ("segment_ms", 1),
    ("segment_ms", 100), ("segment_ms", 10_000), ("segment_index_bytes", 24),
    ("segment_index_bytes", 100),
]  # fmt: skip
ENDS = st.sampled_from([INT64_MAX, INT64_MAX - 1, 5, 1, 0, -1, -2, -3, INT64_MIN + 1, INT64_MIN])


def topic_of(interval: int = 4096, **keys: object) -> Topic:
    """A topic's settings; "_" in a key's name stands for Kafka's dot."""
    dotted = {name.replace("_", "."): value for name, value in keys.items()}
    return Topic.model_validate({"name": "events", "index.interval.bytes": interval, **dotted})


class Stored(NamedTuple):
    """A log partition to be written: its events, how they are stored, and from which offset on."""

    events: list[Event]
    topic: Topic
    base_offset: int
    append_time_ms: int  # counts for a LogAppendTime topic

    @property
    def pipeline(self) -> Pipeline:
        """A pipeline into the topic."""
        return Pipeline.model_validate(
            {
                "name": "judged", "root": "lake", "topic": self.topic,
                "input": {"paths": ["input"], "format": "jsonl"},
                "timestamp": {"field": "ts", "format": "epoch_ms"},
            }
        )  # fmt: skip

    @property
    def stamped(self) -> bool:
        """Whether records bear the append time instead of their own."""
        return self.topic.message_timestamp_type == "LogAppendTime"


@st.composite
def stored_logs(draw: DrawFn, *, max_size: int = 300) -> Stored:
    """Logs of one or many segments, rolled for every reason there is."""
    rolled, unit = draw(st.sampled_from(ROLLED))
    small = rolled is not None and unit < 100  # so few records in a segment that files abound
    events = draw(event_lists(max_size=min(max_size, 60) if small else max_size))
    large = draw(st.one_of(st.none(), st.none(), large_values))
    if large is not None:
        at = draw(st.integers(0, len(events) - 1))
        events[at] = events[at]._replace(value=large)
    batch = draw(st.sampled_from([1, 150, 700, 16_384]))
    keys: dict[str, object] = {} if rolled is None else {rolled: unit}
    if rolled == "segment_bytes":
        widest = max(len(event.value or b"") for event in events)
        keys[rolled] = unit * (batch + widest + 600)  # no batch is too large for a segment
    topic = topic_of(
        draw(st.sampled_from(INTERVALS)),
        compression_type=draw(st.sampled_from(NAMES)),
        message_timestamp_type=draw(st.sampled_from(["CreateTime", "LogAppendTime"])),
        batch_size=batch,
        **keys,
    )
    base_offset = draw(st.sampled_from([0, 0, 7, 2**31 - 100, 2**40]))
    return Stored(events, topic, base_offset, draw(st.sampled_from([0, T, FAR])))
