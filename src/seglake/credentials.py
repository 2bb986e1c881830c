"""Recognise storage options and URLs that may contain credentials.

Credentials come from the environment, or from the storage options of one process. A settings file
must not contain credentials, and a pickled store does not contain them.
"""

import os
import re
from urllib.parse import urlsplit

_SECRET = re.compile(
    r"secret|password|passwd|token|(access|account|master|customer|encryption)_?key|sas_", re.I
)
_PRIVATE_WORDS = frozenset({"key", "sas"})
_SIGNATURES = frozenset({"sig", "X-Amz-Signature", "X-Goog-Signature"})  # of signed URLs
_CLOUDS = ("AWS_", "AZURE_", "GOOGLE_")
_NO_SECRET = ("_file", "token_service_url", "_enabled", "kms_key_id")


def from_environment() -> dict[str, str]:
    """Return the environment variables that clients of object stores read."""
    return {name: value for name, value in os.environ.items() if name.upper().startswith(_CLOUDS)}


def is_secret(option: str) -> bool:
    """Return whether, by its name, an option is a secret or the path of a secret.

    Settings files must not have such options.
    """
    return bool(_SECRET.search(option)) or "credential" in option.lower()


def is_private(option: str, value: str) -> bool:
    """Return whether a value may contain a secret, so that it must not leave the process."""
    name = option.lower()
    named_so = _SECRET.search(name) or not _PRIVATE_WORDS.isdisjoint(name.split("_"))
    return "@" in value or (bool(named_so) and not name.endswith(_NO_SECRET))


def has_credentials(url: str) -> bool:
    """Return whether a URL names a user, or has a secret in its query string."""
    parts = urlsplit(url)
    names = (each.partition("=") for each in parts.query.split("&"))
    return "@" in parts.netloc or any(
        equals and (is_secret(name) or name in _SIGNATURES) for name, equals, _ in names
    )
