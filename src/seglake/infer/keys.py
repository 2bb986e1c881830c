"""Choose the field of a sample that has the key of the events."""

from __future__ import annotations

from collections.abc import Collection
from typing import NamedTuple

from seglake.advice.finding import Finding
from seglake.infer.sample import Sample
from seglake.infer.times import _words

_WORDS = (  # of a name, the likelier first
    "key", "user", "customer", "client", "account", "member", "session", "device", "sensor",
    "vehicle", "tenant", "order", "invoice", "cart", "trace", "host", "server", "node", "station",
    "ip", "service", "process", "source", "id",
)  # fmt: skip
_SUFFIXES = {"id", "key", "uuid", "no", "number", "name", "code"}
_MOST = 0.95  # of the values may differ: a key occurs in several events
_MOST_BYTES = 200


class KeyChoice(NamedTuple):
    """The field of the key."""

    field: str
    reason: str
    findings: list[Finding]


def choose_key(sample: Sample, times: Collection[str]) -> tuple[KeyChoice | None, list[str]]:
    """Return the field of the key, and the names of the other fields that could be keys.

    A key has a telling name, a value in at least half of the rows, and values that repeat.
    """
    ranked = sorted(
        (rank, at, name)
        for at, name in enumerate(sample.fields)
        if name not in times and (rank := _rank(name)) is not None
        and _may_be_key(name, sample.fields[name])
    )  # fmt: skip
    if not ranked:
        return None, []
    first, *others = [name for _, _, name in ranked]
    values = [value for value in sample.fields[first] if value is not None]
    found = []
    if absent := sample.rows - len(values):
        found.append(Finding("no-key", first, {"rows": sample.rows}, absent))
    return KeyChoice(
        first, f"{len({*values}):,} values in {sample.rows:,} sampled rows", found
    ), others


def _rank(name: str) -> tuple[int, ...] | None:
    """Rank a name: by its word, an id before a name, and the least nested first."""
    words = _words(name)
    if "." in name and _SUFFIXES.issuperset(words):  # user.id
        words = [*_words(name.rpartition(".")[0]), *words]
    rest = {*words} - {*_WORDS} - _SUFFIXES
    known = [_WORDS.index(word) for word in words if word in _WORDS]
    if rest or not known:
        return None
    return min(known), int("name" in words), name.count(".")


def _may_be_key(name: str, column: list[str | None]) -> bool:
    values = [value for value in column if value is not None and value != "-"]
    distinct = len({*values})
    return (
        2 * len(values) >= len(column)
        and distinct > 1
        and (name == "key" or distinct < _MOST * len(values))
        and max(map(len, values)) <= _MOST_BYTES
    )
