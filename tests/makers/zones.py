"""Zone maps from memory."""

from typing import Any

from seglake.log.segment import LogSegment
from seglake.log.zone_maps import ReadRanges, ZoneMapCache, ZoneSearch


class ZoneBytes(ZoneMapCache):
    """The bytes of one zone map's file. It makes no zone map again."""

    def __init__(self, data: Any) -> None:
        self.data = data

    def head(self, _segment: LogSegment) -> tuple[Any, ReadRanges | None]:
        return self.data, lambda ranges: [self.data[start:end] for start, end in ranges]

    def remake(self, _segment: LogSegment, damage: Exception) -> Any:
        raise damage

    def grown(self, _segment: LogSegment, _zones: ZoneSearch) -> None:
        """Nothing is cached."""
