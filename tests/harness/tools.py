"""What tests need and pip does not bring, fetched or built before them: `make tools`.

So no test waits for it. A tool that cannot be had is told here; the tests that need it skip, or
fail where all are required.
"""

import sys
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from itertools import chain
from typing import NamedTuple

from seglake.errors import SeglakeError
from tests.harness import s3_server
from tests.harness.browser import chromium_program
from tests.harness.debian import NoPackageError
from tests.harness.jars import delta_settings
from tests.harness.kcat import kcat_program
from tests.judges.kafka_jars import kafka_jars, spark_kafka_jars


class Tool(NamedTuple):
    """A tool by its name; `get` returns at once if it is there."""

    name: str
    get: Callable[[], object]


Lane = Sequence[Tool]  # one after the other: two apt-get would be in each other's way
LANES: Sequence[Lane] = [
    [Tool("the S3 server", s3_server.binary)],
    [Tool("Delta's jars", delta_settings)],
    [Tool("Kafka's jars", kafka_jars)],
    [Tool("the jars of Spark's Kafka source", spark_kafka_jars)],
    [Tool("kcat", kcat_program), Tool("Chromium", chromium_program)],
]


def get_all(lanes: Sequence[Lane]) -> bool:
    """Get the tools of all lanes side by side, with a line for each; whether all are there."""
    with ThreadPoolExecutor(len(lanes)) as threads:
        got = [*chain.from_iterable(threads.map(_get_each, lanes))]
    return all(got)


def _get_each(lane: Lane) -> list[bool]:
    return [_got(tool) for tool in lane]


def _got(tool: Tool) -> bool:
    begun = time.monotonic()
    try:
        tool.get()
    except (NoPackageError, s3_server.NoServerError, SeglakeError) as reason:
        print(f"{tool.name}: not there, and cannot be had: {reason}", flush=True)
        return False
    print(f"{tool.name}: there after {time.monotonic() - begun:.0f} s", flush=True)
    return True


if __name__ == "__main__":
    sys.exit(0 if get_all(LANES) else 1)
