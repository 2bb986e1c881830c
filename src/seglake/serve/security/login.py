"""The login of a client: SaslHandshake, then SaslAuthenticate (KIP-43, KIP-152).

After a handshake of version 0, the messages of the login are frames without a header. If such a
login fails, the server closes the connection without a reason.
"""

from __future__ import annotations

import asyncio
import hmac
import logging
import os
import secrets
from collections.abc import Mapping
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from kafka.protocol import sasl
from scramp import ScramException, ScramMechanism

from seglake.errors import ConfigError
from seglake.serve.api import Api, CloseConnection, ServerCounts
from seglake.serve.codes import Code
from seglake.serve.settings import Sasl

if TYPE_CHECKING:
    from seglake.serve.connection import Connection

_log = logging.getLogger(__name__)
_DELAY_S = 0.1  # before a failed login is answered, like connection.failed.authentication.delay.ms


class LoginFailed(Exception):
    """The login failed. The message is logged, and never sent to the client."""


class SaslStep(NamedTuple):
    """The server's answer, and the client's name after a successful proof."""

    answer: bytes
    name: str | None = None


class Login:
    """Answers the two APIs.

    `connection.login` is the login in progress: a function from a client's message to a `SaslStep`,
    which raises LoginFailed.
    """

    def __init__(self, users: Users, mechanisms: tuple[str, ...], counts: ServerCounts) -> None:
        self._users, self._mechanisms, self._counts = users, mechanisms, counts

    def apis(self) -> list[Api]:
        """Return the APIs SaslHandshake and SaslAuthenticate."""
        return [
            Api(sasl.SaslHandshakeRequest, 0, 1, self.handshake, before_login=True),
            Api(sasl.SaslAuthenticateRequest, 0, 2, self.authenticate, before_login=True),
        ]

    async def handshake(self, request: Any, connection: Connection) -> Any:
        """Answer SaslHandshake, versions 0 and 1: choose a mechanism.

        After version 0, the messages of the login are frames without a header (see `token`).
        """
        if connection.principal is not None or connection.login is not None:
            return self._handshake_response(Code.ILLEGAL_SASL_STATE, connection)
        mechanism = request.mechanism
        if mechanism not in self._mechanisms:
            _log.warning("%s: SASL mechanism %r is not enabled", connection, mechanism[:40])
            return self._handshake_response(Code.UNSUPPORTED_SASL_MECHANISM, connection)
        is_plain = mechanism == "PLAIN"
        connection.login = (
            partial(plain, self._users) if is_plain else Scram(self._users, mechanism)
        )
        if connection.version == 0:
            connection.tokens = self.token
        return self._handshake_response(Code.NONE, connection)

    def _handshake_response(self, code: Code, connection: Connection) -> Any:
        connection.count_error(code)
        return sasl.SaslHandshakeResponse(error_code=code, mechanisms=list(self._mechanisms))

    async def authenticate(self, request: Any, connection: Connection) -> Any:
        """Answer SaslAuthenticate, versions 0 to 2, with the next message of the login.

        A client whose login failed must open another connection. Sessions do not expire.
        """
        exchange = connection.login
        if connection.principal is not None or exchange is None:
            connection.count_error(Code.ILLEGAL_SASL_STATE)
            return _failure_response(
                Code.ILLEGAL_SASL_STATE, "SaslHandshake must come first, and only once"
            )
        try:
            step = await self._step(exchange, bytes(request.auth_bytes), connection)
        except LoginFailed:
            return _failure_response(
                Code.SASL_AUTHENTICATION_FAILED, "Authentication failed: wrong user or password"
            )
        return sasl.SaslAuthenticateResponse(error_code=Code.NONE, auth_bytes=step.answer)

    async def token(self, words: bytes, connection: Connection) -> bytes:
        """Answer a message of the login that has no header. Raises CloseConnection."""
        try:
            step = await self._step(connection.login, words, connection)
        except LoginFailed:
            raise CloseConnection("the login failed") from None
        if step.name is not None:
            connection.tokens = None
        return step.answer

    async def _step(self, exchange: Any, words: bytes, connection: Connection) -> SaslStep:
        """Answer one message of the login. A LoginFailed is counted, logged and delayed."""
        connection.login = _after_failure
        try:
            step: SaslStep = exchange(words)
        except LoginFailed as why:
            self._counts.failed_logins += 1
            # After a handshake of version 0, the current API is still SaslHandshake.
            self._counts.errors["SaslAuthenticate", Code.SASL_AUTHENTICATION_FAILED.name] += 1
            _log.warning("%s: login failed: %s", connection, why)
            await asyncio.sleep(_DELAY_S)
            raise
        if step.name is None:
            connection.login = exchange
        else:
            connection.principal = f"User:{step.name}"
            self._counts.logins += 1
        return step


def _failure_response(code: Code, message: str) -> Any:
    return sasl.SaslAuthenticateResponse(error_code=code, error_message=message, auth_bytes=b"")


def _after_failure(_words: bytes) -> SaslStep:
    raise CloseConnection("the client continued after a failed login")


def plain(users: Users, words: bytes) -> SaslStep:
    """Check the name and password in the only message of SASL PLAIN (RFC 4616)."""
    try:
        acts_for, name, password = words.decode().split("\0")
    except ValueError:
        raise LoginFailed("the message is not one of SASL PLAIN") from None
    if not users.has(name, password) or acts_for not in ("", name):
        raise LoginFailed(f"wrong password, or no user {name[:40]!r}")
    return SaslStep(b"", name)


class Scram:
    """SASL SCRAM (RFC 5802, KIP-84): two messages, from which no password can be learned."""

    def __init__(self, users: Users, mechanism: str) -> None:
        self._server = ScramMechanism(mechanism).make_server(
            lambda name: self._verifier(users, mechanism, name)
        )
        self._name: str | None = None

    def _verifier(self, users: Users, mechanism: str, name: str) -> tuple[bytes, bytes, bytes, int]:
        self._name = name
        return users.verifier(mechanism, name)

    def __call__(self, words: bytes) -> SaslStep:
        """Answer the client's first message, or its last one."""
        try:
            if self._name is None:
                self._server.set_client_first(words.decode())
                return SaslStep(self._server.get_server_first().encode())
            self._server.set_client_final(words.decode())
            return SaslStep(self._server.get_server_final().encode(), self._name)
        except (ScramException, ValueError) as error:
            who = "" if self._name is None else f" of user {self._name[:40]!r}"
            raise LoginFailed(f"login{who}: {error}") from error


# ---------------- users
# Users and their passwords. Checks take equally long for every name and password.

_OTHERS = 0o007


class Verifier(NamedTuple):
    """The keys with which SCRAM checks a proof (RFC 5802). They do not reveal the password."""

    salt: bytes
    stored_key: bytes
    server_key: bytes
    iterations: int


class Users:
    """The users that may log in. No answer reveals whether a user exists."""

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
    def from_settings(cls, settings: Sasl) -> Users:
        """Return the users in a file, or in an environment variable. Raises ConfigError."""
        if settings.users is not None and settings.users_variable is not None:
            raise ConfigError("sasl: users contradicts users_variable. Keep one")
        if settings.users is not None:
            return cls(_parsed(_text_of(settings.users), str(settings.users)), settings.mechanisms)
        variable = str(settings.users_variable)
        if variable not in os.environ:
            raise ConfigError(f"sasl.users_variable: the environment has no {variable}. Set it")
        return cls(_parsed(os.environ[variable], variable), settings.mechanisms)

    def has(self, name: str, password: str) -> bool:
        """Return whether a user of this name exists and has this password."""
        expected = self._digests.get(name, self._digest(secrets.token_hex()))
        return hmac.compare_digest(expected, self._digest(password))

    def verifier(self, mechanism: str, name: str) -> Verifier:
        """Return the verifier of a user, with which SCRAM checks the proof of a client.

        An unknown name also gets a verifier. It looks like the verifier of a user, because it is
        constant for a name and a mechanism.
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
                f"sasl.users: {file} has passwords, but other users may access it. Run chmod o= "
                f"{file}"
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
            problem = "repeats the name of an earlier line"
        if problem is not None:
            raise ConfigError(f"{place}: line {number} {problem}")
        passwords[name] = password
    if not passwords:
        raise ConfigError(f"{place} has no users. Write a line name:password for each")
    return passwords


def _problem(name: str, colon: str, password: str) -> str | None:
    """Describe the error in a line, without the password. Return None for a valid line."""
    if not colon or not name or not password:
        return "is not of the form name:password"
    if not (name + password).isascii() or not (name + password).isprintable():
        return "has characters other than printable ASCII, which clients normalize differently"
    return None
