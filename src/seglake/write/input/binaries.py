"""Recognize binary formats, such as Arrow or ORC, by the first bytes of a file."""

import re

AVRO_MARK = b"Obj\x01"  # the first bytes of an Avro file
NO_TEXT = "the file contains binary bytes, so it is not text. Name other files"
# Control characters that text does not contain: all except tab, line ends and escape.
_OTHER_BYTES = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_TO_PARQUET = "Convert it to Parquet and set input.format = 'parquet'"
_KINDS = {  # first bytes → (name of the format, remedy)
    b"PAR1": ("a Parquet file", "Set input.format = 'parquet'"),
    b"ARROW1": ("an Arrow file", _TO_PARQUET),
    b"\xff\xff\xff\xff": ("an Arrow stream", _TO_PARQUET),
    b"FEA1": ("a Feather file", _TO_PARQUET),
    b"ORC": ("an ORC file", _TO_PARQUET),
    AVRO_MARK: ("an Avro file", "Set input.format = 'avro'"),
}


def describe_binary(head: bytes) -> str | None:
    """Return a sentence with the format of a binary file and the remedy, for an error message.

    `head` has the first bytes of the file. Return None if the format is unknown, and for a text
    that begins with the same letters, such as a CSV header.
    """
    for mark, (name, remedy) in _KINDS.items() if is_binary(head) else ():
        if head.startswith(mark):
            return f"the file is {name}. {remedy}"
    return None


def is_binary(data: bytes) -> bool:
    """Return whether the data has control characters that text does not contain."""
    return _OTHER_BYTES.search(data) is not None
