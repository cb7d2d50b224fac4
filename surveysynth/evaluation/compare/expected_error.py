"""The error that a release is expected to have about its own sample, noise included.

A row of the sample is s, the sum of a linearized variable h over records; the mechanism adds noise
e of known variance S to sums T of its own variables f. Under the model, given public columns and a
draw of its parameters, (s, T) have the covariances C and V, which are sums of h f' and f f' over
the records. So the noisy sums predict s by a ridge regression whose penalty is the noise:

    predicted = mean over draws of (s_l - G T_l) + G (T + e),  G = C' (V + S)^-1,

s_l and T_l of datasets of a draw. The first part is near the published estimate less G times what
the model makes of T, and the prediction differs from what is published where the prior does not
follow T. Its error has the variance

    W + G S G' + (1 + 1/m) B,

W = Var(s - G T) within a draw, B that between draws of the mean of s - G T. What sampling varies
enters the release and the sample alike through T, and is not in it. Without noise T has the scores
of the model, G = C' V^-1: what is published predicts s, with the error W + b/m of an efficient
estimate from m draws. The pseudo-posterior weights scores by a, and so has more of it: the squared
coefficient of variation of a times Var(G T).

All of this is computed from draws and from datasets that are synthetic, and from risk weights.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.special import stdtrit

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.estimation.estimates import Estimates, StoredTables
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.survey.survey import Confidential

#: A row farther from the sample than this, in expected errors, is one in a hundred.
FAR = 2.576
#: Simulated releases that the test for all rows is made from.
SIMULATIONS, BATCH = 2000, 100
TINY = 1e-300


@dataclass(frozen=True, eq=False)
class ExpectedError:
    """How far from what is published the sample is expected, of D rows of all tables.

    pull (D,): predicted less published; known (D, D): W + G S G'; spread (D, D): between ``draws``
    draws, (1 + 1/m) B or b/m and what datasets of a draw differ by, which has the variances within
    (D,); scale (D,): the unit of each row over that of its linearized variable.
    """

    pull: FloatArray
    known: FloatArray
    spread: FloatArray
    within: FloatArray
    draws: int
    scale: FloatArray

    @property
    def error(self) -> FloatArray:
        """Expected errors (D,), longer for variances from few draws, so that 2.6 are 1%."""
        return self.scale * self._error(np.diag(self.spread))

    def _error(self, spread: FloatArray) -> FloatArray:
        """Return errors (.., D) where draws have the variances spread (.., D)."""
        total = np.diag(self.known) + np.maximum(spread - self.within, 0.0)
        with np.errstate(divide="ignore", invalid="ignore"):
            df = (self.draws - 1) * (total / spread) ** 2
        longer = stdtrit(np.fmin(df, 1e9), 0.995) / FAR
        return np.asarray(np.sqrt(total) * longer)

    def farthest(self, rows: BoolArray) -> FloatArray:
        """Return the farthest of these rows (D,) in each of many simulated releases, in errors.

        From the covariances, with variances between draws estimated anew each time.
        """
        inside = np.ix_(rows, rows)
        own = replace(
            self, known=self.known[inside], spread=self.spread[inside], within=self.within[rows]
        )
        rng, count, spread = np.random.default_rng(0), int(rows.sum()), np.diag(own.spread)
        known, drawn = _root(own.known), _root(own.spread)
        kept = np.sqrt(np.maximum(1.0 - own.within / np.maximum(spread, TINY), 0.0))
        found = []
        for _ in range(SIMULATIONS // BATCH):
            between = rng.standard_normal((self.draws, BATCH, count)) @ drawn.T
            apart = rng.standard_normal((BATCH, count)) @ known.T + kept * between[0]
            error = own._error((between[1:] ** 2).mean(axis=0))
            found.append(np.abs(apart / error).max(axis=1))
        return np.concatenate(found)

    def p_value(self, difference: FloatArray) -> float:
        """Return the chance of a row as far as the farthest, differences (D,) in errors."""
        rows = np.isfinite(difference)
        if not rows.any():
            return 1.0
        beyond = self.farthest(rows) >= np.abs(difference[rows]).max()
        return float((1 + beyond.sum()) / (1 + beyond.size))


def _root(covariance: FloatArray) -> FloatArray:
    """Return L (D, D) with L L' the covariance, which rounding may have made indefinite."""
    sd = np.sqrt(np.maximum(np.diag(covariance), TINY))
    values, vectors = np.linalg.eigh(covariance / np.outer(sd, sd))
    return np.asarray(sd[:, None] * vectors * np.sqrt(np.maximum(values, 0.0)))


Addends = Callable[[Confidential], FloatArray]
"""From a dataset to what each record adds to the sums that the mechanism knows, f (n, P)."""


def expected_error(
    tables: Sequence[tuple[Estimates, StoredTables]],
    datasets: Sequence[SyntheticDataset],
    addends: Addends,
    noisy: tuple[FloatArray, FloatArray] | None,
    *,
    unit: IntArray | None = None,
    weights: FloatArray | None = None,
) -> ExpectedError:
    """Return the expected errors of the rows of all tables, one after another.

    Parameters
    ----------
    tables
        Collectors without datasets, each with the rule that it keeps its tables by.
    datasets
        As the sample would have been: an even number for each draw, draw after draw.
    addends
        f of the records of a dataset.
    noisy
        Their sums (P,) with noise, and its variances (P,); None for the pseudo-posterior.
    unit
        PSUs (n,) whose records depend on each other; None for independent records.
    weights
        Risk weights (n,) of a pseudo-posterior.
    """
    for each in datasets:
        for estimates, _ in tables:
            estimates.add(each)
    columns = [each for estimates, kept in tables for each in kept.of(estimates)]
    s = np.stack([
        np.concatenate([of.estimate(number) for of in columns]) for number in range(len(datasets))
    ])  # fmt: skip
    sums, moments = [], np.zeros(())
    for pair in zip(*[iter(range(len(datasets)))] * 2, strict=True):
        f = [
            addends(Confidential(datasets[number].outcome, datasets[number].weight))
            for number in pair
        ]
        h = [np.hstack([of.linearized(number) for of in columns]) for number in pair]
        change = np.hstack([h[1] - h[0], f[1] - f[0]])
        if unit is not None:
            change = np.stack([np.bincount(unit, each) for each in change.T], axis=1)
        moments = moments + change.T @ change / len(datasets)
        sums += [each.sum(axis=0) for each in f]
    rows, draws = s.shape[1], datasets[-1].draw
    of_h, covariance, of_f = moments[:rows, :rows], moments[rows:, :rows], moments[rows:, rows:]
    added = np.zeros(len(of_f)) if noisy is None else noisy[1]
    gain = _ridge(of_f, covariance, added)
    explained = gain @ of_f @ gain.T
    left = of_h - gain @ covariance - covariance.T @ gain.T + explained
    known = left + (gain * added) @ gain.T
    if weights is not None:
        known = known + explained * weights.var() / weights.mean() ** 2
    if noisy is None:
        pull, spread, within = np.zeros(rows), _between(s, draws) / draws, np.zeros(rows)
    else:
        totals = np.stack(sums)
        pull = gain @ (noisy[0] - totals.mean(axis=0))
        spread = _between(s - totals @ gain.T, draws) * (1.0 + 1.0 / draws)
        within = np.diag(left) * draws / len(datasets)
    scale = np.concatenate([of.scale for of in columns])
    return ExpectedError(scale * pull, known, spread, within, draws, scale)


def _between(values: FloatArray, draws: int) -> FloatArray:
    """Return covariances (D, D) between draws of values (datasets, D), averaged within draws."""
    return np.cov(values.reshape(draws, -1, values.shape[1]).mean(axis=1), rowvar=False)


def _ridge(of_f: FloatArray, covariance: FloatArray, penalty: FloatArray) -> FloatArray:
    """Return G (D, P) = C' (V + S)^-1, with f of one size, and a sum that is zero left out."""
    size = np.sqrt(np.diag(of_f) + penalty)
    used = size > np.sqrt(TINY)
    size = np.where(used, size, 1.0)
    scaled = of_f / np.outer(size, size) + np.diag(penalty / size**2)
    solved = np.linalg.pinv(scaled, rcond=1e-10, hermitian=True) @ (covariance / size[:, None])
    return np.asarray((solved / size[:, None] * used[:, None]).T)
