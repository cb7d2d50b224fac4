"""The committed list of mutations is of this tree: every old text is in one place, every named test
is there, and the kept result is of the list, nine of ten killed by an independent truth."""

import ast
import json
from pathlib import Path

import pytest

from tests.long_runs.mutation import RESULT, ROOT, Mutation, changed, mutations, summary

LISTED = mutations()


@pytest.mark.parametrize("mutation", LISTED, ids=[each.name for each in LISTED])
def test_a_change_is_in_one_place_and_is_python(mutation: Mutation) -> None:
    text = (ROOT / mutation.file).read_text(encoding="utf-8")
    ast.parse(changed(text, mutation))


def test_every_named_test_is_there() -> None:
    for test in {test for each in LISTED for test in each.tests}:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not name or f"def {name}(" in text, test


def test_a_text_that_is_elsewhere_too_is_told() -> None:
    mutation = Mutation("twice", "x.py", "a", "b", ("tests/x.py",))
    assert changed("xay", mutation) == "xby"
    for text in ("aa", "none"):
        with pytest.raises(ValueError, match="twice: . places" if text == "aa" else "0 places"):
            changed(text.replace("none", "zzz"), mutation)


def test_the_kept_result_is_of_the_list_and_good_enough() -> None:
    kept = json.loads(Path(RESULT).read_text(encoding="utf-8"))
    assert {each["name"] for each in kept["results"]} == {each.name for each in LISTED}
    told = {key: kept[key] for key in summary(kept["results"])}
    assert told == summary(kept["results"])
    assert kept["killed_by_an_independent_truth"] >= 0.9 * len(LISTED)
