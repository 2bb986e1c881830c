"""The report as one page: its charts, its tables and its script, and nothing from a network."""

from __future__ import annotations

import re
from collections.abc import Sequence
from importlib import resources
from typing import TYPE_CHECKING, Any

from seglake.errors import ConfigError
from seglake.reporting.alerts import alerts, once
from seglake.reporting.failures import FailedAttempt
from seglake.reporting.figures import TopicFigures
from seglake.reporting.page.tables import (
    TABLES,
    ChartTable,
    failures,
    lone_tables,
    overview,
    tags,
    versions,
)
from seglake.reporting.storage import StorageFigures
from seglake.reporting.wording import minute
from seglake.terminal.wording import duration, short_bytes

if TYPE_CHECKING:
    from seglake.reporting.page.charts import Chart

CHARTED = 4  # topics with charts of their own; the others are in the overview


def page(
    root: str,
    version: int,
    made_ms: int,
    topics: Sequence[TopicFigures],
    storage: StorageFigures,
    failed_runs: Sequence[FailedAttempt],
) -> str:
    """The page. Raises ConfigError if the libraries for it are not installed."""
    try:
        from bokeh.resources import Resources  # noqa: PLC0415  # an extra
        from jinja2 import Environment  # noqa: PLC0415  # the same

        sections, script = _sections(topics[:CHARTED], root)
    except ImportError as error:
        raise ConfigError(
            f"a page needs {error.name}: pip install 'seglake[report]', or take --json"
        ) from error
    room = resources.files("seglake.reporting.page")
    environment = Environment(autoescape=True, trim_blocks=True, lstrip_blocks=True)
    environment.filters["code"] = _code
    template = environment.from_string((room / "page.html.j2").read_text())
    return template.render(
        root=root,
        version=version,
        made=minute(made_ms),
        topics=len(topics),
        alerts=once(alert for figures in topics for alert in alerts(figures)),
        sections=sections,
        failed=failures(root, failed_runs),
        overview=overview(topics),
        versions=versions(storage),
        tags=tags(storage),
        css=(room / "page.css").read_text(),
        library=Resources(mode="inline", components=["bokeh"]).render() if script else "",
        script=script,
        painter=(room / "page.js").read_text(),
    )


def _sections(topics: Sequence[TopicFigures], root: str) -> tuple[list[dict[str, Any]], str]:
    """What the template shows of each topic, and the script that draws all charts."""
    from bokeh.embed import components  # noqa: PLC0415  # an extra

    from seglake.reporting.page.charts import charts  # noqa: PLC0415  # it needs the extra

    drawn = [(figures, list(charts(figures))) for figures in topics]
    plots = {(f.topic, chart.name): chart.plot for f, some in drawn for chart in some}
    script, places = components(list(plots.values())) if plots else ("", ())
    place = dict(zip(plots, places, strict=True))
    sections = [
        {
            "figures": figures,
            "tiles": _tiles(figures),
            "shown": [_shown(figures, chart, place[figures.topic, chart.name]) for chart in some],
            "tables": list(lone_tables(figures, root)),
        }
        for figures, some in drawn
    ]
    return sections, script


def _shown(figures: TopicFigures, chart: Chart, place: str) -> ChartTable:
    return ChartTable(chart.name, chart.title, chart.text, place, TABLES[chart.name](figures))


def _code(text: str) -> Any:
    """HTML of a text: escaped, with code between backticks."""
    from markupsafe import Markup, escape  # noqa: PLC0415  # comes with jinja2

    html = re.sub("`([^`]*)`", r"<code>\1</code>", str(escape(text)))
    return Markup(html)  # noqa: S704  # the text is escaped


def _tiles(figures: TopicFigures) -> list[tuple[str, str, str]]:
    """The figures on top: name, value and a note."""
    lag = figures.coverage.lag_ms(figures.now_ms)
    closed = figures.coverage.closed_until_ms
    ratio = sum(r.input_bytes for r in figures.committed) / max(1, figures.log_bytes)
    index = figures.index_bytes / max(1, figures.log_bytes)
    return [
        ("Records", f"{figures.records:,}", f"in {len(figures.partitions)} log partitions"),
        ("Segments", f"{figures.segments:,}", f"{short_bytes(figures.log_bytes)} of logs"),
        ("Closed until", "never" if closed is None else minute(closed),
         "no run declares an interval" if lag is None else f"{duration(lag)} ago: coverage lag"),
        ("Newest event", minute(figures.newest_ms),
         "in the future: see the alerts" if figures.future.segments
         else f"oldest {minute(figures.oldest_ms)}"),
        ("Rejects", f"{figures.open_rejects:,}", "rows not redriven"),
        ("Size", f"{1 / ratio:.0%}" if ratio else "-",
         f"of the input; indexes add {index:.1%}"),
    ]  # fmt: skip
