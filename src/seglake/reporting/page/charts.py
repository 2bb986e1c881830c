"""The charts of a topic, drawn by Bokeh; those over time are moved and zoomed together.

Each chart has text for those who do not see it, and the page has its figures as a table.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

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
from seglake.terminal.wording import short_bytes

BLUE, GREEN, RED, AMBER = "#3b7dd8", "#2a9d6f", "#d1495b", "#d98e04"
_COLOURS = (BLUE, GREEN, AMBER, RED, "#8a63d2", "#17a2b8", "#c2559b", "#7f8c3a")
_LINES = 8  # log partitions with a line of their own
_RUNS = 60


class Chart(NamedTuple):
    """A drawn chart: its name on the page, its title, and what it shows, in words."""

    name: str
    title: str
    text: str
    plot: Any


def charts(figures: TopicFigures) -> Iterator[Chart]:
    """The charts of a topic; a chart with nothing to draw is left out."""
    times = _times(figures)
    for draw in _DRAWN:
        chart = draw(figures, times)
        if chart is not None:
            yield chart


def _times(figures: TopicFigures) -> Range1d | None:
    """The time line that charts share: that of the records and of the declared intervals."""
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
    plot.toolbar.logo = None
    plot.toolbar.autohide = True
    plot.min_border_left = 70
    plot.min_border_right = 75 if times else 20  # room for a bar of colours: times stay in line
    plot.toolbar_inner = True
    plot.min_border_top = 12
    plot.toolbar.active_scroll = None
    plot.grid.grid_line_alpha = 0.25
    return plot


def _hover(plot: Any, tips: Sequence[tuple[str, str]], *times: str) -> None:
    """Show values under the pointer. The fields `times` are shown as times."""
    plot.add_tools(HoverTool(tooltips=tips, formatters=dict.fromkeys(times, "datetime")))


def _mark(plot: Any, time_ms: int, colour: str, dash: str) -> None:
    """Draw a vertical line at a time."""
    plot.add_layout(
        Span(location=time_ms, dimension="height", line_color=colour, line_width=2, line_dash=dash)
    )


def _closed(figures: TopicFigures, plot: Any) -> None:
    """The line up to which windows are closed."""
    closed = figures.coverage.closed_until_ms
    if closed is not None:
        _mark(plot, closed, GREEN, "dashed")


def _volume(figures: TopicFigures, times: Range1d | None) -> Chart | None:
    activity = figures.activity
    if activity is None:
        return None
    totals = np.sum(activity.records, axis=0)
    left = activity.start_ms + activity.width_ms * np.arange(len(totals))
    source = ColumnDataSource({"left": left, "right": left + activity.width_ms, "records": totals})
    plot = _plot(190, times)
    plot.quad("left", "right", "records", 0, source=source, fill_color=BLUE, line_color=None)
    plot.yaxis.formatter.use_scientific = False
    plot.y_range.start = 0
    _hover(plot, [("from", "@left{%F %R}"), ("records", "@records{0,0}")], "@left")
    _closed(figures, plot)
    return Chart(
        "volume", "Records over time",
        "Records by time of the event. The dashed line is the time up to which windows are closed.",
        plot,
    )  # fmt: skip


def _heat(figures: TopicFigures, times: Range1d | None) -> Chart | None:
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
    return Chart(
        "heat", "Records by log partition and time",
        "One row for each log partition; the brighter, the more records. Empty: none.", plot,
    )  # fmt: skip


def _coverage(figures: TopicFigures, times: Range1d | None) -> Chart | None:
    covered, holes = figures.coverage.covered, figures.coverage.holes
    if not covered:
        return None
    plot = _plot(110, times, y_range=(0, 1))
    for intervals, colour, what in ((covered, GREEN, "covered"), (holes, RED, "hole")):
        shown = intervals[-1000:]
        source = ColumnDataSource(
            {
                "left": [start for start, _ in shown],
                "right": [end for _, end in shown],
                "what": [what] * len(shown),
            }
        )
        plot.quad("left", "right", 0.8, 0.2, source=source, fill_color=colour, line_color=None)
    plot.yaxis.visible = False
    plot.ygrid.visible = False
    _hover(
        plot, [("", "@what"), ("from", "@left{%F %R}"), ("to", "@right{%F %R}")], "@left", "@right"
    )
    _closed(figures, plot)
    closed = figures.coverage.closed_until_ms
    for _, late_ms in figures.lateness_shares[-1:]:
        if late_ms and closed is not None:
            _mark(plot, closed - late_ms, AMBER, "dotted")
    return Chart(
        "coverage", "Coverage of declared intervals",
        "Green is covered by committed runs, red is a hole. The dashed line is the time up to "
        "which windows are closed; the dotted line is that for the largest lateness.", plot,
    )  # fmt: skip


def _offsets(figures: TopicFigures, times: Range1d | None) -> Chart | None:
    activity = figures.activity
    if activity is None:
        return None
    ends = activity.end_offsets
    order = sorted(range(len(ends)), key=lambda p: -ends[p][-1])
    half = _LINES // 2
    chosen = order if len(order) <= _LINES else order[:half] + order[-half:]
    at = activity.start_ms + activity.width_ms * np.arange(1, len(ends[0]) + 1)
    plot = _plot(240, times)
    for number, partition in enumerate(chosen):
        colour = _COLOURS[number % len(_COLOURS)]
        source = ColumnDataSource({"x": at, "y": ends[partition], "p": [partition] * len(at)})
        plot.line("x", "y", source=source, color=colour, line_width=2,
                  legend_label=f"partition {partition}")  # fmt: skip
    plot.yaxis.formatter.use_scientific = False
    _hover(plot, [("partition", "@p"), ("until", "@x{%F %R}"), ("end offset", "@y{0,0}")], "@x")
    plot.legend.location = "top_left"
    plot.legend.background_fill_alpha = 0
    plot.legend.border_line_color = None
    plot.legend.click_policy = "hide"
    few = "" if len(order) <= _LINES else " Those with the most and the fewest are shown."
    return Chart(
        "offsets", "Offsets over time",
        f"End offset of each log partition by event time; the slope is the rate.{few}", plot,
    )  # fmt: skip


def _lateness(figures: TopicFigures, _times: Range1d | None) -> Chart | None:
    if not figures.lateness:
        return None
    rows = figures.lateness
    source = ColumnDataSource(
        {
            "x": [run.time_ms for run in rows],
            "y": [run.lateness_ms / 1000 for run in rows],
            "run": [run.run_id for run in rows],
        }
    )
    low, high = min(e.time_ms for e in rows), max(e.time_ms for e in rows)
    margin = max(60_000, (high - low) // 20)
    plot = _plot(190, Range1d(low - margin, high + margin, bounds="auto"))
    plot.scatter("x", "y", source=source, color=AMBER, size=7)
    plot.yaxis.axis_label = "seconds"
    plot.y_range.start = 0
    _hover(plot, [("run", "@run"), ("seconds late", "@y{0,0.0}")])
    return Chart(
        "lateness", "Lateness of events, by run",
        "How far the time of an event lies below the largest time before it, at most in each run.",
        plot,
    )  # fmt: skip


def _sizes(figures: TopicFigures, _times: Range1d | None) -> Chart | None:
    if not figures.segment_sizes:
        return None
    names = [short_bytes(size) for size, _ in figures.segment_sizes]
    counts = [count for _, count in figures.segment_sizes]
    plot = _plot(190, x_range=names)
    plot.vbar(names, 0.8, counts, 0, fill_color=BLUE, line_color=None)
    plot.yaxis.formatter.use_scientific = False
    plot.y_range.start = 0
    plot.xgrid.visible = False
    _hover(plot, [("at least", "@x"), ("segments", "@top{0,0}")])
    return Chart("sizes", "Sizes of segments", "Segments by the size of their logs.", plot)


def _runs(figures: TopicFigures, _times: Range1d | None) -> Chart | None:
    runs = figures.committed[-_RUNS:]
    if not runs:
        return None
    seconds = [json.loads(run.report).get("seconds", {}) for run in runs]
    steps = list(dict.fromkeys(name for item in seconds for name in item))
    if not steps:
        return None
    names = [f"{number} {run.run_id}" for number, run in enumerate(runs)]
    data: dict[str, Any] = {step: [item.get(step, 0) for item in seconds] for step in steps}
    source = ColumnDataSource({"run": names, "id": [run.run_id for run in runs], **data})
    plot = _plot(250, x_range=names)
    plot.vbar_stack(
        steps, x="run", width=0.8, source=source, line_color=None, legend_label=steps,
        color=[_COLOURS[number % len(_COLOURS)] for number in range(len(steps))],
    )  # fmt: skip
    plot.xaxis.major_label_text_font_size = "0px"
    plot.xaxis.major_tick_line_color = None
    plot.xgrid.visible = False
    plot.yaxis.axis_label = "seconds"
    plot.y_range.start = 0
    plot.legend.orientation = "horizontal"
    plot.legend.background_fill_alpha = 0
    plot.legend.border_line_color = None
    plot.add_layout(plot.legend[0], "below")
    _hover(plot, [("run", "@id"), ("step", "$name"), ("seconds", "@$name{0.000}")])
    return Chart(
        "runs", "Seconds of each run, by step",
        f"The newest {len(runs)} committed runs, oldest first.", plot,
    )  # fmt: skip


_DRAWN: tuple[Callable[[TopicFigures, Range1d | None], Chart | None], ...] = (
    _volume, _heat, _coverage, _offsets, _lateness, _sizes, _runs,
)  # fmt: skip
