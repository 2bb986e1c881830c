"""The names that are near to one that nobody knows."""

from collections.abc import Iterable
from difflib import get_close_matches


def nearest(name: str, names: Iterable[str], most: int = 1) -> list[str]:
    """Of some names those that are near to one, whatever their case; the nearest first."""
    by_lower = {each.lower(): each for each in names}
    return [by_lower[each] for each in get_close_matches(name.lower(), by_lower, most)]
