"""Each move of the posterior from noisy statistics by itself, "getting it right" (Geweke 2004).

Truth: the joint distribution of parameters, T, W, T~ and Q~ by forward simulation. What leaves the
posterior invariant leaves this distribution as it was, and means of functions of all of it with it.
Whole chains can hide a wrong move behind right ones; here each is alone, and wrong ones rejected.
"""

from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import pytest

from surveysynth._support.types import FloatArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.augmentation import Augmentation
from surveysynth.mechanisms.noisy_statistics.posterior.model_adapters import implied_sample
from surveysynth.mechanisms.noisy_statistics.posterior.moments import NoisyTarget, PublicSums
from surveysynth.models import get_model
from surveysynth.models.parts.psu_effects import PSU_COVARIANCE, PSU_EFFECT
from surveysynth.sampling.sweeps import Streams
from tests.long_runs import noisy_sbc, sbc

CHAINS = 10_000
#: Of 350 to 860 functions: a right move passes but for one seed in two thousand.
LARGEST = 5.0
#: Entries of Q~, in squared spreads, of the databases that are looked at: nearly all.
MOST = 1e6
REJECTED = 8.0
MODELS = ("FBS, one outcome", "Normal with a weight", "FBP", "FBS, PSUs", "FBP, PSUs")


@dataclass
class Joint:
    """Draws of everything, one a chain: theta in the model's sampler, T and W in ``moves``."""

    implied: Any
    moves: Augmentation
    truth: NoisyTarget

    def functions(self) -> FloatArray:
        """(B, d) numbers with light tails, and all products of two of them."""
        target, moves = self.truth, self.moves
        b, covariance = self.implied.moments()
        lam = target.lam[:, :, None]
        root = np.linalg.inv(np.linalg.cholesky(covariance))
        turned = root.swapaxes(-1, -2)
        gap = (moves.cross - lam * (target.link @ target.about_centre(b))) / np.sqrt(lam) @ turned
        scatter = root @ moves.scatter @ turned
        noise = (target.cross - moves.cross) / target.cross_sd
        rest = target.squares - moves.scatter - target.explained(moves.cross)
        rest = rest / target.squares_sd
        row, column = np.tril_indices(rest.shape[-1])
        parts = [
            rest[:, row, column], np.log(np.einsum("bkk->bk", scatter)), gap[:, 0], noise[:, 0],
            (gap**2).mean(1), (noise**2).mean(1), (gap * noise).mean(1),
            np.linalg.slogdet(scatter)[1][:, None],
        ]  # fmt: skip
        for value in self.implied.sampler.state().values():
            each = value.reshape(len(value), -1)[:, :4]
            parts.append(np.log(each) if (each > 0).all() else np.arcsinh(each))
        base = np.clip(np.concatenate(parts, axis=1), -30.0, 30.0)
        first, second = np.triu_indices(base.shape[1])
        return np.concatenate([base, np.tanh(0.5 * base[:, first]) * np.tanh(base[:, second])], 1)


def correlation_state(correlation: FloatArray, columns: int, rng: np.random.Generator) -> Any:
    """A root (B, K, columns) of a Wishart matrix whose correlation is given: independent of it are
    its scales, chi, and how it is turned."""
    b, k = correlation.shape[:2]
    turn = np.linalg.qr(rng.standard_normal((b, columns, k)))[0].swapaxes(-1, -2)
    scale = np.sqrt(rng.chisquare(columns, (b, k, 1)))
    return scale * (np.linalg.cholesky(correlation) @ turn)


def assign(sampler: Any, theta: Theta, model: str, rng: np.random.Generator) -> None:
    """Writes all parameters into a model's sampler."""
    if model != "fbp":
        blocks = sampler.coefficients
        scale = theta["coefficient_scale"]
        blocks.scale = scale if scale.ndim == 3 else scale[:, None]
        blocks.root = correlation_state(theta["coefficient_correlation"], blocks.columns, rng)
        blocks._set_correlation()
        np.testing.assert_allclose(blocks.correlation, theta["coefficient_correlation"], atol=1e-9)
    if model == "fbs":
        blocks.beta, sampler.residual.covariance = theta["beta"], theta["covariance"]
    elif model == "normal":
        blocks.beta, sampler.variance = theta["beta"][..., None], theta["variance"][:, 0]
        sampler.weight.coefficients = theta["weight_coefficients"]
        sampler.weight.variance = theta["variance"][:, 1]
    else:
        sampler.beta, sampler.selection = theta["beta"], theta["selection"]
        sampler.variance = theta["variance"]
    if PSU_EFFECT in theta:
        sampler.psu.block.covariance = theta[PSU_COVARIANCE]
        sampler.psu.effects = sampler.effects = theta[PSU_EFFECT]


def joint(name: str, seed: int, noise: float = 1.0, df: float = 0.0) -> Joint:
    """Exact draws; the moves believe in ``noise`` times the SDs and ``df`` more degrees."""
    rng = np.random.default_rng(seed)
    few = 4 if "PSUs" in name else 0
    case = replace(noisy_sbc.CASES[name], n=18 if few else 14, psus=few, sigma=1.5, squares_sd=5.0)
    x = sbc.design_rows(sbc.Case(case.model, n=case.n, columns=case.columns))
    theta = noisy_sbc.prior(case, CHAINS, rng)
    z = noisy_sbc.records(theta, case, x, rng)
    centre = np.full(case.q, case.spread)
    noisy, public = noisy_sbc.noisy_moments(case, z, x, centre, rng)
    # Tails of FBP's Cauchy prior are no numbers to compute with. No move changes T~ and Q~: the
    # joint distribution on a set of these is as invariant as the whole one.
    held = np.flatnonzero(np.abs(noisy.squares).max((1, 2)) < MOST)
    theta, z = {name: value[held] for name, value in theta.items()}, z[held]
    noisy = replace(noisy, cross=noisy.cross[held], squares=noisy.squares[held])
    public = PublicSums(*(each[held] for each in vars(public).values()))
    target = NoisyTarget.of(noisy, public, 1)
    streams = Streams.of(rng, 1, held.size)
    believed = replace(
        target, cross_sd=noise * target.cross_sd, squares_sd=noise * target.squares_sd,
        df=target.df + df,
    )  # fmt: skip
    moves = Augmentation(believed, noisy.spread, streams)
    psu = np.arange(case.n)[:, None] % max(few, 1) == np.arange(few)
    white = np.hstack([x @ noisy_sbc.whitening(x) * np.sqrt(0.5 if few else 1.0),
                       np.sqrt(0.5) * psu])  # fmt: skip
    lam, vectors = np.linalg.eigh(white.T @ white)
    axes = vectors[:, lam > 1e-8 * lam[-1]]
    # The target's axes are these but for their signs.
    ours, theirs = axes.T @ noisy.cross[0] * noisy.spread, target.cross[0]
    axes = axes * np.sign((ours * theirs).sum(1))
    v = z - centre
    moves.cross = (white @ axes).T @ v
    residual = v - white @ (np.linalg.pinv(white) @ v)
    moves.scatter = residual.swapaxes(-1, -2) @ residual
    np.testing.assert_allclose(axes.T @ noisy.cross[7] * noisy.spread, target.cross[7], atol=1e-8)
    model = get_model(case.model, priors=case.priors)
    made = implied_sample(model)(moves.statistics(), model.priors, streams)
    assign(made.sampler, theta, case.model, rng)
    coefficients, covariance = made.moments()
    expected, implied = noisy_sbc.implied(theta, case.model)
    np.testing.assert_allclose(covariance, implied, rtol=1e-9)
    first = 1 if few else 0  # the means of effects are in the first of FBP's
    same = slice(first, case.columns)
    np.testing.assert_allclose(coefficients[:, same], expected[:, same], rtol=1e-6, atol=1e-9)
    moves.draw_random_numbers(1)
    made.sampler.draw_random_numbers(4)
    return Joint(made, moves, target)


def coefficients_and_sums(state: Joint) -> None:
    b, covariance = state.implied.moments()
    drawn = state.moves.draw_coefficients(0, b, covariance, state.implied.prior())
    state.implied.assign(drawn, covariance)


def tighter_prior(state: Joint) -> None:
    b, covariance = state.implied.moments()
    prior = state.implied.prior()
    prior = replace(prior, precision=3.0 * prior.precision)
    state.implied.assign(state.moves.draw_coefficients(0, b, covariance, prior), covariance)


def without_squares(state: Joint) -> None:
    with noisy_sbc.cut():
        coefficients_and_sums(state)


def scales(state: Joint) -> None:
    b, covariance = state.implied.moments()
    moved = state.moves.rescale(0, b, covariance, state.implied.log_covariance_prior)
    state.implied.assign(b, moved)


def scales_without_jacobian(state: Joint) -> None:
    """The volume of Sigma in its log SDs forgotten."""
    b, covariance = state.implied.moments()

    def log_prior(*arguments: Any) -> FloatArray:
        root = arguments[-1]
        log_sd = 0.5 * np.log((root * root).sum(-1)).sum(-1)
        whole = state.implied.log_covariance_prior(*arguments)
        return np.asarray(whole - (root.shape[-1] + 1.0) * log_sd)

    state.implied.assign(b, state.moves.rescale(0, b, covariance, log_prior))


def scatter(state: Joint) -> None:
    state.moves.draw_scatter(0, state.implied.moments()[1])


def sweep(state: Joint) -> None:
    """Four of the model's: some of its parameters are drawn in every second or fourth."""
    state.implied.observe(state.moves.statistics())
    for i in range(4):
        state.implied.sampler.sweep(i)


def sweep_of_wider_residuals(state: Joint) -> None:
    """W with the noise of Q~, as if it were the sample's."""
    state.moves.scatter = 1.2 * state.moves.scatter
    sweep(state)
    state.moves.scatter = state.moves.scatter / 1.2


def largest_change(state: Joint, move: Callable[[Joint], None]) -> float:
    """Largest |z| of means of all functions, after the move less before it."""
    before = state.functions()
    move(state)
    change = state.functions() - before
    moved = change.std(0) > 1e-9
    assert moved.any()
    change = change[:, moved]
    return float(np.abs(change.mean(0) / change.std(0)).max() * np.sqrt(len(change)))


MOVES = (coefficients_and_sums, scales, scatter, sweep)


@pytest.mark.parametrize("move", MOVES, ids=lambda move: move.__name__)
@pytest.mark.parametrize("name", MODELS)
def test_a_move_leaves_the_joint_distribution_as_it_was(
    name: str, move: Callable[[Joint], None]
) -> None:
    assert largest_change(joint(name, 1), move) < LARGEST


#: (move, believed SDs of the noise over the true ones, degrees of freedom too many)
WRONG: tuple[tuple[Callable[[Joint], None], float, float], ...] = (
    *((move, 1.3, 0.0) for move in (coefficients_and_sums, scales, scatter)),
    *((move, 1.0, 2.0) for move in (coefficients_and_sums, scatter)),
    *((move, 1.0, 0.0) for move in (
        tighter_prior, without_squares, scales_without_jacobian, sweep_of_wider_residuals
    )),
)  # fmt: skip


@pytest.mark.parametrize("name", ["FBS, one outcome", "FBP, PSUs"])
def test_a_wrong_move_is_seen(name: str) -> None:
    for move, noise, df in WRONG:
        found = largest_change(joint(name, 1, noise, df), move)
        assert found > REJECTED, (move.__name__, noise, df)
