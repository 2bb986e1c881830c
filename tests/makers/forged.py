"""Catalogs whose newest commit was written by someone who means ill."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import seglake
from tests.makers.raw_events import T


class Forgery(NamedTuple):
    """What is changed in `add` actions for rows of a kind, and the topic that is asked for."""

    topic: str
    kind: str
    change: Callable[[dict[str, Any]], None]

    def of(self, log: Path) -> bytes:
        """The newest entry of a catalog's log, forged."""
        actions = [json.loads(line) for line in max(log.glob("*.json")).read_text().splitlines()]
        for action in actions:
            if f"kind={self.kind}" in action.get("add", {}).get("path", ""):
                self.change(action["add"])
        return "\n".join(map(json.dumps, actions)).encode()

    def read(self, root: str, options: dict[str, str]) -> None:
        """Everything that a reader may ask for."""
        lake = seglake.open(root, storage_options=options)
        assert lake.topics() == [self.topic]
        assert list(lake.topic(self.topic).read_range(0, 2 * T))


def _elsewhere(path: str) -> Forgery:
    return Forgery("events", "segment", lambda add: add.update(path=path))


FORGED = {
    "path up": _elsewhere("../../../outside.parquet"),
    "path up, encoded": _elsewhere("%2E%2E/%2E%2E/%2E%2E/outside.parquet"),
    "path of the system": _elsewhere("/etc/hostname"),
    "another bucket": _elsewhere("s3://other/x.parquet"),
    "a file": _elsewhere("file:///etc/hostname"),
    "topic up": Forgery("../../x", "", lambda add: add["partitionValues"].update(topic="../../x")),
}
