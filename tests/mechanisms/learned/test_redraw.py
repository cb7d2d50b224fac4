"""Redrawn curves against many surveys and noises: medians, which curves decide, vary as much.

A median is that of a curve with the mean and SD of z as the second stage knows them.
"""

import itertools
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import surveysynth as ss
from surveysynth._support.types import FloatArray
from surveysynth.config.build import mechanism_of
from surveysynth.inference import synthesis
from surveysynth.mechanisms.learned import histogram as histogram_module
from surveysynth.mechanisms.learned.histogram import redrawn_designs, redrawn_knots
from surveysynth.mechanisms.learned.smoothing import smoothed_counts
from surveysynth.sampling.primitives import NORMAL_NODES
from surveysynth.survey.survey import PublicDesign
from surveysynth.survey.transforms import BINS, LearnedTransform, normal_scores
from tests.mechanisms.learned.learned_cases import survey_of
from tests.mechanisms.learned.test_learned_release import written
from tests.mechanisms.learned.test_smoothing import ends_of, histogram, learned, wide

GRID, VARIANCE, N = LearnedTransform(low=0.0, high=5e6), 6.0, 600


def population() -> np.ndarray:
    """Two modes: a law that a curve has to find."""
    rng = np.random.default_rng(2)
    low = rng.random(100_000) < 0.5
    return np.exp(np.where(low, rng.normal(9.3, 0.4, low.size), rng.normal(11.0, 0.5, low.size)))


def median_of(knots: np.ndarray, z: np.ndarray) -> float:
    curve = LearnedTransform(low=GRID.low, high=GRID.high, curves=((tuple(knots.tolist()),),))
    return float(np.log(curve.inverse(np.array([z.mean()]))[0]))


def mean_of(knots: FloatArray, z: FloatArray) -> float:
    curve = LearnedTransform(low=GRID.low, high=GRID.high, curves=((tuple(knots.tolist()),),))
    return float(curve.inverse(z).mean())


def test_medians_vary_as_much_as_over_surveys_and_noises() -> None:
    """Each curve has the mean and SD of its own scores of the population."""
    rng, values = np.random.default_rng(7), population()
    own, redrawn, moved = [], [], []
    for _ in range(40):
        counts = histogram(GRID, rng.choice(values, N)) + np.round(
            rng.normal(0.0, np.sqrt(VARIANCE), BINS)
        )
        smooth = smoothed_counts(counts[None], VARIANCE, ends_of(GRID))
        curve = learned(GRID, smooth[0])
        z = curve.forward(values)
        own.append(median_of(normal_scores(smooth)[0], z))
        drawn = redrawn_knots(curve, smooth, VARIANCE, 4, rng)
        found = [median_of(knots[0], z) for knots in drawn]
        redrawn.append(np.var(found, ddof=1))
        moved.append(np.mean(found) - own[-1])
    ratio = np.sqrt(np.mean(redrawn)) / np.std(own, ddof=1)
    assert 0.7 < ratio < 1.4  # a curve that stays the same has 0
    assert abs(np.mean(moved)) < 0.1 * np.std(own)  # curves smoothed twice have 0.2


def test_location_and_scale_of_scores_stay() -> None:
    """C(y) = (T*(y) - a) / b: the scores of the published law keep mean 0 and SD 1."""
    rng = np.random.default_rng(8)
    smooth = smoothed_counts(histogram(GRID, population()[:N])[None], VARIANCE, ends_of(GRID))
    curve = learned(GRID, smooth[0])
    amounts = curve.inverse(rng.standard_normal(200_000))
    means = []
    for knots in redrawn_knots(curve, smooth, VARIANCE, 5, rng):
        assert (np.diff(knots) > 0).all()
        z = replace(curve, curves=(tuple(map(tuple, knots.tolist())),)).forward(amounts)
        assert z.mean() == pytest.approx(0.0, abs=0.02)
        assert z.std() == pytest.approx(1.0, abs=0.02)
        means.append(z[amounts < np.median(amounts)].mean())
    assert np.std(means) > 0.004  # the shape does not stay


def plain(curve: LearnedTransform, expected: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Planted: a curve T* as it is, with the location and scale of T."""
    noisy = rng.poisson(expected) + np.round(rng.normal(0.0, np.sqrt(VARIANCE), expected.shape))
    knots = normal_scores(smoothed_counts(noisy, VARIANCE, ends_of(GRID)))
    z = np.interp(NORMAL_NODES, curve.knots[0], knots[0])  # T*(T^-1(z))
    return np.asarray((knots[0] - z.mean()) / z.std())


def test_slopes_are_those_of_the_published_curve_on_average() -> None:
    rng = np.random.default_rng(9)
    smooth = smoothed_counts(histogram(GRID, population()[:N])[None], VARIANCE, ends_of(GRID))
    curve = learned(GRID, smooth[0])

    def apart(knots: FloatArray) -> float:
        return float(np.ptp(np.log(np.diff(knots)).mean(axis=0) - np.log(np.diff(curve.knots))[0]))

    drawn = redrawn_knots(curve, smooth, VARIANCE, 6, rng)[:, 0]
    assert apart(drawn) < 1e-6
    assert apart(np.stack([plain(curve, smooth, rng) for _ in range(6)])) > 0.1
    (only,) = redrawn_knots(curve, smooth, VARIANCE, 1, rng)[:, 0]
    assert only == pytest.approx(curve.knots[0], abs=0.02)  # one draw keeps the curve


def test_a_law_that_lost_most_records_sends_none_to_the_end_of_the_range(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """One draw of ten takes all records above the lower mode for noise."""
    smooth = smoothed_counts(histogram(GRID, population()[:N])[None], VARIANCE, ends_of(GRID))
    curve, lost = learned(GRID, smooth[0]), smooth.copy()
    lost[:, int(smooth[0, :50].argmax()) + 2 :] *= 1e-6
    made = itertools.cycle([lost, *[smooth] * 9])
    monkeypatch.setattr(histogram_module, "expected_counts", lambda *_: next(made))

    def largest() -> float:
        knots = redrawn_knots(curve, smooth, VARIANCE, 10, np.random.default_rng(1))[:, 0]
        return max(mean_of(each, NORMAL_NODES) for each in knots)

    assert largest() < 6.0 * mean_of(curve.knots[0], NORMAL_NODES)
    monkeypatch.setattr(histogram_module, "OUTER", np.inf)  # planted: steps as they are
    assert largest() > 15.0 * mean_of(curve.knots[0], NORMAL_NODES)


def test_means_of_a_wide_law_stay() -> None:
    """A skewed law has a mean that follows its tail, which is flatter in a curve smoothed twice."""
    rng = np.random.default_rng(5)
    values = np.clip(wide(100_000, rng), GRID.low, GRID.high)
    se = values.std() / np.sqrt(N)
    moved = []
    for _ in range(6):
        noisy = histogram(GRID, wide(N, rng)) + np.round(rng.normal(0.0, np.sqrt(VARIANCE), BINS))
        smooth = smoothed_counts(noisy[None], VARIANCE, ends_of(GRID))
        curve = learned(GRID, smooth[0])
        scores = curve.forward(values)
        z = scores.mean() + scores.std() * NORMAL_NODES
        drawn = redrawn_knots(curve, smooth, VARIANCE, 8, rng)[:, 0]
        planted = [plain(curve, smooth, rng) for _ in range(8)]
        moved.append([
            np.mean([mean_of(knots, z) for knots in some]) - mean_of(curve.knots[0], z)
            for some in (drawn, planted)
        ])
    own, twice = np.sqrt(np.mean(np.square(moved), axis=0)) / se
    assert own < 0.3
    assert twice > 1.5 * own


def test_every_draw_of_the_model_has_a_curve_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The z behind synthetic amounts are those of a run without redraws; the curves are others."""
    spec = ss.load_spec(written(tmp_path, "noisy_statistics", privacy="m = 10"))
    survey = ss.read_survey(spec)
    model = ss.get_model("fbs").under_noise().of(survey.design)
    run = mechanism_of(spec).run(
        model, survey.design, survey.confidential, np.random.default_rng(4), seeded=True
    )
    design = run.design_of(survey.design)
    redrawn = redrawn_designs(design, 10, np.random.default_rng(3))
    assert len({each.outcomes[0].transform.curves for each in redrawn}) == 10

    def amounts(designs: list[PublicDesign]) -> list[FloatArray]:
        monkeypatch.setattr(synthesis, "redrawn_designs", lambda *_: designs)
        made = synthesis.synthesize(
            model, design, run.draws, replicates_per_draw=1, rng=np.random.default_rng(5),
            scale_to=None,
        )  # fmt: skip
        return [each.outcome[:, 0] for each in made]

    for plain, of_draw, own in zip(
        amounts([design] * 10), amounts(redrawn), redrawn, strict=True
    ):
        z = design.outcomes[0].forward(plain)
        inside = np.abs(z) < 2.5
        assert own.outcomes[0].forward(of_draw)[inside] == pytest.approx(z[inside], abs=1e-6)
        assert np.abs(np.log(of_draw[inside] / plain[inside])).max() > 1e-3


def test_a_design_without_learned_curves_stays_as_it_is() -> None:
    design = survey_of(60).design
    state = np.random.default_rng(1)
    assert all(each is design for each in redrawn_designs(design, 3, state))
    assert state.random() == np.random.default_rng(1).random()
