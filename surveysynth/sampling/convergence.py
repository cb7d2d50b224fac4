"""Convergence diagnostics and the gate that refuses a fit which has not converged.

R-hat is rank-normalized and split, effective sample size is bulk ESS (Vehtari et al. 2021). Both
are computed for all parameters at once.
"""

import math
from collections.abc import Mapping

import numpy as np
from scipy.fft import irfft, next_fast_len, rfft
from scipy.special import ndtri

from surveysynth._support.types import FloatArray
from surveysynth.errors import RefusedError


def split_chains(draws: FloatArray) -> FloatArray:
    """Split (chains, draws, d) into (2 chains, draws // 2, d).

    A trend within a chain then shows as spread between chains.
    """
    half = draws.shape[1] // 2
    return np.concatenate([draws[:, :half], draws[:, draws.shape[1] - half :]], axis=0)


def rank_normalise(draws: FloatArray) -> FloatArray:
    """Return normal scores of ranks over all chains, column by column; (chains, draws, d)."""
    chains, length, d = draws.shape
    ranks = _ranks(draws.reshape(-1, d))
    scores: FloatArray = ndtri((ranks - 0.375) / (chains * length + 0.25))
    return scores.reshape(draws.shape)


def _ranks(values: FloatArray) -> FloatArray:
    """Return average ranks starting at 1, column by column; NaN in columns with NaN.

    This is SciPy's ``rankdata``, whose import would take half a second.
    """
    # By column in memory, as sums over draws are rounded in the order of storage.
    ranks = np.empty(values.shape, order="F")
    for j, column in enumerate(values.T):
        _, place, count = np.unique(column, return_inverse=True, return_counts=True)
        ranks[:, j] = (np.cumsum(count) - 0.5 * (count - 1))[place]
    ranks[:, np.isnan(values).any(axis=0)] = np.nan
    return ranks


def _r_hat_of(draws: FloatArray) -> FloatArray:
    length = draws.shape[1]
    within = draws.var(axis=1, ddof=1).mean(axis=0)
    between = draws.mean(axis=1).var(axis=0, ddof=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.sqrt((length - 1) / length + between / within)
    # A parameter that never moves gives no evidence of convergence.
    return np.where(within > 0, ratio, np.inf)


def r_hat(draws: FloatArray) -> FloatArray:
    """Return rank-normalized split R-hat: (chains, draws, d) to (d,).

    It is the larger of bulk and folded.
    """
    split = split_chains(draws)
    folded = np.abs(split - np.median(split, axis=(0, 1)))
    return np.maximum(_r_hat_of(rank_normalise(split)), _r_hat_of(rank_normalise(folded)))


def effective_sample_size(draws: FloatArray) -> FloatArray:
    """Return bulk ESS, (chains, draws, d) to (d,), by Geyer's initial monotone sequence.

    It uses rank scores and equals ArviZ's ``ess(method="bulk")``, but is 0 where a parameter never
    moves.
    """
    scores = rank_normalise(split_chains(draws))
    chains, length, d = scores.shape
    centred = scores - scores.mean(axis=1, keepdims=True)
    spectrum = rfft(centred, n=next_fast_len(2 * length), axis=1)
    covariance = irfft(np.abs(spectrum) ** 2, n=next_fast_len(2 * length), axis=1)
    covariance = covariance[:, :length].mean(axis=0) / length
    within = covariance[0] * length / (length - 1)
    between = scores.mean(axis=1).var(axis=0, ddof=1)
    pooled = within * (length - 1) / length + between
    with np.errstate(divide="ignore", invalid="ignore"):
        rho = 1.0 - (within - covariance) / pooled
    rho[0] = 1.0
    pairs = rho[: length - length % 2].reshape(-1, 2, d).sum(axis=1)
    # Initial positive, then monotone sequence of pair sums. It ends with the first pair that is
    # not positive, or the last but one of the chain; the even term of that pair counts once.
    last = max((length - 3) // 2, 0)
    end = np.minimum(np.cumprod(pairs > 0, axis=0).sum(axis=0), last)
    inside = np.arange(pairs.shape[0])[:, None] < end
    monotone = np.minimum.accumulate(np.where(inside, pairs, 0.0), axis=0)
    even = np.take_along_axis(rho, 2 * end[None], axis=0)[0]
    ended = np.take_along_axis(pairs, end[None], axis=0)[0] < 0
    tau = -1.0 + 2.0 * monotone.sum(axis=0) + np.where(ended & (even < 0), 0.0, even)
    tau = np.maximum(tau, 1.0 / np.log10(chains * length))
    return np.where(within > 0, chains * length / tau, 0.0)


MAX_R_HAT = 1.05
MIN_ESS = 100.0
MAX_DIVERGENT_SHARE = 0.01
STRICT = MAX_R_HAT, MIN_ESS
#: Of fits to simulated databases, whose means over draws alone are used: chains that mix slowly add
#: Monte Carlo error to these, which the spread between databases shows.
OF_MEANS = 1.2, 20.0


class NotConvergedError(RefusedError):
    """Refusal of a fit that longer chains may cure; it does not concern the target.

    ``r_hat``: the largest; infinite where it is not what failed."""

    r_hat = math.inf


def check_convergence(
    monitored: Mapping[str, FloatArray],
    divergent: FloatArray | None,
    gates: tuple[float, float] = STRICT,
) -> tuple[dict[str, float], dict[str, float]]:
    """Return largest R-hat and smallest ESS by parameter group; refuse without convergence.

    monitored: unconstrained scalars by group, (chains, draws, d); divergent (chains, draws), 1
    where a draw diverged, or None for a sampler that cannot diverge; gates: largest R-hat and
    smallest ESS. Raises ``NotConvergedError``.
    """
    max_r_hat, min_ess = gates
    if divergent is not None and divergent.mean() > MAX_DIVERGENT_SHARE:
        raise NotConvergedError(
            f"More than {MAX_DIVERGENT_SHARE:.0%} of the draws diverged: the sampler could not "
            "follow the posterior, and its draws may miss a part of it. Use the engine "
            "'embedded' where the model has it, or raise warmup. For a Stan program of your own "
            "raise adapt_delta toward 1, or write the program in other parameters."
        )
    r_hats = {name: float(r_hat(draws).max()) for name, draws in monitored.items()}
    ess = {
        name: float(effective_sample_size(draws).min())
        for name, draws in monitored.items()
    }
    failing = sorted(
        name for name in monitored if not (r_hats[name] <= max_r_hat and ess[name] >= min_ess)
    )
    if failing:
        refusal = NotConvergedError(
            f"The fit has not converged (R-hat above {max_r_hat} or an effective sample size "
            f"below {min_ess:.0f} for {', '.join(failing)}): raise draws and warmup in "
            "[synthesizer]."
        )
        refusal.r_hat = max(r_hats.values())
        raise refusal
    return r_hats, ess
