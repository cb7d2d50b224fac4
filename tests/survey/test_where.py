"""The language of conditions.

Truth: Python itself, which writes these conditions alike: its own ``eval`` on values of one record
(hypothesis makes the conditions; only the test evaluates). Any other text is refused with a place.
"""

import re

import numpy as np
import pandas as pd
import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.config.sections import LabelSection
from surveysynth.errors import InputError
from surveysynth.estimation.subpopulation import Subpopulation
from surveysynth.release.tables.layout import Labels, where_words
from surveysynth.survey.where import (
    DEEPEST,
    LONGEST,
    Relation,
    columns_of,
    parse_where,
    relations,
)

label_of = LabelSection.model_construct

#: Nobody is inside some conditions, which is refused of a survey: one record is always there.
RECORDS = [(age, field) for age in (-3, 0, 17, 18, 64.5) for field in ("A", "b b", "it's", "18")]
FRAME = pd.DataFrame(RECORDS, columns=["age", "field"]).astype({"age": float})

numbers = st.integers(-20, 70) | st.floats(-5, 70, allow_nan=False).map(lambda x: round(x, 2))
signs = st.sampled_from(["==", "!=", "<", "<=", ">", ">="])
texts = st.sampled_from(["A", "b b", "it's", "18"]).map(lambda text: f'"{text}"')
of_numbers = (
    st.tuples(signs, numbers).map(lambda pair: f"age {pair[0]} {pair[1]!r}")
    | st.tuples(numbers, signs, signs, numbers).map(
        lambda x: f"{x[0]!r} {x[1]} age {x[2]} {x[3]!r}"
    )
    | st.lists(numbers, min_size=1, max_size=3).map(
        lambda x: f"age in ({', '.join(map(repr, x))},)"
    )
)
of_texts = (
    st.tuples(st.sampled_from(["==", "!="]), texts).map(lambda pair: f"field {pair[0]} {pair[1]}")
    | st.tuples(st.sampled_from(["in", "not in"]), st.lists(texts, min_size=1, max_size=3)).map(
        lambda pair: f"field {pair[0]} [{', '.join(pair[1])}]"
    )
)
conditions = st.recursive(
    of_numbers | of_texts,
    lambda inner: (
        inner.map(lambda text: f"not {text}" if " and " not in text and " or " not in text
                  else f"not ({text})")
        | inner.map(lambda text: f"({text})")
        | st.tuples(inner, st.sampled_from([" and ", " or ", "  or\n "]), inner).map("".join)
    ),
    max_leaves=6,
)


def held(text: str) -> list[bool]:
    """Of each record; a part that always holds keeps the subpopulation from being empty."""
    inside = Subpopulation(parse_where(text), FRAME, ()).inside()
    return [bool(each) for each in inside]


@given(conditions)
def test_conditions_mean_what_python_means_by_them(text: str) -> None:
    for each in relations(parse_where(text)):
        assert re.match(r"age|field|-?\d|\.\d", text[each.place - 1 :])
    # Line ends are blanks here; Python wants them within parentheses.
    expected = [
        bool(eval(f"({text})", {"__builtins__": {}}, {"age": age, "field": field}))
        for age, field in RECORDS
    ]
    if any(expected):
        assert held(text) == expected
    else:
        with pytest.raises(InputError, match="no record of the survey is in the subpopulation"):
            held(text)


@given(st.text(max_size=60) | st.text(st.sampled_from("aA1.\"'`()[],<>=! \tnotandri"), max_size=40))
def test_any_text_is_a_condition_or_refused_with_a_place(text: str) -> None:
    try:
        parse_where(text)
    except InputError as error:
        message = str(error)
    else:
        return
    assert re.match(r"character \d+: ", message)


@pytest.mark.parametrize(
    "text",
    [
        "__import__('os').system('x') == 1", "age.real == 3", "(lambda: 1)() == 1", "age == age",
        "age + 1 == 3", "f'{age}' == 'x'", "age[0] == 1", "age if age else age", "[x for x in age]",
        "age is 3", "age == 0x10", "age == 1_000", "age == 1j", "age == True", "age := 3",
    ],
)  # fmt: skip
def test_what_a_program_could_do_is_not_in_the_language(text: str) -> None:
    with pytest.raises(InputError, match="character "):
        parse_where(text)


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("age = 3", "character 5: '=' is not part of a condition; write =="),
        ("age > 3 & field == 'A'", "character 9: '&' is not part of a condition; write and"),
        ("age > 3 AND age < 5", "character 9: expected and, or, or the end, got 'AND'. Write and"),
        ("field == Biology", "character 1: expected a column on one side of == and a number or"),
        ("field < 'A'", "character 1: < compares numbers, got the text 'A'"),
        ("age in ()", "character 9: expected a number or a text in quotes, got ')'"),
        ("age in 3", "character 8: expected a list in parentheses"),
        ("age in (1, 'b')", "character 8: expected a list of numbers or of texts in quotes, not"),
        ("age not == 3", "character 9: expected in after not"),
        ("(age > 3", "character 9: expected and, or, or ), got the end"),
        ("age >", "character 6: expected a column, a number or a text in quotes, got the end"),
        ("field == 'A", "character 10: a ' is opened and not closed"),
        ("age == 1e999", "character 8: expected a finite number"),
        ("age <> 3", "character 5: '<>' is not part of a condition; write !="),
        ("a > 1 and a.b == 1", "character 12: 'a' is followed by '.'; put a column whose name is "
         "not a plain word in backquotes, such as `a.b`"),
        ("post-code == 1", "is followed by '-'; put a column whose name is not a plain word in "
         "backquotes, such as `post-code`"),
        ("age == .", "character 8: expected a number such as 18"),
        ("3age > 1", "character 1: expected a number such as 18"),
        ("not " * DEEPEST + "age > 1", "nested parentheses and nots"),
        ("(" * 400 + "age > 1" + ")" * 400, "nested parentheses and nots"),
        ("age > 1 or " * LONGEST + "age > 1", "at most 2,000 characters"),
        ("", "character 1: expected a column"),
    ],
)
def test_mistakes_are_reported_with_their_place_and_remedy(text: str, words: str) -> None:
    with pytest.raises(InputError) as caught:
        parse_where(text)
    assert words in str(caught.value)


def test_names_that_are_no_words_stand_in_backquotes() -> None:
    assert parse_where("`age group` in ('a',)") == Relation("age group", "in", ("a",), 1)
    assert columns_of(parse_where("`and` == 1 or größe > 2")) == ("and", "größe")


def test_conditions_in_words_have_titles_and_labels() -> None:
    labels = Labels({
        "f": label_of(title="Field", levels={"1": "Biology", "2": "Physics"}),
        "age": label_of(title="Age"),
    })  # fmt: skip
    words = where_words("18 <= age and (f in ('1', '2', '9') or not (f != '1'))", labels)
    assert words == (
        "Age at least 18 and (Field is Biology, Physics or 9 or not (Field is not Biology))"
    )
    assert where_words("f == 2", labels) == "Field is Physics"
    assert np.array_equal(held("age == 18"), FRAME["age"] == 18)
