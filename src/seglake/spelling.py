"""The names that are near to one that nobody knows, and what to say of it."""

from collections.abc import Iterable, Sequence
from difflib import SequenceMatcher, get_close_matches

_AS_NEAR = 0.1  # by so much the likeness of the nearest name may be greater


def nearest(name: str, names: Iterable[str], most: int = 1) -> list[str]:
    """Of some names those that are near to one, whatever their case; the nearest first."""
    by_lower = {each.lower(): each for each in names}
    return [by_lower[each] for each in get_close_matches(name.lower(), by_lower, most)]


def as_near(name: str, names: Iterable[str]) -> list[str]:
    """The nearest name, and a second one if it is nearly as near."""
    near = nearest(name, names, 2)
    likeness = [SequenceMatcher(None, name.lower(), each.lower()).ratio() for each in near]
    return [each for each, value in zip(near, likeness, strict=True)
            if value >= likeness[0] - _AS_NEAR]  # fmt: skip


def advice(name: str, names: Iterable[str], lists: str) -> str:
    """What to say of an unknown name: which of `names` is near, or else what lists them."""
    near = nearest(name, names)
    return f"did you mean {near[0]!r}?" if near else lists


def remedy(name: str, names: Sequence[str], prefix: str = "") -> str:
    """What to write in the place of an unknown name: the nearest of `names`, or any of them."""
    close = nearest(name, names) or get_close_matches(name.replace("_", "."), names, 1, 0.4)
    if close:
        return f"did you mean {prefix}{close[0]}?"
    return f"use one of {', '.join(prefix + other for other in names)}"
