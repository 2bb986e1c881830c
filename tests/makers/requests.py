"""Well-formed requests of every API and version with any values in their fields."""

import uuid
from collections.abc import Mapping
from typing import Any

from hypothesis import strategies as st
from kafka.protocol import admin, consumer, metadata, producer, sasl

_INTEGERS = {"int8": 8, "int16": 16, "int32": 32, "int64": 64}
_IDS = [None, uuid.UUID(int=1), uuid.UUID(int=2**128 - 1)]  # None is sent as zeros
_TEXTS = ["", "none", "a/b", "x" * 300, "events.v99", "\n\u00e9"]
_TEXTS += ["events.20260601T120000Z.20260601T110000Z"]  # ends before it begins
_Texts = st.SearchStrategy[str]
_Ids = st.SearchStrategy[uuid.UUID | None]
_TIMES = ("max_wait_ms", "timeout_ms", "rebalance_timeout_ms", "session_timeout_ms")


def messages() -> Mapping[int, tuple[Any, Any]]:
    """kafka-python's classes of the request and the response, by API key."""
    found = dict[int, tuple[Any, Any]]()
    for part in (admin, consumer, metadata, producer, sasl):
        for name, kind in vars(part).items():
            if name.endswith("Request") and isinstance(getattr(kind, "API_KEY", None), int):
                found[kind.API_KEY] = kind, getattr(part, name.removesuffix("Request") + "Response")
    return found


def any_request(
    kind: Any, version: int, names: list[str], ids: list[uuid.UUID]
) -> st.SearchStrategy[Any]:
    """A request of this class and version; some name these topics or ids."""
    texts, every_id = st.sampled_from([*names, *_TEXTS]), st.sampled_from([*ids, *_IDS])
    return _message(kind._struct, kind, version, texts, every_id)


def _message(schema: Any, kind: Any, version: int, texts: Any, ids: Any) -> st.SearchStrategy[Any]:
    values = {
        field.name: _field(field, kind, version, texts, ids)
        for field in schema.untagged_fields(version)
    }
    return st.fixed_dictionaries(values).map(lambda fields: kind(**fields))


def _field(field: Any, kind: Any, version: int, texts: Any, ids: Any) -> st.SearchStrategy[Any]:
    if field.is_struct_array():
        inner = getattr(kind, field.type_str.removeprefix("[]"))
        one = _message(field.array_of, inner, version, texts, ids)
        value = _some(one)
    elif field.is_array():
        value = _some(_simple(field.type_str.removeprefix("[]"), texts, ids))
    else:
        value = _simple(field.type_str, texts, ids)
    if field.nullable_for_version_q(version):
        value = st.one_of(value, st.none())
    if field.name in _TIMES:
        return st.sampled_from([0, -1, 5, -(2**31)])  # else the answer would come late
    return value


def _some(one: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
    """None, one, several, or the same one again."""
    return st.one_of(st.lists(one, max_size=2), one.map(lambda each: [each, each]))


def _simple(kind: str, texts: _Texts, ids: _Ids) -> st.SearchStrategy[Any]:
    if (bits := _INTEGERS.get(kind)) is not None:
        top = 2 ** (bits - 1)
        return st.one_of(st.integers(-6, 9), st.sampled_from([-top, top - 1]))
    if kind == "bool":
        return st.booleans()
    if kind == "uuid":
        return ids
    if kind == "string":
        return texts
    assert kind in ("bytes", "records"), kind
    return st.binary(max_size=9)
