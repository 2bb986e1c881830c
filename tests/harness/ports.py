"""Ports of servers that tests start in processes of their own."""

import random
import socket
from contextlib import suppress

PORTS = range(10_000, 32_000)  # below those that the kernel gives to clients, on Linux from 32,768


def free_ports(count: int) -> list[int]:
    """So many ports of loopback that are free, and that no client gets before the server binds."""
    chance, found = random.SystemRandom(), set[int]()
    while len(found) < count:
        port = chance.choice(PORTS)
        with suppress(OSError), socket.socket() as probe:
            probe.bind(("127.0.0.1", port))
            found.add(port)
    return sorted(found)
