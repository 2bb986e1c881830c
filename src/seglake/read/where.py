"""Compare fields and headers of records with conditions.

A condition is an equality. Text is compared with the text of the value, without its type, so
`"200"` equals the number 200 and the string "200". Comparison is case-sensitive. A Python number
equals JSON numbers of the same value, and no string. True and False equal JSON's true and false.
None equals null and a missing field. Each element of an array counts, and each repeated header.
Nothing equals an object. Fields of CSV and of lines of text have no types: there, a text that is
also a JSON number, true or false equals both.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Mapping, Sequence
from decimal import Decimal, InvalidOperation
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute

from seglake.errors import UsageError
from seglake.format.index import FIELDS, HEADERS, Subject
from seglake.format.key_hashes import Hashes, hashes_of_keys, hashes_of_numbers
from seglake.format.records import Flags, Spans
from seglake.format.value_format import JSON, ValueFormat
from seglake.log.key_indexes import SHORT, UNREAD
from seglake.text.json_fields import Scalars
from seglake.text.spans import from_arrow, to_arrow
from seglake.text.value_fields import ValueFields, field_finder

pc: Any = pyarrow.compute  # its stubs require the type of each item

Conditions = Mapping[str, Any]  # name → a value, or a list of values of which one must be equal

_NOT_PLAIN = r"[.eE]|^-0$"  # JSON numbers that another text may be equal to
_LONGEST = 1000  # digits of a number that a text without an exponent may have
_NEAR = 1e-12  # numbers that differ by more, relatively, are different


class Where:
    """Equalities that a record must meet, for fields of its value and for headers.

    Fields are found with `value_format`. Raises UsageError for a value of a type that cannot be
    compared.
    """

    def __init__(
        self,
        fields: Conditions | None,
        headers: Conditions | None,
        value_format: ValueFormat = JSON,
    ) -> None:
        self._fields = {
            name: [_checked(name, each) for each in _choices(name, value)]
            for name, value in _pairs("where", fields)
        }
        self._headers = {
            name: [_header(name, each) for each in _choices(name, value)]
            for name, value in _pairs("headers", headers)
        }
        self._format = value_format
        self._find = field_finder(value_format, self._fields) if self._fields else None

    def over(self, value_format: ValueFormat) -> Where:
        """Return these equalities for values of the format `value_format`."""
        return Where(self._fields, self._headers, value_format)

    def __bool__(self) -> bool:
        return bool(self._fields or self._headers)

    def __str__(self) -> str:
        pairs = [*self._fields.items(), *self._headers.items()]
        return " and ".join(f"{name} = {' or '.join(map(str, values))}" for name, values in pairs)

    @property
    def columns(self) -> list[str]:
        """Return the columns that are compared."""
        return ["value"] * bool(self._fields) + ["headers"] * bool(self._headers)

    @property
    def sought(self) -> dict[Subject, Hashes]:
        """Return the hashes to look up in key indexes, which do not list null or missing values."""
        fields = {_field(name, self._format): values for name, values in self._fields.items()}
        headers = {Subject(HEADERS, name): values for name, values in self._headers.items()}
        return {
            subject: _also_unread(subject, np.concatenate([_hashes(value) for value in values]))
            for subject, values in (fields | headers).items()
            if None not in values
        }

    def mask(self, batch: pa.RecordBatch) -> Flags:
        """Return whether each record of a batch meets all conditions."""
        mask = np.ones(len(batch), np.bool_)
        for name, values in self._headers.items():
            mask &= _with_header(batch["headers"], name, values)
        if self._find is not None and mask.any():
            fields = self._find(from_arrow(batch["value"]))
            for name, values in self._fields.items():
                mask &= _with_field(fields, name, values)
        return mask


def sought_texts(
    texts: Iterable[tuple[str, Iterable[str]]], value_format: ValueFormat
) -> dict[Subject, Hashes]:
    """Return the hashes to look up in key indexes. `texts` are (field, texts it may have)."""
    fields = ((_field(name, value_format), some) for name, some in texts)
    return {
        subject: _also_unread(subject, hashes_of_keys(text.encode() for text in some))
        for subject, some in fields
    }


def _field(name: str, value_format: ValueFormat) -> Subject:
    return Subject(FIELDS, name, value_format)


def _also_unread(subject: Subject, hashes: Hashes) -> Hashes:
    """Add the hash for values that the index could not parse. Return all hashes, sorted."""
    unread = hashes_of_keys([UNREAD] if subject.value_format else [])
    return np.unique(np.append(hashes, unread))


def _pairs(what: str, conditions: Conditions | None) -> Iterable[tuple[str, Any]]:
    if conditions is not None and not isinstance(conditions, Mapping):
        raise UsageError(f"{what} must be a dict such as {{'name': value}}, not {conditions!r}")
    return (conditions or {}).items()


def _choices(name: str, value: Any) -> list[Any]:
    values = [*value] if isinstance(value, (list, tuple, set, frozenset)) else [value]
    if not values:
        raise UsageError(f"{name!r} has no values to compare with. Give one, or leave out {name!r}")
    return values


def _checked(name: str, value: Any) -> Any:
    if value is not None and not isinstance(value, (str, bool, int, float, Decimal)):
        raise UsageError(
            f"{name!r} is compared with {value!r}. Use text, a number, True, False or None"
        )
    if (isinstance(value, float) and not math.isfinite(value)) or (
        isinstance(value, Decimal) and not value.is_finite()  # math.isfinite overflows at 1e400
    ):
        raise UsageError(f"{name!r} is compared with {value}, which JSON cannot contain")
    return value


def _header(name: str, value: Any) -> bytes | None:
    if value is None or isinstance(value, bytes):
        return value
    if isinstance(value, str):
        return value.encode()
    raise UsageError(f"header {name!r} is compared with {value!r}. Use text, bytes or None")


def _hashes(value: Any) -> Hashes:
    """Return the hashes under which a key index lists values that are equal to `value`."""
    if isinstance(value, bool):
        return hashes_of_keys([str(value).lower().encode()])
    if not _is_number(value):
        return hashes_of_keys([value.encode() if isinstance(value, str) else value])
    exact = _exact(value)
    by_value = hashes_of_numbers(Spans.from_list([str(exact).encode()]))
    text = _usual_text(exact)
    return by_value if text is None else np.append(by_value, hashes_of_keys([text]))


def _usual_text(number: Decimal) -> bytes | None:
    """Return the text of a number in the usual notation, or None if the text would be too long.

    A JSON number in this notation has no second hash in a key index, see `KeyIndexBuilder`.
    """
    sign, digits, _ = number.as_tuple()
    while digits and not digits[-1]:
        digits = digits[:-1]
    if not digits:
        return b"0"
    if len(digits) > SHORT or not -SHORT <= number.adjusted() < SHORT:
        return None
    text = f"{Decimal((sign, digits, number.adjusted() + 1 - len(digits))):f}"
    return text.encode() if len(text) <= SHORT else None


def _with_header(headers: Any, name: str, values: Sequence[bytes | None]) -> Flags:
    """Return, for each record, whether it has the header with one of the values."""
    items, rows = headers.flatten(), pc.list_parent_indices(headers)
    named, texts = pc.equal(items.field("key"), name), items.field("value")
    value_set = pa.array([each for each in values if each is not None], texts.type)
    same = pc.is_in(texts, value_set=value_set, skip_nulls=True)
    if None in values:
        same = pc.or_(same, pc.is_null(texts))
    return _marked(len(headers), rows.filter(pc.and_(named, same)).to_numpy())


def _with_field(fields: ValueFields, name: str, values: Sequence[Any]) -> Flags:
    """Return, for each record, whether it has the field with one of the values."""
    scalars = fields.scalars(name)
    same = np.zeros(len(scalars.rows), np.bool_)
    texts = to_arrow(scalars.texts)
    plain = [each for each in values if isinstance(each, str)]
    if plain:
        same |= _is_in(texts, plain)
    raw = [str(each).lower() for each in values if isinstance(each, bool)]
    numbers = [each for each in values if _is_number(each)]
    if raw or numbers:
        same |= scalars.raw & _is_in(texts, [*raw, *map(_plain_text, numbers)])
    for number in numbers:
        same |= _equal(scalars, texts, number)
    mask = _marked(len(fields.fine), scalars.rows[same])
    return mask | fields.is_null(name) if None in values else mask


def _is_number(value: Any) -> bool:
    return isinstance(value, (int, float, Decimal)) and not isinstance(value, bool)


def _plain_text(number: Any) -> str:
    """Return a number as most JSON writers write it: an integral value has no point.

    Its other texts have a point or an exponent, see `_equal`.
    """
    exact = _exact(number)
    exact = exact or Decimal(0)  # not -0
    plain = exact.adjusted() < _LONGEST and exact == exact.to_integral_value()
    return f"{exact:.0f}" if plain else str(number)


def _is_in(texts: Any, values: Sequence[str]) -> Flags:
    mask: Flags = pc.is_in(texts, value_set=pa.array(values, texts.type)).to_numpy(
        zero_copy_only=False
    )
    return mask


def _equal(scalars: Scalars, texts: Any, number: Any) -> Flags:
    """Return, for each scalar, if it is a JSON number with a point or exponent equal to `number`.

    `texts` are the texts of the scalars as an Arrow array.
    """
    same = np.zeros(len(texts), np.bool_)
    unusual = pc.match_substring_regex(texts, _NOT_PLAIN).to_numpy(zero_copy_only=False)
    rows = np.flatnonzero(scalars.raw & unusual)
    rows = rows[~_is_in(texts.take(pa.array(rows)), ["true", "false"])]  # they contain an "e"
    some = texts.take(pa.array(rows))
    near = _near(some.cast(pa.float64()).to_numpy(zero_copy_only=False), number)
    exact = _exact(number)
    candidates = some.filter(pa.array(near)).unique().to_pylist()
    equal = [each for each in candidates if _decimal(each) == exact]
    same[rows] = _is_in(some, equal)
    return same


def _exact(number: Any) -> Decimal:
    return Decimal(repr(number) if isinstance(number, float) else number)


def _decimal(text: str) -> Decimal:
    """Parse a JSON number. Return NaN, which equals nothing, if the exponent is too large."""
    try:
        return Decimal(text)
    except InvalidOperation:
        digits = text.lower().partition("e")[0]
        return Decimal("NaN") if digits.strip("-0.") else Decimal(0)


def _near(numbers: Any, number: Any) -> Flags:
    try:
        middle = float(number)
    except OverflowError:
        middle = math.inf
    least = 1e-300
    near: Flags = (
        abs(numbers) > 1 / least
        if math.isinf(middle)
        else abs(numbers - middle) <= max(abs(middle) * _NEAR, least)
    )
    return near


def _marked(count: int, rows: Any) -> Flags:
    mask = np.zeros(count, np.bool_)
    mask[rows] = True
    return mask
