"""Odds of rare levels after debiasing, against unweighted fits to the same databases, of a small
model of a binary outcome whose posterior is drawn exactly, cell by cell."""

from dataclasses import dataclass, replace
from functools import cache

import numpy as np
import pandas as pd
import pytest
from scipy.special import expit, log_expit

from surveysynth.errors import InputError
from surveysynth.inference.bias_search import MAX_FACTOR
from surveysynth.inference.debias import debias_many
from surveysynth.mechanisms.pseudo_posterior.fit import Database
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch
from surveysynth.models.base import Coordinates, Model, Simulated
from surveysynth.models.parts.mean_predictor import intercept_direction, mean_row
from surveysynth.release.facts import inference_words
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform

N = 1500
SETTINGS = MechanismSettings(epsilon=10.8, plan=SamplingPlan(2, 10, 200), origin="density")
TRUTH = {"logit": np.array([-3.0, 0.7]), "mean": np.array([3.0, -0.6]), "variance": np.array([0.2])}


@dataclass(frozen=True)
class Records:
    """y (n,) of 0 and 1, log weights (n,), cells of X."""

    y: np.ndarray
    log_weight: np.ndarray
    x_cells: np.ndarray
    cell: np.ndarray


@dataclass(frozen=True)
class BinaryOutcome(Model):
    """y ~ Bernoulli(expit(x b)), log w ~ N(a + d y, s^2). X saturated: the logits of cells are
    independent, N(0, 2.5^2), and drawn from their distribution functions on a grid."""

    name = "binary"
    title = "a toy"
    common_random_numbers = True

    def records_from_simulated(self, design, simulated):
        y, log_weight = simulated.z.T
        return Records(y, log_weight, design.matrix.x_cells, design.matrix.cell)

    def compress(self, records, risk_weights):
        return records, risk_weights

    def sample(self, stats, plan, rng):
        records, alpha = stats
        lead, cells = (plan.chains, plan.draws), len(records.x_cells)
        grid = np.linspace(-14.0, 8.0, 2200)
        eta = np.empty((*lead, cells))
        for g in range(cells):
            here = records.cell == g
            ones, zeros = (alpha[here & (records.y == level)].sum() for level in (1, 0))
            log_density = ones * log_expit(grid) + zeros * log_expit(-grid) - grid**2 / 12.5
            cdf = np.cumsum(np.exp(log_density - log_density.max()))
            eta[..., g] = np.interp(rng.random(lead), cdf / cdf[-1], grid)
        m = np.stack([np.ones_like(records.y), records.y], axis=1)
        gram = np.linalg.inv(m.T @ (alpha[:, None] * m))
        fit = gram @ m.T @ (alpha * records.log_weight)
        squares = alpha @ (records.log_weight - m @ fit) ** 2
        variance = squares / rng.chisquare(alpha.sum() - 2.0, (*lead, 1))
        noise = rng.standard_normal((*lead, 2)) @ np.linalg.cholesky(gram).T
        theta = {
            "logit": np.linalg.solve(records.x_cells, eta[..., None])[..., 0],
            "mean": fit + noise * np.sqrt(variance),
            "variance": variance,
        }
        return {name: values[None] for name, values in theta.items()}

    def monitored(self, theta):
        return {**theta, "variance": np.log(theta["variance"])}

    def log_lik_blocks(self, theta, records):
        eta = (theta["logit"] @ records.x_cells.T)[:, records.cell]
        mean = theta["mean"][:, :1] + theta["mean"][:, 1:] * records.y
        squares = (records.log_weight - mean) ** 2 / theta["variance"]
        of_weight = -0.5 * (np.log(2 * np.pi * theta["variance"]) + squares)
        yield np.arange(records.y.size), log_expit(np.where(records.y, eta, -eta)) + of_weight

    def simulate(self, theta, design, rng, kind="release"):
        matrix = design.matrix
        y = rng.random(design.n) < expit(matrix.x_cells @ theta["logit"])[matrix.cell]
        noise = np.sqrt(theta["variance"]) * rng.standard_normal(design.n)
        return Simulated(np.stack([y, theta["mean"] @ [np.ones(design.n), y] + noise], axis=1))

    def log_scales(self, theta):
        return 0.5 * np.log(theta["variance"])

    def with_log_scales(self, theta, log_scales):
        return {**theta, "variance": np.exp(2.0 * log_scales)}


class WithOdds(BinaryOutcome):
    """The same, whose intercept is debiased too."""

    def debiased(self, theta, design):
        odds = theta["logit"] @ mean_row(design.matrix)
        scales = super().debiased(theta, design)
        return Coordinates.joined(scales, Coordinates.of("odds", odds))

    def with_debiased(self, theta, values, design):
        moved = values - self.debiased(theta, design).values
        along = intercept_direction(design.matrix)
        return {
            **self.with_log_scales(theta, values[..., :-1]),
            "logit": theta["logit"] + moved[..., -1:] * along,
        }


@cache
def design():
    frame = pd.DataFrame(
        {
            "group": np.tile(["a", "b"], N // 2),
            "benefit": np.arange(N) % 3 == 0,
            "weight": np.exp(np.random.default_rng(1).normal(3.0, 0.4, N)),
        }
    ).astype({"benefit": float})
    return Survey.from_frame(
        frame, outcome="benefit", weight="weight", by=["group"], transforms=Transform("identity")
    ).design


@cache
def released(origin="density", databases=3):
    """Of databases simulated from known parameters the runs, in which odds are looked at."""
    model, rng = WithOdds(), np.random.default_rng(4)
    data = [
        Database.simulated(model, design(), model.simulate(TRUTH, design(), rng, "sample"))
        for _ in range(databases)
    ]
    results = run_batch(model, data, replace(SETTINGS, origin=origin), rng)
    assert all(isinstance(each, tuple) for each in results)
    return results


@cache
def odds_left(kind, origin="density"):
    """With a model of that kind, of each release the log odds of the level less those of the
    unweighted fit, as they are in the posterior mean of the mechanism and in debiased draws."""
    model, results = kind(), released(origin)
    made = debias_many(model, [(design(), private) for private, _ in results],
                       np.random.default_rng(5), databases=6)  # fmt: skip
    before = np.array([(fit.means - fit.unweighted_means)[-1] for _, fit in results])
    shift = [
        (WithOdds().debiased(each.draws.theta, design()).values
         - WithOdds().debiased(private.theta, design()).values)[:, -1]
        for each, (private, _) in zip(made, results, strict=True)
    ]  # fmt: skip
    return before, before + np.mean(shift, axis=1), [each.record for each in made]


def test_odds_of_a_rare_level_come_back_to_those_of_the_unweighted_fit():
    before, after, records = odds_left(WithOdds)
    assert np.all(before < -0.4)
    assert [each.status for each in records] == ["debiased"] * len(records)
    assert np.all(np.abs(after) < 0.3 * np.abs(before))
    assert abs(after.mean()) < 0.12 * abs(before.mean())
    assert all(each.kinds == ("scale", "odds") for each in records)


def test_scales_alone_leave_a_rare_level_too_rare():
    before, after, records = odds_left(BinaryOutcome)
    np.testing.assert_allclose(after, before)
    assert all(each.kinds == ("scale",) for each in records)


def test_the_intercept_alone_moves():
    model, theta = WithOdds(), released()[0][0].theta
    logs = model.debiased(theta, design()).values + np.array([0.1, 0.5])
    moved = model.with_debiased(theta, logs, design())
    np.testing.assert_allclose(model.debiased(moved, design()).values, logs, rtol=1e-12)
    matrix = design().matrix
    linear = (moved["logit"] - theta["logit"]) @ matrix.x_cells.T
    np.testing.assert_allclose(linear, 0.5, rtol=1e-12)
    np.testing.assert_array_equal(moved["mean"], theta["mean"])


@pytest.mark.parametrize("columns", [[[1.0, 0.0], [1.0, 1.0]], [[1.0, 0.0], [0.0, 1.0]]])
def test_a_constant_among_the_columns_is_found(columns):
    matrix = replace(design().matrix, x_cells=np.array(columns))
    np.testing.assert_allclose(matrix.x_cells @ intercept_direction(matrix), 1.0)
    assert mean_row(matrix) @ intercept_direction(matrix) == pytest.approx(1.0)


def test_without_a_constant_levels_cannot_be_debiased():
    matrix = replace(design().matrix, x_cells=np.array([[1.0, 2.0], [2.0, 4.1], [3.0, 6.1]]))
    with pytest.raises(InputError, match="no intercept"):
        intercept_direction(matrix)
    with pytest.raises(InputError, match="for each of 2 kinds"):
        Coordinates(np.ones((3, 1)), ("scale", "odds"))


def test_words_tell_scales_from_odds():
    record = odds_left(WithOdds)[2][0]
    words = inference_words(record)
    scale, odds = (f"{factor:.3f}" for factor in np.exp(record.shift))
    assert f"In every draw the scales were multiplied by {scale}." in words
    assert f"against the first of their outcome were multiplied by {odds}." in words
    assert MAX_FACTOR["odds"] > np.exp(record.shift[1]) > 1.5
