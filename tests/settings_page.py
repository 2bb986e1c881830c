"""Write docs/settings.md from the settings and their descriptions: `make docs`."""

import json
import sys
from collections.abc import Mapping
from inspect import cleandoc
from pathlib import Path
from typing import Any, Literal, get_args, get_origin

from pydantic.fields import FieldInfo

from seglake.config.loading import SECTIONS, own_fields
from seglake.config.pipeline import Pipeline
from seglake.config.topic import LIFECYCLE


def reference(page: str) -> str:
    """Return the text of docs/settings.md, with one Markdown table per section.

    Its beginning, up to the first section, is copied from the old text `page`.
    """
    parts = [page.partition("\n## ")[0]]
    own = "Which lake, in which order, and what to do when something is wrong."
    parts.append(_section("pipeline", own, own_fields()))
    for name, model in SECTIONS.items():
        fields = {name: info for name, info in model.model_fields.items() if info.description}
        if not fields:
            continue
        usual = {name: info for name, info in fields.items() if info.alias not in LIFECYCLE}
        parts.append(_section(name, cleandoc(str(model.__doc__)), usual))
        if len(usual) < len(fields):
            of_topic = {name: info for name, info in fields.items() if name not in usual}
            parts.append(_LIFECYCLE + _table(of_topic))
    storage = Pipeline.model_fields["storage"]
    parts.append(f"## [storage]\n\nAny key: {storage.description}.\n")
    return "\n".join(parts)


_LIFECYCLE = """### Lifecycle settings

More keys of `[topic]`, for [the later life of a topic](lifecycle.md). The pipeline that creates a
topic may set them. After that, only `seglake alter ROOT TOPIC KEY=VALUE` changes them, and a
pipeline with another value is refused.

"""


def _section(section: str, about: str, fields: Mapping[str, FieldInfo]) -> str:
    return f"## [{section}]\n\n{about}\n\n{_table(fields)}"


def _table(fields: Mapping[str, FieldInfo]) -> str:
    rows = [
        f"| `{info.alias or name}` | {_type(info.annotation)} | {_default(info)} "
        f"| {(info.description or '').replace('|', chr(92) + '|')} |"
        for name, info in fields.items()
    ]
    head = "| key | type | default | meaning |\n|---|---|---|---|"
    return f"{head}\n" + "\n".join(rows) + "\n"


def _type(annotation: Any) -> str:
    """Return how the page describes a type, such as "text" or "list of texts"."""
    if get_origin(annotation) is Literal:
        return ", ".join(f"`{choice}`" for choice in get_args(annotation))
    parts = [part for part in get_args(annotation) if part not in {type(None), Ellipsis}]
    if get_origin(annotation) is tuple:
        return "list of texts"
    if parts:
        return _type(parts[0])
    return {str: "text", int: "integer", float: "number", bool: "true or false"}[annotation]


def _default(info: FieldInfo) -> str:
    if info.is_required() and info.description and not info.description.startswith("default"):
        return "required"
    value = None if info.is_required() else info.default
    return "" if value is None or value == () else f"`{json.dumps(value)}`"


if __name__ == "__main__":
    path = Path(sys.argv[1])
    path.write_text(reference(path.read_text()))
