"""Sections of several tables.

Truth: the settings of each table written out whole as a specification of its own; every mistake
with its place in the file, told once; hypothesis: any names make folders or are refused."""

import json
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.config.spec import Spec, parse_spec, validate_spec
from surveysynth.config.tables_section import folded, table_name, unfolded
from surveysynth.errors import InputError

HEAD = """
[survey]
data = "survey.csv"
weight = "weight"
strata = "field"
[synthesizer]
outcome = ["salary", "status", "member"]
predictors = "field + gender + age"
[outcomes.salary]
kind = "continuous"
center = 20000
spread = 0.5
transform = "log"
[outcomes.weight]
center = 4
spread = 0.5
[outcomes.status]
kind = "categorical"
levels = ["works", "seeks", "rests"]
[outcomes.member]
kind = "binary"
[privacy]
mechanism = "noisy_statistics"
epsilon = 3
"""
SEVERAL = """
[all_tables]
title = "All of it"
statistics = ["count", "share"]
microdata_digits = 5
level = 0.9
[[tables]]
name = "one"
by = ["field"]
[[tables]]
name = "Two-2"
by = ["gender", "status"]
where = "age >= 18 and status in ('works', 'seeks')"
statistics = ["mean"]
title = "Of two"
"""


def test_each_table_has_its_own_keys_and_what_all_share() -> None:
    spec = parse_spec(HEAD + SEVERAL)
    one, two = spec.each_table
    whole = parse_spec(
        HEAD + "[tables]\nby = ['field']\nstatistics = ['count', 'share']\n"
        "microdata_digits = 5\nlevel = 0.9\n"
    )
    assert one.table == whole.table.model_copy(update={"name": "one"})
    assert (one.public_by, one.named_tables) == (("field",), False)
    assert two.all_tables.title == "Of two"
    assert one.all_tables.title == ""
    assert two.table.statistics == ("mean",)
    assert two.table.level == 0.9
    assert spec.all_tables.title == "All of it"
    assert spec.by == ("field", "gender", "status")
    assert spec.public_by == ("field", "gender")
    assert spec.statistics == ("count", "share", "mean")
    assert whole.each_table == (whole,)
    assert whole.by == ("field",)


def test_what_is_published_of_it_reads_back_the_same() -> None:
    spec = parse_spec(HEAD + SEVERAL)
    content = unfolded(spec.model_dump(mode="json", exclude={"path": True}, exclude_unset=True))
    again = validate_spec({**json.loads(json.dumps(content)), "path": spec.path}, "again")
    assert again == spec
    assert "microdata_digits" not in content["tables"][0]
    alone = {"tables": {"by": ["field"]}, "x": 1}
    assert unfolded(folded(alone)) == alone
    assert unfolded({"x": 1}) == folded({"x": 1}) == {"x": 1}


MISTAKES: list[tuple[str, str]] = [
    ("[[tables]]\nby = ['field']", "tables[1].name: missing; each of several tables needs a name"),
    ("[[tables]]\nname = 'a'\n[[tables]]\nname = 'A'",
     "tables[2].name: another table is also named 'A'"),
    ("[[tables]]\nname = 'a b'", "tables[1].name: expected a name of 1 to 63 letters"),
    ("[[tables]]\nname = '../x'", "tables[1].name: expected a name"),
    ("[tables]\nname = 'a'",
     "tables.name: only one of several [[tables]] has a name; leave it out"),
    ("[[tables]]\nname = 'a'\nstatistic = ['mean']",
     "tables[1].statistic: unknown key. Did you mean 'statistics'?"),
    ("[[tables]]\nname = 'a'\nmicrodata_digits = 5",
     "tables[1].microdata_digits: this key is for all tables; move it to [all_tables]"),
    ("[all_tables]\nwhere = 'age > 3'\n[[tables]]\nname = 'a'",
     "all_tables.where: this key belongs to one table; move it to one of [[tables]]"),
    ("[all_tables]\nlevel = 0.9\n[tables]\nby = ['field']",
     "all_tables: this section is for several [[tables]]; with one [tables], put its keys there"),
    ("[all_tables]\nlevel = 2\n[[tables]]\nname = 'a'\n[[tables]]\nname = 'b'",
     "all_tables.level: expected a number less than 1, got 2"),
    ("[[tables]]\nname = 'a'\nlevel = 'x'", "tables[1].level: expected a number, got 'x'"),
    ("[[tables]]\nname = 'a'\nby = ['salary']", "tables[1].by: 'salary' is an amount"),
    ("[several]\nx = 1", "several: unknown section"),
    ("[[tables]]\nname = 'a'\n[[tables]]\nname = 'b'\nby = ['field']\nlayout = 'crosstab'\n"
     "where = 'age > '", "tables[2].where: character 7: expected a column, a number or a text"),
    ("[tables]\nby = ['field']\nwhere = 'salary > 3'",
     "tables.where: character 1: 'salary' is an amount; a condition uses public columns"),
    ("[tables]\nby = ['field']\nwhere = 'feild == \"a\"'",
     "tables.where: character 1: 'feild' is not among the columns that the model knows ('field', "
     "'gender', 'age', 'status', 'member'). Did you mean 'field'?"),
    ("[tables]\nby = ['field']\nwhere = 'age > 1 and status == \"work\"'",
     "tables.where: character 13: 'work' is not among the levels of 'status', 'works', 'seeks', "
     "'rests'. Did you mean 'works'?"),
    ("[tables]\nby = ['field']\nwhere = 'status < 3'",
     "tables.where: character 1: 'status' is compared with a number, but 3 of its 3 levels"),
    ("[tables]\nlayout = 'crosstab'", "tables.layout: 'crosstab' needs a column in by"),
    ("[tables]\nby = ['field', 'n']",
     "tables.by: tables already have a column 'n'; rename the one in the data"),
    ("[tables]\nby = ['estimate']", "tables.by: tables already have a column 'estimate'"),
    ("[tables]\nby = ['sample']",
     "tables.by: comparisons with the confidential sample already have a column 'sample'"),
    ("[[tables]]\nname = 'a'\nby = ['field']\n[[tables]]\nname = 'b'\nby = ['table']",
     "tables[2].by: several tables already have a column 'table'"),
    ("[[tables]]\nname = 'a'\nby = ['level']\n[[tables]]\nname = 'b'\nstatistics = ['share']",
     "tables[1].by: tables of shares already have a column 'level'"),
    ("[tables]\nby = ['field']\nwhere = 'status in (\"works\", \"work\")'",
     "tables.where: character 1: 'work' is not among the levels"),
    ("[tables]\nby = ['field']\nwhere = 'age > 18 and member == 2'",
     "tables.where: character 14: 2 is not among the levels of 'member', '0', '1'."),
    ("[tables]\nby = ['field']\nwhere = 'member not in (0, 7)'",
     "tables.where: character 1: 7 is not among the levels of 'member', '0', '1'."),
    ("[tables]\nby = ['field']\nwhere = 'member > 3'",
     "tables.where: character 1: no level of 'member' satisfies this: '0', '1'."),
    ("[tables]\nby = ['field']\nwhere = 'weight > 10'",
     "tables.where: character 1: 'weight' is the weight, which is confidential; a condition uses"),
    ("[[tables]]\nname = 'com1'", "tables[1].name: 'com1' is a device on Windows"),
    ("[[tables]]\nname = 'NUL'", "tables[1].name: 'NUL' is a device on Windows"),
    ("tables = []", "tables: expected at least one table"),
]  # fmt: skip


@pytest.mark.parametrize(("text", "words"), MISTAKES, ids=[words for _, words in MISTAKES])
def test_a_mistake_is_told_once_at_its_place(text: str, words: str) -> None:
    content = f"{text}\n{HEAD}" if text.startswith("tables") else f"{HEAD}{text}\n"
    with pytest.raises(InputError) as caught:
        parse_spec(content)
    message = str(caught.value)
    assert words in message
    assert message.count(words) == 1
    if words.startswith("all_tables.level"):
        assert "tables[" not in message


def test_a_condition_that_some_level_satisfies_is_taken() -> None:
    for where in ("member == 1", "member >= 1", "member != 0 or status not in ('works')"):
        text = f'{HEAD}[tables]\nby = ["n_of_units", "table", "level"]\nwhere = "{where}"\n'
        assert parse_spec(text).table.where == where


@pytest.mark.parametrize(
    ("text", "absent", "words"),
    [
        ("[[tables]]\nname = 'a'\nfoo = 1", ("microdata",), "[[tables]]: 'name'"),
        ("[tables]\nfoo = 1", ("name",), "[tables]: 'by', 'where'"),
        ("[all_tables]\nfoo = 1\n[[tables]]\nname = 'a'", ("name", "where"), "[all_tables]: 'by'"),
    ],
)
def test_known_keys_are_those_that_are_taken_there(
    text: str, absent: tuple[str, ...], words: str
) -> None:
    with pytest.raises(InputError) as caught:
        parse_spec(f"{HEAD}{text}\n")
    known = str(caught.value).split(" Known in ")[1]
    assert known.startswith(words)
    assert not any(f"'{key}" in known for key in absent)


@given(st.text(max_size=70))
def test_a_name_is_a_folder_that_every_system_has_or_is_refused(name: str) -> None:
    try:
        made = table_name(name)
    except ValueError:
        return
    assert made == name
    assert Path("tables", name).name == name
    assert name.isascii()
    assert "." not in name
    assert 1 <= len(name) <= 63


@given(st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2)
    | st.dictionaries(st.sampled_from(["tables", "all_tables", "name", "by", "x"]), inner,
                      max_size=3),
    max_leaves=8,
))  # fmt: skip
def test_any_sections_are_folded_or_refused(given_: Any) -> None:
    try:
        made = folded(given_)
    except ValueError:
        return
    if isinstance(given_, dict) and isinstance(given_.get("tables"), list):
        assert len(made["tables"]) == len(given_["tables"])
    elif isinstance(given_, dict) and "tables" in given_:
        assert made == {**given_, "tables": (given_["tables"],)}
    else:
        assert made == given_
    assert Spec.model_fields.keys() >= {"tables", "shared"}
