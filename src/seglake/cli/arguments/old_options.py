"""Options that have another name now. The old name still works; a line on stderr has the new one.

The program and the jobs spell an option the same way. Every command acts; with `--dry-run` it only
says what it would do.
"""

import argparse
import sys
from typing import Any

INDEX_INTERVALS = "--index-interval-bytes, --index-interval-records or --index-interval-ms"


def say(old: str, new: str) -> None:
    """Say that an old name was used, and what to do instead."""
    print(f"seglake: {old} is an old spelling: {new}", file=sys.stderr)


class Renamed(argparse.Action):
    """An option of a job: its name, then its old name."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: Any,
        option_string: str | None = None,
    ) -> None:
        """Store the value."""
        del parser
        new, old = self.option_strings
        if option_string == old:
            say(old, f"write {new}")
        setattr(namespace, self.dest, values)
