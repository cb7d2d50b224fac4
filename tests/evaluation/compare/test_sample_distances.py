"""Distances of releases from the sample of real files. Truth: the committed releases, with medians
and means written out; the documents are held against these."""

import json
from typing import Any

import numpy as np
import pytest

from tests.long_runs.sample_distances import (
    BEGIN,
    END,
    FILES,
    GOLDEN,
    METHODS,
    PAGES,
    STATISTICS,
    page_lines,
    with_table,
)

RELEASES: list[dict[str, Any]] = json.loads(GOLDEN.read_text(encoding="utf-8"))["releases"]


def test_every_file_was_released_by_every_method() -> None:
    """As often by each, so that means over releases compare."""
    found = {(each["file"], each["method"]): 0 for each in RELEASES}
    for each in RELEASES:
        found[each["file"], each["method"]] += 1
    assert set(found) == {(file, method) for file in FILES for method in METHODS}
    assert len(set(found.values())) == 1
    assert min(found.values()) >= 2


@pytest.mark.parametrize("page", PAGES, ids=lambda path: path.stem)
def test_documents_have_the_distances_of_the_releases(page: Any) -> None:
    text = page.read_text(encoding="utf-8")
    assert with_table(text, page_lines(RELEASES, PAGES[page])) == text
    changed = [dict(each) for each in RELEASES]
    changed[0]["mean"] = {**changed[0]["mean"], "largest": changed[0]["mean"]["largest"] + 1.0}
    assert with_table(text, page_lines(changed, PAGES[page])) != text


@pytest.mark.parametrize("method", ["noisy 3.6", "noisy 10.8"])
def test_the_sentence_counts_what_the_releases_say(method: str) -> None:
    counted = []
    for name in STATISTICS:
        nearer = 0
        for file in FILES:
            noisy, pseudo = (
                np.mean([r[name]["median"] for r in RELEASES
                         if (r["file"], r["method"]) == (file, each) and "refused" not in r])
                for each in (method, "pseudo-posterior 10.8")
            )  # fmt: skip
            nearer += bool(noisy < pseudo)
        counted.append(f"for {name}s on {nearer} of {len(FILES)} files")
    sentence = f"at {method.removeprefix('noisy ')}, {' and '.join(counted)}"
    assert sentence in "\n".join(page_lines(RELEASES, tuple(METHODS)))


def test_a_page_keeps_all_but_the_table() -> None:
    text = f"before\n{BEGIN}\n\nold\n\n{END}\nafter"
    assert with_table(text, ["new"]) == f"before\n{BEGIN}\n\nnew\n\n{END}\nafter"
    with pytest.raises(AssertionError):
        with_table("no marks", ["new"])
