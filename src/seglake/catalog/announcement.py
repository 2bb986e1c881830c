"""The block in which an attempt reads, writes and commits: it is announced, and cleans up.

`attempts/<attempt>/begun` is put before an attempt reads input that may bring a key back, or the
version whose records it copies, and taken away at every end that the process lives to see. So an
erasure knows of an attempt that has written nothing yet.

Whoever gives an attempt up deletes what it has written. But the attempt may be alive and write
more, when an erasure that gave it up has ended: so it takes back what no commit will name, however
it ends. It may end as if objects were lost, because that erasure deleted its input. An attempt that
ends without a commit gives itself up: else it would count as running for the grace period.
"""

import contextlib
import json
import logging
from collections.abc import Collection, Iterator
from functools import partial
from itertools import chain, compress

from seglake.catalog import fate
from seglake.catalog.delta.data_files import read_at_once
from seglake.catalog.table import CatalogTable
from seglake.errors import SeglakeError, StoreError
from seglake.layout import attempt_folder, begun_key
from seglake.store import Store

_log = logging.getLogger(__name__)


@contextlib.contextmanager
def announced(
    table: CatalogTable, attempt_id: str, topic: str, *others: Collection[str], partitions: int = 0
) -> Iterator[None]:
    """A block in which an attempt at a topic reads, writes and commits. Raises StoreError.

    `others` hold the further ids under which it has written segments when the block ends. The
    commit may give the topic so many `partitions`, if it has fewer.
    """
    store = table.store
    store.put(begun_key(attempt_id), json.dumps({"topic": topic}).encode())
    try:
        yield
    finally:
        try:
            own = [attempt_id, *chain(*others)]
            ended = read_at_once(store, partial(fate.end, store), own)
            if any(ended):
                _take_back(table, topic, partitions, [*compress(own, ended)])
        except SeglakeError as error:
            _log.warning("what this attempt wrote is left for `seglake vacuum`: %s", error)
        try:
            store.delete([begun_key(attempt_id)])
        except StoreError as error:
            _log.warning("an announcement is left for `seglake vacuum` to delete: %s", error)


def _take_back(table: CatalogTable, topic: str, partitions: int, own: Collection[str]) -> None:
    """Delete the files of segments that an attempt wrote under its own ids.

    Raises StoreError and CorruptData.
    """
    row = table.snapshot(topics=[topic]).find_topic(topic)
    count = max(partitions, 0 if row is None else row.partitions)
    folders = [attempt_folder(topic, number, each) for number in range(count) for each in own]
    listed = read_at_once(table.store, partial(_keys, table.store), folders)
    table.store.delete([*chain.from_iterable(listed)])


def _keys(store: Store, folder: str) -> list[str]:
    return [item.key for item in store.list(folder)]
