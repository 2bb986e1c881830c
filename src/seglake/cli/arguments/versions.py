"""Versions on the command line: a number, or the name of a tag."""


def version_of(text: str | None) -> int | str | None:
    """The version that is meant; None for the newest."""
    is_number = text is not None and text.isascii() and text.isdigit()
    return int(text) if text is not None and is_number else text
