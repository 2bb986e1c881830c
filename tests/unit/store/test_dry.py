"""A dry store reads what is there, and what was written to it; nothing reaches the storage."""

from pathlib import Path

import pytest

from seglake.errors import MissingObject
from seglake.store import dry_store, open_store


def test_what_is_written_is_read_again_and_never_stored(tmp_path: Path) -> None:
    store = open_store(str(tmp_path / "lake"))
    store.put("attempts/a", b"old")
    with dry_store(store) as unwritten:
        assert not unwritten.put_if_absent("attempts/a", b"new")
        unwritten.put("attempts/a", b"new")
        with unwritten.writer("attempts/b") as stream:
            stream.write(b"0123")
        with unwritten.writer("topics/t-0/c") as stream:
            stream.write(b"a log, which nobody reads before a commit")
        assert bytes(unwritten.read_all("attempts/a")) == b"new"
        assert bytes(unwritten.read("attempts/b", 1, 3)) == b"12"
        assert (unwritten.size("attempts/b"), unwritten.stat("attempts/b").size) == (4, 4)
        with pytest.raises(MissingObject):
            unwritten.size("topics/t-0/c")
        unwritten.delete(["attempts/a", "attempts/b"])
        assert bytes(unwritten.read_all("attempts/a")) == b"old"
        assert [each.key for each in unwritten.list("attempts")] == ["attempts/a"]
    assert [each.key for each in store.list()] == ["attempts/a"]
    assert bytes(store.read_all("attempts/a")) == b"old"
