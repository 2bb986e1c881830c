"""Counters of a server, as plain numbers. Only the event loop changes them."""

from collections import Counter, defaultdict
from dataclasses import dataclass, field


@dataclass
class ServerCounts:
    """Counts since the start, which the page of metrics shows."""

    connections: int = 0
    open_connections: int = 0
    refused_connections: int = 0
    failed_logins: int = 0
    malformed_requests: int = 0
    received_bytes: int = 0
    sent_bytes: int = 0
    requests: Counter[str] = field(default_factory=Counter)  # by the API's name
    errors: Counter[tuple[str, str]] = field(default_factory=Counter)  # API, Kafka's error name
    seconds: defaultdict[str, float] = field(default_factory=lambda: defaultdict(float))
    fetched_bytes: Counter[str] = field(default_factory=Counter)  # by topic; windows as their topic
    damaged_batches: int = 0
    refreshes: int = 0
    failed_refreshes: int = 0
    logins: int = 0
    group_members: dict[str, int] = field(default_factory=dict)  # by group
    rebalances: int = 0
    offset_commits: int = 0
