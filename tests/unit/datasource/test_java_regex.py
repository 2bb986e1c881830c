"""Java's patterns in Python; tests/kafka asks Java itself."""

import pytest

from seglake.datasource.java_regex import translate
from seglake.errors import UsageError


@pytest.mark.parametrize(
    ("pattern", "found", "missed"),
    [
        ("even", ["events", "seven"], ["odd"]),  # like Spark, somewhere in the name
        ("^events$", ["events"], ["events2", "my-events"]),
        (r"\Aevents\z", ["events"], ["events2"]),
        (r"events\Z", ["events"], ["events2"]),
        (r"\Qa.b\E.", ["a.bc"], ["aXbc", "a.b"]),
        (r"^\Q[a", ["[a"], ["a"]),
        (r"^(?<x>ab|c)\k<x>$", ["abab", "cc"], ["abc"]),
        (r"^\p{Upper}[\p{Digit}_]+$", ["A1_"], ["a1", "AB"]),
        (r"^\P{Upper}$".replace("P", "p"), ["Q"], ["q"]),
        (r"^(?>a+)b", ["aab"], ["ba"]),
        (r"^a++$", ["aa"], ["ab"]),
        (r"(?i)^EVENTS$", ["events"], ["event"]),
        (r"^(?i:E)vents$", ["events"], ["eVents"]),
        (r"^(?!test)", ["prod"], ["test-1"]),
        (r"(?<=-)x", ["a-x"], ["x"]),
        (r"^x{2,3}$", ["xx"], ["x", "xxxx"]),
        (r"^[({?<a>-]+$", ["(<", "a"], ["b"]),
        (r"^[^\]]+$", ["abc"], ["]"]),
        (r"\u0061\x62", ["ab"], ["ac"]),
        (r"^[\Qa-c\E]+$", ["a-c"], ["b"]),
    ],
)
def test_what_both_can_say(pattern: str, found: list[str], missed: list[str]) -> None:
    compiled = translate(pattern)
    assert all(compiled.search(name) for name in found)
    assert not any(compiled.search(name) for name in missed)


@pytest.mark.parametrize(
    "pattern",
    [
        "[a-z&&[^b]]", "[a[bc]]", "[a&&b]", "[]a]", r"\p{IsAlphabetic}", r"\p{L}", r"\PL", r"\G",
        r"\R", r"\X", r"\h", "a(?i)b", "(?x)a b", "(?-i)a", "(?U)a", "(?P<x>a)", "(?#x)", "{2}",
        "a{,2}", "a{b", "(a", "[a", r"\0141", r"\cA", r"\e", "\\", "*", r"\x{61}", "(?<=a+)b",
        r"(?<1x>a)", r"\k<x>",
    ],
)  # fmt: skip
def test_what_python_cannot_or_java_would_not(pattern: str) -> None:
    with pytest.raises(UsageError, match="subscribePattern"):
        translate(pattern)
