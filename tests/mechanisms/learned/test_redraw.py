"""Redrawn curves against many surveys and noises: medians, which curves decide, vary as much.

A median is that of a curve with the mean and SD of z as the second stage knows them.
"""

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import surveysynth as ss
from surveysynth._support.types import FloatArray
from surveysynth.inference import synthesis
from surveysynth.mechanisms.learned.redraw import redrawn_design, redrawn_knots
from surveysynth.mechanisms.learned.smoothing import smoothed_counts
from surveysynth.spec.build import mechanism_of
from surveysynth.survey.learned import BINS, LearnedTransform, normal_scores
from surveysynth.survey.survey import PublicDesign
from tests.mechanisms.learned.learned_cases import survey_of
from tests.mechanisms.learned.test_learned_release import written
from tests.mechanisms.learned.test_smoothing import ends_of, histogram, learned

GRID, VARIANCE, N = LearnedTransform(low=0.0, high=5e6), 6.0, 600


def population() -> np.ndarray:
    """Two modes: a law that a curve has to find."""
    rng = np.random.default_rng(2)
    low = rng.random(100_000) < 0.5
    return np.exp(np.where(low, rng.normal(9.3, 0.4, low.size), rng.normal(11.0, 0.5, low.size)))


def median_of(knots: np.ndarray, z: np.ndarray) -> float:
    curve = LearnedTransform(low=GRID.low, high=GRID.high, curves=((tuple(knots.tolist()),),))
    return float(np.log(curve.inverse(np.array([z.mean()]))[0]))


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
        drawn = [redrawn_knots(curve, smooth, VARIANCE, rng)[0] for _ in range(4)]
        found = [median_of(knots, z) for knots in drawn]
        redrawn.append(np.var(found, ddof=1))
        moved.append(np.mean(found) - own[-1])
    ratio = np.sqrt(np.mean(redrawn)) / np.std(own, ddof=1)
    assert 0.7 < ratio < 1.4  # a curve that stays the same has 0
    assert abs(np.mean(moved)) < np.std(own)


def test_location_and_scale_of_scores_stay() -> None:
    """C(y) = (T*(y) - a) / b: the scores of the published law keep mean 0 and SD 1."""
    rng = np.random.default_rng(8)
    smooth = smoothed_counts(histogram(GRID, population()[:N])[None], VARIANCE, ends_of(GRID))
    curve = learned(GRID, smooth[0])
    amounts = curve.inverse(rng.standard_normal(200_000))
    means = []
    for _ in range(5):
        knots = redrawn_knots(curve, smooth, VARIANCE, rng)
        assert (np.diff(knots) > 0).all()
        z = replace(curve, curves=(tuple(map(tuple, knots.tolist())),)).forward(amounts)
        assert z.mean() == pytest.approx(0.0, abs=0.02)
        assert z.std() == pytest.approx(1.0, abs=0.02)
        means.append(z[amounts < np.median(amounts)].mean())
    assert np.std(means) > 0.004  # the shape does not stay


def test_every_draw_of_the_model_has_a_curve_of_its_own(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The z behind synthetic amounts are those of a run without redraws; the curves are others."""
    spec = ss.load_spec(written(tmp_path, "noisy_statistics", privacy="m = 10"))
    survey = ss.read_survey(spec)
    model = ss.get_model("fbs").of(survey.design)
    run = mechanism_of(spec).run(
        model, survey.design, survey.confidential, np.random.default_rng(4), seeded=True
    )
    design = run.design_of(survey.design)
    redrawn = [redrawn_design(design, np.random.default_rng(k)) for k in range(10)]
    assert len({each.outcomes[0].transform.curves for each in redrawn}) == 10

    def amounts(designs: list[PublicDesign]) -> list[FloatArray]:
        given = iter(designs)
        monkeypatch.setattr(synthesis, "redrawn_design", lambda *_: next(given))
        made = synthesis.synthesise(
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
    assert redrawn_design(design, state) is design
    assert state.random() == np.random.default_rng(1).random()
