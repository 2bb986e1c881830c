"""docs/format.md says what the code does: its tables and its example are compared with it."""

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from seglake.format import batch, index, zonemap
from seglake.format.codecs.compression import NAMES
from seglake.format.encode import Encoding
from seglake.format.index import IndexPolicy
from seglake.format.segment import SegmentLimits
from seglake.limits import INT32_MAX
from tests.judges.kafka_model import Record
from tests.unit.format.test_batch import encode

TEXT = (Path(__file__).parents[3] / "docs" / "format.md").read_text()


def table_after(words: str) -> list[list[str]]:
    """The rows of the first table after `words`, without its head."""
    rest = TEXT.split(words, 1)[1]
    [found, *_] = re.findall(r"(?:^\|.*\n)+", rest, re.MULTILINE)
    lines = found.splitlines()
    return [[cell.strip() for cell in line.strip("|").split("|")] for line in lines[2:]]


@pytest.mark.parametrize(
    ("words", "dtype"),
    [
        ("## Record batch", batch.HEADER),
        ("## Offset index", index.OFFSET_ENTRY),
        ("## Time index", index.TIME_ENTRY),
        ("Header, 32 bytes:", zonemap.HEADER),
        ("Fence, 40 bytes:", zonemap.FENCE),
        ("Entry, 24 bytes:", zonemap.ENTRY),
    ],
)
def test_layouts(words: str, dtype: np.dtype[Any]) -> None:
    told = [
        (int(at), int(size), name.replace(" ", "_")) for at, size, name, *_ in table_after(words)
    ]
    fields: dict[str, Any] = dict(dtype.fields or {})
    assert told == [(at, kind.itemsize, name) for name, (kind, at) in fields.items()]
    if found := re.search(r"(\d+) bytes", words):
        assert int(found[1]) == dtype.itemsize


def test_sizes_in_sentences() -> None:
    assert f"From byte {batch.OVERHEAD} on" in TEXT
    assert f"from byte {batch.CRC_START} on" in TEXT
    assert f"has {index.OFFSET_ENTRY.itemsize} bytes. Offsets" in TEXT
    assert f"has {index.TIME_ENTRY.itemsize} bytes. Timestamps" in TEXT
    assert "2,731 to 16,384 blocks, 256 up to 65,536 blocks" in TEXT
    assert f"otherwise {zonemap.FENCE_SPAN}." in TEXT
    assert [zonemap.span_of(blocks) for blocks in (2_730, 2_731)] == [512, 128]
    assert [zonemap.span_of(blocks) for blocks in (16_384, 16_385, 65_536)] == [128, 256, 256]
    assert zonemap.span_of(65_537) == 512
    header = {name: meaning for _, _, name, meaning in table_after("Header, 32 bytes:")}
    assert header["magic"] == f"`{zonemap.MAGIC.decode()}`"
    assert header["version"] == str(zonemap.VERSION)


def test_codecs() -> None:
    told = [(int(number), name) for number, name, _ in table_after("Attributes: ")]
    assert told == list(enumerate(NAMES))


def test_limits() -> None:
    limits, told = SegmentLimits(), {what: int(value) for what, value in table_after("## Limits")}
    assert told == {
        "relative offset, position, size of a `.log`": INT32_MAX,
        "a batch, decompressed, in bytes": batch.MAX_BATCH_BYTES,
        "`batch.size` by default": Encoding(None, 0).batch_bytes,
        "`segment.bytes` by default": limits.segment_bytes,
        "`segment.index.bytes` by default": limits.index_bytes,
        "`index.interval.bytes` by default": IndexPolicy().interval,
    }


def test_example() -> None:
    lines = TEXT.split("## An example", 1)[1].splitlines()
    told = "".join(line.split()[0] for line in lines if line.startswith("    "))
    made = encode([Record(1700000000000, b"k", b"hello")], base_offset=1000)
    assert made.data.tobytes().hex() == told
