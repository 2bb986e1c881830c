"""An error on standard error: as a line for people, and with --json as an object for machines."""

from __future__ import annotations

import re
import sys
from json import dumps

from seglake.errors import CorruptData, MissingObject, SeglakeError

_LOG = re.compile(r"\btopics/\S+\.log\b")


def wants_json() -> bool:
    """Whether the command line asks for JSON, also if the rest of it is wrong."""
    return "--json" in sys.argv[1:]


def remedy(error: SeglakeError) -> str:
    """What helps against a lost or damaged log, to stand behind its error; may be empty."""
    if not (isinstance(error, (CorruptData, MissingObject)) and _LOG.search(str(error))):
        return ""
    return (
        "; restore that log from a copy, or `seglake undo` its run and ingest the input again "
        "(`seglake verify` names all that is damaged)"
    )


def tell_error(kind: str, message: str, exit_code: int) -> None:
    """Print an error, by the name of its class and what it says, as the last line."""
    if wants_json():
        error = {"kind": kind, "message": message, "exit_code": exit_code}
        print(dumps({"error": error}, ensure_ascii=False), file=sys.stderr)
    else:
        print(f"seglake: {message}", file=sys.stderr)
