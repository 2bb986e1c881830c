"""Draw the charts of a topic with Bokeh. Charts over time are moved and zoomed together."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from bokeh.models import (
    BasicTicker,
    ColorBar,
    ColumnDataSource,
    HoverTool,
    LinearColorMapper,
    Range1d,
    Span,
)  # fmt: skip
from bokeh.palettes import Viridis256
from bokeh.plotting import figure

from seglake.reporting.figures import TopicFigures

BLUE, GREEN, RED, AMBER = "#3b7dd8", "#2a9d6f", "#d1495b", "#d98e04"


def draw_charts(figures: TopicFigures) -> dict[str, Any]:
    """Return the charts of a topic by name, without charts that have nothing to draw."""
    times = _times(figures)
    drawn = {name: draw(figures, times) for name, draw in _CHARTS.items()}
    return {name: plot for name, plot in drawn.items() if plot is not None}


def _times(figures: TopicFigures) -> Range1d | None:
    """Return the time range of records and declared intervals, which the charts share."""
    lows, highs = [], []
    if figures.activity:
        lows.append(figures.activity.start_ms)
        bins = len(figures.activity.records[0])
        highs.append(figures.activity.start_ms + bins * figures.activity.width_ms)
    if figures.coverage.covered:
        lows.append(max(figures.coverage.covered[0][0], min(lows, default=-(2**62))))
        highs.append(figures.coverage.covered[-1][1])
    return Range1d(min(lows), max(highs), bounds="auto") if lows else None


def _plot(height: int, times: Range1d | None = None, **options: Any) -> Any:
    tools = "xpan,xbox_zoom,xwheel_zoom,reset" if times else "reset"
    if times:
        options |= {"x_range": times, "x_axis_type": "datetime"}
    plot = figure(
        height=height, sizing_mode="stretch_width", tools=tools, toolbar_location="above",
        background_fill_color=None, border_fill_color=None, outline_line_color=None, **options,
    )  # fmt: skip
    plot.toolbar.update(logo=None, autohide=True, active_scroll=None)
    # All charts over time leave room for a bar of colours, so that their times are aligned.
    right = 75 if times else 20
    plot.update(min_border_left=70, min_border_right=right, min_border_top=12, toolbar_inner=True)
    plot.grid.grid_line_alpha = 0.25
    return plot


def _hover(plot: Any, tips: Sequence[tuple[str, str]], *times: str) -> None:
    """Show values under the pointer. The fields `times` are shown as times."""
    plot.add_tools(HoverTool(tooltips=tips, formatters=dict.fromkeys(times, "datetime")))


def _mark(plot: Any, time_ms: int, colour: str, dash: str) -> None:
    """Draw a vertical line at a time."""
    look = {"line_color": colour, "line_width": 2, "line_dash": dash}
    plot.add_layout(Span(location=time_ms, dimension="height", **look))


def _closed(figures: TopicFigures, plot: Any) -> None:
    """Draw the line up to which windows are closed."""
    closed = figures.coverage.closed_until_ms
    if closed is not None:
        _mark(plot, closed, GREEN, "dashed")


def _volume(figures: TopicFigures, times: Range1d | None) -> Any:
    activity = figures.activity
    if activity is None:
        return None
    totals = np.sum(activity.records, axis=0)
    left = activity.start_ms + activity.width_ms * np.arange(len(totals))
    plot = _plot(190, times)
    plot.quad(left, left + activity.width_ms, totals, 0, fill_color=BLUE, line_color=None)
    plot.yaxis.formatter.use_scientific = False
    plot.y_range.start = 0
    _hover(plot, [("from", "@left{%F %R}"), ("records", "@top{0,0}")], "@left")
    _closed(figures, plot)
    return plot


def _heat(figures: TopicFigures, times: Range1d | None) -> Any:
    activity = figures.activity
    if activity is None or len(activity.records) < 2:
        return None
    grid = np.array(activity.records, np.float32)
    count, bins = grid.shape
    grid[grid == 0] = np.nan
    plot = _plot(min(420, 90 + 14 * count), times, y_range=(count - 0.5, -0.5))
    colours = LinearColorMapper(
        Viridis256, low=0, high=float(np.nanmax(grid)), nan_color="rgba(0,0,0,0)"
    )
    plot.image(
        [grid], x=activity.start_ms, y=-0.5, dw=bins * activity.width_ms, dh=count,
        color_mapper=colours, origin="bottom_left",
    )  # fmt: skip
    plot.yaxis.axis_label = "partition"
    plot.yaxis.ticker = BasicTicker(min_interval=1, num_minor_ticks=0)
    plot.grid.visible = False
    plot.add_layout(
        ColorBar(color_mapper=colours, width=10, background_fill_alpha=0, title=None), "right"
    )
    _hover(plot, [("time", "$x{%F %R}"), ("partition", "$y{0}"), ("records", "@image{0,0}")], "$x")
    return plot


def _coverage(figures: TopicFigures, times: Range1d | None) -> Any:
    covered, holes = figures.coverage.covered, figures.coverage.holes
    if not covered:
        return None
    plot = _plot(110, times, y_range=(0, 1))
    for intervals, colour, what in ((covered, GREEN, "covered"), (holes, RED, "hole")):
        bounds = np.array(intervals[-1000:], np.int64).reshape(-1, 2)
        plot.quad(*bounds.T, 0.8, 0.2, name=what, fill_color=colour, line_color=None)
    plot.yaxis.visible = False
    plot.ygrid.visible = False
    tips = [("", "$name"), ("from", "@left{%F %R}"), ("to", "@right{%F %R}")]
    _hover(plot, tips, "@left", "@right")
    _closed(figures, plot)
    closed = figures.coverage.closed_until_ms
    for _, late_ms in figures.lateness_shares[-1:]:
        if late_ms and closed is not None:
            _mark(plot, closed - late_ms, AMBER, "dotted")
    return plot


def _lateness(figures: TopicFigures, _times: Range1d | None) -> Any:
    if not figures.lateness:
        return None
    rows = figures.lateness
    times = [run.time_ms for run in rows]
    seconds = [run.lateness_ms / 1000 for run in rows]
    source = ColumnDataSource({"x": times, "y": seconds, "run": [run.run_id for run in rows]})
    low, high = min(times), max(times)
    margin = max(60_000, (high - low) // 20)
    plot = _plot(190, Range1d(low - margin, high + margin, bounds="auto"))
    plot.scatter("x", "y", source=source, color=AMBER, size=7)
    plot.yaxis.axis_label = "seconds"
    plot.y_range.start = 0
    _hover(plot, [("run", "@run"), ("seconds late", "@y{0,0.0}")])
    return plot


_CHARTS = {"volume": _volume, "heat": _heat, "coverage": _coverage, "lateness": _lateness}
