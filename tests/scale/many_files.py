"""What it takes to find the new files among many: pages of the listing, memory, processor.

A bucket has the files, and the topic all but the new ones; the catalog is a real one. Pages
of 1,000 names are counted.
"""

import hashlib
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from seglake.catalog.table import CatalogTable
from seglake.config import Input
from seglake.errors import MissingObject
from seglake.store import open_store
from seglake.store.interface import Listed
from seglake.write.driver.run_input import KnownFiles
from seglake.write.input.content import InputStore
from seglake.write.input.files import FileVersion
from seglake.write.input.listing import find_inputs
from tests.makers.raw_events import T
from tests.scale.catalog_reads import TOPIC, DataFiles, History

_PAGE = 1000


class Found(NamedTuple):
    """What a search found, and what it took."""

    new: int
    skipped: int
    pages: int
    requests: int
    catalog_bytes: int
    cpu_s: float


def _etag(number: int) -> str:
    """Tags compress as little as real ones."""
    return f'"{hashlib.md5(b"%d" % number).hexdigest()}"'


class Bucket(InputStore):
    """A bucket of so many files, with the names of a `History`."""

    def __init__(self, count: int) -> None:
        super().__init__({})
        self._count, self.pages = count, 0

    def list(self, folder: str) -> Iterator[Listed]:
        """Every file, in pages."""
        for number in range(self._count):
            self.pages += number % _PAGE == 0
            key = f"{number // 100_000:05}/{number:09}.jsonl"
            yield Listed(key, 1000 + number % 7, T + number, _etag(number))

    def stat(self, path: str) -> FileVersion:
        """There is no object but the files."""
        raise MissingObject(path)


def searched(root: Path, history: History, new: int) -> Found:
    """List the bucket, and look for its files in the topic."""
    store = DataFiles(open_store(str(root / "lake")))
    table = CatalogTable(store)
    base, bucket = table.newest_ends(TOPIC), Bucket(history.sources + new)
    begun = time.process_time()
    files = find_inputs(Input(format="jsonl", paths=(str(root / "in"),)), bucket).files
    known = KnownFiles.from_files(files, lambda paths: table.sources_at(base, TOPIC, paths))
    took = time.process_time() - begun
    requests, size = store.reads.requests.total(), store.reads.bytes.total()
    found = known.selection
    return Found(len(found.files), len(found.skipped), bucket.pages, requests, size, took)
