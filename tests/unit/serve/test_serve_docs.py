"""docs/server.md says what there is: each setting of the server, and the versions of each API."""

import json
import re
from pathlib import Path
from typing import Any

import pytest
from kafka.protocol.metadata import ApiVersionsRequest, ApiVersionsResponse

from seglake.serve.settings import Address, Settings
from tests.clients.families import written
from tests.harness.lake_server import Wire, serving
from tests.makers.lakes import Event, LakeMaker

PAGE = (Path(__file__).parents[3] / "docs" / "server.md").read_text()
READING = {
    "ApiVersions": 18, "Metadata": 3, "ListOffsets": 2, "Fetch": 1, "OffsetForLeaderEpoch": 23,
    "Produce": 0, "FindCoordinator": 10,
}  # fmt: skip


SETTINGS = [
    (section, info.alias or name, info.default)
    for section, part in Settings.model_fields.items()
    for name, info in type(part.default).model_fields.items()
]


@pytest.mark.parametrize(("section", "key", "default"), SETTINGS)
def test_settings(section: str, key: str, default: Any) -> None:
    part = PAGE.partition(f"### [{section}]")[2].partition("\n### ")[0]
    (row,) = re.findall(rf"^\| `{re.escape(key)}` \| (.*?) \|", part, re.MULTILINE)
    if isinstance(default, bool):
        assert row == f"`{str(default).lower()}`"
    elif isinstance(default, int):
        assert row == str(default)
    elif isinstance(default, tuple) and default and not isinstance(default, Address):
        assert row == f"`{json.dumps(default)}`"
    elif default:
        assert row == f"`{default}`"


def test_versions(tmp_path: Path) -> None:
    LakeMaker(tmp_path).run({0: [Event(1)]})
    with serving(tmp_path) as server, Wire(server.address) as wire:
        answer = wire.ask(ApiVersionsRequest(), ApiVersionsResponse, 0)
    found = {
        each.api_key: f"{each.min_version}\u2013{each.max_version}" for each in answer.api_keys
    }
    for name, key in READING.items():
        assert f"| {name} | {found[key]} |" in PAGE


# docs/serve.md tells which clients are tested, and what is true of them.

SERVER_PAGE = Path(__file__).parents[3] / "docs" / "serve.md"


def test_the_table_is_that_of_today() -> None:
    page = SERVER_PAGE.read_text()
    assert written(page) == page, "make docs"
