"""Data and parameters of the count models' Stan programs."""

from collections.abc import Mapping
from typing import Any

from surveysynth._support.types import FloatArray, Theta
from surveysynth.models.counts.stats import CountStats
from surveysynth.models.parts import survey_weight
from surveysynth.sampling.stan.source import StanProgramSpec


def _data(stats: CountStats, priors: Mapping[str, float]) -> dict[str, Any]:
    """Return what the programs of both models need of one database, JSON-ready."""
    counts, k = stats.counts, stats.shape[0]
    inside = counts.mass[0] > 0
    return {
        "K": k,
        "G": int(inside.sum()),
        "x": counts.x[0, inside].tolist(),
        "mass": counts.mass[0, inside].tolist(),
        "sums": counts.sums[0, inside].tolist(),
        "log_factorials": float(counts.log_factorials[0]),
        "coefficient_scale_prior": priors["coefficient_scale"],
        "lkj": priors["lkj"],
        **survey_weight.stan_data(stats.weight, k, priors),
    }


def _overdispersed_data(stats: CountStats, priors: Mapping[str, float]) -> dict[str, Any]:
    values, mass = stats.counts.values[0], stats.counts.value_mass[0]
    return {
        **_data(stats, priors),
        "D": values.size,
        "values": values.tolist(),
        "value_mass": mass.tolist(),
        "overdispersion_scale": priors["overdispersion_scale"],
    }


def _theta(draws: Mapping[str, FloatArray]) -> Theta:
    """Turn Stan's draws by name into Theta."""
    theta = {"beta": draws["beta"]}
    if "overdispersion" in draws:
        theta["overdispersion"] = draws["overdispersion"]
    root = draws["coefficient_root"]
    theta["coefficient_scale"] = draws["coefficient_scale"]
    theta["coefficient_correlation"] = root @ root.swapaxes(-1, -2)
    return {**theta, **survey_weight.stan_theta(draws)}


POISSON = StanProgramSpec("poisson.stan", _data, _theta)


NEGATIVE_BINOMIAL = StanProgramSpec("negative_binomial.stan", _overdispersed_data, _theta)
