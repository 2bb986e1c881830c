"""A file of settings as tables, whatever they are the settings of."""

from __future__ import annotations

import tomllib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from seglake.config.rules import flat
from seglake.errors import ConfigError


def tables_of(
    file: Path, first: str, owners: Callable[[str], Sequence[str]] = lambda _: ()
) -> dict[str, dict[str, Any]]:
    """The tables of a TOML file, each as {dotted key: value}.

    `owners` are the tables that know a key, which is asked of one in no table; `first` is that for
    others. Raises ConfigError for a file that cannot be read, is not TOML, or has such a key.
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
        tables = " or ".join(f"[{name}]" for name in owners(loose[0]) or [first])
        raise ConfigError(f"{file}: {loose[0]}: is in no table; put it under {tables}")
    return {name: dict(flat(table)) for name, table in document.items()}
