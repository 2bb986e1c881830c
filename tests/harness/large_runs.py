"""Small inputs that are divided as large runs are."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any
from unittest.mock import patch

from seglake.write.map import unit
from seglake.write.spool import spill_buffer


@contextmanager
def large_runs() -> Iterator[None]:
    """Runs unit 400 bytes for each log partition, in a file; one unit may have it all."""
    small: dict[str, Any] = {"_FEW_BLOBS": 0, "_SHARE_BYTES": 400, "_CORES": 1, "_MOST_BLOBS": 20}
    small |= {"_RANGE_BYTES": 300}
    with patch.multiple(unit, **small), patch.object(spill_buffer, "_MEMORY_BYTES", 500):
        yield
