"""Strata of few records: what the mechanism takes, what is said of it, and what a release makes."""

import json
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest

import surveysynth as ss
from surveysynth.errors import InputError, RefusedError
from surveysynth.mechanisms.pseudo_posterior.mechanism import PseudoPosterior, privacy_statement
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.models import get_model
from surveysynth.survey.design_matrix import records_per_coefficient
from tests.surveys import good, make_survey, spec_text, write_survey

THREE = 3


def three_far_off():
    """A stratum of three records whose salaries and weights lie far from the others' and from each
    other."""
    frame = good(303).drop(columns=["age", "fraction", "note", "school"])
    frame.loc[7, ["weight", "salary"]] = frame.loc[8, ["weight", "salary"]]
    frame.loc[300:, "field"] = "05"
    frame.loc[300:, "salary"] = np.exp([14.0, 7.0, 10.0])
    frame.loc[300:, "weight"] = np.exp([1.0, 7.0, 3.0])
    return frame


@pytest.fixture(scope="module")
def survey():
    return make_survey(three_far_off(), population_size=10_000)


def test_how_many_records_are_asked_for_follows_from_the_bound() -> None:
    assert MechanismSettings(epsilon=10.8).least_records == pytest.approx(20.0)
    assert MechanismSettings(epsilon=4.0).least_records == pytest.approx(20.0 * 2.7**1.5)
    assert MechanismSettings(epsilon=3.6, m=1).least_records == pytest.approx(20.0)
    assert MechanismSettings(epsilon=21.6).least_records == pytest.approx(10.0)
    with pytest.raises(InputError, match="allow may name 'small_strata' and 'shared_weights'"):
        MechanismSettings(epsilon=10.8, allow=("merge",))


def test_each_choice_does_what_it_says(survey) -> None:
    design = survey.design
    pooled = MechanismSettings(epsilon=10.8).prepared(design)
    assert pooled.pooling.levels == {"field": {"05": THREE}}
    assert records_per_coefficient(pooled.matrix).min() >= 20
    assert "05 (3 records) of field" in repr(pooled)
    assert MechanismSettings(epsilon=10.8).prepared(pooled) is pooled
    assert MechanismSettings(epsilon=10.8, allow=("small_strata",)).prepared(design) is design


def test_what_cannot_be_pooled_is_refused_with_what_would_help() -> None:
    with pytest.raises(RefusedError, match="larger epsilon or a smaller m asks for fewer: 710"):
        MechanismSettings(epsilon=1.0).prepared(make_survey().design)


def test_enough_records_leave_the_matrix_itself() -> None:
    design = make_survey().design
    assert all(
        MechanismSettings(epsilon=10.8, allow=each).prepared(design).matrix is design.matrix
        for each in ((), ("small_strata",))
    )


def test_the_rule_knows_neither_outcomes_nor_weights(survey) -> None:
    frame = three_far_off()
    rng = np.random.default_rng(3)
    frame["salary"], frame["weight"] = rng.permutation(frame["salary"]), rng.random(303) + 1.0
    one, two = (
        MechanismSettings(epsilon=10.8).prepared(each.design)
        for each in (survey, make_survey(frame, population_size=10_000))
    )
    np.testing.assert_array_equal(one.matrix.x_cells, two.matrix.x_cells)
    assert one.pooling.as_dict() == two.pooling.as_dict()


def test_the_mechanism_takes_no_design_that_was_not_prepared(survey) -> None:
    with pytest.raises(RefusedError, match=r"3\.0 records support some row .* 20 are"):
        ss.run_mechanism(
            get_model("fbs"), survey.design, survey.confidential, MechanismSettings(epsilon=10.8),
            np.random.default_rng(1),
        )  # fmt: skip


def test_the_statement_says_what_rests_on_how_many_records(survey) -> None:
    design, model = survey.design, get_model("fbs")

    def said(settings, taken):
        return "\n".join(privacy_statement(taken, settings, model).paragraphs)

    settings = MechanismSettings(epsilon=10.8)
    pooled = settings.prepared(design)
    text = said(settings, pooled)
    smallest = round(float(records_per_coefficient(pooled.matrix).min()), 1)
    assert f"{smallest:g} for the row that has fewest, and at least 20 are required" in text
    assert "the model pools 05 (3 records) of field" in text
    assert "square root of the number of records per coefficient" in text
    assert "SHORT" not in text
    plain = make_survey().design
    assert "pools" not in said(settings, plain)
    allowed = MechanismSettings(epsilon=10.8, allow=("small_strata",))
    text = said(allowed, design)
    assert "3 for the row that has fewest" in text
    assert text.count("many times the stated bound") == 2  # guarantee, not covered
    assert "SHORT" not in said(allowed, plain)
    outside = [privacy_statement(each, allowed, model).outside for each in (design, plain)]
    assert outside[0].startswith("outside the statement (allow = [small_strata])")
    assert outside[1] == ""
    described = PseudoPosterior(settings).described(pooled)
    assert described["records_per_coefficient"] == smallest
    assert described["pooled"] == {"levels": {"field": {"05": 3}}, "interactions": [], "cells": {}}
    assert PseudoPosterior(settings).described(plain)["pooled"] is None


@pytest.fixture(scope="module")
def released(tmp_path_factory):
    """A release of the survey, as in the papers and with short chains."""
    folder = tmp_path_factory.mktemp("three")
    text = spec_text(
        survey="population_size = 10_000",
        synthesizer='chains = 2\nwarmup = 100\ndraws = 200\ninference = "paper"',
        privacy="m = 1\nepsilon = 3.6\nreplicates_per_draw = 4",
    )
    spec = write_survey(folder, three_far_off(), text)
    with pytest.warns(ss.FormulaCutWarning, match=r"05 \(3 records\) of field"):
        ss.release(spec, folder / "out", seed=2)
    return spec, folder / "out" / "release"


def test_three_records_far_off_move_no_table(released) -> None:
    """Their stratum was once released with a mean of 1.27e12, and pulled all others along."""
    _, folder = released
    tables = {
        name: pd.read_csv(folder / "tables" / f"{name}.csv", dtype={"field": str})
        for name in ("counts", "means")
    }
    for name, table in tables.items():
        strata = table[(table["gender"] == "All") & (table["field"] != "All")]
        own = strata["field"] == "05"
        assert strata.loc[own, "flag"].item() == "n<5; pooled"
        assert not table.loc[table["field"] != "05", "flag"].str.contains("pooled").any()
        if name == "means":
            others = strata.loc[~own, "estimate"]
            assert 0.5 * others.min() < strata.loc[own, "estimate"].item() < 2.0 * others.max()
        else:  # three records among 303 stand for about as large a share of the population
            assert strata.loc[own, "estimate"].item() < 5 * 10_000 * THREE / 303


def test_readme_and_privacy_file_of_a_release_tell_it(released) -> None:
    _, folder = released
    record = json.loads((folder / "privacy.json").read_text(encoding="utf-8"))["settings"]
    assert record["pooled"]["levels"] == {"field": {"05": 3}}
    assert record["allow"] == []
    assert record["least_records_per_coefficient"] == 20.0
    assert record["records_per_coefficient"] >= 20
    readme = (folder / "README.md").read_text(encoding="utf-8")
    assert "- `pooled`: Mostly records of levels with few records" in readme
    dossier = (folder / "dossier.md").read_text(encoding="utf-8")
    assert "the model pools 05 (3 records) of field" in dossier


def test_check_tells_it_beforehand(released) -> None:
    spec, _ = released
    from surveysynth.config.build import model_of, read_survey, settings_of
    from surveysynth.config.spec import load_spec
    from surveysynth.release.check import preview_lines

    given = load_spec(spec)
    design = settings_of(given).prepared(read_survey(given).design)
    text = "\n".join(map(str, preview_lines(given, design, model_of(given))))
    assert "at least 20 are required." in text
    assert "Pooled for that: 05 (3 records) of field." in text
    assert f"with an asymptotic epsilon of at most {given.privacy.epsilon:g}:" in text
    allowed = replace_privacy(given, allow=("small_strata",))
    text = "\n".join(map(str, preview_lines(allowed, read_survey(given).design, model_of(given))))
    assert "fewer than 20: the statement does not cover this release." in text
    assert ", outside the statement (allow = [small_strata])" in text


def replace_privacy(spec, **changes):
    """A specification with other keys in [privacy]."""
    return spec.model_copy(update={"privacy": spec.privacy.model_copy(update=changes)})


def test_a_pooled_design_keeps_its_records_where_they_are(survey) -> None:
    pooled = MechanismSettings(epsilon=10.8).prepared(survey.design)
    with pytest.raises(InputError, match="cannot be reordered"):
        replace(survey, design=pooled).in_order(np.arange(303)[::-1])


def test_a_poisson_asks_for_twice_as_many_records():
    """No parameter of it follows the variance; a negative binomial has one."""
    settings = MechanismSettings(epsilon=10.8)
    design = ss.example_survey(n=600).design
    for name, least in (("poisson", 40.0), ("negative_binomial", 20.0)):
        made = settings.prepared(get_model(name).with_ridge(design))
        assert settings.least_records_of(made) == pytest.approx(least)
        assert least <= records_per_coefficient(made.matrix).min() * (1 + 1e-9)
        if least == 40.0:
            few = settings.prepared(design)
            with pytest.raises(RefusedError, match="40 are"):
                settings.require_prepared(get_model(name).with_ridge(few))
