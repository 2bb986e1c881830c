"""Configure TLS and SASL: the clients that may connect, and the encryption."""

from __future__ import annotations

import ssl

from seglake.errors import ConfigError
from seglake.serve.api import Api, ServerCounts
from seglake.serve.security.login import Login, Users
from seglake.serve.settings import Settings, Tls, parse_ip


def require_safe(settings: Settings) -> None:
    """Raise ConfigError if other machines can connect, and TLS or users are missing."""
    host, tls, users = settings.server.listen.host, _has_tls(settings.tls), must_log_in(settings)
    ip = parse_ip(host)  # a name other than localhost may be any address
    if settings.server.insecure or host == "localhost" or (ip is not None and ip.is_loopback):
        return
    missing = [name for name, there in (("TLS", tls), ("users", users)) if not there]
    if missing:
        raise ConfigError(
            f"server.listen: {host} can be reached from other machines, but there is no"
            f" {' and no '.join(missing)}. Set [tls] and [sasl], listen on 127.0.0.1, or add "
            f"--insecure"
        )


def tls_context(settings: Settings) -> ssl.SSLContext | None:
    """Return the TLS context of the settings; None without TLS. Raises ConfigError."""
    tls = settings.tls
    if not _has_tls(tls):
        return None
    made = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    made.minimum_version = ssl.TLSVersion.TLSv1_2
    try:
        made.load_cert_chain(str(tls.certificate), str(tls.key), password=_no_password)
    except (OSError, ssl.SSLError, ValueError) as error:
        raise ConfigError(
            f"tls: {tls.certificate} and {tls.key} are not a certificate chain and its key (PEM, "
            f"without a password): {error}"
        ) from error
    return made


def must_log_in(settings: Settings) -> bool:
    """Return whether there are users, so that every client must log in."""
    return settings.sasl.users is not None or settings.sasl.users_variable is not None


def apis(settings: Settings, counts: ServerCounts) -> list[Api]:
    """Return the APIs of the login if there are users. Raises ConfigError."""
    if not must_log_in(settings):
        return []
    return Login(Users.from_settings(settings.sasl), settings.sasl.mechanisms, counts).apis()


def _has_tls(tls: Tls) -> bool:
    has_certificate, has_key = tls.certificate is not None, tls.key is not None
    if has_certificate != has_key:
        raise ConfigError("[tls] has only one of certificate and key. Set both, or neither")
    return has_certificate


def _no_password() -> str:
    raise ValueError("the key has a password")
