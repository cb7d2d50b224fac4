"""Simulation-based calibration of noisy statistics: ``python -m tests.long_runs.noisy_sbc``.

As ``tests.long_runs.sbc``, of the whole from data to posterior: parameters from the priors of
methods 3, records from the parameters, moments of the records, noise, draws given the noisy
moments alone.
The noise is of the size of what the records tell, and centres are off by one spread. The density
of the noisy T~ given the parameters is ranked too: it joins all parameters and the data.

Wrong posteriors are rejected: one that takes the noisy statistics for the sample's, and in some
cases one that knows the noise of T alone (that of Q is taken for a tenth). One in which Q~ tells
nothing of T is too near for a few hundred databases: it is here for ``test_posterior``. Results go
to tests/golden/noisy_sbc.json; ``--case NAME`` runs single cases.
"""

from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
from surveysynth.mechanisms.noisy_statistics.posterior.augmentation import Augmentation
from surveysynth.mechanisms.noisy_statistics.posterior.moments import (
    NoisyMoments,
    NoisyTarget,
    PublicSums,
)

from surveysynth._support.types import FloatArray, Theta
from surveysynth.mechanisms.noisy_statistics.posterior.draws import sample_noisy
from surveysynth.models import get_model
from surveysynth.models.parts.psu_effects import PSU_EFFECT
from surveysynth.sampling.plan import SamplingPlan
from tests.long_runs import noisy_calibration, sbc

GOLDEN = Path(__file__).parents[1] / "golden" / "noisy_sbc.json"
WRONG = ("no noise", "no noise in Q", "Q tells nothing of T")


@dataclass(frozen=True)
class Case:
    """A model, its priors, the size of its databases and of the noise.

    sigma: SD of the noise of T; squares_sd: of a diagonal entry of Q, over sqrt(2) of another;
    spread: of all columns, in units of z; centres are one spread off. ``rejects``: of ``WRONG``,
    what this case must reject.
    """

    model: str
    outcomes: int = 1
    n: int = 60
    columns: int = 3
    psus: int = 0
    weight: bool = True
    sigma: float = 3.0
    squares_sd: float = 12.0
    spread: float = 0.7
    priors: Mapping[str, float] = field(default_factory=dict)
    replications: int = 250
    draws: int = 31
    thin: int = 8
    warmup: int = 300
    rejects: tuple[str, ...] = WRONG[:1]

    @property
    def q(self) -> int:
        """Columns of z."""
        return 1 if self.model == "normal" and not self.weight else self.outcomes + 1


FBS_PRIORS = {"coefficient_scale": 0.7, "residual_scale": 0.5}
FBP_PRIORS = {"coefficient_sd": 1.0, "selection_sd": 0.5, "residual_scale": 0.5}
NORMAL_PRIORS = {
    "coefficient_scale": 0.7, "residual_scale": 0.5,
    "weight_coefficient_sd": 1.0, "weight_residual_scale": 0.5,
}  # fmt: skip
CASES = {
    "FBS, one outcome": Case("fbs", priors=FBS_PRIORS, rejects=WRONG[:2]),
    "FBS, two outcomes": Case("fbs", outcomes=2, priors=FBS_PRIORS),
    "FBS, few records": Case("fbs", n=9, sigma=1.5, squares_sd=4.0, priors=FBS_PRIORS),
    "FBS, more noise than signal": Case(
        "fbs", sigma=12.0, squares_sd=100.0, priors=FBS_PRIORS, rejects=WRONG[:2]
    ),
    # Squares known better beside T than the mechanism's noise ever lets them be.
    "FBS, Q tells of T": Case("fbs", sigma=4.0, squares_sd=8.0, priors=FBS_PRIORS),
    "Normal": Case("normal", weight=False, priors=NORMAL_PRIORS),
    "Normal with a weight": Case("normal", priors=NORMAL_PRIORS),
    "FBP": Case("fbp", priors=FBP_PRIORS),
    "FBS, PSUs": Case("fbs", psus=15, sigma=1.5, priors={**FBS_PRIORS, "psu_scale": 0.3}),
    "FBP, PSUs": Case(
        "fbp", psus=15, sigma=1.5, thin=12, warmup=400, priors={**FBP_PRIORS, "psu_scale": 0.3}
    ),
}


def normal_prior(case: Case, count: int, rng: np.random.Generator) -> Theta:
    """Draws of the normal regression's parameters from its prior (methods 3)."""
    priors: Mapping[str, float] = get_model("normal", priors=case.priors).priors  # type: ignore[attr-defined]
    k = case.columns
    scale = priors["coefficient_scale"] * np.abs(rng.standard_t(3, (count, k)))
    omega = sbc.lkj_draws(count, k, priors["lkj"], rng)
    sd = priors["residual_scale"] * np.abs(rng.standard_t(3, (count, 1)))
    theta = {
        "beta": scale * (omega @ rng.standard_normal((count, k, 1)))[:, :, 0],
        "variance": sd**2,
        "coefficient_scale": scale,
        "coefficient_correlation": omega @ omega.swapaxes(-1, -2),
    }
    if case.weight:
        noise = rng.standard_normal((count, k + 1))
        theta["weight_coefficients"] = priors["weight_coefficient_sd"] * noise
        sd = priors["weight_residual_scale"] * np.abs(rng.standard_t(3, (count, 1)))
        theta["variance"] = np.concatenate([theta["variance"], sd**2], axis=1)
    return theta


def prior(case: Case, count: int, rng: np.random.Generator) -> Theta:
    """Draws of the parameters, leading axis ``count``."""
    if case.model == "normal":
        return normal_prior(case, count, rng)
    size = sbc.Case(
        case.model, case.outcomes, case.n, case.columns, priors=case.priors, psus=case.psus
    )
    return (sbc.fbs_prior if case.model == "fbs" else sbc.fbp_prior)(size, count, rng)


def implied(theta: Theta, model: str) -> tuple[FloatArray, FloatArray]:
    """B (..., K, q) and Sigma (..., q, q) of the sample without effects, X's first column 1: from
    methods 3, by other means than the package's."""
    if model == "fbs":
        return theta["beta"], theta["covariance"]
    beta, variance = theta["beta"].copy(), theta["variance"]
    if variance.shape[-1] == 1:
        return beta[..., None], variance[..., None]
    name = "selection" if model == "fbp" else "weight_coefficients"
    slope, other = theta[name][..., 0], theta[name][..., 1:].copy()
    v_y, v_o = variance[..., 0], variance[..., 1]
    if model == "fbp":
        beta[..., 0] += slope * v_y
        other[..., 0] += v_o
    second = other + slope[..., None] * beta
    covariance = np.stack([v_y, slope * v_y, slope * v_y, slope**2 * v_y + v_o], axis=-1)
    return np.stack([beta, second], axis=-1), covariance.reshape(*v_y.shape, 2, 2)


def records(theta: Theta, case: Case, x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Databases z (count, n, q), given effects."""
    coefficients, covariance = implied(theta, case.model)
    z = x @ coefficients
    z = z + rng.standard_normal(z.shape) @ np.linalg.cholesky(covariance).swapaxes(-1, -2)
    if case.psus:
        effect = theta[PSU_EFFECT][:, np.arange(case.n) % case.psus]
        if case.model == "fbp":  # an effect of y~ acts on log pi~ through y~ too
            effect = effect.copy()
            effect[..., 1] += theta["selection"][:, :1] * effect[..., 0]
        z = z + effect
    return z


def whitening(x: FloatArray) -> FloatArray:
    """A basis (K, K) in which no row of X is longer than 1."""
    basis = np.linalg.inv(np.linalg.cholesky(x.T @ x)).T
    return np.asarray(basis / np.sqrt(((x @ basis) ** 2).sum(1).max()))


def noisy_moments(
    case: Case, z: FloatArray, x: FloatArray, centre: FloatArray, rng: np.random.Generator
) -> tuple[NoisyMoments, PublicSums]:
    """Of databases z (count, n, q) on one X; with PSUs half of a row's length is theirs."""
    n, q = case.n, case.q
    psu = np.arange(n) % case.psus if case.psus else None
    basis, weight = whitening(x), 0.0
    white = x @ basis
    if psu is not None:
        basis, weight = np.sqrt(0.5) * basis, float(np.sqrt(0.5))
        white = np.hstack([x @ basis, weight * (psu[:, None] == np.arange(case.psus))])
    public = PublicSums.of(x, np.arange(n), basis, psu, weight)
    spread = np.full(q, case.spread)
    u = (z - centre) / spread
    off = case.squares_sd / np.sqrt(2.0)
    squares_sd = np.full((q, q), off) + (case.squares_sd - off) * np.eye(q)
    noise = np.tril(rng.standard_normal((z.shape[0], q, q))) * squares_sd
    noise = noise + np.tril(noise, -1).swapaxes(-1, -2)
    cross = white.T @ u
    cross = cross + case.sigma * rng.standard_normal(cross.shape)
    noisy = NoisyMoments(
        cross, u.swapaxes(-1, -2) @ u + noise, case.sigma, squares_sd, centre, spread
    )
    return noisy, PublicSums.stacked([public] * z.shape[0])


def log_density_of_cross(
    theta: Theta, case: Case, noisy: NoisyMoments, public: PublicSums
) -> FloatArray:
    """log p(T~ | theta) (count, draws) but for constants; theta (count, draws, ...)."""
    coefficients, covariance = implied(theta, case.model)
    ones = np.zeros((case.columns, 1))
    ones[0] = 1.0
    coefficients = coefficients - ones * noisy.centre
    mean = public.white_cross[0] @ coefficients
    if case.psus:
        effect = theta[PSU_EFFECT]
        if case.model == "fbp":
            turn = np.broadcast_to(np.eye(2), (*effect.shape[:2], 2, 2)).copy()
            turn[..., 0, 1] = theta["selection"][..., 0]
            effect = effect @ turn
        mean = mean + public.white_psu[0] @ effect
    scale = noisy.spread
    lam, vectors = np.linalg.eigh(public.white_gram[0])
    gap = vectors.T @ (noisy.cross[:, None] - mean / scale)
    own = (covariance / (scale[:, None] * scale))[:, :, None] * lam[:, None, None]
    own = own + noisy.sigma**2 * np.eye(case.q)
    white = np.linalg.solve(own, gap[..., None])[..., 0]
    return np.asarray(-0.5 * ((white * gap).sum(-1) + np.linalg.slogdet(own)[1]).sum(-1))


def quantities(
    theta: Theta, case: Case, noisy: NoisyMoments, public: PublicSums
) -> dict[str, FloatArray]:
    """What is ranked, (count, draws, d) by name."""
    coefficients, covariance = implied(theta, case.model)
    sd = np.sqrt(np.einsum("...kk->...k", covariance))
    result = {
        name: sbc.flat(theta[name], 2)
        for name in ("beta", "selection", "weight_coefficients", "coefficient_scale")
        if name in theta
    }
    if "variance" in theta:
        result["residual_sd"] = np.sqrt(theta["variance"])
    correlation = covariance / (sd[..., :, None] * sd[..., None, :])
    return {
        **result,
        "sample_coefficients": sbc.flat(coefficients, 2),
        "sample_sd": sd,
        "sample_correlation": sbc.below_diagonal(correlation),
        "log_density_of_cross": log_density_of_cross(theta, case, noisy, public)[..., None],
    } | sbc.psu_quantities(theta, 1.0)


def naive(
    model: Any, noisy: NoisyMoments, public: PublicSums, plan: SamplingPlan, rng: Any, thin: int
) -> Theta:
    """The ordinary fit, as if there were no noise."""
    target = NoisyTarget.of(noisy, public, 1)
    scatter = target.squares - target.explained(target.cross)
    values, vectors = np.linalg.eigh(scatter)
    values = np.maximum(values, 0.01 * target.df[:, None] * noisy.spread[0] ** 2)
    scatter = (vectors * values[:, None]) @ vectors.swapaxes(-1, -2)
    stats = target.statistics(target.cross, scatter)
    plan = replace(plan, draws=plan.draws * thin)
    theta = model.sample(stats, plan, rng)
    return {name: values[:, :, thin - 1 :: thin] for name, values in theta.items()}


def without_noise_in_squares(
    model: Any, noisy: NoisyMoments, public: PublicSums, plan: SamplingPlan, rng: Any, thin: int
) -> Theta:
    """Q~ taken for Q, or nearly."""
    wrong = replace(noisy, squares_sd=0.1 * noisy.squares_sd)
    return sample_noisy(model, wrong, public, plan, rng, thin)


@contextmanager
def cut() -> Iterator[None]:
    """Q~ tells nothing of T: its draws given T~ and theta are taken as they come."""

    def angle(self: Augmentation, i: int, cross: list[FloatArray], *_: Any) -> Any:
        one = np.ones((cross[0].shape[0], 1, 1))
        return 0.0 * one, one

    with mock.patch.object(Augmentation, "_angle", angle):
        yield


def without_squares_in_cross(
    model: Any, noisy: NoisyMoments, public: PublicSums, plan: SamplingPlan, rng: Any, thin: int
) -> Theta:
    """Q~ forgotten in T."""
    with cut():
        return sample_noisy(model, noisy, public, plan, rng, thin)


SAMPLERS: Mapping[str, Callable[..., Theta]] = {
    "sound": sample_noisy,
    WRONG[0]: naive,
    WRONG[1]: without_noise_in_squares,
    WRONG[2]: without_squares_in_cross,
}


def ranks_of_batch(
    case: Case, sampler: str, count: int, rng: np.random.Generator
) -> tuple[dict[str, Any]]:
    """Ranks (count,) of each true quantity among its draws."""
    x = sbc.design_rows(sbc.Case(case.model, n=case.n, columns=case.columns))
    truth = prior(case, count, rng)
    z = records(truth, case, x, rng)
    centre = np.full(case.q, case.spread)
    noisy, public = noisy_moments(case, z, x, centre, rng)
    model = get_model(case.model, priors=case.priors)
    plan = SamplingPlan(chains=1, warmup=case.warmup, draws=case.draws)
    theta = SAMPLERS[sampler](model, noisy, public, plan, rng, case.thin)
    theta = {name: values[:, 0] for name, values in theta.items()}
    true = quantities({n: v[:, None] for n, v in truth.items()}, case, noisy, public)
    return (sbc.ranks_of(quantities(theta, case, noisy, public), true),)


def calibrate(case: Case, seed: int, sampler: str = "sound") -> dict[str, Any]:
    """Uniformity by parameter. The warm-up is in sweeps; it is made of thinned draws."""
    case = replace(case, warmup=-(-case.warmup // case.thin))
    (found,) = sbc.of_batches(partial(ranks_of_batch, case, sampler), case, seed)
    return found


if __name__ == "__main__":
    noisy_calibration.main(__doc__.splitlines()[0], CASES, calibrate, GOLDEN)
