"""Truth: pandas on the population, coverage and ratios of normal errors known by theory, and the
parts of one sample called directly."""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from surveysynth.errors import InputError
from surveysynth.estimation.combining import Combined, t_interval
from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.taylor import SampleDesign, estimate_domains
from surveysynth.evaluation.studies import batches
from surveysynth.evaluation.studies.batches import Conventions, PublishedConventions, run_task
from surveysynth.evaluation.studies.coverage import CoverageStudy, Task, paper_study
from surveysynth.evaluation.studies.designs import SamplingDesign
from surveysynth.evaluation.studies.measures import measure_cells, root_ratio, summarise_methods
from surveysynth.inference.bias_search import DebiasRecord
from surveysynth.inference.debias import Debiased
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch
from surveysynth.models import get_model
from surveysynth.sampling.plan import SamplingPlan
from tests.evaluation.studies.study_cases import PLAN, SETTINGS, population, small_study

TRUTH = 50.0


def normal_replicates(samples, *, spread=1.0, claimed=1.0, seed=1):
    """Estimates N(TRUTH, spread^2) of two cells, their intervals from ``claimed``."""
    rng = np.random.default_rng(seed)
    parts = []
    for method, scale, error in (("sample", 1.0, 1.0), ("other", spread, claimed)):
        estimate = TRUTH + scale * rng.normal(size=(samples, 2))
        half = stats.norm.ppf(0.975) * error
        parts.append(
            pd.DataFrame(
                {
                    "statistic": "mean",
                    "outcome": "y",
                    "row": np.tile([0, 1], samples),
                    "method": method,
                    "m": 3,
                    "epsilon": 10.8,
                    "sample": np.repeat(np.arange(samples), 2),
                    "estimate": estimate.ravel(),
                    "se": error,
                    "ci_lower": estimate.ravel() - half,
                    "ci_upper": estimate.ravel() + half,
                }
            )
        )
    return pd.concat(parts, ignore_index=True)


def truth():
    return pd.DataFrame({"statistic": "mean", "outcome": "y", "row": [0, 1], "truth": TRUTH})


def whole_study(**changes):
    """One sample of the published size, fitted as a release is."""
    plans = {"settings": MechanismSettings(epsilon=10.8), "debias_plan": SamplingPlan(2, 150, 500)}
    return small_study(replicates=1, design=SamplingDesign(n=1000), **plans, **changes)


def other(cells):
    return cells[cells["method"] == "other"].iloc[0]

GOLDEN = Path(__file__).parents[2] / "golden"


def test_measures_of_errors_with_known_distribution():
    cell = other(measure_cells(normal_replicates(4000, spread=1.5, claimed=1.5), truth()))
    assert cell["truth"] == TRUTH
    assert abs(cell["bias"]) < 4 * cell["bias_mcse"]
    assert cell["bias_mcse"] == pytest.approx(1.5 / np.sqrt(4000), rel=0.05)
    assert cell["sd"] == pytest.approx(1.5, rel=0.05)
    assert cell["rmse_ratio"] == pytest.approx(1.5, abs=4 * cell["rmse_ratio_mcse"])
    assert cell["coverage"] == pytest.approx(0.95, abs=4 * cell["coverage_mcse"])
    assert cell["coverage_mcse"] == pytest.approx(np.sqrt(0.95 * 0.05 / 4000), rel=0.1)
    assert cell["ci_length"] == pytest.approx(2 * 1.96 * 1.5, rel=0.01)
    assert cell["cv"] == pytest.approx(1.5 / TRUTH)
    narrow = other(measure_cells(normal_replicates(4000, spread=1.5, claimed=1.5 / 1.3), truth()))
    assert narrow["coverage"] < 0.95 - 8 * narrow["coverage_mcse"]


def test_coverage_is_of_the_truth_and_not_of_the_mean_estimate():
    made = normal_replicates(400)
    shift = np.where(made["method"] == "other", 10.0, 0.0)  # ten standard errors
    for column in ("estimate", "ci_lower", "ci_upper"):
        made[column] += shift
    cell = other(measure_cells(made, truth()))
    assert cell["coverage"] == 0
    assert cell["bias"] == pytest.approx(10.0, abs=0.3)


def test_error_of_a_ratio_is_its_spread_over_studies():
    rng = np.random.default_rng(3)
    ratios, errors = np.transpose(
        [root_ratio(rng.normal(size=80) * 1.4, rng.normal(size=80), 1.0) for _ in range(600)]
    )
    assert np.mean(errors) == pytest.approx(np.std(ratios, ddof=1), rel=0.15)
    assert np.mean(ratios) == pytest.approx(1.4, rel=0.03)


def test_missing_estimates_and_known_totals():
    frame = normal_replicates(50)
    lost = (frame["method"] == "other") & (frame["sample"] < 10)
    kept = measure_cells(frame[~lost], truth())
    assert other(kept)["replicates"] == 40
    # The ratio is over the samples that both have.
    both = frame[(frame["sample"] >= 10) & (frame["row"] == 0)]
    roots = (both["estimate"] - TRUTH).pow(2).groupby(both["method"]).mean() ** 0.5
    assert other(kept)["rmse_ratio"] == pytest.approx(roots["other"] / roots["sample"])
    exact = frame["row"] == 1
    frame.loc[exact, ["estimate", "ci_lower", "ci_upper"]] = TRUTH * (1 + 1e-15)
    cells = measure_cells(frame, truth())
    known = cells[cells["row"] == 1]
    assert (known["coverage"] == 1).all()
    assert known["rmse_ratio"].isna().all()
    assert (summarise_methods(frame, cells)["cells"] == 1).all()


def test_summary_knows_that_cells_of_a_sample_go_together():
    frame = normal_replicates(2000)
    same = frame.merge(frame[frame["row"] == 0], on=["method", "sample"], suffixes=("_x", ""))
    frame[["estimate", "ci_lower", "ci_upper"]] = same[["estimate", "ci_lower", "ci_upper"]]
    line = summarise_methods(frame, measure_cells(frame, truth())).iloc[1]
    # Two cells that are the same tell as much as one.
    assert line["coverage_mcse"] == pytest.approx(np.sqrt(0.95 * 0.05 / 2000), rel=0.15)
    assert line["coverage_min"] == line["coverage_max"] == pytest.approx(line["coverage"])


def test_truth_is_the_population():
    study = small_study()
    found = study.truth()
    frame = population().frame
    table = study.domains(frame).table
    for statistic, expected in (
        ("count", frame.groupby(["field", "gender"]).size()),
        ("mean", frame.groupby(["field", "gender"])["salary"].mean()),
    ):
        part = found[found["statistic"] == statistic].set_axis(table.index)
        values = table.assign(truth=part["truth"]).set_index(["field", "gender"])["truth"]
        np.testing.assert_allclose(values[expected.index], expected)
        assert values["All", "All"] == pytest.approx(
            len(frame) if statistic == "count" else frame["salary"].mean()
        )


def test_sample_method_is_the_survey_estimate():
    study = small_study()
    result = run_task(study, Task(1, "noise")).replicates
    survey = study.survey(3)
    domains = build_domains(survey.design.frame, ("field", "gender"), population().levels)
    direct = estimate_domains(
        domains,
        SampleDesign.from_public(survey.design),
        weight=survey.confidential.sampling_weight,
        outcome=survey.confidential.outcome[:, 0],
        statistic="mean",
        linearisation="plain",
    )
    mine = result[
        (result["method"] == "sample") & (result["statistic"] == "mean") & (result["sample"] == 3)
    ]
    np.testing.assert_allclose(mine["estimate"], direct.estimate)
    np.testing.assert_allclose(mine["se"] ** 2, direct.variance)
    noisy = result[(result["method"] == "laplace") & (result["sample"] == 3)]
    assert (noisy["epsilon"] == 10.8).all()
    assert set(result["sample"]) == {2, 3}


def test_samples_do_not_depend_on_batches():
    one, two = small_study(), small_study(batch=3, replicates=9)
    for sample in (0, 5):
        a, b = one.survey(sample), two.survey(sample)
        np.testing.assert_array_equal(a.confidential.outcome, b.confidential.outcome)
    first, second = one.survey(0), one.survey(1)
    assert not np.array_equal(first.confidential.outcome, second.confidential.outcome)
    assert not np.array_equal(
        small_study(seed=1).survey(0).confidential.outcome, first.confidential.outcome
    )


def test_fewer_draws_are_the_first_of_the_same_fit(monkeypatch):
    seen = []
    monkeypatch.setattr(
        batches,
        "run_batch",
        lambda *arguments: seen.append(run_batch(*arguments)) or seen[-1],
    )
    released = []
    plain = batches.first
    monkeypatch.setattr(
        batches, "first", lambda *arguments: released.append(plain(*arguments)) or released[-1]
    )
    study = whole_study(methods=("fbs_paper",), draws=(1, 3))
    result = run_task(study, Task(0, "fbs"))
    assert result.refusals.empty
    assert len(seen) == 1
    ((private, _),) = seen[0]
    assert [each.settings.m for each in released] == [1, 3]
    for each in released:
        assert each.settings.target_bound == pytest.approx(study.bounds[0])
        assert each.settings.epsilon == pytest.approx(2 * each.settings.m * 1.8)
        np.testing.assert_array_equal(
            each.theta["beta"], private.theta["beta"][: each.settings.m]
        )
    assert set(zip(result.replicates["m"], result.replicates["epsilon"].round(9), strict=True)) == {
        (1, 3.6), (3, 10.8)
    }  # fmt: skip


def test_debiased_inference_takes_debiased_draws_and_variances_of_samples(monkeypatch):
    """Log scales moved by 0.3 must move means by what the log-normal distribution says: a weighted
    mean is exp(mu + s_y^2 / 2 + rho s_y s_w)."""
    plans = []

    def shifted(model, releases, rng, *, plan):
        plans.append(plan)
        made = []
        for _, draws in releases:
            theta = model.with_log_scales(draws.theta, model.log_scales(draws.theta) + 0.3)
            made.append(Debiased(replace(draws, theta=theta), DebiasRecord("debiased")))
        return made

    monkeypatch.setattr(batches, "debias_many", shifted)
    study = whole_study(methods=("fbs", "fbs_paper"), replicates_per_draw=4)
    result = run_task(study, Task(0, "fbs"))
    assert result.refusals.empty
    assert plans == [study.debias_plan]
    means = result.replicates.query("statistic == 'mean' and row == 0").set_index("method")
    # Here s_y^2 = 0.16 and rho s_y s_w = -0.16, both down-weighted by 0.83^2, times e^0.6 - 1.
    ratio = means.loc["fbs", "estimate"] / means.loc["fbs_paper", "estimate"]
    assert ratio == pytest.approx(np.exp(-0.08 * 0.69 * (np.exp(0.6) - 1)), abs=0.015)
    counts = result.replicates.query("statistic == 'count' and row > 0").groupby("method")["se"]
    assert counts.mean()["fbs"] > 1.05 * counts.mean()["fbs_paper"]
    row = means.loc["fbs"]
    assert row["ci_upper"] - row["estimate"] == pytest.approx(
        stats.t.ppf(0.975, row["df"]) * row["se"]
    )


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"methods": ("fsb",)}, "no method 'fsb'"),
        ({"methods": ("laplace_paper",)}, "no method 'laplace_paper'"),
        ({"replicates": 0}, "at least 1"),
        ({"seed": -1}, "seed"),
        ({"draws": (3, 3)}, "distinct"),
        ({"draws": (0,)}, "at least 1"),
        ({"bounds": (1.8, 1.8)}, "distinct"),
        ({"bounds": (1.8, 0.0)}, "positive"),
        ({"bounds": (np.inf,)}, "positive"),
        ({"settings": replace(SETTINGS, risk="none")}, "none"),
        ({"debias_plan": SamplingPlan(2, 10, 20)}, "as many draws"),
        ({"design": SamplingDesign(n=12)}, "at least 16"),
        ({"design": SamplingDesign("two_stage", n=100)}, "clusters"),
    ],
)
def test_mistakes_are_told(changes, words):
    with pytest.raises(InputError, match=words):
        small_study(**changes)


def test_the_published_setting():
    study = paper_study(seed=5)
    assert (study.settings.epsilon, study.settings.m, study.design.n) == (10.8, 3, 1000)
    assert study.population.n_units == 100_000
    assert study.settings.plan.kept == study.debias_plan.kept == 1000
    assert isinstance(study, CoverageStudy)
    assert PLAN.kept == small_study().debias_plan.kept


def test_the_long_run_covers_as_the_design_page_says():
    """The committed result of ``python -m tests.long_runs.coverage_table`` against methods 8, whose
    coverages have a Monte Carlo error of about 0.007 over all cells, as have ours."""
    summary = pd.read_csv(GOLDEN / "coverage_default_summary.csv")
    table = summary.set_index(["method", "statistic"])
    published = {
        "sample": (0.93, 0.93),
        "fbs_paper": (0.89, 0.91),
        "fbs": (0.96, 0.97),
        "fbp_paper": (0.85, 0.91),
        "fbp": (0.96, 0.96),
    }
    for method, coverages in published.items():
        for statistic, coverage in zip(("count", "mean"), coverages, strict=True):
            row = table.loc[(method, statistic)]
            assert row["replicates"] == 100
            assert abs(row["coverage"] - coverage) < 0.03
    for method in ("fbs", "fbp"):
        for statistic in ("count", "mean"):
            mended = table.loc[(method, statistic)]
            paper = table.loc[(f"{method}_paper", statistic)]
            assert mended["coverage"] - 2 * mended["coverage_mcse"] > 0.94
            assert mended["coverage"] > paper["coverage"] + 2 * paper["coverage_mcse"]
            assert mended["rmse_ratio"] < 1.1


def test_every_bound_has_a_fit_and_the_first_is_that_of_a_study_of_its_own():
    changes = {"methods": ("laplace", "fbs_paper"), "draws": (1, 2)}
    both, one = whole_study(bounds=(3.4, 1.8), **changes), whole_study(**changes)
    assert both.bounds == (1.8, 3.4)
    assert both.epsilons == pytest.approx((3.6, 6.8, 7.2, 13.6))
    assert [task.name for task in both.tasks()] == ["00000_noise", "00000_fbs", "00000_fbs_2"]
    noise, low, high = (run_task(both, task).replicates for task in both.tasks())
    assert len(low) == len(high) == 2 * 2 * 27
    pd.testing.assert_frame_equal(low, run_task(one, Task(0, "fbs")).replicates)
    assert (high["epsilon"] / high["m"]).unique() == pytest.approx(6.8)
    # Common random numbers: more of the likelihood is kept, and little else changes.
    both_estimates = low.merge(high, on=["m", "sample", "statistic", "row"])
    ratio = both_estimates["estimate_x"] / both_estimates["estimate_y"]
    assert 0.8 < ratio.min() < ratio.max() < 1.25
    assert (ratio != 1).any()
    counts = noise[noise["method"] == "laplace"]
    assert sorted(set(counts["epsilon"])) == pytest.approx([3.6, 6.8, 7.2, 13.6])
    plain = run_task(one, Task(0, "noise")).replicates
    same = noise[noise["epsilon"].isin(set(plain["epsilon"]))].reset_index(drop=True)
    pd.testing.assert_frame_equal(same, plain)


def test_conventions_of_the_published_tables():
    """By hand: standard errors of a count in a simple random sample, plain means of cells, margins
    by sizes of cells, 1.96 standard errors."""
    survey = small_study().survey(0)
    design = survey.design
    rng = np.random.default_rng(1)
    weight = rng.lognormal(5, 0.4, design.n)
    outcome = rng.lognormal(11, 0.4, design.n)
    domains = build_domains(design.frame, design.by, design.levels)
    population_model = PublishedConventions(get_model("fbp"), design)
    sample_model = PublishedConventions(get_model("fbs"), design)
    ours = Conventions(get_model("fbp"), design)
    assert sample_model.weight(weight, "mean") is weight
    assert population_model.weight(weight, "count") is ours.weight(weight, "mean") is weight
    assert ours.sample_design().degrees_of_freedom == design.n - 8

    def table(conventions, statistic, values):
        return estimate_domains(
            domains, conventions.sample_design(), weight=conventions.weight(weight, statistic),
            outcome=values, statistic=statistic, linearisation="plain",
        )  # fmt: skip

    frame = design.frame.assign(w=weight, y=outcome)
    row = domains.table.set_index(["field", "gender"]).index.get_loc(("7", "All"))
    inside = weight * (frame["field"] == "7")
    expected = design.n * inside.var(ddof=1)
    assert table(population_model, "count", None).variance[row] == pytest.approx(expected)
    assert table(ours, "count", None).variance[row] < 0.7 * expected
    stratified = table(ours, "count", None).variance
    np.testing.assert_allclose(table(sample_model, "count", None).variance, stratified)
    cells = frame[frame["field"] == "7"].groupby("gender")
    mean = np.average(cells["y"].mean(), weights=cells["w"].sum())
    found = table(population_model, "mean", outcome).estimate
    assert found[row] == pytest.approx(mean)
    assert abs(found[row] / table(ours, "mean", outcome).estimate[row] - 1) > 1e-4
    one = np.ones(1)
    combined = Combined(100 * one, 2 * one, 5 * one, 9.0, one, one)
    low, high = t_interval(population_model.combined(combined), 0.95)
    np.testing.assert_allclose([low[0], high[0]], [100 - 3.919928, 100 + 3.919928])
    assert ours.combined(combined) is combined
