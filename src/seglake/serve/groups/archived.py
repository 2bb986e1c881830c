"""Where groups stood on a broker when their topics were archived from it."""

from __future__ import annotations

import asyncio
from collections.abc import Callable

from seglake.catalog import groups
from seglake.serve.groups.offsets import Committed, Where
from seglake.store import Store


class ArchivedGroups:
    """The groups that archives have kept with a lake; what they kept last counts.

    `end_offset` is that of a log partition as it is served, None if it is not served.
    """

    def __init__(
        self, store: Store, lake: str, end_offset: Callable[[str, int], int | None]
    ) -> None:
        self._store, self._lake, self._end_offset = store, lake, end_offset

    async def of(self, group_id: str) -> dict[Where, Committed]:
        """Where a group stood in the topics that are served. Raises StoreError, CorruptData.

        No offset lies above the end that is served: the server may not know yet of records that
        came with it. Leader epochs are the broker's, and mean nothing in a lake.
        """
        positions = await asyncio.to_thread(groups.of_group, self._store, self._lake, group_id)
        return {
            (stood.topic, partition): Committed(min(each.offset, end), -1, each.metadata)
            for stood in positions
            for partition, each in stood.offsets.items()
            if (end := self._end_offset(stood.topic, partition)) is not None
        }
