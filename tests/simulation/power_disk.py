"""A local disk that remembers what was synced: what a process does to it, and what a cut may leave.

`Recorder` stands between a process and the folder of its lake: each file and folder that is made,
linked, renamed, removed or synced is an event. What delta-rs does is seen by looking at its folders
before each event; nothing of it is synced until the process syncs it.

`Disk` is the folder after so many events, as far as a disk may have it. A file has the bytes of its
last sync, and perhaps later ones; a folder has the names of its last sync, and each later change of
a name or not. A folder whose own name is not there takes all below it away. Two models say what
may be there:

* *ordered*, as ext4 with its usual `data=ordered`: names come to the disk in the order of their
  changes, whatever folder they are in, and any sync brings all before it. Bytes of a file that was
  not synced are there or not.
* *any*, as little as POSIX promises: any subset of the changes since a folder's last sync, also of
  a rename the new name without the removal of the old one; bytes that were not synced are there,
  cut anywhere, full of holes, or not there. Whatever the ordered model allows this one does, too.
"""

from __future__ import annotations

import io
import os
import random
import shutil
import threading
import uuid
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Literal, NamedTuple
from unittest.mock import patch

HOLE = 512  # bytes that a torn write leaves out at once
DELTA_RS = ("catalog/log/_delta_log", "catalog/quarantine/_delta_log")  # where it writes

Model = Literal["none", "names", "ordered", "any", "one", "all but one"]
MODELS: tuple[Model, ...] = ("none", "names", "ordered", "any", "one", "all but one")


class Killed(BaseException):
    """The process ends here; nothing that it would do later happens."""


class Node:
    """A file with its bytes, or a folder with the nodes in it by name, as the process sees it."""

    __slots__ = ("content", "inode", "names")

    def __init__(self, names: dict[str, Node] | None, content: bytes = b"", inode: int = 0) -> None:
        self.names, self.content, self.inode = names, content, inode


class Event(NamedTuple):
    """One change of a file or folder, or its sync. `what` is for people.

    `removed` leaves the folder `node`, `added` comes into it; `content` are the new bytes of a
    file.
    """

    what: str
    node: Node
    is_sync: bool = False
    added: tuple[str, Node] | None = None
    removed: str | None = None
    content: bytes | None = None


class Recorder:
    """What happens to the lake in the folder `place`, while a block of `recording` runs."""

    def __init__(self, place: Path) -> None:
        self.place = place
        self.events: list[Event] = []
        self.root = _seen(place)
        self.begun = _copied(self.root)
        self.kill_at: int | None = None  # the number of the event that does not happen any more
        self._lock = threading.RLock()

    @contextmanager
    def recording(self, chance: random.Random) -> Iterator[None]:
        """Record what this process does; its new names come from `chance`, one thread works."""
        calls = ("fsync", "link", "replace", "rename", "unlink", "mkdir", "rmdir")
        watched: Any = {name: self._watched(name) for name in calls}
        with (
            patch.multiple(os, **watched),
            patch.object(io, "open", self._opened(io.open)),
            patch.object(uuid, "uuid4", lambda: uuid.UUID(int=chance.getrandbits(128), version=4)),
            patch.object(os, "cpu_count", lambda: 1),
        ):
            yield
        self._notice_delta_rs()
        self._assert_nothing_missed()

    def _watched(self, name: str) -> Callable[..., Any]:
        real, told = getattr(os, name), getattr(self, f"_{name}")

        def call(*args: Any, **options: Any) -> Any:
            if name != "fsync" and not self._is_mine(args[0]):
                return real(*args, **options)
            with self._lock:
                self._step()
                if name in ("link", "replace", "rename"):
                    self._wrote(args[0])
                result = None if name == "fsync" else real(*args, **options)
                told(*args)
            return result

        return call

    def _opened(self, real: Callable[..., Any]) -> Callable[..., Any]:
        def call(file: Any, mode: str = "r", *args: Any, **options: Any) -> Any:
            makes = not isinstance(file, int) and "r" not in mode and self._is_mine(file)
            if not makes:
                return real(file, mode, *args, **options)
            with self._lock:
                self._step()
                opened = real(file, mode, *args, **options)
                self._add(file, Node(None, inode=Path(file).stat().st_ino), "made")
            return opened

        return call

    def _step(self) -> None:
        """Before an event: what delta-rs did; and whether the process comes to it at all."""
        if self.kill_at is not None and len(self.events) >= self.kill_at:
            raise Killed
        self._notice_delta_rs()

    # ------------------------------------------------------------------ events

    def _mkdir(self, path: Any, *_: Any) -> None:
        self._add(path, Node({}), "made")

    def _link(self, old: Any, new: Any) -> None:
        self._add(new, self._node(old), "linked")

    def _replace(self, old: Any, new: Any) -> None:
        folder, before, after = self._folder(new), Path(old).name, Path(new).name
        assert Path(old).parent == Path(new).parent, "renamed into another folder"
        node = _names(folder)[before]
        self._do(Event(f"renamed to {self._told(new)}", folder, False, (after, node), before))

    _rename = _replace

    def _unlink(self, path: Any, *_: Any, **__: Any) -> None:
        gone = Path(path).name
        self._do(Event(f"removed {self._told(path)}", self._folder(path), removed=gone))

    _rmdir = _unlink

    def _fsync(self, fd: int) -> None:
        path = Path(f"/proc/self/fd/{fd}").readlink()
        if path == self.place or self._is_mine(path):
            node = self._node(path)
            if node.names is None:
                self._wrote(path)
            self._do(Event(f"synced {self._told(path)}", node, is_sync=True))

    def _wrote(self, path: Any) -> None:
        node, content = self._node(path), Path(path).read_bytes()
        if content != node.content:
            self._do(Event(f"wrote {self._told(path)}", node, content=content))

    def _add(self, path: Any, node: Node, what: str) -> None:
        added = (Path(path).name, node)
        self._do(Event(f"{what} {self._told(path)}", self._folder(path), added=added))

    def _do(self, event: Event) -> None:
        _apply(event, _names(event.node) if event.node.names is not None else {})
        if event.content is not None:
            event.node.content = event.content
        self.events.append(event)

    # ------------------------------------------------------------------ delta-rs, and the rest

    def _notice_delta_rs(self) -> None:
        for lake in sorted(_names(self.root).keys() | {"lake"}):
            for table in DELTA_RS:
                self._notice(self.place / lake / table)

    def _notice(self, path: Path) -> None:
        """What is in a folder and the events do not tell, and the other way round."""
        if not path.is_dir():
            return
        for folder in reversed([path, *path.parents]):
            if self._is_mine(folder) and folder.name not in _names(self._folder(folder)):
                self._add(folder, Node({}), "delta-rs made")
        known = _names(self._node(path))
        there = {entry.name: entry.inode() for entry in os.scandir(path) if entry.is_file()}
        for name in known.keys() - there.keys():
            self._do(Event(f"delta-rs removed {name}", self._node(path), removed=name))
        for name, inode in sorted(there.items()):
            if name not in known or known[name].inode != inode:
                self._add(path / name, Node(None, inode=inode), "delta-rs made")
                self._wrote(path / name)

    def _assert_nothing_missed(self) -> None:
        found, told = dict(_flat(_seen(self.place))), dict(_flat(self.root))
        odd = [
            key
            for key in sorted(found.keys() | told.keys())
            if found.get(key, key) != told.get(key, key) and not key.endswith(".tmp")
        ]
        assert not odd, f"nobody saw who changed {odd[:3]}"

    def _is_mine(self, path: Any) -> bool:
        return self.place in Path(path).parents

    def _told(self, path: Any) -> str:
        return Path(path).relative_to(self.place).as_posix()

    def _node(self, path: Any) -> Node:
        node = self.root
        for name in Path(path).relative_to(self.place).parts:
            node = _names(node)[name]
        return node

    def _folder(self, path: Any) -> Node:
        return self._node(Path(path).parent)


def _names(folder: Node) -> dict[str, Node]:
    if folder.names is None:
        raise NotADirectoryError
    return folder.names


def _seen(path: Path) -> Node:
    """What is on the real disk."""
    if path.is_dir():
        return Node({entry.name: _seen(entry) for entry in path.iterdir()})
    return Node(None, path.read_bytes(), path.stat().st_ino)


def _copied(node: Node) -> dict[Node, dict[str, Node]]:
    """The names in each folder of a tree."""
    found: dict[Node, dict[str, Node]] = {}
    if node.names is not None:
        found[node] = dict(node.names)
        for each in node.names.values():
            found |= _copied(each)
    return found


def _flat(node: Node, key: str = "") -> Iterator[tuple[str, bytes | None]]:
    """Every file with its bytes, and every folder, by its path."""
    if node.names is None:
        yield key, node.content
        return
    yield key, None
    for name, each in node.names.items():
        yield from _flat(each, f"{key}/{name}" if key else name)


def _apply(event: Event, names: dict[str, Node], *, keep_old: bool = False) -> None:
    if event.removed is not None and not keep_old:
        names.pop(event.removed, None)
    if event.added is not None:
        names[event.added[0]] = event.added[1]


# ---------------------------------------------------------------------- what a cut leaves


class Left(NamedTuple):
    """What a cut of the power left: files by path, None for a folder; and what was lost."""

    files: dict[str, bytes | None]
    lost: list[str]

    def build(self, place: Path) -> None:
        """Make these files and folders below a folder that does not exist yet."""
        for key, content in self.files.items():
            if content is None:
                (place / key).mkdir(parents=True, exist_ok=True)
            else:
                (place / key).write_bytes(content)

    @property
    def signature(self) -> int:
        """Equal for states that differ only in what nobody reads: temporary files and blobs."""
        seen = ((k, v) for k, v in self.files.items() if not is_unread(k))
        return hash(frozenset(seen))


def is_unread(key: str) -> bool:
    """Whether no command reads the content of an object with this key."""
    return key.endswith((".tmp", "/clock", "/blobs")) or "/blobs/" in key


class Disk:
    """The disk after the first `count` events: what is certainly on it, and what may be."""

    def __init__(self, recorder: Recorder, count: int) -> None:
        self._root = recorder.root
        self._names = {node: dict(names) for node, names in recorder.begun.items()}
        self._bytes: dict[Node, bytes] = {}  # of files of which bytes were synced, or may be lost
        self.waiting: list[tuple[int, Event]] = []  # changes that no sync has brought to the disk
        self._last_sync = 0
        for number, event in enumerate(recorder.events[:count]):
            if event.is_sync:
                self._sync(event.node)
                self._last_sync = number
            else:
                self.waiting.append((number, event))
                if event.content is not None:
                    self._bytes.setdefault(event.node, b"")
        self._count = count

    def _sync(self, node: Node) -> None:
        for _, event in self.waiting:
            if event.node is node:
                if event.content is not None:
                    self._bytes[node] = event.content
                else:
                    _apply(event, self._names.setdefault(node, {}))
        self.waiting = [each for each in self.waiting if each[1].node is not node]

    def left(self, model: Model, chance: random.Random) -> Left:
        """What a cut leaves now, drawn by one of the models."""
        chosen = self._chosen(model, chance)
        names = {node: dict(found) for node, found in self._names.items()}
        content, lost = dict(self._bytes), list[str]()
        for (_, event), kept in zip(self.waiting, chosen, strict=True):
            if not kept:
                lost.append(event.what)
            elif event.content is not None:
                content[event.node] = _torn(event.content, model, chance, lost)
            else:
                half = model == "any" and event.added is not None and chance.random() < 0.2
                _apply(event, names.setdefault(event.node, {}), keep_old=half)
        return Left(dict(self._walk(self._root, "", names, content)), lost)

    def _chosen(self, model: Model, chance: random.Random) -> list[bool]:
        """Which of the waiting changes are on the disk."""
        count = len(self.waiting)
        if model == "ordered":  # a journal: names up to some event, bytes by chance
            end = chance.randint(self._last_sync, self._count)
            return [
                number < end if event.content is None else chance.random() < 0.5
                for number, event in self.waiting
            ]
        if model == "any":
            share = chance.choice((0.1, 0.5, 0.9))
            return [chance.random() < share for _ in range(count)]
        if model in ("one", "all but one"):
            special = chance.randrange(count) if count else 0
            return [(number == special) == (model == "one") for number in range(count)]
        return [model == "names" and event.content is None for _, event in self.waiting]

    def _walk(
        self, node: Node, key: str, names: dict[Node, dict[str, Node]], content: dict[Node, bytes]
    ) -> Iterator[tuple[str, bytes | None]]:
        if node.names is None:
            yield key, content.get(node, node.content)
            return
        if key:
            yield key, None
        for name, each in sorted(names.get(node, {}).items()):
            yield from self._walk(each, f"{key}/{name}" if key else name, names, content)


def _torn(content: bytes, model: Model, chance: random.Random, lost: list[str]) -> bytes:
    """The bytes of a write that was not synced; the ordered model has all of them."""
    way = chance.randrange(4) if model == "any" else 0
    if way == 1:
        lost.append("the end of a file")
        return content[: chance.randrange(len(content) + 1)]
    if way == 2:
        lost.append("parts of a file")
        parts = [content[at : at + HOLE] for at in range(0, len(content), HOLE)]
        return b"".join(p if chance.random() < 0.5 else bytes(len(p)) for p in parts)
    return content


def build(left: Left, place: Path) -> Path:
    """The lake that a cut left, below an empty folder."""
    shutil.rmtree(place, ignore_errors=True)
    place.mkdir(parents=True)
    left.build(place)
    return place / "lake"
