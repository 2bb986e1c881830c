"""What is meant by rows that cannot be read: times in another format, an array instead of lines.

A hint has no value of a row, since reports keep it, and an erasure does not look there.
"""

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from seglake.config import Input, Pipeline, Timestamp
from seglake.format.records import Flags, Int64s, Spans
from seglake.shown import counted
from seglake.text.spans import to_arrow
from seglake.text.utf8 import invalid_utf8
from seglake.times.candidates import candidate_formats, date_orders, is_region, zone_in
from seglake.times.grammar import TimeFormat
from seglake.times.readers import read_times
from seglake.times.time_kernels import READ
from seglake.write.input.files import PARQUET_MARK
from seglake.write.rows.arrays import NO_CONSTANTS, array_alone, has_constants, lines_of
from seglake.write.rows.objects import A_LINE_OF_EACH, not_one_a_line
from seglake.write.rows.rows import Codes, Reason, Rows, texts_of_times

NOT_UTF_8 = (
    "rows are not UTF-8: set input.encoding to what the files are in, such as 'cp1252' or 'latin-1'"
)
_SOME_ARE = (
    "rows are not UTF-8, and others with letters beyond ASCII are: mend these rows and redrive "
    "them, since input.encoding would be that of all"
)
_KEPT = (
    "rows are not UTF-8, and others with letters beyond ASCII are: their records have these bytes "
    "as they are, since input.encoding would be that of all rows"
)
_NO_MATCH = (
    " input.pattern: correct it; or if the file has another format, leave it out with "
    "input.exclude, and ingest it by a pipeline of its own, which `seglake init` drafts"
)
_NO_JSON = (
    " is JSON: if they are CSV or text, set input.format to that; `seglake init` drafts a pipeline"
)
_IN_A_FIELD = "; else each line is one record, whatever the array holds"
LINES_OF_AN_ARRAY = (
    "`jq -c '.[]' < FILE` makes lines of it, and so does, for a file that fits in memory, `python3 "
    "-c 'import json, sys; [print(json.dumps(each)) for each in json.load(sys.stdin)]' < FILE`"
)
_OF_EACH_FILE = (_NO_MATCH, _NO_JSON, LINES_OF_AN_ARRAY, A_LINE_OF_EACH, _IN_A_FIELD, NOT_UTF_8,
                 _SOME_ARE, _KEPT)  # fmt: skip
LF_FOR_CR = "end them with LF, as `tr '\\r' '\\n' < FILE` does"
UTF_16_MARKS = (b"\xff\xfe", b"\xfe\xff")
_IS_PARQUET = "it is a Parquet file: set input.format = 'parquet'"
_OF_TIMES = [Reason.TIMESTAMP_UNREADABLE, Reason.TIMESTAMP_OUT_OF_RANGE]
PLAUSIBLE = range(100_000_000_000, 4_102_444_800_000)  # 1973 to 2099, in ms
_UNITS = {"epoch_s": "seconds", "epoch_ms": "milliseconds", "epoch_us": "microseconds",
          "epoch_ns": "nanoseconds"}  # fmt: skip
_FIELD = re.compile("%.")
_LOOKED_AT = 20  # rows of a chunk that cannot be parsed
_FORMATS = 3  # that are looked for in one chunk


def hints_of(rows: Rows, pipeline: Pipeline, reasons: Codes, path: str, line: int) -> list[str]:
    """Sentences about a chunk's rejects, but for times; it begins at a line (from 0) of a file."""
    sentences = list(_of_encoding(rows, pipeline, reasons, path, line))
    if line == 0 and pipeline.input.format == "jsonl" and _is_array(rows):
        sentences.append(
            f"{path}: it begins with '[', so it is a JSON array; one JSON object a line is wanted: "
            + LINES_OF_AN_ARRAY
        )
    if line == 0 and pipeline.input.format == "jsonl":
        sentences += [*_of_field(rows, path), *_of_objects(rows, reasons, path)]
    if pipeline.input.format == "jsonl":
        sentences += _of_constants(rows, reasons)
    if line == 0 and pipeline.input.format == "jsonl" and not sentences:
        sentences += _of_no_json(rows, reasons, path)
    if line == 0 and pipeline.input.format == "text":
        sentences += _of_patterns(rows, pipeline.input, reasons, path)
    return sentences


def _of_patterns(rows: Rows, settings: Input, reasons: Codes, path: str) -> list[str]:
    """What is said of a text whose first chunk does not match a pattern of the settings."""
    start = settings.multiline_start_pattern
    said = [] if start is None else list(_of_one_event(rows, start, path))
    if not said and rows.line_count and len(reasons) and (reasons == Reason.NOT_PARSEABLE).all():
        some = f"none of {len(reasons):,} rows at its beginning matches"
        none = some if len(reasons) > 1 else "the row at its beginning does not match"
        said.append(f"{path}: {none}{_NO_MATCH}")
    return said


def _of_field(rows: Rows, path: str) -> Iterator[str]:
    """What is said of a file whose first line has an array of objects, and nothing else."""
    name = array_alone(_first(rows)) if len(rows.numbers) else None
    if name is not None:
        yield f"{path}: {lines_of(name, path)}{_IN_A_FIELD}"


def _of_objects(rows: Rows, reasons: Codes, path: str) -> Iterator[str]:
    """What is said of a file whose first line has several JSON objects, or a part of one."""
    if len(reasons) and reasons[0] == Reason.NOT_PARSEABLE:
        first = rows.take_raw(np.arange(min(len(reasons), 2))).tolist()
        lines = [(raw or b"").decode("utf-8", "replace") for raw in first]
        yield from (f"{path}: {said}" for said in not_one_a_line(lines))


def _of_no_json(rows: Rows, reasons: Codes, path: str) -> Iterator[str]:
    """What is said of a file whose first chunk has no JSON at all, nor the beginning of any."""
    if (
        len(reasons)
        and (reasons == Reason.NOT_PARSEABLE).all()
        and _first(rows).lstrip()[:1] != b"{"
    ):
        what = f"none of {len(reasons):,} rows" if len(reasons) > 1 else "not even the row"
        yield f"{path}: {what} at its beginning{_NO_JSON}"


def _of_constants(rows: Rows, reasons: Codes) -> Iterator[str]:
    """What is said of lines that would be JSON, were it not for NaN; some are looked at."""
    wrong = np.flatnonzero(reasons == Reason.NOT_PARSEABLE)[:_LOOKED_AT]
    if len(wrong) and any(has_constants(raw or b"") for raw in rows.take_raw(wrong).tolist()):
        yield f"rows have {NO_CONSTANTS}"


def agreed(hints: list[str]) -> list[str]:
    """The hints, without that of an encoding if it does not help: only one can be followed.

    Of those that say the same of several files, the first.
    """
    other = any(hint.endswith((_IS_PARQUET, _SOME_ARE, _KEPT)) for hint in hints)
    left = [hint for hint in hints if not (other and hint.endswith(NOT_UTF_8))]
    ends = [next((end for end in _OF_EACH_FILE if hint.endswith(end)), hint) for hint in left]
    return [hint for at, hint in enumerate(left) if ends.index(ends[at]) == at]


def times_meant(rows: Rows, pipeline: Pipeline, reasons: Codes) -> dict[str, int]:
    """The count of the times of a chunk that cannot be read, by the format that reads them.

    The first time chooses the format, then the first of those that are left, and so on. Where days
    and months may change places, both formats are counted, and the one that reads more counts.
    """
    wrong, settings = np.flatnonzero(np.isin(reasons, _OF_TIMES)), pipeline.timestamp
    if not len(wrong) or not settings.names:
        return {}
    left, form = texts_of_times(rows, settings).take(wrong), settings.time_format
    counts = dict[str, int]()
    while len(left) and len(counts) < _FORMATS:
        meant = _format_of(left.take(np.zeros(1, np.int64)), form)
        if meant is None:
            break
        reads = {text: _reads(left, form._replace(text=text)) for text in date_orders(meant)}
        found = {text: int(read.sum()) for text, read in reads.items() if text != form.text}
        counts = found | counts  # an order that was counted among more times stays as it is
        read = max(reads.values(), key=lambda read: int(read.sum()))
        left = left.take(np.flatnonzero(~read))
    return counts


def of_times(pipeline: Pipeline, meant: Mapping[str, int], records: int) -> list[str]:
    """The hint about rejected times, given their counts by format, and the count of records."""
    if not meant:
        return []
    settings = pipeline.timestamp
    form, other = _most_meant(meant, settings.format)
    if zones := _several_zones([*meant, *([settings.format] if settings.format else [])]):
        return [f"{settings.named}: {_of_zones(zones, settings)}"]
    rows = f"{counted(meant[form], 'row')} look{'s' if meant[form] == 1 else ''} like"
    begun = f"{settings.named}: {rows} {_UNITS.get(form, form)}"
    if not records:
        swapped = f", or {other!r} if that is what is meant" if other else ""
        remedy = f"set timestamp.format = {form!r}{_of_zone(form)}{swapped}"
        return [f"{begun}, none fits {settings.format!r}: {remedy}"]
    others = f"{counted(records, 'other')} fit{'s' if records == 1 else ''} {settings.format!r}"
    remedy = "correct these rows, or ingest them by a pipeline of their own"
    mixed = f"the input mixes formats; {remedy} (`seglake redrive` takes corrected rules)"
    if _is_another_order(form, settings.format or ""):
        once = f"if {form!r} is meant for all, which may read those, too, set timestamp.format"
        mixed = f"{once}; else {mixed}"
    return [f"{begun}, {others}: {mixed}"]


def _is_another_order(form: str, other: str) -> bool:
    """Whether two formats have the same fields between the same separators, in another order."""
    fields = (sorted(_FIELD.findall(each)) for each in (form, other))
    between = (_FIELD.sub("", each) for each in (form, other))
    return len({*map(tuple, fields)}) == len({*between}) == 1


def _most_meant(meant: Mapping[str, int], given: str | None) -> tuple[str, str | None]:
    """The format that reads the most, and another that reads as many in another order of the date.

    Of these, the one that begins as the one that is `given`.
    """
    most = max(meant.values())
    best = [form for form, count in meant.items() if count == most]
    best.sort(key=lambda form: form[:2] != (given or "")[:2])
    others = [form for form in best[1:] if form in date_orders(best[0])]
    return best[0], next(iter(others), None)


def _several_zones(forms: Iterable[str]) -> list[str]:
    """The names of zones that formats have as they are, if there are several and no offset."""
    zones = sorted({zone_in(form) for form in forms if "%z" not in form} - {""})
    return zones if len(zones) > 1 else []


def _of_zones(zones: Sequence[str], settings: Timestamp) -> str:
    """What to do about times that are followed by several names of zones, which are not read."""
    what = f"the times name the zones {', '.join(zones)}, of which a format has one"
    region = "set timestamp.zone to the region, such as 'America/Los_Angeles'"
    if settings.fields:
        return f"{what}: leave the field of the zone out of timestamp.fields, and {region}"
    return f"{what}: take the zone out of them, and {region}, or have a pipeline for each zone"


def _of_zone(form: str) -> str:
    """What else to set where a format has the name of a zone as it is; it may be nothing."""
    zone = zone_in(form)
    if not zone:
        return ""
    if is_region(zone):
        return f" and timestamp.zone = {zone!r}"
    return (
        ", and timestamp.zone to what is meant, such as 'Europe/Berlin': the name of a zone behind "
        "the time is not read, so the format has it as it is"
    )


def of_no_times(pipeline: Pipeline) -> list[str]:
    """A note if records get no time from the input."""
    settings = pipeline.timestamp
    by_run = pipeline.topic.message_timestamp_type == "LogAppendTime"
    if settings.names and by_run:
        gives = "message.timestamp.type = 'LogAppendTime' gives all records the time of the run"
        return [f"{settings.named} is not read: {gives}; take one of the two away"]
    if settings.names:
        return []
    what = "all records get the time of the run" if by_run else "no record has a timestamp"
    return [f"no timestamp.field is set: {what}"]


def of_no_keys(pipeline: Pipeline) -> list[str]:
    """A warning if no record gets a key, and the topic's compaction removes those without one."""
    policy = pipeline.topic.cleanup_policy
    if pipeline.key.fields or "compact" not in policy:
        return []
    remedy = "set key.fields, or cleanup.policy = 'delete'"
    removes = "compaction removes all these records, since it keeps none without a key"
    return [f"no key.fields is set, and cleanup.policy = {policy!r}: {removes}: {remedy}"]


def _of_encoding(
    rows: Rows, pipeline: Pipeline, reasons: Codes, path: str, line: int
) -> Iterator[str]:
    """What the input is, where its rows show that it is not text in UTF-8."""
    settings = pipeline.input
    if settings.columnar or settings.recoded or not len(rows.numbers):
        return
    first = _first(rows) if line == 0 else b""
    if first.startswith(PARQUET_MARK) and invalid_utf8(*rows.raw).any():
        yield f"{path}: {_IS_PARQUET}"
    elif first[:2] in UTF_16_MARKS:
        yield f"{path}: it begins as UTF-16 does: set input.encoding = 'utf-16'"
    elif (wrong := reasons == Reason.INVALID_UTF8).any():
        said = _SOME_ARE if _beyond_ascii(rows, np.flatnonzero(~wrong)) else NOT_UTF_8
        yield f"{path}: {said}"
    elif settings.format == "jsonl":  # of which only rejects may be anything else
        return
    elif (kept := invalid_utf8(*rows.raw) & (reasons == Reason.NONE)).any():
        said = _KEPT if _beyond_ascii(rows, np.flatnonzero(~kept)) else NOT_UTF_8
        yield f"{path}: {said}"


def _beyond_ascii(rows: Rows, numbers: Int64s) -> bool:
    """Whether some of these rows, which are UTF-8, have letters beyond ASCII."""
    texts = to_arrow(rows.take_raw(numbers))
    return bool(len(texts)) and not pc.all(pc.string_is_ascii(texts)).as_py()


def _of_one_event(rows: Rows, start: str, path: str) -> Iterator[str]:
    """What is said of a file whose first chunk has no line that begins an event."""
    if len(rows.numbers) != 1 or not rows.line_count:  # a part of a chunk counts none
        return
    first = pa.array([re.split(rb"[\r\n]", _first(rows), maxsplit=1)[0]], pa.large_binary())
    begins = pc.match_substring_regex(first, f"^(?:{start})")
    if not begins[0].as_py():
        lines = counted(rows.line_count, "line")
        yield (
            f"{path}: none of its first {lines} matches input.multiline_start_pattern, so that "
            "all continue one event; if the file has another format, leave it out with "
            "input.exclude, and ingest it by a pipeline of its own"
        )


def _format_of(value: Spans, form: TimeFormat) -> str | None:
    """The format that reads a time, given as one item; None if nothing known does."""
    (raw,) = value.tolist()
    for text in candidate_formats((raw or b"").decode("utf-8", "replace").strip()):
        if text != form.text and _reads(value, form._replace(text=text)).all():
            return text
    return None


def _reads(values: Spans, form: TimeFormat) -> Flags:
    """Whether each time is read, and lies in the years that are meant."""
    ms, codes, _ = read_times(values, form)
    plausible: Flags = (codes == READ) & (ms >= PLAUSIBLE.start) & (ms < PLAUSIBLE.stop)
    return plausible


def _is_array(rows: Rows) -> bool:
    """Whether the first row is the beginning of a JSON array."""
    if not len(rows.numbers) or rows.numbers[0] or not rows.reasons[0]:
        return False
    return _first(rows).lstrip()[:1] == b"["


def _first(rows: Rows) -> bytes:
    """The first of some rows."""
    (raw,) = rows.take_raw(np.zeros(1, np.int64)).tolist()
    return raw or b""
