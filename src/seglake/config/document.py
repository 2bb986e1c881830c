"""A file of settings as tables, whatever they are the settings of."""

from __future__ import annotations

import tomllib
from pathlib import Path
from typing import Any

from seglake.config.rules import flat
from seglake.errors import ConfigError


def tables_of(file: Path, first: str) -> dict[str, dict[str, Any]]:
    """The tables of a TOML file, each as {dotted key: value}; `first` is the one for loose keys.

    Raises ConfigError for a file that cannot be read, is not TOML, or has a key in no table.
    """
    try:
        document = tomllib.loads(file.read_text("utf-8-sig"))  # Windows writes the mark
    except OSError as problem:
        raise ConfigError(f"{file}: cannot be read ({problem.strerror}); check the path") from None
    except UnicodeDecodeError:
        raise ConfigError(f"{file}: is not UTF-8, as TOML has to be: save it as UTF-8") from None
    except tomllib.TOMLDecodeError as problem:
        raise ConfigError(f"{file}: is not TOML: {problem}; correct that line") from None
    loose = [key for key, value in document.items() if not isinstance(value, dict)]
    if loose:
        raise ConfigError(f"{file}: {loose[0]}: is in no table; put it under [{first}]")
    return {name: dict(flat(table)) for name, table in document.items()}
