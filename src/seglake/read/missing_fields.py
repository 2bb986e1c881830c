"""Log a hint if a search for fields finds nothing because no value has such a field."""

from __future__ import annotations

import logging
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager

import pyarrow as pa

from seglake.read.field_list import FieldList
from seglake.terminal.wording import suggest_or_list

_MOST = 1000  # fields that one process checks, because each check reads a sample

_log = logging.getLogger(__name__)
_looked, _silencers = set[tuple[str, str]](), list[bool]()


def with_hints(
    batches: Callable[[], Iterator[pa.RecordBatch]],
    topic: str,
    names: Sequence[str],
    sample: Callable[[], FieldList],
) -> Iterator[pa.RecordBatch]:
    """Yield the batches. If there is no batch, log the fields that no sampled value has.

    A sample is read only once for each topic and field.
    """
    any_batch = False
    for batch in batches():
        any_batch = True
        yield batch
    new = [name for name in names if (topic, name) not in _looked]
    if any_batch or not new or _silencers or len(_looked) >= _MOST:
        return
    _looked.update((topic, name) for name in new)
    fields = sample()
    present = [each.name for each in fields.fields]
    for name in new if fields.objects else ():
        if not any(each == name or each.startswith(f"{name}.") for each in present):
            _log.warning("%s: no sampled value has the field %r; %s", topic, name,
                         suggest_or_list(name, present))  # fmt: skip


@contextmanager
def without_hints() -> Iterator[None]:
    """Suppress the hints of this module inside the `with` block: the caller reports them itself."""
    _silencers.append(True)
    try:
        yield
    finally:
        _silencers.pop()
