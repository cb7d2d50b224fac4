"""Names of statistics with arguments. Truth: the grammar, built up and taken apart again
(hypothesis); rows of the registry by hand; any text gives a statistic or a plain error."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from surveysynth.errors import InputError
from surveysynth.estimation.statistics import (
    STATISTICS,
    parse_call,
    quote,
    split,
    statistic_of,
    unquote,
)

TEXT = st.text(st.characters(exclude_categories=["Cs"]), max_size=12)


@given(st.lists(TEXT, min_size=1, max_size=4))
def test_arguments_come_back_whatever_they_say(texts: list[str]) -> None:
    written = f"word({', '.join(map(quote, texts))})"
    call = parse_call(written)
    assert call is not None
    word, arguments = call
    assert word == "word"
    assert [unquote(each, written) for each in arguments] == texts


@given(TEXT, TEXT)
def test_a_mark_in_quotes_or_brackets_parts_nothing(one: str, other: str) -> None:
    written = f"{quote(one)} - {quote(other)}"
    assert [unquote(each, "") for each in split(written, r"\s-\s", "")] == [one, other]


@given(st.one_of(TEXT, st.builds(lambda word, inner: f"{word}({inner})",
                                 st.sampled_from(["quantile", "ratio", "difference", "share"]),
                                 st.text('ab,:()" -/.05', max_size=14))))  # fmt: skip
def test_any_text_is_a_statistic_or_a_plain_error(name: str) -> None:
    told = ""
    try:
        made = statistic_of(name)
    except InputError as error:
        told = str(error)
    if told:
        assert repr(name) in told or f"'{name}'" in told
        return
    again = statistic_of(made.name)
    assert (again.name, again.stem, again.heading) == (made.name, made.stem, made.heading)
    assert made.stem.replace("_", "").isalnum()


@given(st.floats(min_value=0.0, max_value=1.0, exclude_min=True, exclude_max=True))
def test_a_quantile_of_any_share_has_one_name(p: float) -> None:
    made = statistic_of(f"quantile( {p!r} )")
    assert made.share_below == p
    assert statistic_of(made.name).share_below == p


def test_quantiles_are_called_what_they_are() -> None:
    assert statistic_of("quantile(.5)") == STATISTICS["median"]
    names = {0.25: "25th", 0.01: "1st", 0.12: "12th", 0.92: "92nd", 0.025: "2.5th", 0.031: "3.1th"}
    for p, word in names.items():
        made = statistic_of(f"quantile({p})")
        assert made.heading == f"Estimated {word} percentile"
        assert made.stem == f"percentiles_{100 * p:g}".replace(".", "_")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("quantile(0)", "one number between 0 and 1"),
        ("quantile(25)", "one number between 0 and 1"),
        ("quantile(0.1, 0.2)", "one number between 0 and 1"),
        ("quantile(nan)", "one number between 0 and 1"),
        ("quantile()", "one number between 0 and 1"),
        ("quantile(0.5", "expected a word and its arguments in brackets"),
        ("quantile(0.5))", "a bracket is closed that was not opened"),
        ("quantile((0.5)", "a bracket is not closed"),
        ('quantile("0.5)', "a quote is not closed"),
        ("quantiles(0.5)", "or one with arguments, as "),
    ],
)
def test_mistakes_are_told(name: str, words: str) -> None:
    with pytest.raises(InputError, match=words):
        statistic_of(name)


def test_a_word_without_brackets_is_no_call() -> None:
    assert parse_call("median") is None
    assert parse_call(" a_b ( c ) ") == ("a_b", ("c",))


def test_titles_keep_the_letters_of_names() -> None:
    made = statistic_of("ratio(median, Region: each / S)")
    assert made.title == "Ratios of medians, Region: each / S"
