"""Versions on the command line: a number, or the name of a tag."""


def version_of(text: str) -> int | str:
    """The version that is meant."""
    return int(text) if text.isascii() and text.isdigit() else text
