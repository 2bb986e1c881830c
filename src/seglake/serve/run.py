"""Run a server from start to stop: the lake, the APIs and the listener."""

from __future__ import annotations

import asyncio
import gc
import logging
import signal
from collections.abc import AsyncIterator, Callable, Mapping
from contextlib import AsyncExitStack, asynccontextmanager, suppress

from seglake.read.lake import Lake
from seglake.read.lake import open as open_lake
from seglake.serve import security
from seglake.serve.api import ServerCounts
from seglake.serve.groups.apis import GroupApis
from seglake.serve.groups.coordinator import Coordinator
from seglake.serve.groups.offsets import OffsetStore, default_file
from seglake.serve.metrics import MetricsPage
from seglake.serve.reads.fetch import FetchHandler
from seglake.serve.reads.metadata import API as VERSIONS
from seglake.serve.reads.metadata import MetadataHandler
from seglake.serve.reads.offsets import OffsetsHandler
from seglake.serve.reads.producers import APIS as PRODUCERS
from seglake.serve.server import Listener
from seglake.serve.settings import Address, Settings
from seglake.serve.topics.catalog import ServedTopics

_log = logging.getLogger(__name__)


def serve_lake(
    root: str,
    settings: Settings,
    storage_options: Mapping[str, str] | None = None,
    started: Callable[[Address], None] = lambda _: None,
) -> None:
    """Serve a lake until SIGTERM or SIGINT. `started` is called with the address.

    Raises ConfigError, UsageError without a lake, and OSError if the address is not available.

    Example:
        >>> seglake.serve_lake("lake", Settings(port=9092))  # doctest: +SKIP
    """
    asyncio.run(_until_stopped(open_lake(root, None, storage_options), settings, started))


@asynccontextmanager
async def running(lake: Lake, settings: Settings) -> AsyncIterator[tuple[Address, ServedTopics]]:
    """Run a server in the block. Yields the address at which it listens, and its topics."""
    security.require_safe(settings)
    counts = ServerCounts()
    listener = Listener(
        settings, counts, tls=security.tls_context(settings),
        must_log_in=security.must_log_in(settings),
    )  # fmt: skip
    logins = security.apis(settings, counts)
    async with AsyncExitStack() as stack:
        topics = ServedTopics(lake, settings.server, counts)
        stack.callback(topics.close)
        file = settings.groups.file or default_file(topics.root)
        groups = Coordinator(OffsetStore(file, topics.lake), settings.groups, counts)
        stack.callback(groups.close)
        if (at := settings.metrics.listen) is not None:
            page = MetricsPage(at, settings.server.refresh_ms, counts, topics)
            stack.callback(page.close)
        stack.push_async_callback(listener.stop)
        stack.callback(groups.release)
        stack.push_async_callback(_cancel, asyncio.create_task(topics.watch()))
        address = await listener.start()
        public = settings.server.advertise or address
        listener.add_apis(
            [
                VERSIONS,
                *MetadataHandler(topics, public).apis(),
                *OffsetsHandler(topics).apis(),
                *FetchHandler(topics, settings.server.fetch_bytes).apis(),
                *PRODUCERS,
                *GroupApis(groups, topics, public, settings.groups.metadata_bytes).apis(),
                *logins,
            ]
        )
        yield address, topics


async def _cancel(task: asyncio.Task[None]) -> None:
    task.cancel()
    with suppress(asyncio.CancelledError):
        await task


async def _until_stopped(
    lake: Lake, settings: Settings, started: Callable[[Address], None]
) -> None:
    stopped = asyncio.Event()
    loop = asyncio.get_running_loop()
    for name in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(name, stopped.set)
    async with running(lake, settings) as (address, topics):
        _log.info("%d topics of version %d at %s", len(topics.names()), topics.version, address)
        gc.freeze()  # Collections need not scan what is loaded already, because it is kept.
        started(address)
        await stopped.wait()
        _log.info("stopping")
