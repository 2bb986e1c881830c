"""`seglake serve`: a lake for Kafka's clients, until the process is stopped."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from __future__ import annotations

import logging
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from seglake.errors import StoreError
from seglake.extras import extra


def run(root: str, config: Path | None, changes: Mapping[str, Any]) -> None:
    """Serve until SIGTERM or SIGINT; log lines go to standard error.

    Raises ConfigError, UsageError, and StoreError if nobody can listen at the address.
    """
    with extra("serve", "`seglake serve`"):
        from seglake.serve.run import serve
    from seglake.serve.settings import load

    settings = load(config, changes)
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        serve(root, settings, started=lambda address: typer.echo(f"serving {root} at {address}"))
    except OSError as error:
        where = settings.server.listen
        raise StoreError(f"cannot listen at {where}: {error.strerror or error}") from None
