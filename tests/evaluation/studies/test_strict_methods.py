"""Noisy statistics in a study: one release made by hand, and what intervals cover, where the rule
of partial synthesis is rejected."""

from dataclasses import replace
from typing import ClassVar

import numpy as np
import pandas as pd
import pytest

from surveysynth import cli
from surveysynth.errors import InputError
from surveysynth.estimation.combining import PartialSynthesis, interval_of, t_interval
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import statistic_of
from surveysynth.estimation.total_variance import TotalVariance, public_rows_of
from surveysynth.evaluation.methods import study_method_names
from surveysynth.evaluation.studies import batches as noisy_batches
from surveysynth.evaluation.studies.batches import run_task
from surveysynth.evaluation.studies.coverage import (
    PAPER_DECLARED,
    TWO_STAGE_DECLARED,
    CoverageStudy,
    StrictSettings,
    Task,
    paper_study,
    two_stage_study,
)
from surveysynth.evaluation.studies.designs import SamplingDesign
from surveysynth.evaluation.studies.example import write_example
from surveysynth.evaluation.studies.folder import fingerprint, write_study
from surveysynth.evaluation.studies.measures import measure_cells
from surveysynth.evaluation.studies.population import superpopulation
from surveysynth.evaluation.studies.report import render_page
from surveysynth.evaluation.studies.specified import chosen_study, study_of
from surveysynth.inference.synthesis import datasets_of
from surveysynth.mechanisms.declared import Declared
from surveysynth.mechanisms.noisy_statistics.posterior.draws import posterior_draws
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import release_statistics
from surveysynth.models import get_model
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.spec.spec import parse_spec
from tests.evaluation.studies.study_cases import population, small_study

PLAN = SamplingPlan(2, 100, 200)
STRICT = StrictSettings(PAPER_DECLARED, m=5, replicates_per_draw=2, plan=PLAN)


def main_effects(**changes):
    people = replace(population(), predictors="field + gender")
    study = small_study(**{"noise": STRICT, **changes})
    return replace(study, population=people)


def test_a_release_of_a_batch_is_one_made_by_hand():
    """Alone, of the same streams: a batch and what else is in it make no difference."""
    study = main_effects(methods=("fbs_noisy",), replicates=2)
    (epsilon,) = study.epsilons
    made = run_task(study, Task(0, "fbs_noisy"))
    assert made.refusals.empty
    survey, settings = study.survey(1), STRICT.at(epsilon)
    assert settings.budget.epsilon == 10.8
    design = survey.design
    model = get_model("fbs").under_noise().of(design)
    statistics = release_statistics(
        model, design, survey.confidential, settings, SeededNoise(study.generator(5, 1))
    )
    key = noisy_batches.crc32(b"fbs")
    draws, _ = posterior_draws(model, design, statistics, settings, study.generator(6, key, 1))
    estimates = Estimates(
        study.domains(design.frame), SampleDesign.from_public(design), study.table_keys(),
        linearisation="ratio", population_size=design.population_size, draws=5, replicates=2,
        rule=TotalVariance(public_rows_of(design)),
    )  # fmt: skip
    for dataset in datasets_of(
        model, design, draws, study.generator(7, key, 1), inference="paper", replicates_per_draw=2
    ):
        estimates.add(dataset)
    mine = made.replicates[made.replicates["sample"] == 1]
    assert set(mine["m"]) == {3}  # whose epsilon it has
    for statistic, column in estimates.keys:
        combined = estimates.combined((statistic, column))
        rows = mine[mine["statistic"] == statistic]
        upper = interval_of(statistic_of(statistic), combined, 0.95)[1]
        np.testing.assert_allclose(rows["estimate"], combined.estimate, rtol=1e-9)
        np.testing.assert_allclose(rows["se"], combined.standard_error, rtol=1e-9)
        np.testing.assert_allclose(rows["ci_upper"], upper, rtol=1e-9)


class Both(TotalVariance):
    """The rule of the mechanism, and that of partial synthesis for the same datasets."""

    wrong: ClassVar[list] = []

    def collect(self, draws, replicates, sample_design):
        right = super().collect(draws, replicates, sample_design)
        wrong = PartialSynthesis().collect(draws, replicates, sample_design)
        outer = self

        class Pair:
            def add(self, *arguments):
                right.add(*arguments)
                wrong.add(*arguments)

            def combined(self):
                outer.wrong.append(wrong.combined())
                return right.combined()

        return Pair()


@pytest.mark.slow
def test_intervals_cover_and_those_of_partial_synthesis_do_not(monkeypatch):
    people = superpopulation(np.random.default_rng(8), sizes=(4000, 2500, 1500), spread=0.4)
    people = replace(people, predictors="stratum + group")
    study = CoverageStudy(
        people, design=SamplingDesign(n=400), methods=("fbs_noisy",), replicates=30, batch=30,
        bounds=(0.35,),
        noise=StrictSettings({"outcome": Declared(25_000.0, 0.5)}, m=20, replicates_per_draw=3,
                              plan=PLAN),
    )  # fmt: skip
    monkeypatch.setattr(noisy_batches, "TotalVariance", Both)
    monkeypatch.setattr(Both, "wrong", [])
    rows = pd.concat(
        [run_task(study, Task(0, group)).replicates for group in ("noise", "fbs_noisy")]
    )
    assert rows["sample"].nunique() == 30
    cells = measure_cells(rows, study.truth())
    cells = cells[cells["method"] == "fbs_noisy"]
    # The public total of the counts has no error; cells of one sample are not independent.
    cells = cells[cells["sd"] > 1e-6 * cells["truth"].abs()]
    assert 0.90 < cells["coverage"].mean() <= 1.0
    assert 0.8 < (cells["se"] / cells["sd"]).median() < 1.4
    wrong = rows[rows["method"] == "fbs_noisy"].copy()
    wrong["se"] = np.concatenate([each.standard_error for each in Both.wrong])
    intervals = [t_interval(each, study.level) for each in Both.wrong]
    wrong["ci_lower"] = np.concatenate([lower for lower, _ in intervals])
    wrong["ci_upper"] = np.concatenate([upper for _, upper in intervals])
    judged = measure_cells(pd.concat([rows[rows["method"] == "sample"], wrong]), study.truth())
    judged = judged.set_index(["method", "statistic", "row"]).loc["fbs_noisy"]
    judged = judged.loc[list(zip(cells["statistic"], cells["row"], strict=True))]
    assert judged["coverage"].mean() < 0.85
    assert (judged["se"] / judged["sd"]).median() < 0.75


def test_words_and_what_must_be_declared():
    assert {"fbs_noisy", "fbp_noisy", "normal_noisy"} <= set(study_method_names())
    assert "poisson_noisy" not in study_method_names()
    for methods, words in (
        (("fbs_nosy",), r"no method 'fbs_nosy'\. Did you mean 'fbs_noisy'"),
        (("poisson_noisy",), "no method 'poisson_noisy'"),
    ):
        with pytest.raises(InputError, match=words):
            small_study(methods=methods)
    with pytest.raises(InputError, match=r"fbs_noisy, fbp_noisy need a declared .*'salary'"):
        small_study(methods=("fbs_noisy", "fbp_noisy"))
    with pytest.raises(InputError, match="spread above zero"):
        main_effects(methods=("fbs_noisy",),
                     noise=StrictSettings({"salary": Declared(1e5, 0.0)}))  # fmt: skip
    study = two_stage_study(methods=("fbs_noisy", "fbs"), design_effect=1.5)
    assert [task.group for task in study.tasks()][::4] == ["noise", "fbs", "fbs_noisy"]


@pytest.mark.parametrize(
    ("people", "declared"),
    [(lambda: paper_study().population, PAPER_DECLARED),
     (lambda: two_stage_study().population, TWO_STAGE_DECLARED)],
)  # fmt: skip
def test_declared_numbers_of_the_simulations_are_what_a_public_report_could_say(people, declared):
    """Round, and within a tenth of the population's own on the log scale."""
    made = people()
    logs = np.log(made.frame[made.outcome[0]].to_numpy())
    (given,) = declared.values()
    assert abs(np.log(given.centre) - logs.mean()) < 0.1
    assert given.spread == pytest.approx(logs.std(), rel=0.1)


def test_a_study_without_them_is_the_one_it_was_and_with_them_another():
    plain, other = small_study(), small_study(noise=STRICT)
    assert "strict" not in fingerprint(plain)
    assert fingerprint(plain) == fingerprint(other)
    mine = fingerprint(main_effects(methods=("fbs_noisy",)))
    assert mine["strict"]["declared"] == {"salary": {"centre": 100_000.0, "spread": 0.42}}
    changed = fingerprint(main_effects(methods=("fbs_noisy",), noise=replace(STRICT, delta=1e-8)))
    assert mine != changed


def test_options_of_the_command(tmp_path, capsys):
    made = chosen_study(methods=("fbs_noisy", "fbs"), epsilons=(3.6,), replicates=2)
    assert made.methods == ("sample", "fbs_noisy", "fbs")
    assert made.bounds == pytest.approx((0.6,))
    assert made.settings.m == 3
    folder = tmp_path / "study"
    arguments = ["study", "--out", str(folder), "--replicates", "2", "--methods", "laplace"]
    assert cli.main([*arguments, "--epsilon", "10.8,3.6"]) == 0
    told = capsys.readouterr().out
    assert "laplace" in told
    cells = pd.read_csv(folder / "cells.csv")
    epsilons = cells.loc[cells["method"] == "laplace", "epsilon"]
    assert sorted(epsilons.unique()) == pytest.approx([3.6, 10.8])
    assert cli.main([*arguments, "--epsilon", "10.8", "--resume"]) == 2
    assert "other settings (bounds)" in capsys.readouterr().err
    assert cli.main([*arguments, "--epsilon", "ten"]) == 2
    assert "--epsilon: expected numbers" in capsys.readouterr().err
    assert cli.main([*arguments, "--epsilon", "-1"]) == 2
    assert cli.main(["study", "--out", str(tmp_path / "x"), "--methods", "fbs_nosy"]) == 2
    assert "Did you mean 'fbs_noisy'" in capsys.readouterr().err


def test_the_page_says_that_the_promises_differ(tmp_path):
    result = write_study(small_study(replicates=2), tmp_path / "study", workers=1)
    page = render_page(main_effects(methods=("fbs_noisy",), replicates=2), result, [])
    assert "FBS, noisy statistics: another currency" in page
    assert "not the same promise" in page


def test_a_specification_says_what_is_declared_and_which_mechanism(tmp_path):
    path = write_example(tmp_path / "ex", n=200, study=True)[1].parent / "study.toml"
    text = path.read_text()
    with pytest.raises(InputError, match=r"give \[outcomes\.salary\]"):
        study_of(parse_spec(text, path), methods=("fbs_noisy",))
    text += "\n[outcomes.salary]\ncentre = 90000\nspread = 0.5\n[outcomes.weight]\nspread = 0.7\n"
    study = study_of(parse_spec(text, path), methods=("fbs_noisy",), epsilons=(3.6,))
    assert study.noise.declared == {"salary": Declared(90_000.0, 0.5)}
    assert study.noise.weight == Declared(None, 0.7)
    assert (study.noise.m, study.noise.replicates_per_draw) == (20, 10)
    assert study.epsilons == pytest.approx((3.6,))
    strict = text.replace("pseudo_posterior", "noisy_statistics").replace(
        "m = 3\nreplicates_per_draw = 4", "m = 12\nreplicates_per_draw = 5\ndelta = 1e-7"
    )
    strict = "\n".join(line for line in strict.splitlines() if not line.startswith("methods"))
    study = study_of(parse_spec(strict, path))
    assert study.methods[-1] == "fbs_noisy"
    assert (study.noise.m, study.noise.replicates_per_draw, study.noise.delta) == (12, 5, 1e-7)
    assert (study.settings.m, study.replicates_per_draw, study.epsilons) == (3, 4, (10.8,))
