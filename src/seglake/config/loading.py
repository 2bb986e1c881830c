"""Load a pipeline from a TOML file or from dictionaries. Error messages include the remedy."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from pydantic import BaseModel, ValidationError
from pydantic.fields import FieldInfo

from seglake.config.pipeline import Pipeline
from seglake.config.rules import flat
from seglake.config.topic import Topic, combined
from seglake.errors import ConfigError
from seglake.terminal.wording import nearest, suggest_or_list

SECTIONS: dict[str, type[BaseModel]] = {
    name: info.annotation
    for name, info in Pipeline.model_fields.items()
    if isinstance(info.annotation, type) and issubclass(info.annotation, BaseModel)
}


def own_fields() -> dict[str, FieldInfo]:
    """Return field name → definition for the keys of the section `[pipeline]`."""
    fields = Pipeline.model_fields
    return {name: info for name, info in fields.items() if name not in {*SECTIONS, "storage"}}


def load(path: str | Path, overrides: Mapping[str, object] | None = None) -> Pipeline:
    """Read and check a pipeline file.

    Args:
        path: The TOML file. Its name without `.toml` is the default of `pipeline.name`.
        overrides: Settings that replace settings of the file, such as
            {"pipeline.root": "/lake", "topic.segment.bytes": 65536}.

    Raises:
        ConfigError: The file cannot be read, or settings are wrong. Each line of the message
            contains file, key, problem and remedy.
    """
    file = Path(path)
    tables = tables_of(file, "pipeline", _owners)
    constants = [*_constants(tables)]
    if constants:
        raise ConfigError("\n".join(f"{file}: {line}" for line in constants))
    for name, value in (overrides or {}).items():
        table, _, key = name.partition(".")
        tables.setdefault(table, {})[key] = value
    return _checked(tables, str(file), {"name": file.stem})


def from_tables(tables: Mapping[str, Mapping[str, Any]]) -> Pipeline:
    """Create a pipeline from the tables of a pipeline file, such as {"topic": {"name": "web"}}.

    `pipeline.name` is required, because there is no file name. Raises ConfigError, like `load`.
    """
    return _checked({name: dict(flat(table)) for name, table in tables.items()}, "settings", {})


def combined_topic(stored: Mapping[str, Any], overrides: Mapping[str, Any]) -> Topic:
    """Combine stored settings of a topic with `overrides`, like `combined`. Raises ConfigError."""
    try:
        return combined(stored, overrides)
    except ValidationError as invalid:
        problems = [{**error, "loc": ("topic", *error["loc"])} for error in invalid.errors()]
        raise ConfigError("\n".join(map(_explain, problems))) from None


def _checked(tables: dict[str, dict[str, Any]], place: str, defaults: dict[str, Any]) -> Pipeline:
    own = tables.pop("pipeline", {})
    problems = [f"{place}: {line}" for line in _stray(own, tables)]
    if not problems:
        try:
            return Pipeline.model_validate({**defaults, **own, **tables})
        except ValidationError as invalid:
            problems = [f"{place}: {_explain(error)}" for error in invalid.errors()]
    raise ConfigError("\n".join(problems))


def _keys(section: str) -> list[str]:
    fields = own_fields() if section == "pipeline" else SECTIONS[section].model_fields
    return [info.alias or name for name, info in fields.items() if info.description]


def _constants(tables: Mapping[str, Mapping[str, Any]]) -> Iterator[str]:
    """Yield a message for each key that a pipeline file sets although it is a constant."""
    for section in SECTIONS.keys() & tables.keys():
        for key, info in SECTIONS[section].model_fields.items():
            if key in tables[section] and not info.description:
                yield f"{section}.{key} is an unknown key. {_remedy(section, key)}"


def _stray(own: Mapping[str, Any], tables: Mapping[str, Any]) -> Iterator[str]:
    """Yield a message for each unknown table, and for each unknown key of `[pipeline]`."""
    names = ["pipeline", *SECTIONS, "storage"]
    for name in tables:
        if name not in names:
            yield f"[{name}] is an unknown table. {suggest_or_list(name, names)}"
    for key in own:
        if key not in _keys("pipeline"):
            yield f"pipeline.{key} is an unknown key. {_remedy('pipeline', key)}"


def _owners(key: str) -> list[str]:
    """Return the names of the tables in which `key` is a valid key."""
    return [each for each in ("pipeline", *SECTIONS) if key in _keys(each)]


def _remedy(section: str, key: str) -> str:
    """Return a hint with the key that an unknown key of a section may stand for."""
    # Suggest key.fields for key.field, although other tables have a `field`.
    if not nearest(key, _keys(section)) and (owners := _owners(key)):
        return f"Did you mean {' or '.join(f'{owner}.{key}' for owner in owners)}?"
    return suggest_or_list(key, _keys(section), f"{section}.")


def _explain(error: Any) -> str:
    """Convert an error of pydantic to a message `key: problem. Remedy`."""
    place = [str(part) for part in error["loc"]]
    if not place or (place[0] in SECTIONS and len(place) == 1):
        if error["type"] == "missing":
            return f"the table [{place[0]}] is missing. Add it"
        return str(error["msg"]).removeprefix("Value error, ")
    key = ".".join(place) if place[0] in {*SECTIONS, "storage"} else ".".join(["pipeline", *place])
    match error["type"]:
        case "missing":
            return f"{key} is missing. Add it under [{key.split('.')[0]}]"
        case "extra_forbidden":
            return f"{key} is an unknown key. {_remedy(place[0], '.'.join(place[1:]))}"
    return explain_value(key, error)


def explain_value(key: str, error: Any) -> str:
    """Convert an error of pydantic about the value of a key to a message."""
    if error["type"] == "value_error":
        return f"{key}: {str(error['msg']).removeprefix('Value error, ')}"
    problem = re.sub("^(Input|Value) ", "", str(error["msg"])).replace(" tuple", " list")
    problem = problem.replace("a valid boolean", "true or false")
    return f"{key}: {error['input']!r} {problem}. Change the value"


# ---------------- document
# Read a TOML file as tables. `seglake serve` also uses this for its settings.


def tables_of(
    file: Path, first: str, owners: Callable[[str], Sequence[str]] = lambda _: ()
) -> dict[str, dict[str, Any]]:
    """Return the tables of a TOML file, each as {dotted key: value}.

    Args:
        file: The TOML file.
        first: The table to suggest for a key that is outside of all tables.
        owners: A function that returns the tables in which a key is valid. If there are any, the
            message suggests them instead of `first`.

    Raises:
        ConfigError: The file cannot be read, is not TOML, or has a key outside of all tables.
    """
    try:
        # Editors on Windows may write a byte order mark, which utf-8-sig removes.
        document = tomllib.loads(file.read_text("utf-8-sig"))
    except OSError as problem:
        raise ConfigError(f"{file} cannot be read ({problem.strerror}). Check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file} is not UTF-8, which TOML requires. Save it as UTF-8") from None
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(f"{file} is not TOML ({problem}). Correct that line") from None
    loose = [key for key, value in document.items() if not isinstance(value, dict)]
    if loose:
        tables = " or ".join(f"[{name}]" for name in owners(loose[0]) or [first])
        raise ConfigError(f"{file}: the key {loose[0]} is not in a table. Put it under {tables}")
    return {name: dict(flat(table)) for name, table in document.items()}
