"""The sentences for findings: each code has one, and a few are read here as people see them."""

import re
from pathlib import Path

import pytest

import seglake
from seglake.advice.finding import _SENTENCES, Finding

SOURCES = Path(seglake.__file__).parent
COUNTED = {"times-in-format"}  # `conclude` makes others of it
READ = [
    (
        Finding("all-times-in-format", "timestamp.field 'ts'",
                {"format": "epoch_ms", "given": "epoch_s"}, 500),
        (
            "timestamp.field 'ts': 500 rows can be read as epoch_ms, none as 'epoch_s'. Set "
            "timestamp.format = 'epoch_ms'."
        ),
    ),
    (
        Finding("absent-field", "key.fields", {"name": "usr", "near": ["user"], "has": ["user"]}),
        "key.fields 'usr' is not a field of any row. Did you mean 'user'?",
    ),
    (
        Finding("absent-field", "key.fields", {"name": "x", "near": [], "has": ["ts", "user"]}),
        "key.fields 'x' is not a field of any row. A row has 'ts', 'user'.",
    ),
    (Finding("other-files", "b.txt", count=1),
     "Left out 1 file of other kinds, such as b.txt."),
    (Finding("other-times", facts={"fields": ["a", "b"]}), "These fields also have times: a, b."),
]  # fmt: skip


@pytest.mark.parametrize(("finding", "sentence"), READ)
def test_findings_are_read_as_sentences(finding: Finding, sentence: str) -> None:
    assert str(finding) == sentence


def test_every_code_in_the_sources_has_a_sentence_and_none_is_left_over() -> None:
    text = "".join(path.read_text() for path in SOURCES.rglob("*.py") if path.name != "words.py")
    quoted = {*re.findall(r'"([a-z0-9]+(?:-[a-z0-9]+)*)"', text)} | {"january-1970-unknown-unit"}
    assert {*re.findall(r'Finding\(\s*"([a-z0-9-]+)"', text)} - COUNTED <= {*_SENTENCES}
    assert {*_SENTENCES} <= quoted


def test_sentences_end_and_say_no_more_than_a_template_can() -> None:
    for code, sentence in _SENTENCES.items():
        assert sentence.endswith((".", "}", "FILE`", "FILE")), code
