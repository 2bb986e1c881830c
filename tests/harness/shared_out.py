"""A pytest plugin: which tests `pytest -n` runs in the same worker, and which begin first.

Tests of a file are together, and so are those of a folder that share a JVM or a server: each starts
once. The folders take longest, so they begin first. A long file that would begin last comes next.
"""

from pathlib import PurePosixPath
from typing import Any

import pytest

TOGETHER = ("tests/spark", "tests/kafka", "tests/s3")
FIRST = (*TOGETHER, "tests/unit/write/test_hostile_input.py")


def group_of(test: str) -> str:
    """The folder or file whose tests are together with the one of this id."""
    file, _, _ = test.partition("::")
    folder = str(PurePosixPath(file).parent)
    return folder if folder in TOGETHER else file


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Only workers care for the order."""
    if hasattr(config, "workerinput"):
        orders = {group: number for number, group in enumerate(FIRST)}
        items.sort(key=lambda item: orders.get(group_of(item.nodeid), len(FIRST)))


@pytest.hookimpl(optionalhook=True)  # of pytest-xdist
def pytest_xdist_make_scheduler(config: pytest.Config, log: Any) -> Any:
    """One that gives a whole group to a worker, the first groups first."""
    from xdist.scheduler import LoadScopeScheduling  # noqa: PLC0415

    config.option.loadscopereorder = False
    scheduling = LoadScopeScheduling(config, log)
    scheduling._split_scope = group_of
    return scheduling
