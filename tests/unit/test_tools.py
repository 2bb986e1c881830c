"""What tests need is got before them: side by side, and as far as it can be had."""

from __future__ import annotations

import threading

import pytest

from tests.harness.s3_server import NoServerError
from tests.harness.tools import Tool, get_all

PATIENCE_S = 60


def nothing() -> None:
    """A tool that is there."""


def missing() -> None:
    raise NoServerError("there is no go in PATH")


def test_what_cannot_be_had_is_told_and_keeps_nobody(capsys: pytest.CaptureFixture[str]) -> None:
    got = list[str]()
    lanes = [
        [Tool("a server", missing), Tool("a program", lambda: got.append("a program"))],
        [Tool("a browser", lambda: got.append("a browser"))],
    ]
    assert not get_all(lanes)
    assert sorted(got) == ["a browser", "a program"]
    told = capsys.readouterr().out.splitlines()
    assert len(told) == 3
    assert "a server: not there, and cannot be had: there is no go in PATH" in told
    assert get_all([[Tool("a program", nothing)], [Tool("a browser", nothing)]])


def test_lanes_go_side_by_side() -> None:
    """Each waits for the other."""
    both = threading.Barrier(2, timeout=PATIENCE_S)
    assert get_all([[Tool(name, both.wait)] for name in ("jars", "a server")])


def test_a_fault_of_the_harness_is_no_missing_tool() -> None:
    def broken() -> None:
        raise TypeError

    with pytest.raises(TypeError):
        get_all([[Tool("a browser", broken)]])
