"""Compile every kernel once, so that nobody's first command waits for it.

Kernels are compiled on first use and kept beside the sources, or in the user's cache where those cannot
be written. `python -m seglake.warm` takes a few events of each input format through the whole path: read,
encode with every codec, write, look up, read back. No JVM starts.
"""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

from seglake.catalog.rows import RunRow
from seglake.catalog.table import CatalogTable
from seglake.config import Pipeline
from seglake.ingest.local import ingest_local

EVENTS = 300
JSONL = '{{"ts":{0},"user":"u\\u00e9{1}","note":"a\\tb","n":{1},"when":"2026-11-20T01:00:{2:02}Z"}}\n'
