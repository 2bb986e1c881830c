"""One server: the lake, its APIs, the listener, from start to stop."""

from __future__ import annotations

import asyncio
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import asynccontextmanager, suppress

import seglake
from seglake.read.lake import Lake
from seglake.serve.api import Api
from seglake.serve.counts import Counts
from seglake.serve.reads.configs import Configs
from seglake.serve.reads.fetch import Fetching
from seglake.serve.reads.metadata import Describing
from seglake.serve.reads.offsets import Lookups
from seglake.serve.reads.refused import APIS as REFUSED
from seglake.serve.reads.versions import API as VERSIONS
from seglake.serve.server import Listener
from seglake.serve.settings import Address, Settings
from seglake.serve.topics.catalog import Topics

_log = logging.getLogger(__name__)


def serve(
    root: str,
    settings: Settings,
    storage_options: Mapping[str, str] | None = None,
    started: Callable[[Address], None] = lambda _: None,
) -> None:
    """Serve a lake until SIGTERM or SIGINT; `started` is told where.

    Raises ConfigError, UsageError where there is no lake, and OSError if it cannot listen.
    """
    asyncio.run(_until_stopped(seglake.open(root, None, storage_options), settings, started))


@asynccontextmanager
async def running(lake: Lake, settings: Settings) -> AsyncIterator[tuple[Address, Topics]]:
    """A server, from where it listens to its last answer; and its topics."""
    counts = Counts()
    topics = Topics(lake, settings.server, counts)
    watching = asyncio.create_task(topics.watch())
    listener = Listener(settings, counts)
    try:
        found = await listener.start()
        listener.offer(_apis(topics, settings, settings.server.advertise or found))
        yield found, topics
    finally:
        watching.cancel()
        with suppress(asyncio.CancelledError):
            await watching
        await listener.stop()
        topics.close()


def _apis(topics: Topics, settings: Settings, address: Address) -> list[Api]:
    return [
        VERSIONS,
        *Describing(topics, address).apis(),
        *Lookups(topics).apis(),
        *Fetching(topics, settings.server.fetch_bytes).apis(),
        *Configs(topics).apis(),
        *REFUSED,
    ]


async def _until_stopped(
    lake: Lake, settings: Settings, started: Callable[[Address], None]
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopped.set)
    async with running(lake, settings) as (address, topics):
        _log.info("%d topics of version %d at %s", len(topics.names()), topics.version, address)
        started(address)
        await stopped.wait()
        _log.info("stopping")
