"""Find problems of a topic, and things that may become problems, each with a remedy."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from typing import Literal, NamedTuple

from seglake.reporting.figures import TopicFigures, format_minute
from seglake.terminal.wording import counted, duration

Severity = Literal["problem", "warning", "note"]
Kind = Literal[
    "hole", "not closed", "no intervals", "future", "ancient", "no time", "rejects",
    "tiny segments", "skew",
]  # fmt: skip

SEVERITIES: tuple[Severity, ...] = ("problem", "warning", "note")
_LATE_INTERVALS = 2  # a topic is late if its coverage lag is more usual intervals than this
_SKEW = 4  # skewed: a log partition with more than this times the mean number of records
_SKEW_RECORDS = 1000
_REJECTED_SHARE = 0.01
_TINY = 10  # segments that a merge would join
_NAMED, _TOPICS = 3, 10


class Alert(NamedTuple):
    """A problem of a topic, or of several: `text` describes it, and `help` is the remedy."""

    topic: str
    kind: Kind
    severity: Severity
    text: str
    help: str


def severity_rank(alert: Alert) -> int:
    """Return the rank of an alert's severity for sorting. The worst severity has rank 0."""
    return SEVERITIES.index(alert.severity)


def topic_alerts(figures: TopicFigures) -> list[Alert]:
    """Return the alerts of a topic, the worst first."""
    unsorted = [alert for check in _CHECKS for alert in check(figures)]
    return sorted(unsorted, key=severity_rank)


def join_alerts(all_alerts: Iterable[Alert]) -> list[Alert]:
    """Return the alerts in order, with alerts that differ only by their topic joined to one."""
    topics: dict[Alert, list[str]] = {}
    for alert in all_alerts:
        topics.setdefault(alert._replace(topic=""), []).append(alert.topic)
    return [alert._replace(topic=_names(named)) for alert, named in topics.items()]


def _names(topics: Sequence[str]) -> str:
    more = len(topics) - _TOPICS
    return ", ".join(topics[:_TOPICS]) + (f" and {more:,} more" if more > 0 else "")


def _holes(figures: TopicFigures) -> Iterator[Alert]:
    holes = figures.coverage.holes
    if holes:
        named = ", ".join(
            f"{format_minute(start)} to {format_minute(end)}" for start, end in holes[:_NAMED]
        )
        more = f", and {len(holes) - _NAMED} more" if len(holes) > _NAMED else ""
        missing = duration(sum(end - start for start, end in holes))
        yield Alert(
            figures.topic, "hole", "problem",
            f"Found {counted(len(holes), 'hole')} between declared intervals, {missing} in "
            f"total: {named}{more}. No window that ends after the first hole is closed.",
            "Ingest the missing input with --interval-start and --interval-end. If no input is "
            'missing, declare the interval with a run over empty input (`on_empty = "ok"`).',
        )  # fmt: skip


def _not_closed(figures: TopicFigures) -> Iterator[Alert]:
    lag = figures.coverage.lag_ms(figures.now_ms)
    if lag is None and figures.committed:
        yield Alert(
            figures.topic, "no intervals", "note",
            "No run declares an interval, so Seglake cannot determine which windows are closed.",
            "Give runs --interval-start and --interval-end.",
        )  # fmt: skip
    elif lag is not None and lag > _LATE_INTERVALS * figures.coverage.usual_ms:
        yield Alert(
            figures.topic, "not closed", "warning",
            f"Windows are closed up to {format_minute(figures.coverage.closed_until_ms or 0)}, "
            f"{duration(lag)} ago; an interval is usually {duration(figures.coverage.usual_ms)}.",
            "Check whether runs fail or wait: `seglake history --failed`, or the scheduler.",
        )  # fmt: skip


def _stray(figures: TopicFigures) -> Iterator[Alert]:
    if figures.future.segments:
        yield Alert(
            figures.topic, "future", "warning",
            f"{counted(figures.future.segments, 'segment')} with timestamps in the future, up to "
            f"{format_minute(figures.future.farthest_ms)}. Retention by time keeps them until "
            "then.",
            "Look for a wrong clock or a wrong unit, such as microseconds read as milliseconds. "
            "`message.timestamp.after.max.ms` rejects such rows.",
        )  # fmt: skip
    if figures.ancient.segments:
        yield Alert(
            figures.topic, "ancient", "warning",
            f"{counted(figures.ancient.segments, 'segment')} with timestamps long before all "
            f"others, down to {format_minute(figures.ancient.farthest_ms)}.",
            "Look for a default time such as 1970, or for seconds read as milliseconds. "
            "`message.timestamp.before.max.ms` rejects such rows.",
        )  # fmt: skip
    if figures.undated_segments:
        yield Alert(
            figures.topic, "no time", "note",
            f"{counted(figures.undated_segments, 'segment')} with records without a timestamp, "
            f"which are in no window.",
            "They come from imports of old message formats. `seglake read --offset` shows them.",
        )  # fmt: skip


def _rejects(figures: TopicFigures) -> Iterator[Alert]:
    rows = sum(run.input_rows for run in figures.committed)
    if figures.open_rejects:
        share = figures.open_rejects / max(1, rows)
        reasons = list(figures.reasons.items())[:_NAMED]
        why = ", ".join(f"{reason} {count:,}" for reason, count in reasons)
        yield Alert(
            figures.topic, "rejects", "warning" if share >= _REJECTED_SHARE else "note",
            f"{counted(figures.open_rejects, 'row')} rejected and not yet redriven, "
            f"{share:.2%} of all rows{': ' if why else ''}{why}.",
            "`seglake quarantine` shows them; `seglake redrive` ingests them with corrected "
            "settings.",
        )  # fmt: skip


def _tiny(figures: TopicFigures) -> Iterator[Alert]:
    tiny = figures.tiny_segments
    if tiny >= _TINY and 2 * tiny >= figures.segments:
        yield Alert(
            figures.topic, "tiny segments", "note",
            f"{tiny:,} of {figures.segments:,} segments are small enough to be merged. Each costs "
            "a request or two in a scan.",
            "`seglake merge` joins them; `seglake maintain` does so on a schedule.",
        )  # fmt: skip


def _skew(figures: TopicFigures) -> Iterator[Alert]:
    counts = [p.records for p in figures.partitions]
    mean = figures.records / max(1, len(counts))
    if figures.records >= _SKEW_RECORDS and max(counts) > _SKEW * mean:
        largest = counts.index(max(counts))
        yield Alert(
            figures.topic, "skew", "note",
            f"Partition {largest} has {max(counts) / figures.records:.0%} of the records, "
            f"{max(counts) / mean:.1f} times the mean.",
            "One key may dominate, or most rows may have no key. To spread new records, change "
            "key.fields.",
        )  # fmt: skip


_CHECKS: tuple[Callable[[TopicFigures], Iterator[Alert]], ...] = (
    _holes, _not_closed, _stray, _rejects, _tiny, _skew,
)  # fmt: skip
