"""An error on standard error: as a line for people, and with --json as an object for machines."""

from __future__ import annotations

import sys
from json import dumps


def wants_json() -> bool:
    """Whether the command line asks for JSON, also if the rest of it is wrong."""
    return "--json" in sys.argv[1:]


def tell_error(kind: str, message: str, exit_code: int) -> None:
    """Print an error, by the name of its class and what it says, as the last line."""
    if wants_json():
        error = {"kind": kind, "message": message, "exit_code": exit_code}
        print(dumps({"error": error}, ensure_ascii=False), file=sys.stderr)
    else:
        print(f"seglake: {message}", file=sys.stderr)
