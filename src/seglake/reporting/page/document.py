"""Render the report as one HTML page with charts, tables and a script. It needs no network."""

from __future__ import annotations

import re
from collections.abc import Callable, Iterator, Sequence
from importlib import resources
from shlex import quote
from typing import Any, NamedTuple

from seglake.extras import extra
from seglake.read.listings import interval, took
from seglake.reporting.alerts import join_alerts, topic_alerts
from seglake.reporting.figures import RetainedVersions, TopicFigures, format_minute
from seglake.terminal.wording import duration, short_bytes

CHARTED = 4  # limit of topics with charts; the others are only in the overview


def render_page(report: Any) -> str:
    """Return a `LakeReport` as one HTML page.

    Raises ConfigError if a library that it needs is not installed.
    """
    with extra("report", "a page, unlike --json,"):
        from bokeh.resources import Resources  # noqa: PLC0415  # an extra
        from jinja2 import Environment  # noqa: PLC0415  # the same

        sections, script = _sections(report.topics[:CHARTED], report.root)
    room = resources.files("seglake.reporting.page")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["code"] = _code
    template = environment.from_string((room / "page.html.j2").read_text("utf-8"))
    return template.render(
        report=report,
        made=format_minute(report.made_ms),
        alerts=join_alerts(report.alerts),
        sections=sections,
        overview=_overview(report.topics),
        versions=_versions(report.versions),
        css=(room / "page.css").read_text("utf-8"),
        library=Resources(mode="inline", components=["bokeh"]).render() if script else "",
        script=script,
        painter=(room / "page.js").read_text("utf-8"),
    )


def _sections(topics: Sequence[TopicFigures], root: str) -> tuple[list[dict[str, Any]], str]:
    """Return the variables of the template for each topic, and the script for all charts."""
    from bokeh.embed import components  # noqa: PLC0415  # an extra

    from seglake.reporting.page.charts import draw_charts  # noqa: PLC0415  # it needs the extra

    drawn = dict[str, Any]()
    for figures in topics:
        drawn |= {f"{figures.topic} {name}": plot for name, plot in draw_charts(figures).items()}
    script, drawings = components(drawn) if drawn else ("", {})
    sections = []
    for figures in topics:
        charts = [
            PageSection(name, title, text, table(figures), drawing)
            for name, title, text, table in _CHARTS
            if (drawing := drawings.get(f"{figures.topic} {name}"))
        ]
        sections.append({
            "figures": figures, "tiles": _tiles(figures), "shown": charts,
            "tables": [*_tables(figures, root)],
        })  # fmt: skip
    return sections, script


def _code(text: str) -> Any:
    """Convert a text to HTML: escape it, and show text between backticks as code."""
    from markupsafe import Markup, escape  # noqa: PLC0415  # comes with jinja2

    html = re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(text)))
    return Markup(html)  # noqa: S704  # the text is escaped


def _tiles(figures: TopicFigures) -> list[tuple[str, str, str]]:
    """Return the figures at the top of a topic: name, value and a note."""
    lag = figures.coverage.lag_ms(figures.now_ms)
    closed = figures.coverage.closed_until_ms
    ratio = sum(r.input_bytes for r in figures.committed) / max(1, figures.log_bytes)
    index = figures.index_bytes / max(1, figures.log_bytes)
    return [
        ("Records", f"{figures.records:,}", f"in {len(figures.partitions)} log partitions"),
        ("Segments", f"{figures.segments:,}", f"{short_bytes(figures.log_bytes)} of logs"),
        ("Closed until", "never" if closed is None else format_minute(closed),
         "no run declares an interval" if lag is None else f"coverage lag: {duration(lag)}"),
        ("Newest event", format_minute(figures.newest_ms),
         "in the future: see the alerts" if figures.future.segments
         else f"oldest {format_minute(figures.oldest_ms)}"),
        ("Rejects", f"{figures.open_rejects:,}", "rows not redriven"),
        ("Size", f"{1 / ratio:.0%}" if ratio else "-",
         f"of the input; indexes add {index:.1%}"),
    ]  # fmt: skip


# ---------------- tables
# The tables of the page: one for each chart, and tables without a chart.

_ROWS = 200  # limit of the rows of a table


class PageTable(NamedTuple):
    """A table of a page. `numbers` are columns of numbers, `left_out` counts the missing rows."""

    headings: Sequence[str]
    rows: Sequence[Sequence[str]]
    numbers: frozenset[int] = frozenset()
    left_out: int = 0


class PageSection(NamedTuple):
    """A table on the page, and the HTML of its chart, if it has one."""

    name: str
    title: str
    text: str
    table: PageTable
    drawing: str = ""


def _table(headings: str, rows: Sequence[Sequence[Any]]) -> PageTable:
    """Return a table of at most `_ROWS` rows. A column of numbers is aligned to the right."""
    shown = [[_cell(value) for value in row] for row in rows[:_ROWS]]
    columns = enumerate(zip(*rows, strict=True))
    numbers = [i for i, column in columns if not any(isinstance(v, str | None) for v in column)]
    return PageTable(headings.split("|"), shown, frozenset(numbers), max(0, len(rows) - _ROWS))


def _cell(value: str | float | None) -> str:
    if isinstance(value, str | None):
        return value or "-"
    return f"{value:,.3f}" if isinstance(value, float) else f"{value:,}"


def _volume(figures: TopicFigures) -> PageTable:
    """Return the records of each bin, newest first, because long tables are cut at their end."""
    count, rows = len(figures.partitions), []
    if figures.activity is not None:
        start, width, records = figures.activity[:3]
        for number, counts in enumerate(zip(*records, strict=True)):
            few = counts if count <= 12 else (min(counts), max(counts))
            rows.append((format_minute(start + number * width), sum(counts), *few))
    names = [f"partition {p}" for p in range(count)] if count <= 12 else ["fewest", "most"]
    return _table("|".join(["from", "records", *names]), rows[::-1])


def _coverage(figures: TopicFigures) -> PageTable:
    covered = [(start, end, "covered") for start, end in figures.coverage.covered]
    holes = [(start, end, "hole") for start, end in figures.coverage.holes]
    newest = sorted(covered + holes, reverse=True)
    rows = [(format_minute(s), format_minute(e), duration(e - s), what) for s, e, what in newest]
    return _table("from|to|length|what", rows)


def _partitions(figures: TopicFigures) -> PageTable:
    return _table(
        "partition|records|log start|end offset|segments|log bytes|oldest|newest",
        [
            (str(p.partition), p.records, p.log_start_offset, p.end_offset, p.segments,
             short_bytes(p.log_bytes), format_minute(p.oldest_ms), format_minute(p.newest_ms))
            for p in figures.partitions
        ],
    )  # fmt: skip


def _lateness(figures: TopicFigures) -> PageTable:
    shares = [
        (f"{share:.0%} of the records", duration(late)) for share, late in figures.lateness_shares
    ]
    left = ("left in the logs", duration(figures.log_lateness_ms))
    runs = [(item.run_id, duration(item.lateness_ms)) for item in figures.lateness[::-1]]
    return _table("run, or share|late by at most", [*shares, left, *runs])


def _maintenance(figures: TopicFigures) -> PageTable:
    newest = figures.maintenance[::-1]
    rows = [(format_minute(row.finished_at_ms), row.operation, took(row)) for row in newest]
    return _table("finished|operation|took", rows)


def _rejects(figures: TopicFigures) -> PageTable:
    rows = []
    for run in figures.rejects:
        reasons = ", ".join(f"{reason} {count:,}" for reason, count in run.reasons.items())
        rows.append((run.run_id, run.rows, reasons))
    return _table("run|rows|reasons", rows)


def _history(figures: TopicFigures) -> PageTable:
    return _table(
        "finished|run|interval|state|took|files|rows|records|rejected|output",
        [
            (format_minute(run.finished_at_ms), run.run_id, interval(run), run.state, took(run),
             run.input_files, run.input_rows, run.records, run.quarantined,
             short_bytes(run.output_bytes))
            for run in figures.runs[::-1]
        ],
    )  # fmt: skip


# The name, title, text and table of each part of a topic, in the order on the page.
_CHARTS: tuple[tuple[str, str, str, Callable[[TopicFigures], PageTable]], ...] = (
    ("volume", "Records over time",
     "Records by time of the event. The dashed line is the time up to which windows are closed.",
     _volume),
    ("heat", "Records by log partition and time",
     "Each row is a log partition. The brighter a cell, the more records it has.", _volume),
    ("coverage", "Coverage of declared intervals",
     ("Green is covered by committed runs, red is a hole. The dashed line is the time up to which "
      "windows are closed. The dotted line assumes the largest lateness."), _coverage),
    ("lateness", "Lateness of events, by run",
     "For each run, the largest difference between an event's time and a larger, earlier time.",
     _lateness),
)  # fmt: skip
_TABLES: tuple[tuple[str, str, str, Callable[[TopicFigures], PageTable]], ...] = (
    ("partitions", "Log partitions", "", _partitions),
    ("history", "Runs", "Newest first.", _history),
    ("rejects", "Rejects",
     ("Rejected rows that were not redriven. `seglake quarantine {root} {topic} --run-id RUN` "
      "shows them."), _rejects),
    ("maintenance", "Maintenance", "Commits, newest first.", _maintenance),
)  # fmt: skip


def _tables(figures: TopicFigures, root: str) -> Iterator[PageSection]:
    """Yield the tables without a chart. Tables without rows are omitted, except for runs."""
    for name, title, text, table in _TABLES:
        filled = table(figures)
        if filled.rows or name == "history":
            about = text.format(root=quote(root), topic=figures.topic)
            yield PageSection(name, title, about, filled)


def _overview(topics: Sequence[TopicFigures]) -> PageTable:
    """Return the table of topics, with a row for each."""
    rows = []
    for item in topics:
        closed = item.coverage.closed_until_ms
        rows.append(
            (item.topic, len(item.partitions), item.records, item.segments,
             short_bytes(item.log_bytes), format_minute(item.oldest_ms),
            format_minute(item.newest_ms),
             "never" if closed is None else format_minute(closed), len(topic_alerts(item)))
        )  # fmt: skip
    headings = "topic|partitions|records|segments|logs|oldest|newest|closed until|alerts"
    return _table(headings, rows)


def _versions(versions: RetainedVersions) -> tuple[str, PageTable]:
    """Return a sentence about the retention, and the retained versions."""
    retained = (
        f"An old version is retained for {duration(versions.retention_ms)}. `seglake vacuum "
        f"--dry-run` shows what a vacuum would free, and `seglake tag` what the tags keep."
    )
    rows = [(str(version), format_minute(ms)) for version, ms in versions.commits[::-1]]
    return retained, _table("version|committed", rows)
