"""Utility: distances between synthetic and confidential data. Never part of a release.

Several synthetic datasets are summarized by their barycentre, whose quantile function is the
average of theirs. All functions read confidential values; results are confidential.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np
import pandas as pd

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.quantiles import ROUNDING, weighted_quantiles

#: Numbers held at once while resampling.
_BLOCK = 4_000_000


@dataclass(frozen=True, eq=False, repr=False)
class Estimands:
    """Estimates with percentile intervals over resamples of the records.

    names (k,): "mean", "median" and quantiles as "q15"; estimate, lower, upper (k,).
    """

    names: tuple[str, ...]
    estimate: FloatArray
    lower: FloatArray
    upper: FloatArray
    level: float

    def to_frame(self) -> pd.DataFrame:
        """Return one row an estimand."""
        return pd.DataFrame(
            {
                "estimand": list(self.names),
                "estimate": self.estimate,
                "ci_lower": self.lower,
                "ci_upper": self.upper,
            }
        )


@dataclass(frozen=True, eq=False, repr=False)
class DistributionUtility:
    """Estimands of the confidential data and of the synthetic datasets' barycentre.

    ks: the largest distance of their distribution functions.
    """

    confidential: Estimands
    synthetic: Estimands
    ks: float

    def to_frame(self) -> pd.DataFrame:
        """Return one row an estimand: both sides and the overlap of their intervals."""
        sides = self.confidential.to_frame().merge(
            self.synthetic.to_frame(), on="estimand", suffixes=("_confidential", "_synthetic")
        )
        overlap = interval_overlap(
            self.confidential.lower, self.confidential.upper,
            self.synthetic.lower, self.synthetic.upper,
        )  # fmt: skip
        return sides.assign(overlap=overlap)


def barycentre(
    datasets: Sequence[FloatArray],
    weights: Sequence[FloatArray] | None = None,
    size: int | None = None,
) -> FloatArray:
    """Return values (size,), rising, of the average of the datasets' quantile functions.

    datasets: (n_l,) each; weights: of their records, equal if not given; size: how many values, by
    default as many as the largest dataset has. Values are at shares (k - 1/2)/size, so that
    datasets of one size without weights give the mean of their order statistics. Raises
    ``InputError`` without datasets.
    """
    if not datasets:
        raise InputError("a barycentre needs at least one dataset, got none.")
    given = [np.ones(each.shape) for each in datasets] if weights is None else list(weights)
    count = size or max(each.size for each in datasets)
    shares = (np.arange(count) + 0.5) / count
    functions = [
        weighted_quantiles(values, weight, shares)
        for values, weight in zip(datasets, given, strict=True)
    ]
    return np.asarray(np.mean(functions, axis=0))


def estimands(
    values: FloatArray,
    rng: np.random.Generator,
    *,
    weight: FloatArray | None = None,
    quantiles: Sequence[float] = (0.15, 0.9),
    level: float = 0.95,
    resamples: int = 1000,
) -> Estimands:
    """Compute mean, median and quantiles with percentile intervals by resampling the records.

    values, weight (n,): records are drawn with equal chances, whatever their weights. Raises
    ``InputError`` for quantiles or a level outside (0, 1).
    """
    for share in (*quantiles, level):
        if not 0 < share < 1:
            raise InputError(f"quantiles and level must be between 0 and 1, got {share!r}.")
    shares = np.array([0.5, *quantiles])
    names = ("mean", "median", *(f"q{100 * share:g}" for share in quantiles))
    order = np.argsort(values, kind="stable")
    y = values[order]
    w = np.ones(y.shape) if weight is None else weight[order]
    estimate = _weighted_estimates(y, w[None], shares)[0]
    rows, done = max(1, _BLOCK // y.size), []
    for begin in range(0, resamples, rows):
        count = min(rows, resamples - begin)
        drawn = rng.integers(0, y.size, (count, y.size)) + y.size * np.arange(count)[:, None]
        times = np.bincount(drawn.ravel(), minlength=count * y.size).reshape(count, y.size)
        done.append(_weighted_estimates(y, times * w, shares))
    tail = 0.5 * (1.0 - level)
    lower, upper = np.quantile(np.concatenate(done), [tail, 1.0 - tail], axis=0)
    return Estimands(names, estimate, lower, upper, level)


def _weighted_estimates(y: FloatArray, weights: FloatArray, shares: FloatArray) -> FloatArray:
    """Return mean and quantiles (rows, 1 + k) of sorted y (n,) under weights (rows, n)."""
    reached = np.cumsum(weights, axis=1)
    total = reached[:, -1]
    columns = [weights @ y / total]
    for share in shares:
        wanted = share * total * (1.0 - ROUNDING)
        columns.append(y[np.argmax(reached >= wanted[:, None], axis=1)])
    return np.stack(columns, axis=1)


def ks_distance(
    values: FloatArray,
    reference: FloatArray,
    *,
    weight: FloatArray | None = None,
    reference_weight: FloatArray | None = None,
) -> float:
    """Return the largest gap of the (weighted) distribution functions (Kolmogorov-Smirnov)."""
    points = np.unique(np.concatenate([values, reference]))
    gaps = _cdf(values, weight, points) - _cdf(reference, reference_weight, points)
    return float(np.abs(gaps).max())


def _cdf(values: FloatArray, weight: FloatArray | None, points: FloatArray) -> FloatArray:
    order = np.argsort(values, kind="stable")
    w = np.ones(values.shape) if weight is None else weight[order]
    reached = np.concatenate([[0.0], np.cumsum(w)])
    return np.asarray(reached[np.searchsorted(values[order], points, side="right")] / reached[-1])


def distribution_utility(
    confidential: FloatArray,
    datasets: Sequence[FloatArray],
    rng: np.random.Generator,
    *,
    weight: FloatArray | None = None,
    weights: Sequence[FloatArray] | None = None,
    quantiles: Sequence[float] = (0.15, 0.9),
    level: float = 0.95,
    resamples: int = 1000,
) -> DistributionUtility:
    """Compare estimands of confidential values (n,) with those of the datasets' barycentre.

    Parameters
    ----------
    confidential
        Values (n,).
    datasets
        Synthetic values, one array a dataset.
    rng
        For resamples.
    weight, weights
        Sampling weights of the confidential records, and of each dataset's; or None.
    quantiles
        Shares in (0, 1).
    level
        Level of the intervals of resampled estimands.
    resamples
        Number of resamples.

    Returns
    -------
    DistributionUtility
        ``to_frame()``: mean, median and quantiles of both with their intervals. Confidential.

    Raises
    ------
    InputError
        For datasets or settings that do not fit.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> rng = np.random.default_rng(1)
    >>> data, synthetic = rng.normal(0, 1, (2, 200))
    >>> found = ss.distribution_utility(data, [synthetic], rng, resamples=50)
    >>> 0 < found.ks < 0.2
    True
    """
    centre = barycentre(datasets, weights, confidential.size)
    options = {"quantiles": quantiles, "level": level, "resamples": resamples}
    return DistributionUtility(
        estimands(confidential, rng, weight=weight, **options),  # type: ignore[arg-type]
        estimands(centre, rng, **options),  # type: ignore[arg-type]
        ks_distance(centre, confidential, reference_weight=weight),
    )


def interval_overlap(
    lower: FloatArray, upper: FloatArray, other_lower: FloatArray, other_upper: FloatArray
) -> FloatArray:
    """Return the mean share of two intervals that they have in common (Karr et al. 2006).

    Elementwise: 1 for equal intervals; negative for disjoint ones, more so the farther apart. An
    interval of length zero counts as shared, or not, as a whole.
    """
    common = np.minimum(upper, other_upper) - np.maximum(lower, other_lower)
    shares = [
        np.divide(common, width, out=np.where(common >= 0, 1.0, 0.0), where=width > 0)
        for width in (upper - lower, other_upper - other_lower)
    ]
    return np.asarray(np.mean(shares, axis=0))
