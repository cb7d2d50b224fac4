"""Cases for the tests of models: data, risk weights, every registered model."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from surveysynth.models import get_model
from surveysynth.models.gaussian.model import GaussianRecords
from surveysynth.models.survey_weight import PairRecords

#: Models of transformed outcomes, and of counts: with samplers of our own.
GAUSSIAN = (("fbs", 1), ("fbs", 2), ("fbs", 3), ("fbp", 2), ("normal", 1), ("normal", 2))
COUNTS = (("poisson", 1), ("poisson", 2), ("negative_binomial", 1), ("negative_binomial", 2))
#: Name of the model and columns of z: outcomes and, if there is one, the log weight.
SAMPLED = (*GAUSSIAN, *COUNTS)
MODELS = (*SAMPLED, ("normal_mixture", 1), ("normal_mixture", 2))
#: The same with a ridge on the last two columns of X.
SHRUNKEN = (
    ("fbs shrunken", 2), ("fbp shrunken", 2), ("normal shrunken", 2), ("poisson shrunken", 2),
    ("negative_binomial shrunken", 2),
)  # fmt: skip
#: Components of the mixtures.
COMPONENTS = 3
WEIGHTINGS = ("ones", "random", "zeros")


@dataclass(frozen=True)
class Case:
    """A model with records x (n, K), z (n, q), risk weights and their statistics."""

    model: Any
    records: Any
    alpha: np.ndarray
    stats: Any
    z: np.ndarray

    @property
    def shape(self):
        k, q = self.records.x_cells.shape[1], self.z.shape[1]
        return (k, q, k - self.shrunken) if self.shrunken else (k, q)

    @property
    def shrunken(self):
        """Number of columns of X that have a ridge, the last ones."""
        return self.records.shrunken if "interaction_scale" in self.model.priors else 0

    @property
    def x(self):
        return self.records.x_cells[self.records.cell]

    @property
    def size(self):
        """Number of unconstrained parameters."""
        k, q = self.shape[:2]
        free = k - self.shrunken
        pairs = free * (free - 1) // 2
        return {
            "fbs": (k + free) * q + q + q * (q - 1) // 2 + pairs,
            "fbp": 2 * k + 3,
            "normal": k + free + 1 + pairs + (k + 2) * (q - 1),
            "poisson": k + free + pairs + (k + 2) * (q - 1),
            "negative_binomial": k + free + 1 + pairs + (k + 2) * (q - 1),
            "normal_mixture": COMPONENTS * (k + 2) + k + pairs + (k + 2) * (q - 1),
        }[self.model.name]

    def points(self, count, rng):
        """(count, d) unconstrained points, from the middle of the posterior to far out."""
        spread = np.exp(rng.uniform(np.log(0.1), np.log(1.5), (count, 1)))
        return spread * rng.standard_normal((count, self.size))

    def draw(self, plan, rng):
        """Draws of the model's parameters, leading axes (chains, draws), and nothing else."""
        drawn = self.model.sample(self.stats, plan, rng)
        return {key: values[0] for key, values in drawn.items()}


def count_records(x_cells, cell, y, log_weight, shrunken=0):
    """Records of counts y (n,); the weight is regressed on log(1 + y)."""
    return PairRecords(x_cells, cell, y, np.log1p(y), log_weight, shrunken)


def mixture_records(x_cells, cell, y, log_weight):
    """Records of transformed outcomes y (n,); the weight is regressed on the outcome."""
    return PairRecords(x_cells, cell, y, y, log_weight)


def weights(kind, n, rng):
    """Risk weights: all one, random, or random with a third of them zero."""
    if kind == "ones":
        return np.ones(n)
    alpha = rng.random(n)
    if kind == "zeros":
        alpha[rng.random(n) < 1 / 3] = 0.0
    return alpha


def make_case(name, q, *, weighting="random", n=300, k=3, seed=0, **options):
    """Data with correlated columns of z about a linear predictor over ten cells of X.

    "NAME shrunken": with a ridge on the last two columns of four."""
    name, ridges = name.removesuffix(" shrunken"), 2 * name.endswith(" shrunken")
    k = max(k, 2 * ridges)
    rng = np.random.default_rng([seed, q, k])
    x_cells = np.column_stack([np.ones(10), rng.standard_normal((10, k - 1))])
    cell = rng.integers(0, 10, n)
    mixing = 0.5 * np.eye(q) - 0.15 * np.tri(q, k=-1)
    coefficients = 0.7 * rng.standard_normal((k, q))
    z = (x_cells @ coefficients)[cell] + rng.standard_normal((n, q)) @ mixing.T
    if name == "normal_mixture":
        options = {"components": COMPONENTS, **options}
    model = get_model(name, **options)
    alpha = weights(weighting, n, rng)
    if (name, q) in COUNTS:
        z[:, 0] = rng.poisson(np.exp(np.clip(z[:, 0] + 1.0, None, 4.0)))
        records = count_records(x_cells, cell, z[:, 0], z[:, 1] if q > 1 else None, ridges)
    elif name == "normal_mixture":
        z[:, 0] += np.where(rng.random(n) < 0.3, 2.5, 0.0)
        z[: n // 10, 0] = 1.0  # a value that occurs many times
        records = mixture_records(x_cells, cell, z[:, 0], z[:, 1] if q > 1 else None)
    else:
        records = GaussianRecords(x_cells, cell, z, ridges)
    return Case(model, records, alpha, model.compress(records, alpha), z)
