"""Define the types of settings. Each type checks its value. Error messages include the remedy."""

import codecs
import json
import re
from collections.abc import Callable, Iterator, Mapping
from fractions import Fraction
from typing import Annotated, Any
from zoneinfo import ZoneInfo

import pyarrow as pa
from pydantic import AfterValidator, BeforeValidator, Field

from seglake.credentials import has_credentials, is_secret
from seglake.layout import DECODED_ROOT, is_decoded, is_topic_id, is_topic_name
from seglake.limits import INT64_MAX
from seglake.text.patterns import named_groups
from seglake.times.grammar import EPOCH_POWERS, ISO, SUPPORTED, alternatives, unsupported
from seglake.times.intervals import duration_ms


def flat(table: Mapping[str, Any], prefix: str = "") -> Iterator[tuple[str, Any]]:
    """Yield (key, value) for the values of nested tables. Keys are joined by dots, as in "a.b"."""
    for key, value in table.items():
        if isinstance(value, Mapping):
            yield from flat(value, f"{prefix}{key}.")
        else:
            yield f"{prefix}{key}", value


def _names(value: object) -> object:
    """Convert a list of names, or a single name, to a tuple. Return other values unchanged."""
    if isinstance(value, str):
        return (value,)
    return tuple(value) if isinstance(value, list) else value


def _key_field(value: object) -> object:
    """Check a part of a record key, which is a field name or a list of alternative names.

    Return the name, or the list as a tuple.
    """
    names = _names(value) if isinstance(value, list | tuple) else (value,)
    if not (isinstance(names, tuple) and names and all(isinstance(n, str) and n for n in names)):
        raise ValueError(
            f"{value!r} is not a field. Write a name, or a list of names to choose from"
        )
    return names if isinstance(value, list | tuple) else value


def _listed(value: object) -> object:
    """Convert a list of names, or a text with names between commas, to a tuple.

    Names in a text must not contain blanks.
    """
    if not isinstance(value, str):
        return _names(value)
    names = [name.strip() for name in value.split(",")]
    if blank := next((name for name in names if len(name.split()) > 1), None):
        raise ValueError(
            f"{blank!r} contains a blank, but names in a text are separated by commas. For a name "
            f"with a blank, write a list: {json.dumps([blank], ensure_ascii=False)}"
        )
    return _names(names)


def _topic_name(name: str) -> str:
    if not is_topic_name(name):
        raise ValueError(
            "a topic name must have 1 to 249 characters a-z A-Z 0-9 . _ - and not be '.' or '..'"
        )
    return name


def _topic_id(text: str) -> str:
    if not is_topic_id(text):
        raise ValueError(
            f"{text!r} is not a topic id, which has 22 characters from a-z A-Z 0-9 _ -. "
            f"`kafka-topics --describe` shows it"
        )
    return text


def _zone(name: str) -> str:
    try:
        ZoneInfo(name)
    except (KeyError, ValueError, OSError):
        raise ValueError(f"{name!r} is not an IANA zone. Use a name such as Europe/Paris") from None
    return name


_NO_ENCODINGS = {"idna", "mbcs", "oem", "punycode", "raw_unicode_escape", "undefined",
                 "unicode_escape"}  # fmt: skip


def _encoding(name: str) -> str:
    """Return Python's name of a text encoding. Raises ValueError for an unknown encoding."""
    try:
        codec = codecs.lookup(name)
        # This raises for codecs other than text encodings, such as base64.
        "".encode(name)
    except (LookupError, ValueError):
        codec = None
    named = "" if codec is None else codec.name.replace("-", "_")
    if codec is None or codec.incrementaldecoder is None or named in _NO_ENCODINGS:
        raise ValueError(
            f"{name!r} is not an encoding. Use a name that Python knows, such as utf-8, latin-1, "
            "cp1252 or utf-16"
        )
    return "utf-8" if named == "utf_8_sig" else codec.name


def _location(value: str) -> str:
    # In abfs://container@account/, the part in front of @ is not a user with a password.
    hides_user = value.startswith("abfs")
    checked = value.partition("?")[2] if hides_user else value
    if "://" in value and has_credentials(f"?{checked}" if hides_user else value):
        raise ValueError("credentials do not belong in a URI. Set them in the environment")
    return value


def _root(value: str) -> str:
    if is_decoded(value):
        raise ValueError(DECODED_ROOT)
    return value


_ALTERNATIVES = 3**3  # each is tried on the times that no earlier alternative reads


def _time_format(text: str) -> str:
    if text in EPOCH_POWERS or text == ISO:
        return text
    if "%" not in text:
        raise ValueError(
            f"{text!r} is not a format. Use {', '.join(EPOCH_POWERS)}, {ISO} or a strptime pattern"
        )
    unknown = unsupported(text)
    if unknown:
        directives = " ".join(f"%{d}" for d in SUPPORTED)
        raise ValueError(f"%{unknown[0]} is not supported. Use {directives}")
    if len(alternatives(text)) > _ALTERNATIVES:
        raise ValueError("at most three parts may be in brackets. Remove some brackets")
    return text


def _options(value: object) -> object:
    """Convert the values of storage options to text, with booleans as "true" and "false".

    Raises ValueError for secrets, which must not be in a file.
    """
    if not isinstance(value, Mapping):
        return value
    secrets = [key for key in value if is_secret(str(key))]
    if secrets:
        raise ValueError(f"{secrets[0]} is a secret. Set it in the environment, not in a file")
    for key, text in value.items():
        if has_credentials(str(text)):
            raise ValueError(f"{key} has credentials in its URL. Set it in the environment")
    return {k: str(v).lower() if isinstance(v, bool) else str(v) for k, v in value.items()}


def _cleanup_policy(policies: str) -> str:
    """Return the policies in a text such as "delete, compact", sorted and without blanks.

    Raises ValueError for an unknown policy.
    """
    named = [policy.strip() for policy in policies.split(",")]
    if unknown := [policy for policy in named if policy not in {"compact", "delete"}]:
        raise ValueError(f"{unknown[0]!r} is not a policy. Use delete, compact or compact,delete")
    return ",".join(sorted(set(named)))


def _columns(value: object) -> object:
    """Convert a list of names, or a text with names between commas, to a tuple.

    Names may be empty.
    """
    if not isinstance(value, str):
        return _names(value)
    return tuple(name.strip() for name in value.split(","))


def _distinct(names: tuple[str, ...]) -> tuple[str, ...]:
    twice = [name for at, name in enumerate(names) if name and name in names[:at]]
    if twice:
        raise ValueError(
            f"{twice[0]!r} occurs twice. Rename one, or leave the name of an unused column empty"
        )
    return names


def _one_character(text: str) -> str:
    if len(text) != 1 or not "\x01" <= text <= "\x7f":
        raise ValueError(f"{text!r} is not one ASCII character. Write one")
    return text


def _escape(text: str) -> str:
    # An erasure must find escaped keys in rejects, and supports only this escape.
    if text != "\\":
        raise ValueError(f"{text!r} is not a backslash. If quotes are doubled, leave it out")
    return text


_STEPS = re.compile(r"(?:[^.\[\]]+(?:\.[^.\[\]]+)*)?(?:\[\])+(?:(?:\.[^.\[\]]+)+(?:\[\])+)*|\.")


def _records(text: str) -> str:
    if not _STEPS.fullmatch(text):
        raise ValueError(
            f"{text!r} does not name an array of events. Write [] after the name of each array, "
            "as in 'Records[]' or 'a.b[].c[]', '[]' for a file that is one array, and '.' if each "
            "document is an event"
        )
    return text


def _pattern(text: str) -> str:
    try:
        groups = named_groups(text)
    except pa.ArrowInvalid as problem:
        raise ValueError(f"{problem}. Use RE2 syntax and (?P<name>...) groups") from None
    if not groups:
        raise ValueError(
            "the expression has no named group. Name the group of each field: (?P<name>...)"
        )
    _distinct(groups)
    return text


# ---------------- sizes
# Parse sizes such as 512MiB, 1.5 GiB, 64 KiB or 100 B.

_POWERS = {"k": 1, "m": 2, "g": 3, "t": 4}
_SIZE = re.compile(r"([0-9]{1,15}(?:\.[0-9]{1,9})?)\s*(?:b|([kmgt])(ib|i|b|))")


def size_bytes(text: str) -> int | None:
    """Return a size such as "512MiB" in bytes, or None if the text is not a number with a unit.

    Raises:
        ValueError: The unit is ambiguous, such as GB (a power of 1000 or of 1024), or the size is
            not a whole number of bytes. The message has the remedy.
    """
    match = _SIZE.fullmatch(text.strip().lower())
    if match is None:
        return None
    number, prefix, end = match.groups()
    power = _POWERS.get(prefix, 0)
    size, other = (Fraction(number) * base**power for base in (1024, 1000))
    if prefix and end != "ib":
        raise ValueError(
            f"{text!r} may be {int(other):,} or {int(size):,} bytes. Write "
            f"{number}{prefix.upper()}iB for the second, or the number of bytes"
        )
    if size.denominator != 1:
        raise ValueError(f"{text!r} is not a whole number of bytes. Write one")
    return int(size)


def _number_or(parse: Callable[[str], int | None], rule: str) -> BeforeValidator:
    """Return a validator that converts texts with a unit by `parse`. Numbers do not change.

    Raises ValueError, which contains `rule`, for a text that `parse` does not convert.
    """

    def convert(value: object) -> object:
        if not isinstance(value, str) or re.fullmatch(r"-?[0-9]{1,19}", value.strip()):
            return value
        number = parse(value)
        if number is None:
            raise ValueError(f"{value!r} is not a {rule}")
        return number

    return BeforeValidator(convert)


# ---------------- types

_DURATION = _number_or(duration_ms, "duration. Write milliseconds, or 90s, 12h, 7d, 2w")
Ms = Annotated[int, _DURATION, Field(le=INT64_MAX)]
Size = Annotated[int, _number_or(size_bytes, "size. Write bytes, or 64KiB, 512MiB, 1GiB")]
CleanupPolicy = Annotated[str, AfterValidator(_cleanup_policy)]
Location = Annotated[str, Field(min_length=1), AfterValidator(_location)]
Root = Annotated[Location, AfterValidator(_root)]
Encoding = Annotated[str, AfterValidator(_encoding)]
FieldName = Annotated[str, Field(min_length=1)]
FieldNames = Annotated[tuple[FieldName, ...], BeforeValidator(_names)]
KeyField = Annotated[Any, BeforeValidator(_key_field)]  # str | tuple[str, ...]
KeyFields = Annotated[tuple[KeyField, ...], BeforeValidator(_names)]
IndexNames = Annotated[
    tuple[Annotated[str, Field(min_length=1, max_length=1000)], ...], BeforeValidator(_listed)
]
ColumnNames = Annotated[
    tuple[Annotated[str, Field(max_length=1000)], ...],
    BeforeValidator(_columns),
    AfterValidator(_distinct),
]
EventArray = Annotated[str, AfterValidator(_records)]
MemberNames = Annotated[
    tuple[Annotated[str, Field(pattern=r"^[^.\[\]]+$")], ...], BeforeValidator(_names),
    AfterValidator(_distinct),
]  # fmt: skip
Pattern = Annotated[str, Field(max_length=8000), AfterValidator(_pattern)]
Escape = Annotated[str, AfterValidator(_escape)]
OneByte = Annotated[str, AfterValidator(_one_character)]
NullValues = Annotated[tuple[str, ...], BeforeValidator(_names)]
Globs = Annotated[tuple[Annotated[str, Field(min_length=1)], ...], BeforeValidator(_names)]
Locations = Annotated[tuple[Location, ...], BeforeValidator(_names), Field(min_length=1)]
TopicId = Annotated[str, AfterValidator(_topic_id)]
TopicName = Annotated[str, AfterValidator(_topic_name)]
Zone = Annotated[str, AfterValidator(_zone)]
TimeFormatText = Annotated[str, AfterValidator(_time_format)]
Options = Annotated[dict[str, str], BeforeValidator(_options)]
