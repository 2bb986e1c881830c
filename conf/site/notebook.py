"""Hook of the site: the notebook is a page, with the outputs that it was saved with."""

import json
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_NOTEBOOK = Path(__file__).parents[2] / "docs" / "story.ipynb"


def on_files(files: Any, config: Any) -> Any:
    """Add the page."""
    cells = json.loads(_NOTEBOOK.read_text())["cells"]
    files.append(File.generated(config, "story.md", content="\n\n".join(map(_cell, cells))))
    return files


def on_page_markdown(markdown: str, **_: Any) -> str:
    """Link to the page instead of the notebook."""
    return markdown.replace("(story.ipynb)", "(story.md)")


def _cell(cell: dict[str, Any]) -> str:
    source = "".join(cell["source"])
    if cell["cell_type"] == "markdown":
        return source
    return "\n\n".join([f"```python\n{source}\n```", *map(_output, cell["outputs"])])


def _output(output: dict[str, Any]) -> str:
    data = {kind: "".join(lines) for kind, lines in output["data"].items()}
    if "image/png" in data:
        return f"![A chart](data:image/png;base64,{''.join(data['image/png'].split())})"
    if "text/html" in data:
        return f"<div>{' '.join(data['text/html'].split())}</div>"
    return f"```text\n{data['text/plain']}\n```"
