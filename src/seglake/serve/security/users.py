"""Users and their passwords, stored so that every guess takes equally long."""

from __future__ import annotations

import hmac
import os
import secrets
from collections.abc import Mapping
from pathlib import Path
from typing import NamedTuple

from scramp import ScramMechanism

from seglake.errors import ConfigError
from seglake.serve.settings import Sasl

_OTHERS = 0o007


class Verifier(NamedTuple):
    """What SCRAM compares with (RFC 5802); the password cannot be computed from it."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class Users:
    """Everybody who may log in. Answers do not show whether a name is that of a user."""

    def __init__(self, passwords: Mapping[str, str], mechanisms: tuple[str, ...]) -> None:
        self._key = secrets.token_bytes(32)
        self._digests = {name: self._digest(word) for name, word in passwords.items()}
        self._verifiers = {
            mechanism: {
                name: Verifier(*ScramMechanism(mechanism).make_auth_info(word))
                for name, word in passwords.items()
            }
            for mechanism in mechanisms
            if mechanism.startswith("SCRAM-")
        }
        self._unknown = {
            mechanism: Verifier(*ScramMechanism(mechanism).make_auth_info(secrets.token_hex()))
            for mechanism in self._verifiers
        }

    @classmethod
    def of(cls, settings: Sasl) -> Users:
        """The users of a file, or of a variable of the environment. Raises ConfigError."""
        if settings.users is not None and settings.users_variable is not None:
            raise ConfigError("sasl: users and users_variable both name users: keep one")
        if settings.users is not None:
            return cls(_parsed(_text_of(settings.users), str(settings.users)), settings.mechanisms)
        variable = str(settings.users_variable)
        if variable not in os.environ:
            raise ConfigError(f"sasl.users_variable: the environment has no {variable}; set it")
        return cls(_parsed(os.environ[variable], variable), settings.mechanisms)

    def has(self, name: str, password: str) -> bool:
        """Whether this is the password of this user."""
        expected = self._digests.get(name, self._digest(secrets.token_hex()))
        return hmac.compare_digest(expected, self._digest(password))

    def verifier(self, mechanism: str, name: str) -> Verifier:
        """What SCRAM compares with.

        An unknown name has one, too, which looks like that of a user: the same whenever it is
        asked for, another for another mechanism.
        """
        verifier = self._verifiers[mechanism].get(name)
        if verifier is not None:
            return verifier
        salt = self._digest(f"{mechanism} {name}")[: len(self._unknown[mechanism].salt)]
        return self._unknown[mechanism]._replace(salt=salt)

    def _digest(self, text: str) -> bytes:
        return hmac.digest(self._key, text.encode(errors="surrogateescape"), "sha256")


def _text_of(file: Path) -> str:
    try:
        if file.stat().st_mode & _OTHERS:
            raise ConfigError(
                f"sasl.users: others may use {file}, which has passwords: chmod o= it"
            )
        return file.read_text("utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"sasl.users: {file} cannot be read: {error}") from error


def _parsed(text: str, place: str) -> dict[str, str]:
    passwords = dict[str, str]()
    for number, line in enumerate(text.splitlines(), 1):
        if not line.strip() or line.lstrip().startswith("#"):
            continue
        name, colon, password = line.strip().partition(":")
        problem = _problem(name, colon, password)
        if problem is None and name in passwords:
            problem = "has a name for the second time"
        if problem is not None:
            raise ConfigError(f"{place}: line {number} {problem}")
        passwords[name] = password
    if not passwords:
        raise ConfigError(f"{place}: names no user; write a line name:password for each")
    return passwords


def _problem(name: str, colon: str, password: str) -> str | None:
    """What is wrong with a line; never the password itself."""
    if not colon or not name or not password:
        return "is not of the form name:password"
    if not (name + password).isascii() or not (name + password).isprintable():
        return "has other characters than printable ASCII, which clients prepare differently"
    return None
