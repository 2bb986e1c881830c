"""Reports of maintenance, as plain values and as JSON."""

import json
from dataclasses import asdict, dataclass
from typing import Any


@dataclass
class Report:
    """A report as plain values, and as JSON."""

    def as_dict(self) -> dict[str, Any]:
        """All fields, by name."""
        return asdict(self)

    def as_json(self) -> str:
        """One JSON object."""
        return json.dumps(self.as_dict(), ensure_ascii=False)
