"""What is meant by rows that cannot be read: times in another format, an array instead of lines.

A hint has no value of a row, since reports keep it, and an erasure does not look there.
"""

from collections.abc import Iterator

import numpy as np

from seglake.config import Pipeline
from seglake.format.records import Spans
from seglake.times.formats import EPOCH_POWERS, ISO, TimeFormat
from seglake.times.readers import read_times
from seglake.times.time_kernels import READ
from seglake.write.rows.rows import Codes, Reason, Rows

PATTERNS = (
    "%d/%b/%Y:%H:%M:%S %z",
    "%a, %d %b %Y %H:%M:%S %Z",
    "%a %b %e %H:%M:%S %Y",
    "%a %b %e %H:%M:%S.%f %Y",
    "%d %b %Y %H:%M:%S",
    "%d-%b-%Y %H:%M:%S",
    "%d-%b-%Y %H:%M:%S.%f",
    "%b %e %H:%M:%S",
    "%m%d %H:%M:%S.%f",
    "%Y%m%d %H:%M:%S.%f",
    "%d.%m.%Y %H:%M:%S",
    "%d.%m.%Y %H:%M",
    "%Y/%m/%d %H:%M:%S",
    "%Y/%m/%d %H:%M:%S.%f",
    "%Y/%m/%d %H:%M",
    "%d/%m/%Y %H:%M:%S",
    "%m/%d/%Y %H:%M:%S",
    "%d/%m/%Y %H:%M",
    "%m/%d/%Y %H:%M",
    "%m/%d/%Y %I:%M:%S %p",
    "%d.%m.%Y",
    "%d/%m/%Y",
    "%m/%d/%Y",
)
NOT_UTF_8 = (
    "rows are not UTF-8: set input.encoding to what the files are in, such as 'cp1252' or 'latin-1'"
)
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_OF_TIMES = [Reason.TIMESTAMP_UNREADABLE, Reason.TIMESTAMP_OUT_OF_RANGE]
PLAUSIBLE = range(100_000_000_000, 4_102_444_800_000)  # 1973 to 2099, in ms
_UNITS = {"epoch_s": "seconds", "epoch_ms": "milliseconds", "epoch_us": "microseconds",
          "epoch_ns": "nanoseconds"}  # fmt: skip


def hints_of(rows: Rows, pipeline: Pipeline, reasons: Codes, path: str, line: int) -> list[str]:
    """Sentences about a chunk, most about rejects; it begins at a line (from 0) of its file."""
    sentences = list(_of_encoding(rows, pipeline, reasons, path, line))
    if line == 0 and pipeline.input.format == "jsonl" and _is_array(rows):
        sentences.append(
            f"{path}: it begins with '[', so it is a JSON array; one JSON object a line is wanted: "
            "`jq -c '.[]'` makes lines of it"
        )
    wrong = np.flatnonzero(np.isin(reasons, _OF_TIMES))[:1]
    field = pipeline.timestamp.field
    if len(wrong) and field is not None:
        meant = looks_like(rows.field(field).take(wrong), pipeline.timestamp.time_format)
        if meant is not None:
            sentences.append(
                f"timestamp.field {field!r}: a time cannot be read as "
                f"{pipeline.timestamp.format!r}; it {meant}"
            )
    return sentences


def _of_encoding(
    rows: Rows, pipeline: Pipeline, reasons: Codes, path: str, line: int
) -> Iterator[str]:
    """What `input.encoding` should be, where rows show that it is not UTF-8."""
    settings = pipeline.input
    if settings.columnar or settings.recoded or not len(rows.numbers):
        return
    (first,) = rows.take_raw(np.zeros(1, np.int64)).tolist() if line == 0 else (b"",)
    if (first or b"")[:2] in UTF_16_MARKS:
        yield f"{path}: it begins as UTF-16 does: set input.encoding = 'utf-16'"
    elif (reasons == Reason.INVALID_UTF8).any():
        yield NOT_UTF_8


def looks_like(value: Spans, form: TimeFormat) -> str | None:
    """What would read a time, given as one item; None if nothing known does."""
    for text in (*EPOCH_POWERS, ISO, *PATTERNS):
        if text != form.text and _reads(value, form._replace(text=text)):
            named = _UNITS.get(text, text)
            return f"looks like {named}: set timestamp.format = {text!r}"
    return None


def _reads(value: Spans, form: TimeFormat) -> bool:
    (ms,), (code,) = read_times(value, form)
    return bool(code == READ) and int(ms) in PLAUSIBLE


def _is_array(rows: Rows) -> bool:
    """Whether the first row is the beginning of a JSON array."""
    if not len(rows.numbers) or rows.numbers[0] or not rows.reasons[0]:
        return False
    (raw,) = rows.take_raw(np.zeros(1, np.int64)).tolist()
    return (raw or b"").lstrip()[:1] == b"["
