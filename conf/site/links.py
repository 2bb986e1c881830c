"""Hooks of the site: the README is its first page, and links that leave docs become plain text."""

import re
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_README = Path(__file__).parents[2] / "README.md"
_OUT = re.compile(r"\[([^\]]+)\]\(\.\./[^)\s]*\)")
_LINK = re.compile(r"\[([^\]]+)\]\(([^)\s]+)\)")


def on_files(files: Any, config: Any) -> Any:
    """Add the README as the first page."""
    files.append(
        File.generated(config, "index.md", content=_LINK.sub(_of_site, _README.read_text()))
    )
    return files


def on_page_markdown(markdown: str, page: Any, **_: Any) -> str:
    """Replace each link to a file outside docs by its text."""
    return markdown if "/" in page.file.src_uri else _OUT.sub(r"\1", markdown)


def _of_site(link: re.Match[str]) -> str:
    text, target = link.groups()
    if target.startswith(("docs/", "#")) or "://" in target:
        return f"[{text}]({target.removeprefix('docs/')})"
    return text
