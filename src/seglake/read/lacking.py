"""A hint in the log where a search for fields finds nothing: no value may have such a field."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from seglake.config.document import nearest
from seglake.read.field_list import FieldList

_MOST = 1000  # fields that are looked for in one process: the look reads a sample

_log = logging.getLogger(__name__)
_looked, _told_elsewhere = set[tuple[str, str]](), list[bool]()


def with_hints(
    batches: Callable[[], Iterator[pa.RecordBatch]],
    topic: str,
    names: Sequence[str],
    sample: Callable[[], FieldList],
) -> Iterator[pa.RecordBatch]:
    """The batches; if there is none, a warning names the fields that no value of a sample has.

    A sample is looked at once for each topic and field.
    """
    found = False
    for batch in batches():
        found = True
        yield batch
    new = [name for name in names if (topic, name) not in _looked]
    if found or not new or _told_elsewhere or len(_looked) >= _MOST:
        return
    _looked.update((topic, name) for name in new)
    fields = sample()
    known = list(fields.types)
    for name in new if fields.objects else ():
        if not any(each == name or each.startswith(f"{name}.") for each in known):
            _log.warning("%s: no value of a sample has the field %r; %s", topic, name,
                         nearest(name, known))  # fmt: skip


@contextmanager
def told_elsewhere() -> Iterator[None]:
    """In the block there is no hint: the caller tells it."""
    _told_elsewhere.append(True)
    try:
        yield
    finally:
        _told_elsewhere.pop()
