"""Which field of a sample is the key, with the reason, and with doubts."""

from __future__ import annotations

from typing import NamedTuple

from seglake.shown import counted
from seglake.write.draft.sample import Sample
from seglake.write.draft.words import is_named, rank

_MOST = 0.95  # of the values may differ
_OF_A_KEY = (  # the first ones also in German, French, Spanish, Italian, Portuguese and Dutch
    ("user", "benutzer", "nutzer", "utilisateur", "usuario", "utente", "gebruiker"),
    ("customer", "kunde", "kunden", "cliente", "klant"),
    *(("client",), ("account", "konto", "compte", "cuenta", "conto", "conta")),
    ("member", "mitglied"),
    ("session", "sitzung", "sesion", "sessione", "sessao", "sessie"),
    *(("device", "geraet"), ("sensor",), ("vehicle", "fahrzeug")),
    *(("tenant",), ("order",), ("invoice",), ("cart",), ("trace",), ("host",), ("server",)),
    *(("node",), ("station",), ("address",), ("ip",), ("service",), ("process",), ("source",)),
    *(("key",), ("id",)),
)
_KEY_BYTES = 200
_NOBODY = "-"  # in an access log, where nobody logged in


class KeyChoice(NamedTuple):
    """The field of the key."""

    field: str
    reason: str
    doubts: list[str]


def key_of(sample: Sample, time: str | None) -> KeyChoice | None:
    """The field by which events belong together: its name says so, and its values repeat.

    One that is called `key` is the key, though its values may not repeat.
    """
    names = [
        name
        for name, column in sample.fields.items()
        if name != time and is_named(name, _OF_A_KEY) and _may_be_keys(column, name == "key")
    ]
    if not names:
        return None
    field = min(names, key=lambda name: (name != "key", rank(name, _OF_A_KEY)))
    column = sample.fields[field]
    values = [value for value in column if value is not None]
    absent, nobody = sample.rows - len(values), column.count(_NOBODY)
    sampled = counted(sample.rows, "sampled row")
    doubts = [f"no {field}: {absent:,} of {sampled}"] if absent else []
    if nobody:
        doubts.append(f"the {field} {_NOBODY!r}: {nobody:,} of {sampled}")
    reason = f"{counted(len({*values}), 'value')} in {sampled}; the order of each stays"
    return KeyChoice(field, reason, doubts)


def _may_be_keys(column: list[str | None], are_called_so: bool) -> bool:
    """Whether at least half of the rows have a short value, and most come again or are keys."""
    values = [value for value in column if value is not None and value != _NOBODY]
    return (
        2 * len(values) >= len(column)
        and len({*values}) > 1
        and (are_called_so or len({*values}) < _MOST * len(values))
        and max(map(len, values)) <= _KEY_BYTES
    )
