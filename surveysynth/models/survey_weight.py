"""Models of one outcome with records by pair of cell and outcome, and their survey weight.

    log w | y, x ~ N(x gamma + delta h(y), s^2)                          (methods 3)

    (delta, gamma) ~ N(0, 10^2 I),  s ~ half-t3(0, 1)

h(y): the transformed outcome, or log(1 + y) of a count. The priors are weakly informative on a log
scale: a log weight has residual SDs well below 1, and sampling weights seldom span more than a few
orders of magnitude. Statistics are those of Z = (h(y), log w) on X. All records of a pair share the
log-likelihood of the outcome, which is computed once.
"""

from abc import abstractmethod
from collections.abc import Iterator, Mapping
from types import MappingProxyType
from typing import Any

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models.base import Simulated
from surveysynth.models.gaussian import model as gaussian
from surveysynth.models.gaussian.blocks import HALF_T_DF, overdispersion
from surveysynth.models.gaussian.model import GaussianRecords, GaussianStats, compress
from surveysynth.models.weighted import WeightedModel
from surveysynth.sampling import primitives
from surveysynth.sampling.plan import Streams
from surveysynth.survey.survey import PublicDesign

PRIORS: Mapping[str, float] = MappingProxyType(
    {"weight_coefficient_sd": 10.0, "weight_residual_scale": 1.0}
)


class PairRecords(Unpickled):
    """Records by cell of X: x_cells (G, K), cell (n,) and y (n,) on the model's scale.

    h (n,): the regressor of the weight; log_weight (n,) or None. ``values`` (D,) are the distinct
    y, code (n,) indexes them; ``pair_cell`` and ``pair_y`` (P,) describe the pairs, sorted by cell.
    ``joint``: (h, log w) by cell of X, if there is a weight. ``pairs``: log w (or nothing, n x 0)
    by pair, whose rows are (y, h, x). ``shrunken``: number of shrunken columns of X, which come
    last; ``pseudo``: pseudo-records of the prior.
    """

    def __init__(
        self,
        x_cells: FloatArray,
        cell: IntArray,
        y: FloatArray,
        h: FloatArray,
        log_weight: FloatArray | None,
        shrunken: int = 0,
        pseudo: float = 0.0,
    ) -> None:
        self.x_cells, self.cell, self.y, self.h = x_cells, cell, y, h
        self.log_weight, self.shrunken, self.pseudo = log_weight, shrunken, pseudo
        self.values, self.code = values, code = np.unique(y, return_inverse=True)
        keys, first, pair = np.unique(
            cell * values.size + code, return_index=True, return_inverse=True
        )
        self.pair_cell, self.pair_y = keys // values.size, values[keys % values.size]
        rows = np.column_stack([self.pair_y, h[first], x_cells[self.pair_cell]])
        self.joint, of_pairs = None, np.empty((y.size, 0))
        if log_weight is not None:
            of_pairs, both = log_weight[:, None], np.column_stack([h, log_weight])
            self.joint = GaussianRecords(x_cells, cell, both, shrunken=shrunken)
        self.pairs = GaussianRecords(rows, pair.astype(np.int64), of_pairs)

    @property
    def n(self) -> int:
        """Number of records."""
        return int(self.cell.size)

    def weight_stats(
        self, risk_weights: FloatArray, scale: float | None = None
    ) -> GaussianStats | None:
        """Compute the statistics of the weight component, if there is a weight, with its ridge."""
        if self.joint is None:
            return None
        return compress(self.joint, risk_weights).with_ridge(scale)


def sum_by(code: IntArray, values: FloatArray, size: int) -> FloatArray:
    """Sum values (n,) by code in 0..size - 1."""
    return np.asarray(np.bincount(code, values, size), dtype=np.float64)


class PairModel(WeightedModel):
    """A model of one outcome, whose log-likelihood its records share by pair, and of the weight.

    z (n, 1 or 2): the outcome on the model's scale and any log weight.
    """

    requires = frozenset({"one_outcome"})

    @staticmethod
    def h(y: FloatArray) -> FloatArray:
        """Return the regressor (n,) of the log weight."""
        return y

    @abstractmethod
    def log_mass(self, theta: Theta, y: FloatArray, x: FloatArray) -> FloatArray:
        """Return log-likelihoods (S, P) of pairs y (P,), x (P, K) under S draws."""

    def records_from_simulated(self, design: PublicDesign, simulated: Simulated) -> PairRecords:
        """Return the records of a dataset on the model's scale."""
        (y, *rest), matrix = simulated.z.T, design.matrix
        return PairRecords(
            matrix.x_cells, matrix.cell, y, self.h(y), rest[0] if rest else None, matrix.shrunken,
            design.pseudo or 0.0,
        )  # fmt: skip

    def log_lik_blocks(
        self, theta: Theta, records: PairRecords
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Stream unweighted log-likelihoods, (rows, (S, rows)), of outcome and weight together."""

        def form(theta: Theta, rows: FloatArray, centre: FloatArray) -> gaussian.QuadraticForm:
            of_outcome = self.log_mass(theta, rows[:, 0], rows[:, 2:])
            if "weight_coefficients" not in theta:
                draws = len(of_outcome)
                linear = np.empty((*of_outcome.shape, 0))
                return gaussian.QuadraticForm(of_outcome, linear, np.empty((draws, 0, 0)))
            of_weight = gaussian.normal_form(
                theta["weight_coefficients"][:, :, None], theta["weight_variance"][:, :, None],
                rows[:, 1:], centre,
            )  # fmt: skip
            constant = of_weight.constant + of_outcome
            return gaussian.QuadraticForm(constant, of_weight.linear, of_weight.precision)

        return gaussian.log_lik_blocks(form, theta, records.pairs)

    def smooth_weight(self, theta: Theta, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """Return E(w | y*) (methods 3); a survey without weights counts every record once."""
        return smoothed(theta, self.h(simulated.z[:, 0]), design)


def smoothed(theta: Theta, h: FloatArray, design: PublicDesign) -> FloatArray:
    """Return E(w | y*) (n,), the mean of the log-normal, given h (n,); ones without a weight."""
    if "weight_coefficients" not in theta:
        return np.ones(design.n)
    delta, gamma = theta["weight_coefficients"][0], theta["weight_coefficients"][1:]
    mean = delta * h + design.matrix.x_cells[design.matrix.cell] @ gamma
    return np.asarray(np.exp(mean + 0.5 * theta["weight_variance"]))


def joined(
    theta: Theta, outcome: FloatArray, h: FloatArray, x: FloatArray, rng: np.random.Generator
) -> Simulated:
    """Return the outcome (n,) of one draw, with log weights drawn given h (n,) if it has any."""
    if "weight_coefficients" not in theta:
        return Simulated(outcome[:, None])
    delta, gamma = theta["weight_coefficients"][0], theta["weight_coefficients"][1:]
    noise = np.sqrt(theta["weight_variance"][0]) * rng.standard_normal(h.size)
    return Simulated(np.stack([outcome, delta * h + x @ gamma + noise], axis=1))


def guessed(design: PublicDesign, spread: float) -> Theta:
    """Guess the component from public inputs, where a design has a confidential weight.

    The log weight has SD 0.5 and correlation -0.5 with an outcome of residual SD ``spread``.
    """
    if design.weight_name is None:
        return {}
    coefficients = np.zeros(1 + design.matrix.x_cells.shape[1])
    coefficients[0] = -0.25 / spread
    return {"weight_coefficients": coefficients, "weight_variance": np.array([0.1875])}


def monitored(theta: Theta) -> Theta:
    """Return the scalars of the component whose convergence is checked, if there is a weight."""
    if "weight_coefficients" not in theta:
        return {}
    log_variance = np.log(theta["weight_variance"])
    return {
        "weight_coefficients": theta["weight_coefficients"], "log_weight_variance": log_variance
    }  # fmt: skip


class WeightBlocks:
    """The component in a batch of B chains: coefficients (B, 1 + K) and variance (B,)."""

    def __init__(self, stats: GaussianStats, priors: Mapping[str, float], rng: Streams) -> None:
        self.stats, self.rng = stats, rng
        self.batch, k = stats.fit.shape[:2]
        # The ridge of interactions is in the statistics.
        free = np.arange(1 + k) < 1 + k - stats.ridges
        self.prior_precision = np.where(free, priors["weight_coefficient_sd"] ** -2, 0.0)
        self.residual_scale = priors["weight_residual_scale"]
        self.gram, self.cross = stats.conditional_gram()
        # Overdispersed starts about the least-squares fit.
        guess = stats.start_covariance()
        slope = guess[:, 0, 1] / guess[:, 0, 0]
        variance = guess[:, 1, 1] - slope * guess[:, 0, 1]
        rest = stats.fit[:, :, 1] - slope[:, None] * stats.fit[:, :, 0]
        fit = np.concatenate([slope[:, None], rest], 1)
        self.variance = variance * np.exp(0.2 * rng.standard_normal((self.batch,), 0))
        jitter = overdispersion(self.gram, rng, 1)[:, :, 0]
        self.coefficients = fit + jitter * np.sqrt(variance)[:, None]

    def draw_random_numbers(self, c: int) -> None:
        """Draw the random numbers of the next c sweeps."""
        b = self.batch
        self.normals = self.rng.standard_normal((c, b, self.gram.shape[-1]), 1)
        self.levels = self.rng.random((c, b), 1)
        self.uniforms = self.rng.random((c, primitives.MAX_SHRINKS, b), 2)

    def state(self) -> Theta:
        """Return weight_coefficients (B, 1 + K) and weight_variance (B, 1)."""
        variance = self.variance[:, None]
        return {"weight_coefficients": self.coefficients, "weight_variance": variance}

    def sweep(self, i: int) -> None:
        """Draw (delta, gamma) | s from its normal, s^2 by slice."""
        precision = self.gram / self.variance[:, None, None] + np.diag(self.prior_precision)
        linear = self.cross / self.variance[:, None]
        self.coefficients = primitives.normal_from_precision(precision, linear, self.normals[i])
        squares = self.stats.conditional_squares(self.coefficients)
        self.variance = primitives.slice_variances(
            self.variance, self.stats.count, np.zeros(self.batch), squares, self.residual_scale,
            self.levels[i], self.uniforms[i], df=HALF_T_DF,
        )  # fmt: skip


def stan_data(
    stats: GaussianStats | None, columns: int, priors: Mapping[str, float]
) -> dict[str, Any]:
    """Return the component's data for Stan programs, JSON-ready; zeros without a weight."""
    zeros = {
        "K_shrunken": 0, "total": 0.0, "gram": np.zeros((columns, columns)).tolist(),
        "fit": np.zeros((columns, 2)).tolist(), "residual": np.zeros((2, 2)).tolist(),
    }  # fmt: skip
    return {
        "has_weight": int(stats is not None),
        **(zeros if stats is None else stats.stan_data()),
        **{name: priors[name] for name in PRIORS},
    }


def stan_theta(draws: Mapping[str, FloatArray]) -> Theta:
    """Turn Stan's draws of the component by name into Theta; nothing where there is no weight."""
    # Without a weight these have no elements, and some interfaces then omit them.
    sd = draws.get("weight_sd")
    if sd is None or not sd.size:
        return {}
    return {"weight_coefficients": draws["weight_coefficients"], "weight_variance": sd**2}
