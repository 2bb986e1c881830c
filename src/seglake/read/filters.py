"""Derive from an Arrow filter which partitions, times, offsets, keys and fields it can match.

pyarrow gives no access to the tree of an expression, but it pickles an expression as an Arrow file.
The columns of this file are the literals, and the metadata of its schema is the tree: one line per
step, calls before their arguments. Substrait would be the alternative. It rejects a whole
expression if it cannot represent a part, such as a search for text in a binary column. Then a
window of time next to this part would be lost.

A `Selection` contains each record for which the filter is true, and perhaps others, so the filter
must be applied to the records again. A part of a filter that is not understood selects everything.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Collection, Mapping, Sequence
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.compute as pc

from seglake.limits import INT64_MAX, INT64_MIN, NO_END
from seglake.log.segment import Window

Keys = frozenset[bytes] | None  # None: any key, or no key
Texts = frozenset[tuple[str, frozenset[str]]]  # (field, texts): the field has one of the texts

_LINE = re.compile(r"(\w+): '(.*)'")
_METADATA = "-- schema metadata --\n"
_UNITS = {"s": (1000, 1), "ms": (1, 1), "us": (1, 1000), "ns": (1, 1_000_000)}
_FLIPPED = {
    "equal": "equal", "less": "greater", "less_equal": "greater_equal", "greater": "less",
    "greater_equal": "less_equal",
}  # fmt: skip
# Errors of parsing if a version of Arrow writes an expression in another form, or not at all.
_OTHER_FORM = (pa.ArrowException, AttributeError, LookupError, TypeError, ValueError)
_NULL_MATCHES_NULL = 0  # of null_matching_behavior


class Part(NamedTuple):
    """The wanted records of one log partition: records in the window with one of the keys.

    For each field in `texts`, a record has one of its texts.
    """

    window: Window = Window()
    keys: Keys = None
    texts: Texts = frozenset()

    def both(self, other: Part) -> Part | None:
        """Return the records in both parts, or None if there can be none."""
        (a, b), keys = (self.window, other.window), self.keys
        window = Window(
            max(a.start_ms, b.start_ms), min(a.end_ms, b.end_ms),
            max(a.start_offset, b.start_offset), min(a.end_offset, b.end_offset),
        )  # fmt: skip
        if other.keys is not None:
            keys = other.keys if keys is None else keys & other.keys
        full = window.start_ms < window.end_ms and window.start_offset < window.end_offset
        texts = self.texts | other.texts  # if both have a field, either set is a valid limit
        return Part(window, keys, texts) if full and (keys is None or keys) else None

    def either(self, other: Part) -> Part:
        """Return the smallest part that contains both parts."""
        a, b = self.window, other.window
        window = Window(
            min(a.start_ms, b.start_ms), max(a.end_ms, b.end_ms),
            min(a.start_offset, b.start_offset), max(a.end_offset, b.end_offset),
        )  # fmt: skip
        some = self.keys is not None and other.keys is not None
        keys = (self.keys or frozenset()) | (other.keys or frozenset()) if some else None
        mine, its = dict(self.texts), dict(other.texts)
        both = frozenset((name, mine[name] | its[name]) for name in mine.keys() & its.keys())
        return Part(window, keys, both)


class Selection(NamedTuple):
    """The wanted part of each log partition, by number. A missing partition has no part."""

    parts: Mapping[int, Part]

    def both(self, other: Selection) -> Selection:
        """Return the records in both selections, and perhaps more records of this selection."""
        pairs = {p: part.both(other.parts[p]) for p, part in self.parts.items() if p in other.parts}
        return Selection({p: part for p, part in pairs.items() if part})

    def either(self, other: Selection) -> Selection:
        """Return the records in at least one of the selections, and perhaps other records."""
        mine, its = self.parts, other.parts
        shared = {p: part.either(its[p]) for p, part in mine.items() if p in its}
        return Selection({**mine, **its, **shared})

    def of(self, expression: pc.Expression, kinds: Mapping[str, str] = {}) -> Selection:
        """Return the records of this selection for which `expression` is true, and perhaps more.

        `kinds` maps the columns that are fields of values to their types. A field takes precedence
        over a column of the log with the same name.
        """
        try:
            return self.both(_Reading([*self.parts], kinds).of(expression))
        except _OTHER_FORM:
            return self


def fields_of(expression: pc.Expression, columns: Collection[str]) -> set[str] | None:
    """Return which of `columns` an expression names. Return None if it cannot be parsed."""
    try:
        steps, _ = _steps(expression, columns)
        return {word for kind, word in steps if kind == "field_ref"}
    except _OTHER_FORM:
        return None


def _steps(
    expression: pc.Expression, columns: Collection[str]
) -> tuple[list[tuple[str, str]], Sequence[Any]]:
    """Return the steps of an expression as (kind, word), and its literals and options as scalars.

    Raises ValueError for a step of an unknown form, and if a column has a line end in its name:
    Arrow does not escape names, so such a name can be read as other steps.
    """
    if any(name.splitlines() != [name] for name in columns):
        raise ValueError("a name of a column has a line end")
    reduced: Any = expression.__reduce__()
    _, (data,) = reduced
    with pa.ipc.open_file(data) as file:
        batch = file.get_batch(0)
    text = batch.schema.to_string(truncate_metadata=False, show_field_metadata=False)
    matches = [_LINE.fullmatch(line) for line in text.partition(_METADATA)[2].splitlines()]
    steps = [(match[1], match[2]) for match in matches if match]
    if len(steps) < len(matches) or any(kind not in _Reading.KINDS for kind, _ in steps):
        raise ValueError("the expression has a part that Seglake cannot evaluate")
    return steps, [column[0] for column in batch.columns]


class _Field(str):
    """A column that is an argument of a call, by its name."""

    __slots__ = ()


class _Reading:
    """A parser of expressions over the records of log partitions."""

    KINDS = frozenset({"call", "field_ref", "literal", "options", "end"})

    def __init__(self, partitions: Sequence[int], kinds: Mapping[str, str]) -> None:
        self._kinds = kinds
        self._everything = Selection(dict.fromkeys(partitions, Part()))
        self._nothing = Selection({})

    def of(self, expression: pc.Expression) -> Selection:
        """Return the records for which an expression can be true."""
        steps, values = _steps(expression, self._kinds)
        frames: list[list[Any]] = [[]]  # the arguments of each call that is open
        for kind, word in steps:
            if kind == "call":
                frames.append([])
            elif kind == "end":
                arguments = frames.pop()
                frames[-1].append(self._call(word, arguments))
            else:
                frames[-1].append(_Field(word) if kind == "field_ref" else values[int(word)])
        ((root,),) = frames
        return self._truth(root)

    def _call(self, name: str, arguments: Sequence[Any]) -> Selection:
        """Return the records for which a call can be true."""
        if name in _FLIPPED:
            return self._compared(name, *arguments)
        if name == "is_in":
            return self._among(*arguments)
        if name == "and_kleene":
            one, two = map(self._truth, arguments)
            return one.both(two)
        if name == "or_kleene":
            one, two = map(self._truth, arguments)
            return one.either(two)
        if name == "if_else":  # DuckDB writes an expression that is null for null like this
            condition, one, two = map(self._truth, arguments)
            return condition.both(one).either(two)
        return self._everything

    def _truth(self, argument: Any) -> Selection:
        """Return the records for which an argument can be true. Null is not true."""
        if isinstance(argument, Selection):
            return argument
        if isinstance(argument, pa.Scalar):
            return self._nothing if argument.as_py() in (None, False) else self._everything
        return self._everything

    def _compared(self, name: str, left: Any, right: Any) -> Selection:
        if isinstance(left, pa.Scalar):
            name, left, right = _FLIPPED[name], right, left
        if not (isinstance(left, _Field) and isinstance(right, pa.Scalar)):
            return self._everything
        if not right.is_valid:
            return self._nothing
        if left == "key" or left in self._kinds:
            return (
                self._with_values(left, pa.array([right])) if name == "equal" else self._everything
            )
        ends = _ends(left, pa.array([right]))
        return self._everything if ends is None else self._within(left, *_range(name, *ends[0]))

    def _among(self, field: Any, options: Any) -> Selection:
        values, nulls = options["value_set"].values, options["null_matching_behavior"].as_py()
        non_null = values.drop_null()
        if not isinstance(field, _Field):
            return self._everything
        if field == "key" or field in self._kinds:
            maybe_null = values.null_count and nulls == _NULL_MATCHES_NULL
            return self._everything if maybe_null else self._with_values(field, non_null)
        ends = _ends(field, non_null)
        if ends is None:
            return self._everything
        ranges = [_range("equal", low, high) for low, high in ends]
        if field == "partition":
            chosen = {low for low, _ in ranges}
            return self._chosen(lambda partition: partition in chosen)
        full = [(low, high) for low, high in ranges if low < high]
        return self._within(field, min(full)[0], max(full)[1]) if full else self._nothing

    def _with_values(self, field: str, values: Any) -> Selection:
        """Return the records in which a field, or the column `key`, has one of these values."""
        if field not in self._kinds:
            return self._with_keys(values)
        if self._kinds[field] != "string":
            return self._everything
        return self._with_texts(field, values)

    def _with_keys(self, values: Any) -> Selection:
        kind = values.type
        if not any(test(kind) for test in _BYTES):
            return self._everything
        keys = frozenset(values.cast(pa.binary()).to_pylist())
        return self._each(Part(keys=keys)) if keys else self._nothing

    def _with_texts(self, field: str, values: Any) -> Selection:
        """Return the records in which the field is a scalar with one of these texts."""
        if not any(test(values.type) for test in _TEXTS):
            return self._everything
        texts = frozenset(values.cast(pa.string()).to_pylist())
        if any(text[:1] in _NESTED for text in texts):
            return self._everything
        return self._each(Part(texts=frozenset({(str(field), texts)}))) if texts else self._nothing

    def _within(self, field: str, low: int, high: int) -> Selection:
        """Return the records in which the column `field` is in [low, high)."""
        if field == "partition":
            return self._chosen(lambda partition: low <= partition < high)
        low, high = max(low, INT64_MIN), min(high, NO_END)
        if low >= high:
            return self._nothing
        if field == "timestamp":
            return self._each(Part(Window(low, high)))
        return self._each(Part(Window(start_offset=max(low, 0), end_offset=min(high, INT64_MAX))))

    def _each(self, part: Part) -> Selection:
        return Selection(dict.fromkeys(self._everything.parts, part))

    def _chosen(self, is_chosen: Callable[[int], bool]) -> Selection:
        parts = self._everything.parts
        return Selection(
            {partition: part for partition, part in parts.items() if is_chosen(partition)}
        )


_TEXTS = (pa.types.is_string, pa.types.is_large_string, pa.types.is_string_view)
_BYTES = (
    pa.types.is_binary, pa.types.is_large_binary, pa.types.is_fixed_size_binary,
    pa.types.is_binary_view, *_TEXTS,
)  # fmt: skip
_NESTED = ("[", "{")  # first characters of arrays and objects, which no index contains


def _ends(field: str, values: Any) -> list[tuple[int, int]] | None:
    """Convert values to a column's unit, rounded down and up. Return None if not comparable."""
    kind = values.type
    if field in ("offset", "partition") and pa.types.is_integer(kind):
        return [(value, value) for value in values.to_pylist()]
    if field == "timestamp" and pa.types.is_timestamp(kind) and kind.tz is not None:
        factor, divisor = _UNITS[kind.unit]
        numbers = values.cast(pa.int64()).to_pylist()
        return [(n * factor // divisor, -(-n * factor // divisor)) for n in numbers]
    return None


def _range(name: str, below: int, above: int) -> tuple[int, int]:
    """Return the integers [low, high) for which a comparison with a number is true.

    `below` and `above` are the number, rounded down and rounded up.
    """
    if name == "equal":
        return above, below + 1
    if name.startswith("less"):
        return INT64_MIN, above if name == "less" else below + 1
    return below + 1 if name == "greater" else above, NO_END
