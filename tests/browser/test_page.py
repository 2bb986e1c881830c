"""The report as a browser shows it: wide and narrow, light and dark, by keyboard, offline.

The screenshots are in the folder that $SEGLAKE_SCREENSHOTS names, else in pytest's own.
"""

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page

from seglake.reporting.report import LakeReport, report
from tests.makers.hourly_lakes import HOURS, STREAMS, hourly_lake
from tests.makers.watched import BEGIN_MS, HOUR_MS, NOW_MS, watched_lake

LOOKS = [(1280, "light"), (1280, "dark"), (420, "light"), (420, "dark")]
HEADING = "document.activeElement.closest('figure, section').querySelector('h3, h2').innerText"
BACKGROUNDS = {"light": "rgb(246, 247, 249)", "dark": "rgb(17, 21, 27)"}
CHARTS = {
    "Records over time", "Records by log partition and time", "Coverage of declared intervals",
    "Lateness of events, by run",
}  # fmt: skip


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> LakeReport:
    root = watched_lake(tmp_path_factory.mktemp("seen"), hours=14, events=60)
    return report(root, now_ms=NOW_MS)


@pytest.fixture(scope="module")
def file(made: LakeReport, tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("page") / "report.html"
    path.write_text(made.as_html())
    return path


class Opened:
    """The page in a window of its own, and everything that it complained of or asked for."""

    def __init__(self, chromium: Browser, file: Path, width: int, scheme: Any) -> None:
        self.page: Page = chromium.new_page(
            viewport={"width": width, "height": 900}, color_scheme=scheme
        )
        self.errors: list[str] = []
        self.requests: list[str] = []
        self.page.on("pageerror", lambda error: self.errors.append(str(error)))
        self.page.on("console", self._hear)
        self.page.on("request", lambda request: self.requests.append(request.url))
        self.page.goto(file.as_uri())
        self.page.wait_for_selector("html[data-painted]")
        self.page.wait_for_function(
            "document.querySelectorAll('.drawing .bk-Figure').length"
            " >= document.querySelectorAll('.drawing').length"
        )

    def _hear(self, message: Any) -> None:
        if message.type in ("error", "warning"):
            self.errors.append(message.text)


@pytest.fixture
def opened(chromium: Browser, file: Path) -> Iterator[Opened]:
    found = Opened(chromium, file, 1280, "light")
    yield found
    found.page.close()


@pytest.mark.parametrize(("width", "scheme"), LOOKS)
def test_the_page_looks_as_it_should(
    width: int, scheme: str, chromium: Browser, file: Path, tmp_path: Path
) -> None:
    opened = Opened(chromium, file, width, scheme)
    page = opened.page
    assert opened.errors == []
    assert opened.requests == [file.as_uri()]
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == BACKGROUNDS[scheme]
    assert {each.inner_text() for each in page.query_selector_all("figcaption h3")} == CHARTS
    for drawing in page.query_selector_all(".drawing"):
        box = drawing.bounding_box()
        assert box is not None
        assert box["height"] > 80
        assert 200 < box["width"] <= width
    folder = Path(os.environ.get("SEGLAKE_SCREENSHOTS", tmp_path))
    shot = page.screenshot(path=folder / f"report-{width}-{scheme}.png", full_page=True)
    assert len(set(shot)) > 200  # not one colour
    page.close()


def test_charts_have_ink(opened: Opened) -> None:
    """Each canvas has pixels of several colours: nothing failed in silence."""
    inked = opened.page.evaluate(
        """() => {
          const found = [];
          const walk = (root) => {
            for (const each of root.querySelectorAll("*")) {
              if (each.tagName === "CANVAS" && each.width > 100) {
                const data = each.getContext("2d").getImageData(0, 0, each.width, each.height).data;
                const colours = new Set();
                for (let i = 0; i < data.length; i += 4) {
                  if (data[i + 3]) colours.add((data[i] << 16) + (data[i + 1] << 8) + data[i + 2]);
                }
                found.push(colours.size);
              }
              if (each.shadowRoot) walk(each.shadowRoot);
            }
          };
          walk(document);
          return found;
        }"""
    )
    assert sum(count > 3 for count in inked) >= len(CHARTS)


def test_texts_are_there(opened: Opened, made: LakeReport) -> None:
    text = opened.page.inner_text("body")
    for alert in made.alerts:
        assert alert.text.replace("`", "") in text
    (figures,) = made.topics
    assert f"{figures.records:,}" in text
    for wanted in ("2026-06-01 11:00 UTC", "hour 013", "timestamp unreadable"):
        assert wanted in text


@pytest.mark.rest
def test_every_chart_has_its_table_by_keyboard(opened: Opened) -> None:
    page = opened.page
    page.keyboard.press("Tab")
    assert page.evaluate("document.activeElement.textContent") == "To the alerts"
    reached = set()
    for _ in range(80):
        page.keyboard.press("Tab")
        closed = "document.activeElement.matches('details:not([open]) > summary')"
        if page.evaluate(closed):
            page.keyboard.press("Enter")
            reached.add(page.evaluate(HEADING))
    assert reached >= CHARTS
    for figure in page.query_selector_all("figure"):
        assert len(figure.query_selector_all("tbody tr")) > 0
        assert figure.query_selector("table").is_visible()  # type: ignore[union-attr]


def test_the_button_switches(opened: Opened) -> None:
    page = opened.page
    page.focus("#theme")
    page.keyboard.press("Enter")
    background = page.evaluate("getComputedStyle(document.body).backgroundColor")
    assert background == BACKGROUNDS["dark"]
    assert opened.errors == []


@pytest.mark.rest
@pytest.mark.parametrize("kind", STREAMS)
def test_every_kind_of_stream_is_drawn(kind: str, chromium: Browser, tmp_path: Path) -> None:
    """`tests/unit/reporting/test_streams.py` looks at what is drawn."""
    made = report(hourly_lake(tmp_path, kind), now_ms=BEGIN_MS + (HOURS + 1) * HOUR_MS)
    file = tmp_path / "report.html"
    file.write_text(made.as_html())
    opened = Opened(chromium, file, 1280, "light")
    shown = {each.inner_text() for each in opened.page.query_selector_all("figcaption h3")}
    assert shown == CHARTS - {"Records by log partition and time"}  # there is one log partition
    assert opened.errors == []
    opened.page.close()
