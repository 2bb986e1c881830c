"""Define the command `serve`, which serves a lake to Kafka's clients."""

# ruff: noqa: PLC0415  # a command imports its modules when it runs

from pathlib import Path
from typing import Annotated

import typer

from seglake.cli.arguments.options import Root


def serve(
    root: Root,
    listen: str | None = None,
    advertise: str | None = None,
    topics: str | None = None,
    listed: Annotated[list[str] | None, typer.Option("--list")] = None,
    conf_file: Path | None = None,
    insecure: bool = False,
) -> None:
    """Serve the lake read-only to Kafka clients.

    Log lines go to standard error.

    Args:
        listen: Address to listen on. Default: 127.0.0.1:9092.
        advertise: Address that clients connect to. Default: the listen address.
        topics: Topics to serve, separated by commas. Default: all topics.
        listed: A window, version or tag to list as a topic: web.v12, 'web.q3-*'. Repeatable.
        conf_file: A settings file (TOML).
        insecure: Accept connections of other machines without TLS and SASL.

    Examples:
        seglake serve ./lake
        seglake serve s3://bucket/lake --conf-file server.toml --topics web,users
        seglake serve ./lake --list web.v12 --list 'web.q3-*'
    """
    import logging

    from seglake.errors import StoreError
    from seglake.extras import extra
    from seglake.serve.settings import load

    with extra("serve", "`seglake serve`"):
        from seglake.serve import run
    names = tuple(filter(None, topics.split(","))) if topics else None
    opts = {"listen": listen, "advertise": advertise, "topics": names, "insecure": insecure or None}
    opts["list"] = tuple(listed) if listed else None
    settings = load(conf_file, {f"server.{key}": v for key, v in opts.items() if v is not None})
    logging.basicConfig(level=logging.INFO, format="%(asctime)s %(levelname)s %(message)s")
    try:
        run.serve_lake(root, settings, started=lambda at: typer.echo(f"serving {root} at {at}"))
    except OSError as error:
        where = settings.server.listen
        raise StoreError(f"cannot listen at {where}: {error.strerror or error}") from None
