"""Read settings of Kafka's clients from a properties file and from KEY=VALUE pairs."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seglake.errors import UsageError

# This is appended to the error if a broker does not answer.
UNREACHABLE = (
    "; check host and port, that the broker runs, and --kafka security.protocol=… if it requires "
    "TLS or a login"
)


def client_settings(pairs: Sequence[str], file: Path | None) -> dict[str, str]:
    """Return the settings of the file and of the pairs. A pair overrides the file.

    In the file, # and ! begin a comment, and a backslash at the end of a line continues it.

    Raises:
        UsageError: A setting has another form than KEY=VALUE, or the file cannot be read.
    """
    try:
        text = "" if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the properties file {file} cannot be read: {error}") from error
    lines = [line.strip() for line in text.replace("\\\n", "").splitlines()]
    settings = {}
    for pair in [*(line for line in lines if line and line[0] not in "#!"), *pairs]:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():
            # The message does not quote the setting, which may be a secret.
            raise UsageError(
                "a setting of the Kafka client is not of the form KEY=VALUE. Correct it"
            )
        settings[key.strip()] = value.strip()
    return settings
