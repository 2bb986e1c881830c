"""Zone maps from memory."""

from dataclasses import dataclass
from typing import Any

from seglake.log.segment import LogSegment
from seglake.log.zone_maps import ReadRanges, ZoneSearch


@dataclass
class ZoneBytes:
    """The bytes of one zone map's file, as a `Source`. It makes no zone map again."""

    data: Any

    def head(self, _segment: LogSegment) -> tuple[Any, ReadRanges | None]:
        return self.data, lambda ranges: [self.data[start:end] for start, end in ranges]

    def remake(self, _segment: LogSegment, damage: Exception) -> Any:
        raise damage

    def grown(self, _segment: LogSegment, _zones: ZoneSearch) -> None:
        """Nothing is cached."""
