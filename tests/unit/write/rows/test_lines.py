"""Lines, chunks and splits: however a file is cut, the same rows come out."""

import io
import re
from typing import Any

from hypothesis import example, given
from hypothesis import strategies as st

from seglake.write.rows.lines import SplitStream, line_chunks
from tests.makers.files import Reject, Result, read_bytes

BOM = b"\xef\xbb\xbf"


def model(data: bytes, chunk_bytes: int) -> tuple[list[tuple[int, bytes]], list[Reject]]:
    """Line numbers and lines; and the lines that are too long for a chunk."""
    good, long = [], []
    for number, line in enumerate(data.split(b"\n")):
        marks = re.match(b"(?:\xef\xbb\xbf)*", line)
        text = line[marks.end() if marks else 0 :].removesuffix(b"\r")
        if len(line) >= chunk_bytes:
            long.append(Reject(number, "record too large", line[:chunk_bytes]))
        elif text:
            good.append((number, text))
    return good, long


def read_lines(data: bytes, comment: str | None = None, **task: Any) -> Result:
    settings = {"compression": "none", "comment": comment}
    return read_bytes(data, "text", task=task, input=settings)


pieces = st.sampled_from(
    [b"\n", b"\r\n", b"\n\n", b"\r", b"a", b"bb", b"\x00", b"\xff", b"x" * 63, b"y" * 70, BOM,
     b"\n" + BOM, BOM + b"\n"]
)  # fmt: skip
contents = st.lists(pieces, max_size=30).map(b"".join)


@given(contents, st.integers(64, 100), st.integers(1, 90))
@example(BOM + b"a\nb", 64, 2)
@example(b"x" * 64, 64, 10)
@example(b"x" * 63 + b"\n" + b"y" * 64 + b"\nz", 64, 64)
@example(b"\n" * 200, 64, 7)
def test_lines_as_split_by_python(data: bytes, chunk_bytes: int, split_bytes: int) -> None:
    good, long = model(data, chunk_bytes)
    found = read_lines(data, chunk_bytes=chunk_bytes, split_bytes=split_bytes)
    assert [row.value for row in found.rows] == [line for _, line in good]
    assert found.rejects == long


@given(contents, st.integers(64, 100), st.integers(1, 90), st.sampled_from("ab#"))
def test_comments_are_left_out_and_counted(
    data: bytes, chunk_bytes: int, split_bytes: int, comment: str
) -> None:
    good, long = model(data, chunk_bytes)
    found = read_lines(data, comment, chunk_bytes=chunk_bytes, split_bytes=split_bytes)
    rows = [line for _, line in good if not line.startswith(comment.encode())]
    assert [row.value for row in found.rows] == rows
    assert (found.rejects, found.comments) == (long, len(good) - len(rows))


@given(contents, st.integers(64, 100))
def test_lines_are_numbered_as_an_editor_does(data: bytes, chunk_bytes: int) -> None:
    good, _ = model(data, chunk_bytes)
    found = read_bytes(data, "text", task={"chunk_bytes": chunk_bytes}, headers={"source": True})
    numbers = [int(dict(row.headers)[b"seglake.source.line"] or b"") for row in found.rows]
    assert numbers == [number + 1 for number, _ in good]


def test_rejects_of_later_splits_have_the_lines_of_the_file() -> None:
    data = b"".join(b'{"n":%d}\n' % k if k % 5 else b"broken\n\n" for k in range(100))
    whole = read_bytes(data)
    assert [reject.line for reject in whole.rejects] == [6 * k for k in range(20)]
    for split_bytes in (1, 10, 33, 400):
        assert read_bytes(data, task={"split_bytes": split_bytes}) == whole._replace(
            chunks=read_bytes(data, task={"split_bytes": split_bytes}).chunks
        )


def test_a_long_line_is_cut_off_and_the_rest_is_read() -> None:
    data = b"first\n" + b"x" * 1_000_000 + b"\nlast"
    found = read_lines(data, chunk_bytes=100_000, split_bytes=50_000)
    assert [row.value for row in found.rows] == [b"first", b"last"]
    assert found.rejects == [Reject(1, "record too large", b"x" * 65536)]


class Counted(io.BytesIO):
    """A stream that counts how often it is read."""

    reads = 0

    def readinto(self, buffer: Any) -> int:
        self.reads += 1
        return super().readinto(buffer)


def test_the_end_of_a_long_line_is_found_in_few_steps() -> None:
    data = b"first\n" + b"x" * 2**23 + b"\nnot mine"
    stream = Counted(data)
    found = [
        (bytes(chunk.data[chunk.start : chunk.end]), chunk.too_long)
        for chunk in line_chunks(SplitStream("x", stream, 100, False), 2**24)
    ]
    assert found == [(b"first\n", False), (data[6 : 6 + 2**23 + 1], False)]
    assert stream.reads < 12  # each as long as what is there
