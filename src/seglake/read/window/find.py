"""Find records by key, field or header, with key indexes where possible, or with a scan.

An index only lists the blocks that may hold a key, a field or a header. Records are still compared,
so the result does not depend on any index.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from typing import Any

import numpy as np
import pyarrow as pa

from seglake.cached import cached_property
from seglake.errors import UsageError
from seglake.format.index import RECORD_KEYS
from seglake.format.key_hashes import hashes_of_keys
from seglake.format.partitioner import partition_of
from seglake.format.records import Spans
from seglake.format.sought_kernels import EVERY_KEY, SoughtKeys
from seglake.format.value_format import ValueFormat
from seglake.log.execute import ReadStats, execute, schema_of
from seglake.log.key_indexes import SubjectHashes
from seglake.log.reads import PartitionReader
from seglake.log.segment import Piece, Window
from seglake.read.where import Conditions, Where
from seglake.read.window.plan import BlockPlan
from seglake.terminal.tables import ShowsTable, Table, number, size
from seglake.terminal.wording import counted, short_bytes

_ORDER = ("offset", "partition", "timestamp")  # of the newest records; the last counts most
_SHOWN = 20  # log partitions in a table

FIND_COLUMNS = [
    number("partition", "partition"),
    number("by_index", "by index"),
    number("scanned", "scanned"),
    number("ranges", "ranges"),
    size("bytes", "bytes"),
    number("records_at_most", "records at most"),
]
FIND_NAMES = ("by_index", "scanned", "ranges", "bytes", "records_at_most")


@dataclass(frozen=True)
class Criteria:
    """The criteria of a search: records with one of `keys` (None: any key) that meet `where`.

    `hints` are also looked up in key indexes, but not compared.
    """

    keys: Sequence[bytes] | None
    where: Where
    hints: SubjectHashes = field(default_factory=dict)

    @staticmethod
    def parse(
        key: str | bytes | None,
        keys: Sequence[str | bytes] | None,
        where: Conditions | None = None,
        headers: Conditions | None = None,
    ) -> Criteria:
        """Return the criteria of a caller. Raises UsageError for no criteria, or contradictions."""
        conditions = Where(where, headers)
        if key is None and keys is None:
            if not conditions:
                raise UsageError("find needs a key, keys, where or headers")
            return Criteria(None, conditions)
        return Criteria(keys_of(key, keys), conditions)

    def over(self, value_format: ValueFormat) -> Criteria:
        """Return these criteria for a topic with values of this format."""
        return replace(self, where=self.where.over(value_format))

    @property
    def sought(self) -> SubjectHashes:
        """Return the hashes to look up in key indexes."""
        keys = {} if self.keys is None else {RECORD_KEYS: hashes_of_keys(self.keys)}
        return {**self.hints, **keys, **self.where.sought}

    def compared(self, schema: pa.Schema) -> pa.Schema:
        """Return `schema`, followed by the missing columns that `among` compares."""
        more = [name for name in self.where.columns if name not in schema.names]
        return schema_of([*schema.names, *more])

    @cached_property
    def compared_keys(self) -> SoughtKeys:
        """Return the keys that `execute` compares, or `EVERY_KEY` if any key matches."""
        return EVERY_KEY if self.keys is None else SoughtKeys.from_keys(self.keys)

    def __str__(self) -> str:
        keys = [] if self.keys is None else [counted(len(self.keys), "key")]
        return " with ".join([*keys, *([str(self.where)] if self.where else [])])

    def among(self, batches: Iterable[pa.RecordBatch], schema: pa.Schema) -> Iterator[Any]:
        """Yield the records that meet `where`, with the columns of `schema`. No batch is empty.

        `batches` have the columns of `compared(schema)`, and only records with one of the keys.
        """
        if not self.where:
            yield from batches
            return
        for batch in batches:
            matches = batch.filter(pa.array(self.where.mask(batch)))
            if len(matches):
                yield matches.select(schema.names)


def keys_of(key: str | bytes | None, keys: Sequence[str | bytes] | None) -> list[bytes]:
    """Return the distinct keys that a caller passed. Encodes text as UTF-8. Raises UsageError."""
    if (key is None) == (keys is None):
        raise UsageError("find needs either key or keys")
    if isinstance(keys, str | bytes):
        raise UsageError("keys must be a list. Pass a single key as key=…")
    asked = [key] if key is not None else [*(keys or ())]
    for each in asked:
        if not isinstance(each, str | bytes):
            raise UsageError(f"a key must be bytes or text, not {each!r}")
    return [*dict.fromkeys(each.encode() if isinstance(each, str) else each for each in asked)]


def partitions_for_keys(
    keys: Sequence[bytes], counts: Sequence[int], partitions: Sequence[int]
) -> dict[int, list[bytes]]:
    """Return the keys that each partition may hold. Partitions without a key are left out.

    `counts` are the numbers of partitions that the topic has had. It is empty if keys do not choose
    the partition.
    """
    if not counts:
        return {partition: [*keys] for partition in partitions} if keys else {}
    spans = Spans.from_list([*keys])
    found: dict[int, dict[bytes, None]] = {partition: {} for partition in partitions}
    for count in counts:
        for key, home in zip(keys, partition_of(spans, count).tolist(), strict=True):
            if home in found:
                found[home][key] = None
    return {partition: [*here] for partition, here in found.items() if here}


@dataclass(frozen=True)
class Search:
    """Criteria, and the blocks of one log partition that may hold records that meet them."""

    criteria: Criteria
    blocks: BlockPlan

    def records(
        self, pieces: Iterator[Piece], schema: pa.Schema, stats: ReadStats | None
    ) -> Iterator[pa.RecordBatch]:
        """Return the records of the pieces that meet the criteria."""
        criteria, fetch = self.criteria, self.blocks.reader.cached_fetch
        read, keys = criteria.compared(schema), criteria.compared_keys
        return criteria.among(execute(fetch, pieces, read, stats=stats, keys=keys), schema)

    def last(
        self, count: int, schema: pa.Schema, stats: ReadStats | None
    ) -> Iterator[pa.RecordBatch]:
        """Return the last records that meet the criteria, at most `count`."""
        parts, left = list[list[pa.RecordBatch]](), count
        pieces = self.blocks.newest_pieces()
        while left and (piece := next(pieces, None)):
            part = _end_of(self.records(iter([piece]), schema, stats), left)
            parts.append(part)
            left -= sum(map(len, part))
        return chain.from_iterable(reversed(parts))

    def planned(self) -> dict[str, int]:
        """Read key indexes and zone maps, and return a row of a `FindPlan`."""
        pieces = [*self.blocks.pieces()]
        return {
            "partition": self.blocks.reader.view.partition,
            "by_index": self.blocks.by_index,
            "scanned": self.blocks.scanned,
            "ranges": sum(len(piece.starts) for piece in pieces),
            "bytes": sum(piece.size_bytes for piece in pieces),
            "records_at_most": sum(piece.records_at_most for piece in pieces),
        }


def searches_of(
    reads: Sequence[tuple[PartitionReader, Window]],
    criteria: Criteria,
    counts: Callable[[], Sequence[int]],
) -> list[Search]:
    """Return the searches of `reads`: a window in each of several log partitions of a topic.

    A partition that cannot hold any of the keys has no search. `counts` returns the numbers of
    partitions that the topic has had, see `partitions_for_keys`.
    """
    if criteria.keys is None:
        chosen = [(reader, window, criteria) for reader, window in reads]
    else:
        by_partition = {reader.view.partition: (reader, window) for reader, window in reads}
        here = partitions_for_keys(criteria.keys, counts(), [*by_partition])
        chosen = [(*by_partition[p], replace(criteria, keys=keys)) for p, keys in here.items()]
    return [
        Search(own, BlockPlan.from_window(reader, window, own.sought))
        for reader, window, own in chosen
    ]


def search_records(
    searches: Sequence[Search], schema: pa.Schema, newest: int | None, stats: ReadStats | None
) -> Iterator[pa.RecordBatch]:
    """Yield the found records, one partition after another, in offset order. No batch is empty.

    With `newest`, yield only the records that `newest_of` selects from the last `newest` records of
    each partition.
    """
    if newest is None:
        for search in searches:
            yield from search.records(search.blocks.pieces(), schema, stats)
        return
    read = with_order(schema)
    ends = (search.last(newest, read, stats) for search in searches)
    yield from newest_of(chain.from_iterable(ends), newest, schema)


def with_order(schema: pa.Schema) -> pa.Schema:
    """Return `schema`, followed by the missing columns that `newest_of` compares."""
    return schema_of([*dict.fromkeys([*schema.names, *_ORDER])])


def newest_of(
    batches: Iterable[pa.RecordBatch], count: int, schema: pa.Schema
) -> Iterator[pa.RecordBatch]:
    """Yield the `count` records with the largest timestamps, with the columns of `schema`.

    They keep their order. If timestamps are equal, the record of the highest partition counts as
    newer, then the record with the highest offset. At most 2 * `count` records and one batch are in
    memory.
    """
    kept, rows = list[pa.RecordBatch](), 0
    for batch in batches:
        kept.append(batch)
        rows += len(batch)
        if rows > 2 * count:
            kept, rows = _newest(kept, count), count
    for batch in _newest(kept, count) if rows > count else kept:
        yield batch.select(schema.names)


def _newest(batches: Sequence[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    """Return the `count` newest records of the batches, which have more than `count` records."""
    table = pa.Table.from_batches(batches)
    order = np.lexsort([table[name].cast(pa.int64()).to_numpy() for name in _ORDER])
    return table.take(np.sort(order[len(order) - count :])).to_batches()


def _end_of(batches: Iterator[pa.RecordBatch], count: int) -> list[pa.RecordBatch]:
    """Return the last `count` records of the batches."""
    end, have = list[pa.RecordBatch](), 0
    for batch in batches:
        end.append(batch)
        have += len(batch)
        while have - len(end[0]) >= count:
            have -= len(end.pop(0))
    if have > count:
        end[0] = end[0].slice(have - count)
    return end


@dataclass(frozen=True, repr=False)
class FindPlan(ShowsTable):
    """What a `find` would read: a row for each log partition. Obtained from `Log.plan_find`.

    `by_index` counts the segments that are searched with a key index, `scanned` the segments that
    are read without an index. `ranges` and `size_bytes` count byte ranges and bytes of the logs,
    `records_at_most` the records in them.
    """

    version: int
    criteria: str
    rows: Sequence[Mapping[str, int]]

    @property
    def by_index(self) -> int:
        """Return the number of segments that are searched with a key index."""
        return sum(row["by_index"] for row in self.rows)

    @property
    def scanned(self) -> int:
        """Return the number of segments that are read without a key index."""
        return sum(row["scanned"] for row in self.rows)

    @property
    def size_bytes(self) -> int:
        """Return an upper bound of the bytes that are read from logs."""
        return sum(row["bytes"] for row in self.rows)

    @property
    def records_at_most(self) -> int:
        """Return an upper bound of the records that are compared."""
        return sum(row["records_at_most"] for row in self.rows)

    def _table(self) -> Table:
        title = (
            f"A search for {self.criteria} in version {self.version}: {self.by_index:,} segments "
            f"with a key index, {self.scanned:,} without; at most "
            f"{counted(self.records_at_most, 'record')} in {short_bytes(self.size_bytes)}"
        )
        rows = [tuple(row.values()) for row in self.rows[:_SHOWN]]
        return Table(title, FIND_COLUMNS, rows, len(self.rows))
