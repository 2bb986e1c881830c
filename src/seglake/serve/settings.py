"""The settings of a server, from a TOML file and from options of the command.

Settings that a broker also has have Kafka's names. The file contains no secrets: `[sasl]` names the
file or the variable that contains them.
"""

import ipaddress
import re
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple

from pydantic import AfterValidator, BeforeValidator, ConfigDict, Field, ValidationError

from seglake.config.loading import explain_value, tables_of
from seglake.config.rules import Size
from seglake.config.sections import Section
from seglake.errors import ConfigError
from seglake.layout import is_topic_name
from seglake.terminal.wording import suggest_or_list


class Address(NamedTuple):
    """A host name or IP address, and a port."""

    host: str
    port: int

    def __str__(self) -> str:
        return f"[{self.host}]:{self.port}" if ":" in self.host else f"{self.host}:{self.port}"


def _address(value: object) -> object:
    match = re.fullmatch(
        r"(?:\[([^]]+)\]|([^:\s]+)):(\d+)", value if isinstance(value, str) else ""
    )
    if match is not None and int(match[3]) > 65535:
        raise ValueError(f"{value!r} has a port above 65535. Give a smaller one")
    if match is None:
        raise ValueError(
            f"{value!r} is not an address. Write HOST:PORT, with an IPv6 host in brackets"
        )
    return Address(match[1] or match[2], int(match[3]))


def parse_ip(host: str) -> ipaddress.IPv4Address | ipaddress.IPv6Address | None:
    """Return the IP address that a host is, or None for a name."""
    try:
        return ipaddress.ip_address(host)
    except ValueError:
        return None


def _listed(name: str) -> str:
    if not is_topic_name(name.replace("*", "x").replace("?", "x")):
        raise ValueError(
            f"{name!r} is not the name of a topic. Write one such as web.v12 or web.q3-train. In "
            f"tags, * matches any characters and ? one character: web.q3-*"
        )
    return name


ListedName = Annotated[str, AfterValidator(_listed)]
HostPort = Annotated[Address, BeforeValidator(_address)]
File = Annotated[Path, Field(strict=False)]
Mechanism = Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"]


class _ServerSection(Section):
    model_config = ConfigDict(arbitrary_types_allowed=True)


class ServerSettings(_ServerSection):
    """Addresses, topics and limits. Times are in ms, sizes in bytes or as in 64MiB."""

    listen: HostPort = Field(
        default=Address("127.0.0.1", 9092), description="where clients connect"
    )
    advertise: HostPort | None = Field(
        default=None, description="the address that clients connect to; default: `listen`"
    )
    topics: tuple[str, ...] = Field(
        default=(), strict=False, description="the topics to serve; default: all"
    )
    listed: tuple[ListedName, ...] = Field(
        default=(), alias="list", strict=False,
        description="names of windows, versions and tags that clients find in lists of topics",
    )  # fmt: skip
    insecure: bool = Field(
        default=False, description="listen on other addresses than loopback without TLS and SASL"
    )
    refresh_ms: int = Field(default=1000, ge=10, description="time between checks for new versions")
    max_connections: int = Field(default=1000, alias="max.connections", ge=1)
    max_connections_per_ip: int | None = Field(
        default=None, alias="max.connections.per.ip", ge=1,
        description="limit for one address; default: half of `max.connections`",
    )  # fmt: skip
    idle_ms: int = Field(default=600_000, alias="connections.max.idle.ms", ge=1)
    login_ms: int = Field(
        default=30_000, ge=1, description="limit for the login of a new connection"
    )
    request_ms: int = Field(default=30_000, ge=1, description="limit for a request to arrive")
    request_bytes: Size = Field(default=2 * 2**20, alias="socket.request.max.bytes", ge=1024)
    queued_bytes: Size = Field(
        default=64 * 2**20, alias="queued.max.request.bytes", ge=1024,
        description="memory for the requests of all connections",
    )  # fmt: skip
    fetch_bytes: Size = Field(
        default=57_671_680, alias="fetch.max.bytes", ge=1024, description="records in one response"
    )
    windows: int = Field(default=1000, ge=1, description="number of window topics in memory")
    windows_bytes: Size = Field(default=256 * 2**20, ge=1, description="memory for window topics")

    @property
    def connections_per_ip(self) -> int:
        """Return the limit of connections from one address, by default half of all connections."""
        return self.max_connections_per_ip or (self.max_connections + 1) // 2

    def _contradictions(self) -> Iterator[str]:
        address = self.advertise or self.listen
        if (ip := parse_ip(address.host)) is not None and ip.is_unspecified:
            key = "advertise" if self.advertise else "listen"
            yield (
                f"{key} is {address.host}, which stands for every address of this machine, so "
                f"clients cannot connect to it. Set server.advertise to an address that they reach"
            )
        if self.queued_bytes < self.request_bytes:
            yield (
                f"queued.max.request.bytes = {self.queued_bytes} is below "
                f"socket.request.max.bytes = {self.request_bytes}, so a large request could never "
                f"be served. Raise the first or lower the second"
            )


class Tls(_ServerSection):
    """TLS of the listener, from PEM files."""

    certificate: File | None = Field(default=None, description="the certificate chain")
    key: File | None = Field(default=None, description="its private key")


class Sasl(_ServerSection):
    """The users that may connect. Without users, no login is needed."""

    mechanisms: tuple[Mechanism, ...] = Field(
        default=("SCRAM-SHA-512", "SCRAM-SHA-256"), alias="sasl.enabled.mechanisms", min_length=1,
        strict=False, description="of PLAIN, SCRAM-SHA-256 and SCRAM-SHA-512",
    )  # fmt: skip
    users: File | None = Field(
        default=None, description="a file with a line name:password for each user"
    )
    users_variable: str | None = Field(
        default=None, description="instead of `users`: an environment variable with these lines"
    )


class Groups(_ServerSection):
    """Consumer groups, and the file with their committed offsets. Times are in ms."""

    file: File | None = Field(
        default=None, description="a SQLite file; default: one for each lake in ~/.local/state"
    )
    initial_delay_ms: int = Field(
        default=500, alias="group.initial.rebalance.delay.ms", ge=0,
        description="how long an empty group waits for more members before it begins",
    )  # fmt: skip
    min_session_ms: int = Field(default=6_000, alias="group.min.session.timeout.ms", ge=1)
    max_session_ms: int = Field(default=1_800_000, alias="group.max.session.timeout.ms", ge=1)
    max_members: int = Field(default=1000, alias="group.max.size", ge=1)
    max_groups: int = Field(default=10_000, ge=1, description="limit for groups with members")
    metadata_bytes: Size = Field(default=4096, alias="offset.metadata.max.bytes", ge=0)


class Metrics(_ServerSection):
    """Metrics for Prometheus and a health page."""

    listen: HostPort | None = Field(default=None, description="address; default: no metrics")


class Settings(_ServerSection):
    """The settings of a server."""

    server: ServerSettings = ServerSettings()
    tls: Tls = Tls()
    sasl: Sasl = Sasl()
    groups: Groups = Groups()
    metrics: Metrics = Metrics()


def load(path: Path | None, changes: Mapping[str, Any]) -> Settings:
    """Load settings from a file, if any. Replace some by `changes`: {"server.listen": value}.

    Raises ConfigError. Each line of its message names a key and the problem.
    """
    tables: dict[str, dict[str, Any]] = {} if path is None else tables_of(path, "server")
    for name, value in changes.items():
        table, _, key = name.partition(".")
        tables.setdefault(table, {})[key] = value
    try:
        return Settings.model_validate(tables)
    except ValidationError as invalid:
        place = f"{path}: " if path else ""
        raise ConfigError(
            "\n".join(place + _describe_error(error) for error in invalid.errors())
        ) from None


def _describe_error(error: Any) -> str:
    place = [str(part) for part in error["loc"]]
    is_unknown = error["type"] == "extra_forbidden"
    return _unknown(*place) if is_unknown else explain_value(".".join(place), error)


def _unknown(table: str, *key: str) -> str:
    """Return the message about an unknown table, or about an unknown key of a table."""
    if not key:
        return f"[{table}] is an unknown table. {suggest_or_list(table, [*Settings.model_fields])}"
    section: Any = Settings.model_fields[table].annotation
    keys = [info.alias or name for name, info in section.model_fields.items()]
    name = ".".join(key)
    return f'"{name}" is an unknown key of [{table}]. {suggest_or_list(name, keys)}'
