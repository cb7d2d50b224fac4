"""Error messages for common mistakes, word by word, and that they show no confidential value."""

import re
from pathlib import Path

import pytest

from tests.mistakes import GOLDEN, MISTAKES, PREAMBLE, Mistake, said
from tests.surveys import CANARIES

ENTRY = re.compile(
    r"^## (\d+)\. (.+)\n\n```text\n(surveysynth: (?s:.*?))```\n\nExit code (\d)\.$", re.MULTILINE
)
EXPECTED = {entry[2]: entry for entry in ENTRY.finditer(GOLDEN.read_text(encoding="utf-8"))}


def test_the_page_has_every_mistake_in_order() -> None:
    assert GOLDEN.read_text(encoding="utf-8").startswith(PREAMBLE)
    assert list(EXPECTED) == [mistake.title for mistake in MISTAKES]
    assert [int(entry[1]) for entry in EXPECTED.values()] == list(range(1, len(MISTAKES) + 1))
    assert len(MISTAKES) >= 30


@pytest.mark.parametrize("mistake", MISTAKES, ids=lambda mistake: mistake.title)
def test_a_mistake_is_told_in_the_words_of_the_page(mistake: Mistake, tmp_path: Path) -> None:
    code, message = said(mistake, tmp_path.resolve() / "folder")
    expected = EXPECTED[mistake.title]
    assert message == expected[3]
    assert code == int(expected[4]) == mistake.code
    assert not any(canary in message for canary in CANARIES)
