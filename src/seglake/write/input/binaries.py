"""Recognize binary formats, such as Arrow or ORC, by the first bytes of a file."""

import re

AVRO_MARK = b"Obj\x01"  # the first bytes of an Avro file
NO_TEXT = "the file contains binary bytes, so it is not text. Name other files"
# Control characters that text does not contain: all except tab, line ends and escape.
_OTHER_BYTES = re.compile(rb"[\x00-\x08\x0e-\x1a\x1c-\x1f]")
_TO_PARQUET = (
    "Convert it to Parquet and set input.format = 'parquet'. For a file that fits in memory: "
    "`python3 -c 'import sys; from pyarrow "
    "import {0}, parquet; parquet.write_table({0}.{1}, sys.argv[1] + "
    '".parquet")\' FILE`'
)
_ARROW = _TO_PARQUET.format("feather", "read_table(sys.argv[1])")


_KINDS = {  # first bytes → (name of the format, remedy)
    b"PAR1": ("a Parquet file", "Set input.format = 'parquet'"),
    b"ARROW1": ("an Arrow file", _ARROW),
    b"\xff\xff\xff\xff": (
        "an Arrow stream",
        _TO_PARQUET.format("ipc", "open_stream(sys.argv[1]).read_all()"),
    ),
    b"FEA1": ("a Feather file", _ARROW),
    b"ORC": ("an ORC file", _TO_PARQUET.format("orc", "read_table(sys.argv[1])")),
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
