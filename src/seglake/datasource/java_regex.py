r"""Java's regular expressions, as `subscribePattern` has them, in Python's notation.

Both engines backtrack in the same way, so most constructs need only another spelling. Constructs
that Python lacks, or reads differently, are an error: nested character classes and `&&`, properties
beyond POSIX, `\G`, `\R`, `\X`, flags in the middle of a pattern.
"""

import re

from seglake.errors import UsageError

_POSIX = {
    "Lower": "a-z",
    "Upper": "A-Z",
    "Alpha": "a-zA-Z",
    "Digit": "0-9",
    "Alnum": "a-zA-Z0-9",
    "XDigit": "0-9a-fA-F",
    "Punct": r"!-/:-@\[-`{-~",
    "Graph": "!-~",
    "Print": " -~",
    "Blank": r" \t",
    "Space": r"\s",
    "ASCII": r"\x00-\x7F",
}

# One alternative for each construct that differs between the languages, or is not allowed.
_TOKEN = re.compile(
    r"""
      \\Q (?P<quoted> .*?) (?: \\E | \Z)
    | \\p \{ (?P<property> \w+) \}
    | \\k < (?P<backreference> [a-zA-Z][a-zA-Z0-9]*) >
    | \(\?< (?P<group> [a-zA-Z][a-zA-Z0-9]*) >
    | (?P<end> \\[zZ])
    | (?P<escape> \\ (?: [dDwWsSbBAtnrfa] | x[0-9a-fA-F]{2} | u[0-9a-fA-F]{4} | [^a-zA-Z0] ))
    | (?P<opening> \[\^? (?! \] ))
    | (?P<flags> \(\? [ims]+ \))
    | (?P<construct> \(\? (?: [:=!>] | <[=!] | [ims]+: ))
    | (?P<repetition> \{ \d+ (?: , \d* )? \})
    | (?P<foreign> \\ | \[ | \{ | \(\? )
    | (?P<plain> . )
    """,
    re.VERBOSE | re.DOTALL,
)


def translate(pattern: str) -> re.Pattern[str]:
    """A compiled pattern that finds the same in a topic's name as Java's.

    Raises UsageError if Java would not accept the pattern, or Python has nothing equal.
    """
    parts: list[str] = []
    in_class = False
    for token in _TOKEN.finditer(pattern):
        kind, text = token.lastgroup or "", token[0]
        in_class = _inside(kind, text, in_class, pattern, token.start())
        if kind == "flags" and token.start() and not in_class:
            raise _unable(pattern, token.start())
        parts.append(_in_python(kind, token, in_class, pattern))
    try:
        return re.compile("".join(parts), re.ASCII)
    except re.error as error:
        raise UsageError(f"subscribePattern {pattern!r} cannot be used: {error}") from error


def _inside(kind: str, text: str, in_class: bool, pattern: str, at: int) -> bool:
    """Whether a character class is open after this token."""
    if in_class:
        if kind in ("opening", "end", "backreference") or pattern.startswith("&&", at):
            raise _unable(pattern, at)
        return text != "]"
    return kind == "opening"


def _in_python(kind: str, token: re.Match[str], in_class: bool, pattern: str) -> str:
    text = token[0]
    if in_class and text.startswith(("(", "{")):
        return text  # plain characters there
    match kind:
        case "quoted":
            text = re.escape(token["quoted"])
        case "property" if token["property"] in _POSIX:
            letters = _POSIX[token["property"]]
            text = letters if in_class else f"[{letters}]"
        case "backreference":
            text = f"(?P={token['backreference']})"
        case "group":
            text = f"(?P<{token['group']}>"
        case "end":
            text = r"\Z"  # Java's \Z allows a newline at the end, but no topic's name has one
        case "property" | "foreign":
            raise _unable(pattern, token.start())
    return text


def _unable(pattern: str, at: int) -> UsageError:
    return UsageError(
        f"subscribePattern {pattern!r}: {pattern[at : at + 8]!r} is Java's alone or not valid;"
        " write the pattern without it, or list the topics with subscribe"
    )
