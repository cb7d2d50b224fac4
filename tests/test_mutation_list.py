"""The committed list of mutations fits this tree: every change has one place, every named test
exists, and the kept result is of the list, nine of ten killed by an independent truth."""

import ast
import json
from pathlib import Path

import pytest

from tests.long_runs.mutation import (
    RESULT,
    ROOT,
    Mutation,
    changed,
    file_of,
    mutations,
    path_of_test,
    summary,
)

LISTED = mutations()


@pytest.mark.parametrize("mutation", LISTED, ids=[each.name for each in LISTED])
def test_a_change_is_in_one_place_and_is_python(mutation: Mutation) -> None:
    text = (ROOT / file_of(mutation)).read_text(encoding="utf-8")
    ast.parse(changed(text, mutation))


def test_every_named_test_is_there() -> None:
    for test in {test for each in LISTED for test in each.tests}:
        file, _, name = path_of_test(test).partition("::")
        text = (ROOT / file).read_text(encoding="utf-8")
        assert not name or f"def {name}(" in text, test


def test_a_change_is_made_in_its_function_alone() -> None:
    mutation = Mutation("half", "mod:f", "a / 2", "a", ("test_x.py",))
    other = "def g(a):\n    return a / 2\n"
    text = f"{other}\n@cache\ndef f(a):\n    return a / 2\n\n{other}"
    assert changed(text, mutation) == f"{other}\n@cache\ndef f(a):\n    return a\n\n{other}"
    for function, count in (("def f(a):\n    return a / 2 + a / 2\n", 2), ("", 0)):
        with pytest.raises(ValueError, match=f"half: {count} places in mod:f, expected 1"):
            changed(other + function, mutation)


def test_a_function_is_found_wherever_it_is_defined(tmp_path: Path) -> None:
    sources = {"one.py": "def f(): pass\nclass C:\n    x = 1\n", "two.py": "def f(): pass\nY = 2\n"}
    (tmp_path / "surveysynth").mkdir()
    for name, text in sources.items():
        (tmp_path / "surveysynth" / name).write_text(text)

    def found(function: str) -> str:
        return file_of(Mutation("m", function, "1", "2", ("test_x.py",)), tmp_path).name

    assert [found(each) for each in ("old:Y", "old:C.x", "two:f", "one:f")] == [
        "two.py", "one.py", "two.py", "one.py"
    ]  # fmt: skip
    for function, count in (("old:f", 0), ("one:g", 0)):
        with pytest.raises(ValueError, match=f"{count} files define {function}"):
            found(function)


def test_the_kept_result_is_of_the_list_and_good_enough() -> None:
    kept = json.loads(Path(RESULT).read_text(encoding="utf-8"))
    assert {each["name"] for each in kept["results"]} == {each.name for each in LISTED}
    counts = summary(kept["results"])
    assert {key: kept[key] for key in counts} == counts
    assert kept["killed_by_an_independent_truth"] >= 0.9 * len(LISTED)
