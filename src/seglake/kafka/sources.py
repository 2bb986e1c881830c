"""The sources of an import: a broker's folders, or a bucket of Kafka's tiered storage."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from seglake.errors import InputError, UsageError
from seglake.kafka import folder
from seglake.kafka.folder import PartitionFolder, SourceFolders
from seglake.kafka.tiered import is_manifest, tiered_partitions
from seglake.store import Listed, Store, open_store

_MEANT = (
    "a source of attach is the bucket that the broker's plugin writes to, with its key.prefix if "
    "it has one: s3://bucket, or s3://bucket/prefix"
)


class TieredBucket(NamedTuple):
    """A bucket of tiered storage, and the sizes of the objects that are meant, by key.

    The keys that are meant begin with `prefix`.
    """

    store: Store
    prefix: str
    sizes: Mapping[str, int]


def find(
    sources: Iterable[str], topic: str | None, storage_options: Mapping[str, str] | None
) -> SourceFolders:
    """The partitions in the sources, as `folder.find` says; or in buckets of tiered storage.

    Raises as `folder.find` and `tiered_partitions`.
    """
    folders, skipped = list[PartitionFolder](), list[str]()
    topics = None if topic is None else {topic}
    for source in sources:
        bucket = _bucket(source, storage_options)
        if bucket is not None:
            partitions = tiered_partitions(bucket.store, bucket.sizes, topics)
            chosen = [item for item in partitions if topic or not folder.is_internal(item.topic)]
            folders += chosen
        else:
            more = folder.find([source], topic, storage_options)
            folders += more.folders
            skipped += more.skipped
    return SourceFolders(folders, skipped)


def find_bucket(source: str, storage_options: Mapping[str, str] | None) -> TieredBucket:
    """The bucket of tiered storage at a source.

    Raises InputError if no segment is there, and UsageError for the folders of a broker.
    """
    bucket = _bucket(source, storage_options)
    if bucket is not None:
        return bucket
    names = [item.key.rpartition("/")[2] for item in open_store(source, storage_options).list()]
    if any(map(folder.is_log, names)):
        raise UsageError(
            f"{source} is not in a bucket of tiered storage, and a broker changes its folders: "
            "import it"
        )
    if not names:
        raise InputError(f"{source}: nothing is there, no key begins so: {_MEANT}")
    raise InputError(
        f"{source}: none of {len(names):,} objects is a manifest of tiered storage "
        f"(<topic>-<topic id>/<partition>/<offset>-<segment id>.rsm-manifest): {_MEANT}"
    )


def _bucket(source: str, storage_options: Mapping[str, str] | None) -> TieredBucket | None:
    """The bucket at a source; None if no manifest is there, or a broker's log before any."""
    store = open_store(source, storage_options)
    prefix, is_tiered = "", _is_tiered(store.list())
    if is_tiered is None and not source.endswith("/"):
        above, _, prefix = store.uri.rpartition("/")
        if above.endswith(":/"):
            return None
        store = open_store(above or "/", storage_options)
        is_tiered = _is_tiered(_beginning_with(prefix, store))
    if not is_tiered:
        return None
    return TieredBucket(
        store, prefix, {item.key: item.size for item in _beginning_with(prefix, store)}
    )


def _beginning_with(prefix: str, store: Store) -> Iterator[Listed]:
    """The objects whose keys begin with a prefix, which has no "/"."""
    if store.remote or not prefix:
        yield from (item for item in store.list() if item.key.startswith(prefix))
        return
    above = Path(store.uri)
    for name in sorted(path.name for path in above.iterdir()) if above.is_dir() else ():
        if name.startswith(prefix) and (above / name).is_dir():
            yield from store.list(name)


def _is_tiered(items: Iterable[Listed]) -> bool | None:
    """Whether manifests of tiered storage come before any log of a broker's folder.

    None without any object.
    """
    is_tiered = None
    for item in items:
        is_tiered = False
        if is_manifest(item.key):
            return True
        if folder.is_log(item.key.rpartition("/")[2]):
            return False
    return is_tiered
