"""The Python interface: private tables in one call, and the commands as functions."""

import pickle
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.errors import InputError
from surveysynth.release.microdata import Digits
from tests.survey.messages import checked
from tests.surveys import (
    CANARIES,
    CANARY_OUTCOME,
    CANARY_WEIGHT,
    good,
    make_survey,
    pseudo_example,
)  # fmt: skip

#: Fits of about a second; their tables are never private.
QUICK: dict[str, Any] = {
    "mechanism": "pseudo_posterior", "epsilon": 10.8, "inference": "paper", "seed": 5, "m": 1,
}  # fmt: skip


pytestmark = pytest.mark.xdist_group("api")  # what its tests share is made once


@pytest.fixture(scope="module")
def survey() -> ss.Survey:
    return ss.example_survey(n=200)


@pytest.fixture(scope="module")
def made(survey: ss.Survey) -> ss.PrivateTables:
    return ss.tables(survey, **QUICK)


def assembled(
    survey: ss.Survey, rng: np.random.Generator, statistics: tuple[str, ...], replicates: int
) -> pd.DataFrame:
    """What ``tables`` does, by hand: estimate and se of each statistic in each row."""
    settings = ss.MechanismSettings(epsilon=10.8, m=2)
    design, model = settings.prepared(survey.design), ss.get_model("normal")
    private, _ = ss.run_mechanism(model, design, survey.confidential, settings, rng)
    draws = ss.debias_draws(model, design, private, rng).draws
    domains = ss.build_domains(design.frame, design.by, design.levels)
    sample = ss.SampleDesign.from_public(design)
    datasets = [
        Digits(design, 6).rounded(dataset)
        for dataset in ss.synthesize(
            model, design, draws, replicates_per_draw=replicates, rng=rng,
            scale_to=design.population_size,
        )
    ]  # fmt: skip
    parts = []
    for statistic in statistics:
        words: dict[str, Any] = {
            "statistic": statistic, "linearisation": "ratio",
            "population_size": design.population_size,
        }  # fmt: skip
        pairs = [
            ss.estimate_domains(
                domains, sample, weight=data.variance_weight, outcome=data.variance_outcome[:, 0],
                **words,
            )
            for data in datasets
        ]  # fmt: skip
        # Of the datasets stacked: a ratio of sums, and what each dataset adds to it.
        a, n = (
            np.array([
                ss.estimate_domains(
                    domains, sample, weight=data.weight, outcome=data.outcome[:, 0],
                    **{**words, "statistic": sums},
                ).estimate
                for data in datasets
            ]).reshape(2, replicates, -1)
            for sums in ("total", "count")
        )  # fmt: skip
        with np.errstate(invalid="ignore"):
            ratio = a.sum((0, 1)) / n.sum((0, 1))
            e = ratio + (a - ratio * n) / n.mean((0, 1))
        estimates = e if statistic == "mean" else n
        variances = np.array([each.variance for each in pairs]).reshape(2, replicates, -1)
        table = ss.combine(estimates, variances, sample.degrees_of_freedom)
        lower, upper = ss.t_interval(table, 0.9)
        parts.append(
            pd.DataFrame(
                {"estimate": table.estimate, "se": table.standard_error, "df": table.df,
                 "ci_lower": lower, "ci_upper": upper}
            )
        )  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def test_one_call_is_the_assembly(survey: ss.Survey) -> None:
    """The same numbers from the same random numbers."""
    by_hand = assembled(survey, np.random.default_rng(8), ("count", "mean"), replicates=2)
    once = ss.tables(
        survey, "normal", 10.8, mechanism="pseudo_posterior", m=2, replicates_per_draw=2, level=0.9,
        seed=np.random.default_rng(8),
    )  # fmt: skip
    numbers = once.frame[list(by_hand)]
    # A row of one record has no standard error.
    shown = once.frame["n"] > 1
    pd.testing.assert_frame_equal(numbers[shown], by_hand[shown], rtol=1e-12)
    assert shown.sum() > 40


@pytest.mark.parametrize("mechanism", ["pseudo_posterior", "noisy_statistics"])
def test_tables_are_those_of_a_release_with_this_seed(mechanism: str, tmp_path: Path) -> None:
    """Whichever mechanism; the release writes its files from a specification."""
    lines, sections, options, draws = "", {}, {}, 2
    path = pseudo_example(tmp_path / "ex", n=200)
    inference = "paper" if mechanism == "pseudo_posterior" else "debiased"
    if mechanism == "noisy_statistics":
        lines = "replicates_per_draw = 2\n[outcomes.salary]\ncenter = 90000.0\nspread = 0.5\n"
        sections = {"outcomes": {"salary": {"center": 90000.0, "spread": 0.5}}}
        options, draws = {"chains": 8, "draws": 60, "warmup": 60}, 10
    keys = "".join(f"{name} = {value}\n" for name, value in options.items())
    key = f'{keys}inference = "{inference}"'
    text = path.read_text().replace("[privacy]", f"{key}\n\n[privacy]", 1)
    text = re.sub(r"^m = \d+", f"m = {draws}", text, flags=re.MULTILINE)
    text = text.replace("pseudo_posterior", mechanism)
    text = text.replace('flags = "nchs"', 'flags = "none"')
    path.write_text(text.replace("[tables]", f"{lines}\n[tables]", 1))
    ss.release(path, tmp_path / "out", seed=3)
    written = ss.read_release(tmp_path / "out").tables
    replicates = 2 if mechanism == "noisy_statistics" else None
    survey = ss.read_survey(ss.load_spec(path))
    made = ss.tables(
        survey, mechanism=mechanism, epsilon=10.8, seed=3, m=draws, inference=inference,
        sections=sections, replicates_per_draw=replicates, options=options,
    )  # fmt: skip
    for statistic, stem in (("count", "counts"), ("mean", "means")):
        mine = made[statistic].frame[written[stem].columns]
        pd.testing.assert_frame_equal(mine, written[stem], check_dtype=False, check_exact=True)
    assert "README" not in made._repr_html_() + repr(made)


def test_the_frame_has_all_tables(made: ss.PrivateTables, survey: ss.Survey) -> None:
    frame = made.frame
    assert list(frame.columns[:5]) == ["statistic", "outcome", "field", "gender", "is_margin"]
    assert frame["statistic"].tolist() == ["count"] * 27 + ["mean"] * 27
    assert set(frame["outcome"]) == {"", "salary"}
    sizes = survey.design.frame.groupby(["field", "gender"]).size()
    cells = frame[(frame["statistic"] == "mean") & ~frame["is_margin"] & (frame["n"] > 0)]
    assert cells.set_index(["field", "gender"])["n"].to_dict() == sizes.to_dict()
    assert made.statistics == ("count", "mean")
    assert made["mean"].frame.equals(frame.iloc[27:].reset_index(drop=True))
    with pytest.raises(InputError, match=r"no table of 'maen'; there are count and mean.*'mean'"):
        made["maen"]


def test_a_notebook_shows_tables_and_figures(made: ss.PrivateTables) -> None:
    html = made._repr_html_()
    assert html.count("<table") == 2
    assert html == made._repr_html_()
    ids = {part.partition('"')[0] for part in html.split('<div id="')[1:]}
    assert len(ids) == 2
    # Nothing outside its own tables is styled.
    rules = html[html.index("<style>") :]
    assert "\nbody {" not in rules
    assert " body {" not in rules
    assert "\n.banner" not in rules
    figure = made.plot()
    assert "Mean salary" in figure.get_suptitle()
    assert len(figure.axes[0].get_yticklabels()) == 27
    assert "salary" not in made.plot("count").get_suptitle()
    assert figure._repr_png_().startswith(b"\x89PNG")  # type: ignore[attr-defined]


def test_labels_are_those_of_a_specification() -> None:
    labels = {
        "salary": {"title": "Annual salary", "unit": "dollars"},
        "gender": {"levels": {"M": "Men", "F": "Women"}, "margin": "Everyone"},
    }
    made = ss.tables(make_survey(), by="gender", labels=labels, **QUICK)
    html = made._repr_html_()
    for word in ("Mean annual salary", "In dollars", "Women", "Everyone"):
        assert word in html
    assert made["count"].frame["gender"].tolist() == ["Everyone", "M", "F"]


def test_a_seed_makes_a_test_that_says_so_everywhere(made: ss.PrivateTables) -> None:
    assert not made.private
    for text in (repr(made), made.statement, made._repr_html_(), made["mean"]._repr_html_()):
        assert "NOT PRIVATE" in text
    assert "NOT PRIVATE" in made.plot().get_supxlabel()


def test_without_a_seed_random_numbers_are_the_system_s(survey: ss.Survey) -> None:
    # One of 300 runs with the default of 250 draws is refused: too few effective draws.
    options, chance = {"draws": 750}, {**QUICK, "seed": None}
    one, other = (
        ss.tables(survey, "normal", by="gender", options=options, **chance) for _ in range(2)
    )
    assert one.private
    for text in (repr(one), one.statement, one._repr_html_(), one.plot().get_supxlabel()):
        assert "NOT PRIVATE" not in text
        assert "a test" not in text
    assert "epsilon at most 10.8" in one.statement
    assert not np.allclose(one["mean"].frame["estimate"], other["mean"].frame["estimate"])


def test_nothing_confidential_is_held() -> None:
    made = ss.tables(make_survey(), **QUICK)
    pickled = pickle.dumps(made)
    figure = repr(made.plot()._repr_png_())  # type: ignore[attr-defined]
    for value in (CANARY_OUTCOME, CANARY_WEIGHT):
        for form in (value, np.log(value)):
            assert np.float64(form).tobytes() not in pickled
    texts = (repr(made), made.statement, made._repr_html_(), made.frame.to_csv(), figure)
    for canary in CANARIES:
        assert canary.encode() not in pickled
        assert not any(canary in text for text in texts)
    assert repr(pickle.loads(pickled)) == repr(made)
    # A survey, which the same search would find, cannot be pickled at all.
    with pytest.raises(TypeError, match="cannot be pickled"):
        pickle.dumps(make_survey())


def test_tables_by_other_columns_of_the_model(
    survey: ss.Survey, made: ss.PrivateTables
) -> None:
    """Strata are in the default formula, hence may be tabled whether the survey named them or not;
    the mechanism does not look at the columns of the tables."""
    confidential = survey.confidential
    narrow = ss.Survey(survey.design.with_by(["gender"]), confidential)
    both = ss.tables(narrow, by=["field", "gender"], **QUICK)
    pd.testing.assert_frame_equal(both.frame, made.frame, check_exact=True)
    turned = ss.tables(survey, by=("gender", "field"), **QUICK).frame
    keys = ["statistic", "field", "gender"]
    pd.testing.assert_series_equal(
        turned.set_index(keys)["estimate"].sort_index(),
        made.frame.set_index(keys)["estimate"].sort_index(),
        rtol=1e-12,
    )
    assert len(ss.tables(survey, by=(), **QUICK).frame) == 2


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"by": "gendre"}, r"'gendre' is not among the public columns .*Did you mean 'gender'"),
        ({"by": "salary"}, "of this survey: tables.by: 'salary' is an amount"),
        ({"by": "weight"}, "by: 'weight' is confidential"),
        ({"by": "note"}, r"'note' is not in the model \(.*\).* Create the survey again"),
        ({"by": "age"}, "'age' is a number in the model, not a classification"),
        ({"by": ["gender", "gender"]}, "repeated"),
        ({"epsilon": -1.0}, r"privacy.epsilon: expected a number greater than 0, got -1.0"),
        ({"model": "fbz"}, r"'fbz'.*Did you mean 'fb"),
        ({"model": "fbp"}, "population_size"),
        ({"statistics": "maen"}, r"tables.statistics.*'maen'.*Did you mean 'mean'"),
        ({"statistics": "proportion"}, "of 0 and 1"),
        ({"level": 95.0}, "tables.level: expected a number less than 1"),
        ({"m": 0}, "privacy.m"),
        ({"priors": {"ljk": 2.0}}, r"unknown name 'ljk'.*Did you mean 'lkj'"),
        ({"options": {"drawss": 10}}, r"synthesizer.drawss: unknown key.*Did you mean 'draws'"),
        ({"options": {"transform": "log"}}, r"Set transform in \[outcomes.NAME\]"),
        ({"sections": {"survey": {"weight": "w"}}}, "the survey sets this"),
        ({"sections": {"privacy": {"m": 2}}, "m": 2}, "privacy.m: tables has an argument"),
        ({"sections": {"privcay": {}}}, "privcay: unknown section"),
        ({"labels": {"gendr": {}}}, r"no column 'gendr'.*Did you mean 'gender'"),
        ({"labels": {"gender": {"levels": {"M": "Men"}}}}, "have a level that is not listed"),
        ({"labels": {"gender": {"margin": "M"}}}, "'M', which is also the name of its margin"),
        ({"several": "x"}, r"several: expected a list of mappings, one per table.*, got 'x'\."),
        ({"several": {"name": "x"}}, r"expected a list of mappings.*, got a table of keys\."),
        ({"several": ["x"]}, r"expected a list of mappings.*, got 'x' in the list\."),
        ({"several": [{"name": "x"}, None]}, r"a list of mappings.*, got None in the list"),
        ({"several": [{"name": "x", "by": 3}]}, r"several\[1\].by: expected a list, got 3"),
        ({"several": [{"name": "x", "level": 3}]}, r"several\[1\].level: expected a number less"),
        ({"several": [{"name": "x"}], "level": 95.0}, r"survey: tables.level: expected a number"),
        ({"several": [{"name": "x"}], "where": "age > 3"},
         r"survey: tables.where: this key belongs to one table; move it to one of several"),
        ({"several": [{"name": "x", "foo": 3}]}, r"several\[1\].foo: unknown key.*in several:"),
        ({"several": [{"name": "x", "formats": ["csv"]}]},
         r"several\[1\].formats: tables in memory are not written to files; leave it out"),
        ({"by": ["gender", "n"]}, "tables.by: tables already have a column 'n'"),
        ({"seed": -1}, "seed must be 0 or a positive"),
    ],
)
def test_a_wrong_argument_is_told_with_its_remedy(changes: dict[str, Any], told: str) -> None:
    survey = make_survey(
        by=["gender"], predictors="gender + age + field", public_columns=["note"]
    )
    with pytest.raises(InputError) as caught:
        ss.tables(survey, **{**QUICK, **changes})
    assert re.search(told, checked(caught.value))


def test_a_frame_is_no_survey() -> None:
    told = r"tables: expected a Survey, got DataFrame\. .*Survey\.from_frame"
    with pytest.raises(InputError, match=told):
        ss.tables(good(), **QUICK)  # type: ignore[arg-type]


def test_a_binary_outcome_is_asked_for() -> None:
    frame = good().assign(salary=lambda each: np.where(each["salary"] > 20_000, 1.0, 2.0))
    survey = ss.Survey.from_frame(
        frame, outcome="salary", weight="weight", strata="field", by=["gender"],
        transforms=ss.Transform("identity"),
    )  # fmt: skip
    with pytest.raises(InputError, match=r"'proportion' needs an outcome of 0 and 1; .* records"):
        ss.tables(survey, statistics="proportion", **QUICK)


def test_a_model_of_one_s_own_and_numbers_of_numpy(survey: ss.Survey) -> None:
    """A model is what its name and options give; NumPy's numbers are numbers."""
    priors = {"lkj": 2.0}
    named = ss.tables(survey, by="gender", priors=priors, **QUICK)
    given = ss.tables(
        survey, ss.get_model("fbs", priors=priors), by=np.array(["gender"]),
        **{**QUICK, "epsilon": np.float64(10.8), "seed": np.int64(5), "m": np.int64(1)},
    )  # fmt: skip
    assert given.frame.equals(named.frame)
    assert not given.frame.equals(ss.tables(survey, by="gender", **QUICK).frame)
    with pytest.raises(ss.errors.InputError, match="each cell has a spread of its own"):
        ss.tables(survey, priors=priors, options={"covariance_by": ["gender"]}, **QUICK)


def test_clusters_without_effects_are_refused_as_in_a_release() -> None:
    frame = good().assign(area=lambda each: each.index // 6)
    survey = ss.Survey.from_frame(
        frame, outcome="salary", weight="weight", psu="area", by=["gender"]
    )
    with pytest.raises(ss.errors.SurveySynthError, match="primary sampling units"):
        ss.tables(survey, "normal", **QUICK)


@pytest.mark.parametrize("first", ["import surveysynth.release.pipeline", "surveysynth.release"])
def test_the_function_keeps_its_name_whatever_is_imported(first: str) -> None:
    """``surveysynth.release`` is a folder too."""
    program = (
        f"import surveysynth\n{first}\nfrom surveysynth import *\n"
        "from surveysynth.release import pipeline\n"
        "from surveysynth.release.pipeline import release as function\n"
        "assert surveysynth.release is release is function\n"
        "assert pipeline.__name__ == 'surveysynth.release.pipeline'\n"
    )
    subprocess.run([sys.executable, "-c", program], check=True)


def test_a_check_begins_with_its_verdict(tmp_path: Path) -> None:
    path = pseudo_example(tmp_path / "ex", n=200)
    quick = 'model = "normal"\ninference = "paper"'
    path.write_text(re.sub(r'model = "\w+"', quick, path.read_text()))
    found = ss.check(path)
    assert found.feasible
    assert found.summary.splitlines()[0] == str(found).splitlines()[0] == found.expected[0]
    assert found.expected[0].startswith("OK to release. Expected standard errors of means: ")
    for detail in ("200 records", "a release takes"):
        assert detail in str(found)
        assert detail not in found.summary
