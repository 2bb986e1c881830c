"""Hooks of the site: a page of every public name, from docstrings, and one of every command.

`make site` lets typer write the commands to build/commands.md first, from their declarations.
"""

import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from mkdocs.structure.files import File

_PROJECT = Path(__file__).parents[2]
_COMMANDS = _PROJECT / "build" / "commands.md"

sys.path.insert(0, str(_PROJECT / "src"))  # `import seglake` imports nothing else

import seglake  # noqa: E402


def on_files(files: Any, config: Any) -> Any:
    """Add both pages, and the script by which the search works from a disk."""
    script = Path(__file__).with_name(config.extra["polyfills"][0])
    files.append(File.generated(config, script.name, content=script.read_text()))
    files.append(File.generated(config, "api.md", content="\n".join(_api())))
    files.append(File.generated(config, "commands.md", content=_COMMANDS.read_text()))
    return files


def _api() -> Iterator[str]:
    yield "# Python\n\nEverything that `import seglake` has. Times of callers are aware datetimes,"
    yield "ISO-8601 texts with a zone, or milliseconds since the epoch.\n"
    modules: dict[str, str] = dict(vars(seglake)["_MODULES"])  # by public name
    del modules["errors"]
    functions = sorted(name for name in modules if name[0].islower())
    types = sorted(modules.keys() - set(functions))
    for title, names in (("Functions", functions), ("Types", types)):
        yield f"## {title}\n"
        for name in names:
            yield f"### seglake.{name}\n\n::: {modules[name]}.{name}\n"
    yield "## Errors\n\n::: seglake.errors\n"
