"""The sources of an import: a broker's folders, or a bucket of Kafka's tiered storage."""

from __future__ import annotations

from collections.abc import Iterable, Mapping

from seglake.kafka import folder
from seglake.kafka.folder import PartitionFolder, SourceFolders
from seglake.kafka.tiered import is_manifest, tiered_partitions
from seglake.store import Store, open_store


def find(
    sources: Iterable[str], topic: str | None, storage_options: Mapping[str, str] | None
) -> SourceFolders:
    """The partitions in the sources, as `folder.find` says; or in buckets of tiered storage.

    Raises as `folder.find` and `tiered_partitions`.
    """
    folders, skipped = list[PartitionFolder](), list[str]()
    for source in sources:
        store = open_store(source, storage_options)
        if _is_tiered(store):
            sizes = {item.key: item.size for item in store.list()}
            partitions = tiered_partitions(store, sizes, topic)
            chosen = [item for item in partitions if topic or not folder.is_internal(item.topic)]
            folders += chosen
        else:
            more = folder.find([source], topic, storage_options)
            folders += more.folders
            skipped += more.skipped
    return SourceFolders(folders, skipped)


def _is_tiered(store: Store) -> bool:
    """Whether manifests of tiered storage come before any log of a broker's folder."""
    for item in store.list():
        if is_manifest(item.key):
            return True
        if folder.is_log(item.key.rpartition("/")[2]):
            return False
    return False
