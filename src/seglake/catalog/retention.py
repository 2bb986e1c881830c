"""What the retained versions of the catalog need: their rows, and the files that they name."""

from collections.abc import Collection, Iterator

import pyarrow as pa

from seglake.catalog.delta.data_files import read_parquet
from seglake.catalog.rows import FILE_SCHEMAS, Kind
from seglake.catalog.table import CatalogTable
from seglake.errors import MissingObject
from seglake.layout import LOG_TABLE
from seglake.store import Listed


def expired_files(
    table: CatalogTable, retention_hours: int | None = None, *, before_ms: float
) -> list[Listed]:
    """The objects in the catalog table's folder that no retained version names.

    Without `retention_hours` the table's own retention holds; a shorter one expires versions. An
    object written at `before_ms` or later is left out: a commit may be about to name it.
    """
    keys = {f"{LOG_TABLE}/{path}" for path in table.handle.expired_paths(retention_hours)}
    listed = table.store.list(LOG_TABLE) if keys else ()
    return [found for found in listed if found.key in keys and found.modified_ms < before_ms]


def retained_rows(
    table: CatalogTable, kind: Kind, expired: Collection[str]
) -> Iterator[tuple[str, pa.Table]]:
    """The rows that any retained version may have, as (topic, rows) of each data file.

    Files with a key in `expired` are not read. Raises MissingObject, at the end, if a data file of
    the newest version does not exist.
    """
    needed = {f"{LOG_TABLE}/{file.path}" for file in table.newest_files() if file.kind == kind}
    for found in table.store.list(f"{LOG_TABLE}/kind={kind}"):
        if found.key.endswith(".parquet") and found.key not in expired:
            topic = found.key.split("/")[3].removeprefix("topic=")
            yield topic, read_parquet(table.store, found.key, FILE_SCHEMAS[kind])
            needed.discard(found.key)
    for key in needed:
        raise MissingObject(f"{table.store.uri}/{key}: no such object")
