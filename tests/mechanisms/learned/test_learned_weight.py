"""A learned transform of the weight: integrals by quantiles, its share, files, and its limits.

Weights of two sizes in a stratum, which no log-normal law describes, come back from a release.
"""

import json
from collections.abc import Iterator
from dataclasses import replace
from fractions import Fraction
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import pytest
from scipy import stats

import surveysynth as ss
from surveysynth.config.build import mechanism_of, model_of
from surveysynth.config.spec import spec_of_survey
from surveysynth.errors import InputError
from surveysynth.inference.synthesis import scaled
from surveysynth.mechanisms.learned.histogram import (
    curve_rows,
    learned_design,
    noisy_histograms,
    redrawn_designs,
    true_counts,
    what_is_left,
)
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.release.pipeline import rebuild
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import LearnedBy, LearnedTransform, Transform
from tests.mechanisms.learned.learned_cases import SHORT, frame_of, survey_of

RANGE = (2.0, 2000.0)
SPEC = """
spec_version = 1
[survey]
data = "survey.csv"
weight = "weight"
strata = "region"
population_size = {size}
[synthesizer]
outcome = "income"
{synthesizer}
[outcomes.income]
range = [0, 5000000]
[outcomes.weight]
{weight}
[privacy]
mechanism = "{mechanism}"
epsilon = 10.8
{privacy}
[tables]
by = ["region"]
statistics = ["count", "mean"]
"""


def written(folder: Path, n: int = 500, **given: Any) -> Path:
    """A survey file with its specification."""
    frame_of(n).to_csv(folder / "survey.csv", index=False)
    parts: dict[str, Any] = {
        "synthesizer": "", "weight": f"range = {list(RANGE)}", "privacy": "", "size": 60 * n,
        "mechanism": "noisy_statistics",
    }  # fmt: skip
    (folder / "spec.toml").write_text(SPEC.format(**(parts | given)))
    return folder / "spec.toml"


def with_learned_weight(survey: ss.Survey, share: float = 0.02) -> ss.Survey:
    """The survey, the transform of whose weight is learned."""
    transform = LearnedTransform(low=RANGE[0], high=RANGE[1], share=share, by="strata")
    return ss.Survey(replace(survey.design, weight_transform=transform), survey.confidential)


def learned_of(survey: ss.Survey, seed: int = 1, budget: float = 1.0) -> ss.PublicDesign:
    made = noisy_histograms(
        survey.design, survey.confidential, budget,
        SeededNoise(np.random.default_rng(seed)),
    )  # fmt: skip
    return learned_design(survey.design, made)


def datasets(release: Path) -> Iterator[pd.DataFrame]:
    for path in sorted((release / "microdata").glob("*.csv")):
        yield pd.read_csv(path)


def test_the_weight_is_one_more_column_with_a_share_of_its_own() -> None:
    survey = with_learned_weight(survey_of(300))
    design, budget = survey.design, 1.3
    found = noisy_histograms(
        design, survey.confidential, budget, SeededNoise(np.random.default_rng(1)), 2
    )
    assert [each.outcome for each in found] == ["income", "tax", "weight"]
    spent = [Fraction(2 * 2**2) / (2 * each.variance) for each in found]
    left = Fraction(what_is_left(budget, design.modelled))
    assert Fraction(budget) * Fraction(99_999, 100_000) < sum(spent) + left <= Fraction(budget)
    assert float(spent[2]) / budget == pytest.approx(0.02, rel=1e-5)
    # Without noise: the weights of each stratum, bin by bin, on asinh of thousandths of the end.
    (*_, exact) = noisy_histograms(design, survey.confidential, budget, None)
    weight, strata = survey.confidential.sampling_weight, design.strata
    assert weight is not None
    assert strata is not None
    ends = 2.0 * np.sinh(np.linspace(np.arcsinh(1.0), np.arcsinh(1000.0), 65))
    for stratum in range(3):
        expected = np.histogram(weight[strata == stratum], ends)[0]
        assert (exact.counts[0, stratum] == expected).all()


def test_one_weight_moves_two_counts_by_one_at_most() -> None:
    survey = with_learned_weight(survey_of(60))
    column, strata = survey.design.modelled[-1], survey.design.strata
    assert strata is not None
    weight = np.array(survey.confidential.sampling_weight)
    counts = []
    for value in (1e-9, 2.0, 40.0, 41.0, 2000.0, 1e12):
        weight[7] = value
        counts.append(true_counts(column, weight, strata))
    changes = [one - other for one in counts for other in counts]
    assert max(int(np.abs(each).sum()) for each in changes) == 2
    assert max(int((each**2).sum()) for each in changes) == 2


def test_means_of_weights_are_integrals_over_the_curve() -> None:
    design = learned_of(with_learned_weight(survey_of(500)))
    transform = design.weight_transform
    strata = design.strata
    assert strata is not None
    mean, variance = np.linspace(-2.0, 2.0, design.n), np.full(design.n, 1.0)
    found = transform.mean_of_inverse(mean, variance)
    differ = []
    for record in (0, 140, 499):
        one = transform.at(np.array([record]))

        # Equal shares of the normal law, as good an integral as any.
        nodes = mean[record] + stats.norm.ppf((np.arange(20_000) + 0.5) / 20_000)
        exact = one.inverse(nodes).mean()
        assert found[record] == pytest.approx(exact, rel=0.01)
        differ.append(one.inverse(mean[[record]])[0] / exact - 1.0)
    # Values of means are other numbers.
    assert np.abs(differ).max() > 0.05
    # The log has a closed form, and the quadrature of other kinds agrees with it.
    log = Transform("log").mean_of_inverse(mean, variance)
    assert log == pytest.approx(np.exp(mean + 0.5))
    quadrature = Transform.mean_of_inverse(_PlainExp(), mean, variance)
    assert quadrature == pytest.approx(log, rel=1e-9)


class _PlainExp(Transform):
    """exp without the name of the log."""

    def __init__(self) -> None:
        super().__init__("identity")

    def inverse(self, transformed: np.ndarray) -> np.ndarray:
        return np.exp(transformed)


def test_scaled_weights_stay_within_their_limits() -> None:
    weight = np.random.default_rng(2).lognormal(3.0, 0.8, 400)
    assert scaled(weight, None) == pytest.approx(weight)
    assert scaled(weight, 9e3) == pytest.approx(weight * 9e3 / weight.sum())
    low, high = 12.0, 60.0
    made = scaled(weight, 9e3, (low, high))
    assert made.sum() == pytest.approx(9e3, rel=1e-12)
    assert low <= made.min() < made.max() <= high
    inside = (made > low) & (made < high)
    factor = made[inside] / weight[inside]
    assert factor == pytest.approx(factor[0], rel=1e-12)
    assert (np.diff(made[np.argsort(weight)]) >= 0).all()
    # Plain scaling leaves them.
    assert scaled(weight, 9e3).max() > high
    # Wide limits change nothing.
    assert (scaled(weight, 9e3, (1e-3, 1e6)) == scaled(weight, 9e3)).all()


def test_a_release_by_noisy_statistics_learns_the_weight(tmp_path: Path) -> None:
    spec = written(tmp_path, privacy="m = 10\nreplicates_per_draw = 2", synthesizer=SHORT)
    spec.write_text(f"{spec.read_text()}formats = ['csv']\n")
    ss.release(spec, tmp_path / "out", ledger=tmp_path / "ledger.jsonl")
    release = tmp_path / "out" / "release"
    content = json.loads((release / "statistics.json").read_text())
    privacy = json.loads((release / "privacy.json").read_text())
    rho = Budget.of_epsilon(10.8, 1e-6).rho
    assert [each["outcome"] for each in content["learned"]] == ["income", "weight"]
    for each in content["learned"]:
        assert 1 / float(Fraction(each["sigma^2"])) == pytest.approx(0.05 * rho, rel=1e-4)
    assert content["statistics"]["rho"] == pytest.approx(0.9 * rho)
    assert privacy["settings"]["learned"]["weight"]["range"] == list(RANGE)
    assert privacy["settings"]["spreads"]["learned weight"] == 1.0
    dossier = (release / "dossier.md").read_text()
    assert "income (0.05 of the budget); weight (0.05 of the budget)" in dossier
    assert "transformed amounts and learned weights" in dossier
    assert "the transform learned(weight, 2 to 2,000)" in dossier
    realised = json.loads((tmp_path / "out" / "confidential" / "realised.json").read_text())
    assert realised["amounts_outside_range"] == {"income": 0, "weight": 0}
    for data in datasets(release):
        assert RANGE[0] <= data["weight"].min() < data["weight"].max() <= RANGE[1]
        assert data["weight"].sum() == pytest.approx(30_000, rel=1e-4)
    assert rebuild(release, tmp_path / "again").different == ()
    content["learned"][1]["counts"][0][0][30] += 400
    (release / "statistics.json").write_text(json.dumps(content))
    assert "tables/counts.csv" in rebuild(release, tmp_path / "planted").different


@pytest.mark.parametrize("learned", [True, False])
def test_weights_of_two_sizes_come_back(learned: bool) -> None:
    """Half of the weights are about 20 and half about 400: a log-normal law has most in between."""
    frame = frame_of(2000)
    rng = np.random.default_rng(8)
    frame["weight"] = np.where(rng.random(2000) < 0.5, 20.0, 400.0) * np.exp(
        0.25 * rng.normal(size=2000)
    )
    transform = LearnedTransform(low=2.0, high=2000.0) if learned else None
    survey = ss.Survey.from_frame(
        frame, outcome="income", weight="weight", by=("sex",), strata="region",
        weight_transform=transform,
    )  # fmt: skip
    spec = spec_of_survey(survey.design, {
        "privacy": {"mechanism": "noisy_statistics", "epsilon": 10.8, "m": 10},
        "tables": {"by": ["sex"], "statistics": ["count"]},
        "outcomes": {
            "income": {"center": 25_000.0, "spread": 0.8},
            **({} if learned else {"weight": {"center": 4.5, "spread": 1.5}}),
        },
    })  # fmt: skip
    model = model_of(spec).of(survey.design)
    made = mechanism_of(spec).run(
        model, survey.design, survey.confidential, np.random.default_rng(3), seeded=True
    )
    design = made.design
    assert design is not None
    rng = np.random.default_rng(4)
    simulated = model.simulate(made.draws.draw(0), design, rng)
    drawn = model.drawn_weight(design, simulated)
    between = float(np.mean((drawn > 50.0) & (drawn < 160.0)))
    assert (between < 0.1) == learned
    assert drawn.mean() == pytest.approx(210.0, rel=0.12 if learned else 2.0)
    smooth = model.smooth_weight(made.draws.draw(0), design, simulated)
    assert (smooth.mean() == pytest.approx(drawn.mean(), rel=0.06)) or not learned


def test_large_cells_have_curves_of_their_own() -> None:
    """Numbers of records are public; small cells share a curve."""
    frame = frame_of(1000)
    frame["region"] = np.repeat(["A", "B", "C", "D"], [450, 350, 150, 50])
    survey = ss.Survey.from_frame(
        frame, outcome="income", weight="weight", by=("region",),
        weight_transform=LearnedTransform(low=2.0, high=2000.0, by="large_cells"),
    )  # fmt: skip
    rows = curve_rows(survey.design.modelled[-1], survey.design, Fraction(0))
    assert (rows == np.repeat([0, 1, 2, 2], [450, 350, 150, 50])).all()
    # Of counts, those of 25 SDs of the noise: 150 records.
    visits = Outcome("visits", "count", LearnedTransform(low=0.0, high=40.0, whole=True))
    rows = curve_rows(visits, survey.design, Fraction(36))
    assert (rows == np.repeat([0, 1, 2, 3], [450, 350, 150, 50])).all()
    rows = curve_rows(visits, survey.design, Fraction(37))
    assert (rows == np.repeat([0, 1, 2, 2], [450, 350, 150, 50])).all()


@pytest.mark.parametrize("by", ["large_cells", "all"])
def test_a_cell_keeps_weights_of_two_sizes_beside_another_of_one(by: LearnedBy) -> None:
    """Men have weights of 20 and 400, women of about 90, where one curve puts men's too."""
    frame = frame_of(2000)
    rng = np.random.default_rng(8)
    two, one = np.where(rng.random(2000) < 0.5, 20.0, 400.0), np.full(2000, 90.0)
    men = (frame["sex"] == "m").to_numpy()
    frame["weight"] = np.where(men, two, one) * np.exp(0.1 * rng.normal(size=2000))
    survey = ss.Survey.from_frame(
        frame, outcome="income", weight="weight", by=("sex",),
        weight_transform=LearnedTransform(low=2.0, high=2000.0, by=by),
    )  # fmt: skip
    histograms = noisy_histograms(
        survey.design, survey.confidential, 1.0, SeededNoise(np.random.default_rng(1))
    )
    curve = learned_design(survey.design, histograms).modelled[-1].transform
    z = curve.forward(frame["weight"].to_numpy())[men]
    normal = np.zeros(2000)
    normal[men] = rng.normal(z.mean(), z.std(), men.sum())
    drawn = curve.inverse(normal)[men]
    assert (np.mean((drawn > 50.0) & (drawn < 160.0)) < 0.1) == (by == "large_cells")


def test_weights_of_categories_alone_have_the_means_of_their_cells() -> None:
    """Records alike share an integral, unless their curves differ; drawn weights are the truth."""
    frame = frame_of(2000)
    frame["yes"] = np.where(np.random.default_rng(1).random(2000) < 0.4, 1, 0)
    frame.loc[frame["sex"] == "m", "weight"] *= 3
    survey = ss.Survey.from_frame(
        frame, outcomes=(ss.Outcome("yes", "binary"),), weight="weight", by=("sex",),
        weight_transform=LearnedTransform(low=2.0, high=2000.0),
    )  # fmt: skip
    spec = spec_of_survey(survey.design, {
        "privacy": {"mechanism": "noisy_statistics", "epsilon": 10.8, "m": 10},
        "tables": {"by": ["sex"], "statistics": ["count"]},
    })  # fmt: skip
    model = model_of(spec).of(survey.design)
    rng = np.random.default_rng(3)
    made = mechanism_of(spec).run(model, survey.design, survey.confidential, rng, seeded=True)
    design = made.design
    assert design is not None
    assert len(design.weight_transform.knots) == 2
    simulated = model.simulate(made.draws.draw(0), design, rng)
    smooth = model.smooth_weight(made.draws.draw(0), design, simulated)
    drawn = model.drawn_weight(design, simulated)
    for sex in ("f", "m"):
        cell = (frame["sex"] == sex).to_numpy()
        assert smooth[cell].mean() == pytest.approx(drawn[cell].mean(), rel=0.04)
        assert drawn[cell].mean() == pytest.approx(frame.loc[cell, "weight"].mean(), rel=0.1)


def test_redraws_move_the_curve_of_the_weight() -> None:
    design = learned_of(with_learned_weight(survey_of(400)))
    again = redrawn_designs(design, 2, np.random.default_rng(6))[0]
    assert again.weight_transform != design.weight_transform
    z = np.linspace(-2.0, 2.0, design.n)
    ratio = again.weight_transform.inverse(z) / design.weight_transform.inverse(z)
    assert 0.5 < ratio.min() < ratio.max() < 2.0


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"weight": "range = [0, 100]"}, "outcomes.weight.range: weights are above zero"),
        ({"weight": 'transform = "log"'}, "outcomes.weight.transform: this section is for"),
        (
            {"weight": "transform = { share = 0.1 }"},
            "outcomes.weight.transform: this section is for",
        ),
        ({"weight": "range = [1, 100]\ncenter = 3"}, "outcomes.weight.center: a learned transform"),
        ({"synthesizer": 'model = "fbp"'}, "'fbp' needs the logarithm of the weight"),
        ({"synthesizer": 'model = "normal"'}, "'normal' needs the logarithm of the weight"),
        ({"size": 10**7}, "the range of the weight, 2 to 2,000, does not contain the mean"),
    ],
)
def test_what_cannot_be_learned_is_an_error(
    tmp_path: Path, given: dict[str, Any], words: str
) -> None:
    path = written(tmp_path, 100, **given)
    with pytest.raises(InputError) as error:
        ss.read_survey(ss.load_spec(path))
    assert words in str(error.value)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"weights": "public"}, "public weights are not modeled"),
        ({"weight_transform": LearnedTransform(low=0.0, high=9.0)}, "must start above zero"),
    ],
)
def test_surveys_in_memory_refuse_the_same(given: dict[str, Any], words: str) -> None:
    keys = {"weight_transform": LearnedTransform(low=2.0, high=2000.0)} | given
    with pytest.raises(InputError, match=words):
        ss.Survey.from_frame(frame_of(60), outcome="income", weight="weight", by=("sex",), **keys)


def test_fbp_refuses_a_learned_weight_in_memory() -> None:
    survey = with_learned_weight(survey_of(200))
    one = replace(survey.design, outcomes=survey.design.outcomes[:1])
    with pytest.raises(InputError, match="needs the logarithm of the weight"):
        ss.get_model("fbp").under_noise().of(one).records(one, survey.confidential)


def test_a_survey_in_memory_declares_it(tmp_path: Path) -> None:
    frame = frame_of(200)
    survey = ss.Survey.from_frame(
        frame, outcome="income", weight="weight", by=("sex",), strata="region",
        transforms=LearnedTransform(low=0.0, high=5e6, share=0.06),
        weight_transform=LearnedTransform(low=2.0, high=2000.0, share=0.04, by="all"),
    )  # fmt: skip
    spec = spec_of_survey(survey.design, {
        "privacy": {"mechanism": "noisy_statistics", "epsilon": 4.0},
        "tables": {"by": ["sex"], "statistics": ["count"]},
    })  # fmt: skip
    (_, weight) = spec.learned
    assert weight.transform == survey.design.weight_transform
    assert [each.name for each in spec.learned] == ["income", "weight"]
    model = ss.get_model("fbs").under_noise().of(survey.design)
    statement = mechanism_of(spec).statement(model, survey.design)
    assert "weight (0.04 of the budget)" in " ".join(statement.guarantee)
    # Both outcomes and the weight share a tenth where a file says nothing of shares.
    file = ss.load_spec(written(tmp_path))
    assert [each.learned.share for each in file.learned if each.learned] == [0.05, 0.05]
