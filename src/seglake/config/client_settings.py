"""Settings of Kafka's clients, as users give them: a properties file, and pairs KEY=VALUE."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from seglake.errors import UsageError

UNREACHABLE = (  # what an error says of a broker that does not answer
    "; check host and port, that the broker runs, and --kafka security.protocol=… if it wants TLS "
    "or a login"
)


def client_settings(pairs: Sequence[str], file: Path | None) -> dict[str, str]:
    """The settings of the file, then those of the pairs.

    In the file, # and ! begin a comment, and a backslash at the end of a line continues it. Raises
    UsageError for what is no pair, or a file that cannot be read.
    """
    try:
        text = "" if file is None else file.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError) as error:
        raise UsageError(f"the properties file {file} cannot be read: {error}") from error
    lines = [line.strip() for line in text.replace("\\\n", "").splitlines()]
    settings = {}
    for pair in [*(line for line in lines if line and line[0] not in "#!"), *pairs]:
        key, separator, value = pair.partition("=")
        if not separator or not key.strip():  # the pair may be a secret
            raise UsageError("a setting of Kafka's clients is not of the form KEY=VALUE: mend it")
        settings[key.strip()] = value.strip()
    return settings
