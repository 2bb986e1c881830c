"""Names that make a topic of the server: `TOPIC.START.END`, `TOPIC.key.K`, `TOPIC.v12`, `….x10`.

START and END are times such as `20260601T120000.000Z`; the milliseconds may be left out. `.key.u1`
and `.key64.dTE` are the records with a key, which stands there as text or in base64url without
padding. `.v12` is a version of the catalog, and so is `.q3-train` if that is the name of a tag.
`.x10` is a replay of a window at ten times the speed; one more part, as in `.x10.again`, makes
another such replay. The parts stand in this order.

A key is personal data, so logs have a hash in its place (`hidden`). The hash has a secret of this
process: without the secret, nobody can tell a key by trying some.
"""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
import secrets
from collections.abc import Container
from typing import NamedTuple

from seglake.catalog.tags import NAME
from seglake.errors import UsageError
from seglake.times.instants import to_epoch_ms

_TIME = r"\d{8}T\d{6}(?:\.\d{1,3})?Z"
_WINDOW = rf"(?P<topic>.+?)(?:\.(?P<start>{_TIME})\.(?P<end>{_TIME}))?"
_KEY = r"\.key(?:\.(?P<text>[A-Za-z0-9_-]+)|64\.(?P<base64>[A-Za-z0-9_-]*))"
_SPEED = r"\.x(?P<speed>\d{1,6})(?:\.[a-zA-Z0-9_-]+)?"
_REST = rf"(?:\.v(?P<version>\d{{1,18}}))?(?:{_SPEED})?"
_PLAIN, _KEYED = re.compile(_WINDOW + _REST), re.compile(_WINDOW + _KEY + _REST)
_TAGGED = re.compile(rf"(?P<before>.+)\.(?P<tag>{NAME})")
_REPLAYED = re.compile(rf"(?P<before>.+)\.(?P<tag>{NAME})(?P<replay>{_SPEED})")
_SECRET = re.compile(r"(\.key(?:64)?\.)(.*)", re.DOTALL)
_TIMES = re.compile(r"[\dTZ]+\.[\dTZ]+(?:\.[xv]\d+)*")  # of a window, though mistyped
_SALT = secrets.token_bytes(16)


class Derived(NamedTuple):
    """What a name asks for: all of a topic or a window [start_ms, end_ms), a version, a speed.

    The version has a number, or is that of a tag. With a `key`, only the records that have it.
    """

    topic: str
    start_ms: int | None = None
    end_ms: int | None = None
    version: int | None = None
    speed: int | None = None
    key: bytes | None = None
    tag: str | None = None

    @property
    def follows(self) -> bool:
        """Whether it is that of the newest version, always: neither window nor version bind it."""
        bounds = (self.start_ms, self.version, self.tag)
        return self.key is not None and bounds == (None, None, None)


def parse(
    name: str, topics: Container[str] = (), tags: Container[str] | None = ()
) -> Derived | None:
    """What the name asks for; None for a plain name. Raises UsageError for impossible values.

    `topics` and `tags` are those of the lake; with None any name may be a tag. A name that means
    something without a tag, of a topic of the lake, keeps that meaning, whatever tags there are.
    """
    asked = _parsed(name, name, topics)
    if asked is not None and asked.topic in topics:
        return asked
    return _tagged(name, topics, tags) or asked


def _parsed(text: str, name: str, topics: Container[str]) -> Derived | None:
    """What the text, a name without its tag, asks for; None for the whole of a plain name.

    A topic of the lake may have a name with `.key.` in it; what is made of that name wins.
    """
    plain, keyed, has_tag = _PLAIN.fullmatch(text), _KEYED.fullmatch(text), text != name
    if keyed is not None and not (plain and plain["topic"] in topics):
        return _derived(name, keyed)._replace(key=_key_of(name, keyed))
    if plain is None or not (has_tag or plain["start"] or plain["version"]):
        return None
    return _derived(name, plain)


def _tagged(name: str, topics: Container[str], tags: Container[str] | None) -> Derived | None:
    """What a name with a tag asks for; None if it has none of the tags."""
    for match in (_TAGGED.fullmatch(name), _REPLAYED.fullmatch(name)):
        if match is None or not (tags is None or match["tag"] in tags):
            continue
        before, replay = match["before"], match.groupdict().get("replay", "")
        if before in topics and not replay:
            return Derived(before, tag=match["tag"])
        asked = _parsed(before + replay, name, topics)
        if asked is not None and asked.version is None:
            return asked._replace(tag=match["tag"])
    return None


def why_none(name: str, topics: Container[str]) -> str:
    """What is wrong with a name that begins with a topic of the lake, to stand behind a message."""
    topic = _beginning(name, topics)
    if topic is None:
        return ""
    return (
        f": what follows {topic} is no window, as in {topic}.20260601T120000Z.20260601T130000Z, and"
        " no key, version or tag"
    )


def _beginning(name: str, topics: Container[str]) -> str | None:
    """The longest topic with which a name goes on."""
    parts = name.split(".")
    begins = (".".join(parts[:count]) for count in range(len(parts) - 1, 0, -1))
    return next((begin for begin in begins if begin in topics), None)


def hidden_unknown(name: str, topics: Container[str]) -> str:
    """A name of no topic as it may stand in a log.

    After a topic of the lake, or else after the first dot, anything but times may be a key: the
    client may have left the word `key` out, or mistyped it. So a hash stands for it.
    """
    topic = _beginning(name, topics) or name.partition(".")[0]
    rest = name[len(topic) + 1 :]
    return name if not rest or _TIMES.fullmatch(rest) else f"{topic}.#{_hash(rest)}"


def hidden(name: str) -> str:
    """The name as it may stand in a log: with a hash for all that may be a key."""
    return _SECRET.sub(lambda match: f"{match[1]}#{_hash(match[2])}", name, count=1)


def _derived(name: str, match: re.Match[str]) -> Derived:
    version = None if match["version"] is None else int(match["version"])
    speed = None if match["speed"] is None else int(match["speed"])
    if match["start"] is None:
        if speed is not None:
            raise UsageError(f"{hidden(name)}: a replay needs a window: TOPIC.START.END.x{speed}")
        return Derived(match["topic"], version=version)
    start, end = _milliseconds(name, match["start"]), _milliseconds(name, match["end"])
    if end <= start:
        what = "the window would end at or before its start; swap the times"
        raise UsageError(f"{hidden(name)}: {what}")
    if speed == 0:
        raise UsageError(f"{hidden(name)}: a replay at speed 0 never begins; use x1 or more")
    return Derived(match["topic"], start, end, version, speed)


def _key_of(name: str, match: re.Match[str]) -> bytes:
    """The key in a name. Base64url with stray bits is refused: a key has one name of each kind."""
    text = match["base64"]
    if text is None:
        return match["text"].encode()
    try:
        key = base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
    except binascii.Error:
        key = None
    if key is None or base64.urlsafe_b64encode(key).decode().rstrip("=") != text:
        what = "what stands behind key64 is no base64url without padding"
        raise UsageError(f"{hidden(name)}: {what}; encode the bytes of the key anew")
    return key


def _hash(text: str) -> str:
    return hashlib.blake2b(text.encode(errors="replace"), digest_size=6, key=_SALT).hexdigest()


def _milliseconds(name: str, text: str) -> int:
    try:
        return to_epoch_ms(text)
    except UsageError:
        what = f"{text} is no time; write 20260601T120000.000Z"
        raise UsageError(f"{hidden(name)}: {what}") from None
