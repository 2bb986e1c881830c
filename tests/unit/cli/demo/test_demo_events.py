"""The generator of web events keeps its word: counts, order, damage, and the same lines again."""

import gzip
import json
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from seglake.cli.demo.events import GenerateResult, generate
from tests.makers.strategies import examples


def lines_of(path: Path) -> list[bytes]:
    data = path.read_bytes()
    lines = gzip.decompress(data) if path.suffix == ".gz" else data
    assert lines.endswith(b"\n")
    return lines.splitlines()


def event(line: bytes) -> dict[str, object] | None:
    """The event in a line; None if the line is broken."""
    try:
        found = json.loads(line)
    except json.JSONDecodeError:
        return None
    return found if isinstance(found.get("ts"), int) else None


def times_of(generated: GenerateResult) -> list[list[int]]:
    files = ([event(line) for line in lines_of(path)] for path in generated.files)
    return [[int(str(found["ts"])) for found in file if found] for file in files]


@examples(15)
@given(events=st.integers(1, 9_000), files=st.integers(1, 9), seed=st.integers(0, 2**32))
def test_counts_are_exact(
    tmp_path_factory: pytest.TempPathFactory, events: int, files: int, seed: int
) -> None:
    files = min(files, events)
    generated = generate(tmp_path_factory.mktemp("e"), events=events, files=files, seed=seed)
    times = times_of(generated)
    lines = sum(len(lines_of(path)) for path in generated.files)
    assert (len(generated.files), generated.events) == (files, events)
    assert sum(map(len, times)) == events
    assert lines - events == generated.broken == events * 500 // 1_000_000


def test_the_same_seed_gives_the_same_bytes_and_another_others(tmp_path: Path) -> None:
    def content(name: str, seed: int) -> list[bytes]:
        generated = generate(tmp_path / name, events=5_000, files=5, seed=seed)
        return [path.read_bytes() for path in generated.files]

    assert content("a", 7) == content("b", 7)
    assert content("a", 7) != content("c", 8)


@pytest.mark.parametrize(("events", "files"), [(0, 1), (10, 0), (3, 4)])
def test_impossible_sizes_are_refused(tmp_path: Path, events: int, files: int) -> None:
    with pytest.raises(ValueError, match="cannot fill"):
        generate(tmp_path, events=events, files=files)
