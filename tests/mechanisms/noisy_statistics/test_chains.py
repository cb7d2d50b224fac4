"""How chains of noisy statistics run: slices, starts, going on.

Truth: the package's other slice sampler, try by try; LAPACK; fits one by one against their batch;
a million records, where chains without the common move do not converge.
"""

from dataclasses import replace
from typing import Any
from unittest import mock

import numpy as np
import pytest

from surveysynth.errors import RefusedError
from surveysynth.mechanisms.declared import Declared
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.posterior import draws
from surveysynth.mechanisms.noisy_statistics.posterior.augmentation import Augmentation
from surveysynth.mechanisms.noisy_statistics.posterior.covariance_moves import small_cholesky
from surveysynth.mechanisms.noisy_statistics.posterior.draws import sample_noisy
from surveysynth.mechanisms.noisy_statistics.posterior.moments import NoisyMoments, PublicSums
from surveysynth.mechanisms.noisy_statistics.posterior.slices import shrinking, slice_step
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import release_statistics
from surveysynth.mechanisms.noisy_statistics.settings import NOISY_PLAN, NoisySettings
from surveysynth.models import get_model
from surveysynth.sampling import primitives
from surveysynth.sampling.convergence import check_convergence
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.survey import Survey
from tests.surveys import small_survey


def test_a_slice_is_that_of_trying_one_by_one() -> None:
    rng = np.random.default_rng(1)
    current, level = rng.standard_normal(50), rng.random(50)
    place, uniforms = rng.random(50), rng.random((50, 30))

    def log_density(x: Any) -> Any:
        return -8.0 * x**2 + np.sin(5 * x)

    plain = primitives.slice_sample(
        log_density, current, current - 6 * place, current + 6 * (1 - place), level, uniforms.T
    )
    tries = 6.0 * shrinking(-place, 1 - place, uniforms)
    step = slice_step(lambda which, s: log_density(current[which, None] + s), level, tries)
    np.testing.assert_allclose(current + step, plain, rtol=0, atol=1e-12)
    assert (step != 0).all()
    # With too few tries some chains stay.
    few = slice_step(lambda which, s: log_density(current[which, None] + s), level, tries[:, :1])
    assert 0 < (few == 0).sum() < 50


def test_roots_are_lapacks_or_nan() -> None:
    rng = np.random.default_rng(2)
    root = rng.standard_normal((7, 3, 4, 4))
    matrix = root @ root.swapaxes(-1, -2)
    np.testing.assert_allclose(small_cholesky(matrix), np.linalg.cholesky(matrix), rtol=1e-9)
    matrix[3, 1] -= 100.0 * np.eye(4)
    with np.errstate(invalid="ignore"):
        found = np.isnan(small_cholesky(matrix)).any((-1, -2))
    assert found[3, 1]
    assert found.sum() == 1


def many_records(n: int = 1_000_000) -> tuple[NoisyMoments, PublicSums]:
    """Weights that X and outcome nearly tell, as of a design with few rates: the noise of T leaves
    40 times as much open of their scatter as the number of records does."""
    x = np.array([[1.0, 0.0], [1.0, 1.0]])
    cell = np.arange(n) % 2
    white = x @ (basis := 0.6 * np.eye(2))
    public = PublicSums.of(x, cell, basis)
    coefficients = np.array([[1.0, -0.8], [0.5, 0.6]])
    scatter = n * np.array([[0.25, 0.05], [0.05, 0.0104]])
    fitted = x @ coefficients
    cross = 0.5 * n * white.T @ fitted
    squares = scatter + 0.5 * n * fitted.T @ fitted
    noisy = NoisyMoments(
        cross[None], squares[None], 6.0, np.full((2, 2), 12.0), np.zeros(2), np.ones(2)
    )
    return noisy, public


def test_chains_arrive_and_mix_where_records_are_very_many() -> None:
    model = get_model("fbs")
    noisy, public = many_records()

    def monitored() -> Any:
        theta = sample_noisy(model, noisy, public, NOISY_PLAN, np.random.default_rng(3))
        return model.monitored({name: values[0] for name, values in theta.items()})

    _, ess = check_convergence(monitored(), None)
    assert min(ess.values()) > 400

    def stay(self: Augmentation, i: int, beta: Any, covariance: Any, *_: Any) -> Any:
        return beta, covariance

    with mock.patch.object(Augmentation, "shift", stay), pytest.raises(RefusedError):
        check_convergence(monitored(), None)


def releases(count: int) -> tuple[Any, list[Any], NoisySettings]:
    """Of small surveys."""
    model = get_model("fbs")
    settings = NoisySettings(
        Budget.of_epsilon(2.0, 1e-6), {"salary": Declared(22000, 0.45)}, m=10,
        plan=SamplingPlan(8, 20, 30),
    )  # fmt: skip
    made = []
    for seed in range(count):
        survey = Survey.from_frame(
            small_survey(seed=seed), outcome="salary", weight="weight", by=["field"],
            predictors="field", population_size=30_000,
        )  # fmt: skip
        source = SeededNoise(np.random.default_rng(seed))
        statistics = release_statistics(
            model, survey.design, survey.confidential, settings, source
        )
        made.append((survey.design, statistics))
    return model, made, settings


def fitted(made: list[Any], seeds: list[int], refused: list[bool]) -> list[Any]:
    """Of a batch; what is said of each fit in turn is written in ``refused``."""
    model, _, settings = releases(0)
    said, gate = iter(refused), draws.draws_if_converged

    def judge(model: Any, theta: Any, settings: Any, thinning: int) -> Any:
        with mock.patch(f"{gate.__module__}.check_convergence", return_value=({}, {})):
            result = gate(model, theta, settings, thinning)
        return RefusedError("not yet") if next(said) else result

    with mock.patch.object(draws, "draws_if_converged", judge):
        rngs = [np.random.default_rng(seed) for seed in seeds]
        results = draws.posterior_batch(model, [made[i] for i in seeds], settings, rngs)
    assert next(said, None) is None
    return results


def test_fits_go_on_alike_alone_and_in_company() -> None:
    _, made, _ = releases(3)
    # The first goes on twice: together with the others, who are done, it would be three times.
    together = fitted(made, [0, 1, 2], [True, False, False, True, False])
    alone = fitted(made, [0], [True, True, False]) + fitted(made, [1], [False])
    assert [result[1].thinning for result in (*together, *alone)] == [4, 1, 1, 4, 1]
    for ours, theirs in zip(together[:2], alone, strict=True):
        for name, values in theirs[0].theta.items():
            np.testing.assert_allclose(ours[0].theta[name], values, rtol=1e-5, atol=1e-8)
    # A fit that goes on does not begin again: its draws are others than those of the first stage.
    (first,) = fitted(made, [0], [False])
    assert not np.allclose(first[0].theta["beta"], together[0][0].theta["beta"])


def test_what_does_not_converge_is_refused_in_the_end() -> None:
    model, made, settings = releases(1)
    short = replace(settings, plan=SamplingPlan(2, 0, 10))
    with mock.patch.object(draws, "THINNINGS", (1, 2)), pytest.raises(RefusedError, match="R-hat"):
        draws.posterior_draws(model, *made[0], short, np.random.default_rng(0))
