"""The words of the pages for readers: American spelling, English idiom, no claim known to be
false. Truth: a list of words by hand, each planted and found."""

import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[1]
PAGES = [
    *sorted(ROOT.glob("*.md")),
    *sorted((ROOT / ".github").glob("*.md")),
    *sorted((ROOT / "vignettes").glob("*.md")),
    *(ROOT / "vignettes" / "reference" / name for name in ("cite.md", "commands.md")),
    ROOT / "vignettes" / "technical" / "architecture.md",
]
#: The guide, in lines. The reference of keys is generated and does not count.
MOST_LINES = 2_000

BRITISH = (
    r"behaviours?|cancelled|catalogues?|centred?s?|colours?|favours?|grey|labelled|licence"
    r"|linearis\w+|modell(?:ed|ing)|neighbours?|organis\w+|recognis\w+|summaris\w+|synthesis(?:e|ed)"
    r"|travell\w+|whilst"
)
IDIOM = (
    r"in (?:the )?place of|(?:is|are|was) told|comes? of|asked of|as it is|let it be|the former"
    r"|stands? in for|law (?!of total variance)of"
)
FALSE = (
    r"in no measured setting|comes on top|no record moved more|proved for the pseudo-posterior"
    r"|sampling amplifies"
)
AVOIDED = re.compile(rf"\b(?:{BRITISH}|{IDIOM}|{FALSE})\b", re.IGNORECASE)
CODE = re.compile(r"^```.*?^```$|`[^`\n]*`|\]\([^)]*\)", re.MULTILINE | re.DOTALL)


def avoided(text: str) -> list[str]:
    """Return the words to avoid in prose; code, keys and links are not looked at."""
    return AVOIDED.findall(CODE.sub("", text))


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.relative_to(ROOT).as_posix())
def test_pages_avoid_these_words(page: Path) -> None:
    assert avoided(page.read_text(encoding="utf-8")) == []


@pytest.mark.parametrize(
    "planted",
    ["A labelled colour.", "This is told below.", "a draw in place of two", "the law of amounts",
     "In no measured setting did one record move more.", "what sampling adds comes on top"],
)  # fmt: skip
def test_planted_words_are_found(planted: str) -> None:
    assert avoided(planted)
    assert not avoided(f"`{planted}`")
    assert not avoided("the law of total variance, in American color")


def test_the_guide_stays_short() -> None:
    guide = [*(ROOT / "vignettes").glob("*.md"), ROOT / "vignettes" / "reference" / "cite.md"]
    assert sum(len(page.read_text(encoding="utf-8").splitlines()) for page in guide) <= MOST_LINES
    assert len((ROOT / "README.md").read_text(encoding="utf-8").splitlines()) <= 110
    assert len((ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8").splitlines()) <= 90
