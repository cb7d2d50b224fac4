"""Truth: the data file read by pandas, and the same study put together by hand."""

from dataclasses import replace
from typing import get_args

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from surveysynth import cli
from surveysynth.errors import InputError
from surveysynth.evaluation.methods import study_method_names
from surveysynth.evaluation.studies.batches import run_task
from surveysynth.evaluation.studies.designs import Allocation, DesignKind
from surveysynth.evaluation.studies.example import write_example
from surveysynth.evaluation.studies.folder import fingerprint, write_study
from surveysynth.evaluation.studies.population import superpopulation
from surveysynth.evaluation.studies.specified import read_population, study_of
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.spec.spec import load_spec, parse_spec
from surveysynth.survey.transforms import Transform

SPEC = """
spec_version = 1
[survey]
data = "population.csv"
strata = "stratum"
psu = "psu"
[synthesizer]
model = "fbp"
smoothing = "outcome"
outcome = "outcome"
predictors = "stratum + group"
inference = "paper"
chains = 3
draws = 101
warmup = 100
[privacy]
mechanism = "pseudo_posterior"
epsilon = 7.2
m = 2
replicates_per_draw = 3
[tables]
by = ["group"]
statistics = ["mean"]
level = 0.9
[study]
n = 120
size = "size"
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A population of 700 units with clusters in a file."""
    path = tmp_path_factory.mktemp("population")
    drawn = superpopulation(np.random.default_rng(5), sizes=(400, 300), clusters=10)
    drawn.frame.to_csv(path / "population.csv", index=False)
    return path


def spec_of(folder, *changes, more=""):
    text = SPEC
    for old, new in changes:
        assert old in text
        text = text.replace(old, new)
    return parse_spec(text + more, folder / "spec.toml")


def test_the_population_is_the_file(folder):
    population = read_population(spec_of(folder))
    frame = pd.read_csv(folder / "population.csv")
    assert population.n_units == len(frame) == 700
    for name in ("outcome", "size"):
        np.testing.assert_array_equal(population.frame[name], frame[name])
    for name in ("stratum", "group", "psu"):
        assert list(population.frame[name]) == list(frame[name].astype(str))
    assert (population.strata, population.psu, population.size) == ("stratum", "psu", "size")
    assert population.transforms == (Transform("log"),)


def test_every_setting_reaches_the_study(folder):
    more = "allocation = 'equal'\nreplicates = 8\nbatch = 4\ndraws = [1, 5]\nbounds = [3.4, 1.8]\n"
    study = study_of(spec_of(folder, more=more), seed=3)
    assert (study.design.kind, study.design.n, study.design.allocation) == ("pps_wr", 120, "equal")
    assert (study.replicates, study.batch, study.seed) == (8, 4, 3)
    assert study_of(spec_of(folder, more=more), replicates=2).replicates == 2
    assert (study.draws, study.bounds) == ((1, 5), (1.8, 3.4))
    assert study.epsilons == pytest.approx((3.6, 6.8, 18, 34))
    assert study.methods == ("sample", "laplace", "fbp_paper")
    assert study.options["fbp"]["smoothing"] == "outcome"
    assert (study.statistics, study.level, study.linearisation) == (("mean",), 0.9, "ratio")
    assert study.replicates_per_draw == 3
    assert study.settings.plan == SamplingPlan(3, 100, 101)
    assert study.debias_plan.kept == 303
    assert list(study.truth()["row"]) == [0, 1, 2]
    assert study.population.predictors == "stratum + group"


def test_defaults_are_those_of_a_release(folder):
    study = study_of(spec_of(folder, ('inference = "paper"', ""), ("draws = 101", "draws = 100")))
    assert (study.draws, study.bounds) == ((2,), (1.8,))
    assert study.methods[-1] == "fbp"
    assert study.debias_plan == SamplingPlan(2, 100, 150)
    one = study_of(spec_of(folder, more="epsilons = [4, 8]\ndraws = [1]"))
    # An epsilon is for the m of [privacy], whatever the numbers of draws that tables are made from.
    assert (one.bounds, one.epsilons) == ((1.0, 2.0), (2.0, 4.0))


@pytest.mark.parametrize("kind", get_args(DesignKind))
def test_every_design_can_be_named(folder, kind):
    more = {
        "two_stage": "per_cluster = 4\nclusters = 'size'\nwithin = 'pps'\nmethods = ['laplace']\n"
    }.get(kind, "")
    spec = spec_of(folder, more=f"design = '{kind}'\n{more}")
    if kind == "srs":  # all weights of a stratum are the same
        with pytest.raises(InputError, match="nothing is left to model"):
            study_of(spec)
        return
    design = study_of(spec).design
    assert design.kind == kind
    if kind == "two_stage":
        assert (design.per_cluster, design.clusters, design.within) == (4, "size", "pps")


def test_a_declared_design_effect_reaches_the_study(folder):
    changes = [('psu = "psu"', 'psu = "psu"\ndesign_effect = 1.5')]
    spec = spec_of(folder, *changes, more="design = 'two_stage'\nwithin = 'pps'\n")
    assert study_of(spec).design_effect == 1.5


@pytest.mark.parametrize(
    ("changes", "more", "words"),
    [
        ((), "design = 'pps_rw'", ["study.design", "'two_stage'", "Did you mean 'pps_wr'"]),
        ((), "allocation = 'propotional'", ["study.allocation", "Did you mean 'proportional'"]),
        ((), "clusters = 'sise'", ["study.clusters", "Did you mean 'size'"]),
        ((), "within = 'ppps'", ["study.within", "Did you mean 'pps'"]),
        ((), "clusters = 'size'", ["need the design 'two_stage'"]),
        ((), "methods = ['laplce']", ["study.methods", "Did you mean 'laplace'"]),
        ((), "methods = ['fbs_papr', 'x']", ["2 problems", "Did you mean 'fbs_paper'"]),
        ([('"size"', '"sise"')], "", ["study.size", "no column 'sise'", "Did you mean 'size'"]),
        ([('size = "size"', "")], "", ["needs a measure of size"]),
        ([('"stratum"', '"field"')], "", ["strata: there is no column 'field'"]),
        ([("[synth", "population_size = 9\n[synth")], "", ["population_size is 9", "700 units"]),
        ([('["mean"]', '["proportion"]'), ('outcome = "outcome"\n', 'outcome = "outcome"\n'
          'transform = "identity"\n')], "", ["0 and 1", "700 records"]),
        ([('outcome = "outcome"\n', 'outcome = "psu"\n'), ('psu = "psu"\n', "")], "",
         ["expected numbers", "'psu'"]),
        ([("n = 120", "n = 3")], "", ["n must be at least 4"]),
        ((), "design = 'two_stage'", ["within = 'pps'"]),
    ],
)  # fmt: skip
def test_mistakes_are_told_before_anything_is_drawn(folder, changes, more, words):
    with pytest.raises(InputError) as caught:
        study_of(spec_of(folder, *changes, more=more))
    for part in words:
        assert part in str(caught.value)


def test_a_specification_is_of_a_study_or_of_a_survey(folder):
    with pytest.raises(InputError, match="study: missing"):
        study_of(parse_spec(SPEC.partition("[study]")[0].replace(
            'strata = "stratum"', 'strata = "stratum"\nweight = "w"\npopulation_size = 700\n'
            "design_effect = 2"
        )))  # fmt: skip
    path = folder / "study.toml"
    path.write_text(SPEC)
    for command in (["check", str(path)], ["release", str(path), "--out", str(folder / "out")]):
        assert cli.main(command) == 2
    assert not (folder / "out").exists()


def test_the_example_has_a_study_of_the_population_that_its_survey_is_from(tmp_path):
    survey, spec = write_example(tmp_path / "ex", n=100, study=True)
    study = study_of(load_spec(spec.with_name("study.toml")))
    assert study.population.n_units == 100_000
    assert (study.settings.epsilon, study.draws, study.design.n) == (10.8, (3,), 1000)
    assert {"sample", "laplace", "fbs", "fbp_paper"} <= set(study.methods)
    drawn = pd.read_csv(survey)["salary"]
    assert set(drawn) <= set(study.population.frame["salary"])
    published = read_population(load_spec(spec.with_name("study.toml"))).frame.groupby("field")
    assert published.size()["7"] == 18131


def test_blank_cells_are_told_or_dropped(folder, tmp_path):
    frame = pd.read_csv(folder / "population.csv", dtype=str)
    frame.loc[3, "size"] = ""
    frame.loc[5, "outcome"] = ""
    frame.to_csv(tmp_path / "population.csv", index=False)
    with pytest.raises(InputError, match=r"'size': 1 record"):
        study_of(spec_of(tmp_path))
    dropped = spec_of(tmp_path, ("[synth", 'missing = "drop"\n[synth'))
    population = read_population(dropped)
    assert population.n_units == 698
    assert population.frame["psu"].iloc[3] == frame["psu"].iloc[4]
    frame.loc[3, "size"] = "-2"
    frame.to_csv(tmp_path / "population.csv", index=False)
    with pytest.raises(InputError, match="must be positive"):
        study_of(dropped)


WORDS = st.one_of(
    st.sampled_from([*get_args(DesignKind), *get_args(Allocation), *study_method_names(), "size"]),
    st.text(alphabet="abc_", min_size=1, max_size=6),
)


@given(
    design=WORDS, allocation=WORDS, methods=st.lists(WORDS, max_size=3, unique=True),
    n=st.integers(2, 800), per_cluster=st.integers(1, 50),
)  # fmt: skip
@settings(deadline=None, max_examples=60)
def test_any_words_give_a_study_or_an_input_error(
    folder, design, allocation, methods, n, per_cluster
):
    more = (
        f"design = '{design}'\nallocation = '{allocation}'\nmethods = {methods}\n"
        f"per_cluster = {per_cluster}\n"
    )
    spec = spec_of(folder, ("n = 120", f"n = {n}"), more=more)
    try:
        study = study_of(spec)
    except InputError:
        return
    assert study.methods[0] == "sample"
    assert set(methods) <= set(study.methods)
    assert study.design.kind == design


@pytest.mark.parametrize(
    ("changes", "figures"),
    [
        ([("n = 120", "n = 120\nmethods = ['sample']")], {"coverage_against_cv.png"}),
        # The one count is the public total, which the sample meets without error.
        ([('by = ["group"]', "by = []"), ('["mean"]', '["count"]')], set()),
    ],
)
def test_a_study_with_little_to_show_has_a_report(folder, tmp_path, changes, figures):
    spec = spec_of(folder, *changes, more="replicates = 2\n")
    study = study_of(spec)
    if len(study.methods) > 2:
        study = replace(study, methods=("sample", "laplace"))
    result = write_study(study, tmp_path / "out", workers=1, report=True)
    assert {path.name for path in (tmp_path / "out" / "figures").iterdir()} == figures
    assert "Coverage study: outcome" in (result.out / "report.html").read_text()


def test_the_command_takes_a_specification(folder, tmp_path, monkeypatch, capsys):
    path = folder / "command.toml"
    path.write_text(SPEC + "methods = ['laplace']\nreplicates = 3\nbounds = [1.8, 3.4]\n")
    made = []

    def noted(*parts, **more):
        made.append(study_of(*parts, **more))
        return made[-1]

    def in_this_process(study, tasks, finished, **options):
        for task in tasks:
            finished(task, run_task(study, task))

    monkeypatch.setattr("surveysynth.evaluation.studies.specified.study_of", noted)
    monkeypatch.setattr("surveysynth.evaluation.studies.folder.run_tasks", in_this_process)
    out = tmp_path / "out"
    assert cli.main(["study", str(path), "--out", str(out), "--seed", "2"]) == 0
    assert (made[0].replicates, made[0].seed) == (3, 2)
    assert fingerprint(made[0]) == fingerprint(study_of(load_spec(path), seed=2))
    cells = pd.read_csv(out / "cells.csv")
    noise = cells[cells["method"] == "laplace"]
    assert sorted(set(noise["epsilon"])) == pytest.approx([7.2, 13.6])
    assert len(cells) == 3 * 3
    assert "epsilon" in capsys.readouterr().out
    assert {"rmse_ratio.png", "rmse_against_epsilon.png"} <= {
        each.name for each in (out / "figures").iterdir()
    }
    assert (out / "report.html").read_text().startswith("<!DOCTYPE html>")
