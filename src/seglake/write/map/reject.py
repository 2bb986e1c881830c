"""Rejects as blobs, on their way to the quarantine."""

from __future__ import annotations

from typing import Any

import numpy as np
import pyarrow as pa

from seglake.write.rows.records import Rejects
from seglake.write.spool.blob import REJECTS, Blob

_COLUMNS: dict[str, pa.DataType] = {
    "split": pa.int64(),
    "line": pa.int64(),
    "reason": pa.string(),
    "raw": pa.binary(),
}
REJECT_SCHEMA = pa.schema(_COLUMNS)


def reject_blob(unit: int, split: int, rejects: Rejects) -> Blob:
    """Rejected rows of one split."""
    columns = [
        pa.array(np.full(len(rejects), split)),
        pa.array(rejects.lines),
        pa.array(rejects.reasons, pa.string()),
        pa.array(rejects.raw.tolist(), pa.binary()),
    ]
    sink = pa.BufferOutputStream()
    options = pa.ipc.IpcWriteOptions(compression="zstd")
    with pa.ipc.new_stream(sink, REJECT_SCHEMA, options=options) as stream:
        stream.write_batch(pa.RecordBatch.from_arrays(columns, schema=REJECT_SCHEMA))
    data = sink.getvalue().to_pybytes()
    return Blob(REJECTS, unit, data, records=len(rejects), size_bytes=len(data))


def read_rejects(data: Any) -> pa.Table:
    """The rows of REJECT_SCHEMA that a blob holds."""
    return pa.ipc.open_stream(pa.py_buffer(data)).read_all()
