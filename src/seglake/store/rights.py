"""What a user lacks whom a local disk refuses a file of a lake, which may lie deep in it."""

from __future__ import annotations

import os
import pwd
from pathlib import Path


def lacking(root: str, key: str) -> str:
    """Who may not read or write what, and what helps, to stand behind "Permission denied"."""
    path = Path(root, key)
    found = next(each for each in (path, *path.parents) if _is_seen(each))
    folder = root if _is_seen(Path(root)) else found
    user, owner = _name(os.geteuid()), _name(found.stat().st_uid)
    right, wanted = ("write", "read and write") if _may_read(found) else ("read", "read")
    remedy = f"give {user} the right to {wanted} everything in {folder}"
    other = f", or run as {owner}, its owner" if owner != user else ""
    return f"user {user} may not {right} {'it' if found == path else found}: {remedy}{other}"


def _is_seen(path: Path) -> bool:
    return os.path.exists(path)  # noqa: PTH110  a folder above it may forbid the look


def _may_read(path: Path) -> bool:
    return os.access(path, os.R_OK | (os.X_OK if path.is_dir() else 0))


def _name(user: int) -> str:
    try:
        return pwd.getpwuid(user).pw_name
    except KeyError:  # as in many containers
        return str(user)
