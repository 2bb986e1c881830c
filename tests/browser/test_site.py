"""The docs as a site: `make site` builds it, and it works from a disk, its search too."""

import re
import subprocess
import sys
from pathlib import Path

import pytest
from playwright.sync_api import Browser

from tests.harness.python_environment import PROJECT, NoEnvironmentError, python_with

CONF = PROJECT / "conf" / "site"
COMMANDS = "seglake.cli.app utils docs --name seglake --output build/commands.md"
LINK = re.compile(r'(?:href|src)="?([^"\s>]+)')

pytestmark = pytest.mark.rest


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of the site, built as `make site` does."""
    folder = tmp_path_factory.mktemp("site")
    try:
        python = python_with((CONF / "requirements.txt").read_text().split())
    except NoEnvironmentError as error:
        pytest.skip(f"MkDocs cannot be installed: {error}")
    (PROJECT / "build").mkdir(exist_ok=True)
    _run(f"{sys.executable} -m typer {COMMANDS}")
    _run(f"{python} -m mkdocs build --quiet -f {CONF}/mkdocs.yml --site-dir {folder}")
    return folder


def _run(command: str) -> None:
    done = subprocess.run(command.split(), cwd=PROJECT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_every_page_is_there_and_links_to_files_beside_it(site: Path) -> None:
    pages = {page.relative_to(site).as_posix() for page in site.rglob("*.html")}
    docs = {f"{page.stem}.html" for page in (PROJECT / "docs").glob("*.md")}
    assert pages >= {"index.html", "api.html", "commands.html", "story.html", *docs}
    assert (site / "search" / "search_index.js").stat().st_size > 100_000
    for page in sorted(pages - {"404.html"}):  # a server alone shows that one
        links = {link.split("#")[0] for link in LINK.findall((site / page).read_text())}
        inside = {link for link in links if "://" not in link and not link.startswith("data:")}
        assert [link for link in inside if not ((site / page).parent / link).exists()] == []


def test_every_fenced_block_is_rendered(site: Path) -> None:
    for page in (PROJECT / "docs").glob("*.md"):
        html = (site / page.name).with_suffix(".html").read_text()
        fences = len(re.findall(r"^```", page.read_text(), re.M)) // 2
        assert html.count('class="highlight"') >= fences, page.name


def test_a_search_from_a_disk_leads_to_a_page(site: Path, chromium: Browser) -> None:
    page, asked = chromium.new_page(), list[str]()
    page.on("request", lambda request: asked.append(request.url))
    page.goto((site / "index.html").as_uri())
    page.click('input[data-md-component="search-query"]')
    page.keyboard.type("quarantine", delay=20)
    page.click('.md-search-result__item a[href$="h=quarantine"]', timeout=60_000)
    assert page.inner_text("article mark").lower().startswith("quarantine")
    assert re.fullmatch(re.escape(site.as_uri()) + r"/\w+\.html\?h=quarantine", page.url)
    assert [url for url in asked if not url.startswith(("file:", "data:", "blob:"))] == []
    page.close()
