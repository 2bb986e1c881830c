"""Read and check the options of a search: `key`, `keys`, `where` and `headers`.

Few queries have these options, so this module and its imports are loaded only for them.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from decimal import Decimal
from typing import Any

from seglake.errors import UsageError
from seglake.maintain.erasure.criteria import parse_keys
from seglake.read.where import Conditions, Where
from seglake.read.window.find import Criteria

_KEYS = '["ann","base64:AAE="]'
_EXAMPLES = {"where": '{"status":[500,503],"user.plan":"free"}', "headers": '{"tenant":"acme"}'}
_SHOWN = 80  # characters of a wrong value


def parse_criteria(options: Mapping[str, str]) -> Criteria:
    """Return the criteria in these options. Raises UsageError, which names the wrong option."""
    where, headers = (_conditions(name, options.get(name)) for name in _EXAMPLES)
    return Criteria.parse(None, _keys(options), where, headers)


def _keys(options: Mapping[str, str]) -> list[bytes] | None:
    """Return the keys, or None if no option names keys. `base64:` begins a binary key."""
    if "key" in options and "keys" in options:
        raise UsageError("option key contradicts option keys. Put all keys into keys")
    if "keys" not in options and "key" not in options:
        return None
    name = "keys" if "keys" in options else "key"
    texts = [options["key"]] if name == "key" else _read_json(name, options[name], list, _KEYS)
    if not all(isinstance(text, str) for text in texts):
        raise _no_json(name, options[name], _KEYS)
    try:
        return parse_keys(texts)
    except UsageError as error:
        raise UsageError(f"option {name}: {error}") from error


def _conditions(name: str, text: str | None) -> Conditions | None:
    if text is None:
        return None
    conditions: dict[str, Any] = _read_json(name, text, dict, _EXAMPLES[name])
    if not conditions:
        raise UsageError(f"option {name} has no condition. Give one, or leave out the option")
    try:
        Where(conditions, None) if name == "where" else Where(None, conditions)
    except UsageError as error:
        raise UsageError(f"option {name}: {error}") from error
    return conditions


def _read_json(name: str, text: str, kind: type, example: str) -> Any:
    """Parse a list, or an object with distinct names. Numbers keep all their digits."""
    try:
        document = json.loads(
            text, parse_float=Decimal, parse_constant=_no_number, object_pairs_hook=_distinct
        )
        # A lone surrogate cannot be encoded, so this raises ValueError.
        json.dumps(document, ensure_ascii=False, default=str).encode()
    except (ValueError, ArithmeticError, RecursionError):
        document = None
    except _Twice as twice:
        raise UsageError(f"option {name} has {twice} twice. Give it a list of values") from None
    if not isinstance(document, kind):
        raise _no_json(name, text, example)
    return document


def _no_json(name: str, text: str, example: str) -> UsageError:
    shown = text if len(text) <= _SHOWN else f"{text[:_SHOWN]}…"
    return UsageError(f"option {name} must be JSON such as {example}, not {shown!r}")


class _Twice(Exception):
    """Raised if a JSON object contains a name twice."""


def _distinct(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    members = dict(pairs)
    if len(members) < len(pairs):
        names = [name for name, _ in pairs]
        raise _Twice(repr(next(name for name in names if names.count(name) > 1)))
    return members


def _no_number(text: str) -> Any:
    raise ValueError(text)
