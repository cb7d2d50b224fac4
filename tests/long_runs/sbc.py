"""Simulation-based calibration (Talts et al. 2018): ``python -m tests.long_runs.sbc``.

Parameters are drawn from the priors of methods 3 by other means than the package's (partial
correlations for LKJ), databases from the parameters, and the rank of each true value among thinned
posterior draws is uniform if and only if the sampler draws from the posterior of that prior and
likelihood. All databases of a case are fitted as one batch. The log-likelihood of the database is
ranked too: it joins all parameters and the data (Modrák et al. 2023).

The same ranks are taken for a wrong sampler, which must be rejected: residual SDs times 1.1
or, of a count, coefficients spread 1.5 times as far about their mean; where columns
are shrunken, the sampler of a ridge with three times the scale. Results go to
tests/golden/sbc.json; ``--case NAME`` runs single cases and keeps the results of the others.
"""

import argparse
import json
import platform
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import date
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import scipy
from scipy import stats

import surveysynth
from surveysynth._support.types import FloatArray, IntArray, Theta
from surveysynth.models import get_model
from surveysynth.models.gaussian.model import GaussianRecords
from surveysynth.models.weighted import stacked
from surveysynth.sampling.plan import SamplingPlan
from tests.models.model_cases import count_records

COUNTS = ("poisson", "negative_binomial")
GOLDEN = Path(__file__).parents[1] / "golden" / "sbc.json"
#: Databases fitted at once: what they keep stays well below a gigabyte.
BATCH = 250
WARMUP = 300
BINS = 16
#: No parameter of a sound sampler falls below this; about a hundred are tested twice.
LEVEL = 1e-5
WRONG = 1.1
WRONG_SPREAD = 1.5
WRONG_RIDGE = 3.0

Quantities = dict[str, FloatArray]


@dataclass(frozen=True)
class Case:
    """A model, its priors (None: the defaults of methods 3) and the size of its databases;
    shrunken: how many columns of X, the last ones, are shrunken."""

    model: str
    outcomes: int = 1
    n: int = 40
    columns: int = 3
    priors: Mapping[str, float] = field(default_factory=dict)
    replications: int = 1000
    draws: int = 63
    thin: int = 15
    warmup: int = WARMUP
    shrunken: int = 0


# The default priors of FBP spread its parameters over orders of magnitude; the narrower scales test
# it where data look like a survey's. FBS draws covariances from a proposal where records are many
# (80, 40), by slices where they are four, by both in between (20).
CASES = {
    "FBS, one outcome": Case("fbs", n=80),
    "FBS, two outcomes": Case("fbs", outcomes=2),
    "FBS, one outcome, narrow priors": Case(
        "fbs", n=20, priors={"coefficient_scale": 1.0, "residual_scale": 0.5, "lkj": 1.5}
    ),
    "FBS, four records": Case("fbs", n=4, columns=2, thin=25),
    "FBP": Case("fbp"),
    "FBP, narrow priors": Case(
        "fbp", priors={"coefficient_sd": 1.0, "selection_sd": 0.5, "residual_scale": 0.5}
    ),
    "FBP, four records": Case("fbp", n=4, columns=2, thin=25),
    # The prior's tails would give counts that no number holds, were its scales not narrow.
    "Poisson": Case("poisson", priors={"coefficient_scale": 0.4}),
    "Negative binomial": Case(
        "negative_binomial", priors={"coefficient_scale": 0.4, "overdispersion_scale": 0.5}
    ),
    "Negative binomial, four records": Case(
        "negative_binomial", n=4, columns=2, thin=25,
        priors={"coefficient_scale": 0.4, "overdispersion_scale": 0.5},
    ),
    "FBS, shrunken": Case(
        "fbs", n=20, columns=4, shrunken=2,
        priors={"coefficient_scale": 1.0, "residual_scale": 0.5, "lkj": 1.5},
    ),
    "FBP, shrunken": Case(
        "fbp", n=20, columns=4, shrunken=2,
        priors={"coefficient_sd": 1.0, "selection_sd": 0.5, "residual_scale": 0.5},
    ),
}


def lkj_draws(
    count: int, dimension: int, eta: float, rng: np.random.Generator
) -> FloatArray:
    """Roots (count, d, d) of LKJ(eta) correlations from independent partial correlations
    (Lewandowski, Kurowicka and Joe 2009)."""
    root = np.zeros((count, dimension, dimension))
    root[:, 0, 0] = 1.0
    for i in range(1, dimension):
        left = np.ones(count)
        for j in range(i):
            shape = eta + 0.5 * (dimension - 2 - j)
            partial = 2.0 * rng.beta(shape, shape, count) - 1.0
            root[:, i, j] = partial * np.sqrt(left)
            left *= 1.0 - partial**2
        root[:, i, i] = np.sqrt(left)
    return root


def fbs_prior(case: Case, count: int, rng: np.random.Generator) -> Theta:
    """Draws of FBS's parameters from its prior (methods 3), leading axis ``count``."""
    priors: Mapping[str, float] = get_model("fbs", priors=case.priors).priors  # type: ignore[attr-defined]
    k, q = case.columns - case.shrunken, case.outcomes + 1
    scale = priors["coefficient_scale"] * np.abs(rng.standard_t(3, (count, q, k)))
    omega = lkj_draws(count, k, priors["lkj"], rng)
    beta = scale * (omega @ rng.standard_normal((count, k, q))).swapaxes(-1, -2)
    sd = priors["residual_scale"] * np.abs(rng.standard_t(3, (count, q)))
    residual = sd[:, :, None] * lkj_draws(count, q, priors["lkj"], rng)
    beta = beta.swapaxes(-1, -2)
    if case.shrunken:
        ridged = residual @ rng.standard_normal((count, q, case.shrunken))
        ridged = priors["interaction_scale"] * ridged.swapaxes(-1, -2)
        beta = np.concatenate([beta, ridged], axis=1)
    return {
        "beta": beta,
        "covariance": residual @ residual.swapaxes(-1, -2),
        "coefficient_scale": scale,
        "coefficient_correlation": omega @ omega.swapaxes(-1, -2),
    }


def fbp_prior(case: Case, count: int, rng: np.random.Generator) -> Theta:
    """Draws of FBP's parameters from its prior (methods 3), leading axis ``count``."""
    priors: Mapping[str, float] = get_model("fbp", priors=case.priors).priors  # type: ignore[attr-defined]
    sd = priors["residual_scale"] * np.abs(rng.standard_cauchy((count, 2)))
    theta = {
        "beta": priors["coefficient_sd"] * rng.standard_normal((count, case.columns)),
        "selection": priors["selection_sd"] * rng.standard_normal((count, case.columns + 1)),
        "variance": sd**2,
    }
    if case.shrunken:
        ridged = rng.standard_normal((2, count, case.shrunken)) * sd.T[:, :, None]
        ridged = priors["interaction_scale"] * ridged
        theta["beta"][:, -case.shrunken :] = ridged[0]
        theta["selection"][:, -case.shrunken :] = ridged[1]
    return theta


def fbs_data(theta: Theta, x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Databases z (count, n, q)."""
    root = np.linalg.cholesky(theta["covariance"])
    noise = rng.standard_normal((root.shape[0], x.shape[0], root.shape[1]))
    return np.asarray(x @ theta["beta"] + noise @ root.swapaxes(-1, -2))


def fbp_data(theta: Theta, x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Databases z (count, n, 2) of the implied sample distribution (methods 3)."""
    v_y, v_pi = theta["variance"].T[:, :, None]
    k_y, k_x = theta["selection"][:, :1], theta["selection"][:, 1:]
    noise = rng.standard_normal((2, v_y.size, x.shape[0]))
    y = theta["beta"] @ x.T + k_y * v_y + np.sqrt(v_y) * noise[0]
    log_pi = k_y * y + k_x @ x.T + v_pi + np.sqrt(v_pi) * noise[1]
    return np.stack([y, log_pi], axis=-1)


def stacked_stats(model: Any, x: FloatArray, z: FloatArray, shrunken: int = 0) -> Any:
    """Unweighted statistics of databases z (count, n, q), stacked on the axis of databases."""
    cell, ones = np.arange(x.shape[0]), np.ones(x.shape[0])

    def records(one: FloatArray) -> Any:
        if model.name in COUNTS:
            return count_records(x, cell, one[:, 0], None)
        return GaussianRecords(x, cell, one, shrunken)

    return stacked([model.compress(records(one), ones) for one in z])


def below_diagonal(matrix: FloatArray) -> FloatArray:
    """Entries below the diagonal of (..., d, d), as a last axis."""
    row, column = np.tril_indices(matrix.shape[-1], -1)
    return matrix[..., row, column]


def flat(values: FloatArray, axes: int) -> FloatArray:
    """Joins the last axes, keeping the first ``axes``."""
    return values.reshape(*values.shape[:axes], -1)


def fbs_quantities(theta: Theta, z: FloatArray, x: FloatArray, wrong: float = 1.0) -> Quantities:
    """What is ranked, (databases, draws, d) by name; residual SDs times ``wrong``."""
    covariance = theta["covariance"] * wrong**2
    sd = np.sqrt(np.einsum("...kk->...k", covariance))
    deviation = z[:, None] - x @ theta["beta"]
    white = np.linalg.solve(np.linalg.cholesky(covariance), deviation.swapaxes(-1, -2))
    log_det = np.linalg.slogdet(covariance)[1]
    log_lik = -0.5 * ((white**2).sum((-1, -2)) + x.shape[0] * log_det)
    return {
        "beta": flat(theta["beta"], 2),
        "coefficient_scale": flat(theta["coefficient_scale"], 2),
        "coefficient_correlation": below_diagonal(theta["coefficient_correlation"]),
        "residual_sd": sd,
        "residual_correlation": below_diagonal(covariance / (sd[..., None] * sd[..., None, :])),
        "log_likelihood": log_lik[..., None],
    }


def fbp_quantities(theta: Theta, z: FloatArray, x: FloatArray, wrong: float = 1.0) -> Quantities:
    """The same for FBP."""
    variance = theta["variance"] * wrong**2
    k_y, k_x = theta["selection"][..., :1], theta["selection"][..., 1:]
    mean_y, mean_pi = theta["beta"] @ x.T, k_x @ x.T
    y, log_pi = z[:, None, :, 0], z[:, None, :, 1]
    v_y, v_pi = variance[..., :1], variance[..., 1:]
    log_lik = -0.5 * ((y - mean_y) ** 2 / v_y + np.log(v_y))
    log_lik -= 0.5 * ((log_pi - k_y * y - mean_pi) ** 2 / v_pi + np.log(v_pi))
    log_lik -= mean_pi + k_y * mean_y + 0.5 * (v_pi + k_y**2 * v_y)
    return {
        "beta": theta["beta"],
        "selection": theta["selection"],
        "residual_sd": np.sqrt(variance),
        "log_likelihood": log_lik.sum(-1, keepdims=True),
    }


def count_prior(case: Case, count: int, rng: np.random.Generator) -> Theta:
    """Draws of a count model's parameters from its prior (methods 3), leading axis ``count``."""
    priors: Mapping[str, float] = get_model(case.model, priors=case.priors).priors  # type: ignore[attr-defined]
    k = case.columns
    scale = priors["coefficient_scale"] * np.abs(rng.standard_t(3, (count, k)))
    omega = lkj_draws(count, k, priors["lkj"], rng)
    theta = {
        "beta": scale * (omega @ rng.standard_normal((count, k, 1)))[:, :, 0],
        "coefficient_scale": scale,
        "coefficient_correlation": omega @ omega.swapaxes(-1, -2),
    }
    if case.model == "negative_binomial":
        inverse = priors["overdispersion_scale"] * np.abs(rng.standard_cauchy((count, 1)))
        theta["overdispersion"] = 1.0 / inverse
    return theta


def count_data(theta: Theta, x: FloatArray, rng: np.random.Generator) -> FloatArray:
    """Databases z (count, n, 1) of counts: a Poisson, its mean gamma distributed or not."""
    mean = np.exp(theta["beta"] @ x.T)
    if "overdispersion" in theta:
        phi = theta["overdispersion"]
        mean = mean * rng.gamma(np.broadcast_to(phi, mean.shape)) / phi
    return rng.poisson(mean).astype(np.float64)[..., None]


def count_quantities(theta: Theta, z: FloatArray, x: FloatArray, wrong: float = 1.0) -> Quantities:
    """The same for counts; the wrong sampler spreads the coefficients too far."""
    centre = theta["beta"].mean(axis=1, keepdims=True)
    beta = centre + (1.0 if wrong == 1.0 else WRONG_SPREAD) * (theta["beta"] - centre)
    mean, y = np.exp(beta @ x.T), z[:, None, :, 0]
    result = {
        "beta": beta,
        "coefficient_scale": theta["coefficient_scale"],
        "coefficient_correlation": below_diagonal(theta["coefficient_correlation"]),
    }
    if "overdispersion" in theta:
        phi = theta["overdispersion"]
        log_lik = stats.nbinom.logpmf(y, phi, phi / (phi + mean))
        result["overdispersion"] = phi
    else:
        log_lik = stats.poisson.logpmf(y, mean)
    return {**result, "log_likelihood": log_lik.sum(-1, keepdims=True)}


PARTS: dict[str, Any] = {
    "poisson": (count_prior, count_data, count_quantities),
    "negative_binomial": (count_prior, count_data, count_quantities),
    "fbs": (fbs_prior, fbs_data, fbs_quantities),
    "fbp": (fbp_prior, fbp_data, fbp_quantities),
}


def design_rows(case: Case) -> FloatArray:
    """X (n, K): an intercept, a group, and continuous predictors."""
    rng = np.random.default_rng(case.n)
    x = rng.normal(size=(case.n, case.columns))
    x[:, 0] = 1.0
    x[:, 1] = np.arange(case.n) % 3 == 0
    return x


def ranks_of_batch(
    case: Case, count: int, rng: np.random.Generator
) -> tuple[dict[str, IntArray], dict[str, IntArray]]:
    """Ranks (count,) of each true quantity among its draws, of the sampler as it is and of the
    wrong one."""
    prior, data, quantities = PARTS[case.model]
    x = design_rows(case)
    truth = prior(case, count, rng)
    z = data(truth, x, rng)
    plan = SamplingPlan(chains=1, warmup=case.warmup, draws=case.draws * case.thin)

    def drawn(priors: Mapping[str, float]) -> Theta:
        model = get_model(case.model, priors=priors)
        own = stacked_stats(model, x, z, case.shrunken)
        sampled = model.sample(own, plan, rng)
        return {name: values[:, 0, case.thin - 1 :: case.thin] for name, values in sampled.items()}

    theta = other = drawn(case.priors)
    factor = WRONG
    if case.shrunken:
        own = get_model(case.model, priors=case.priors).priors["interaction_scale"]  # type: ignore[attr-defined]
        other, factor = drawn({**case.priors, "interaction_scale": WRONG_RIDGE * own}), 1.0
    true_values = quantities({name: values[:, None] for name, values in truth.items()}, z, x)
    result = []
    for draws, wrong in ((theta, 1.0), (other, factor)):
        result.append(ranks_of(quantities(draws, z, x, wrong), true_values))
    return result[0], result[1]


def ranks_of(values: Mapping[str, FloatArray], true: Mapping[str, FloatArray]) -> dict[str, Any]:
    """Ranks (count,) of each true quantity (count, 1, d) among its draws (count, draws, d)."""
    return {
        f"{name}[{j}]": (own[..., j] < true[name][..., j]).sum(axis=1)
        for name, own in values.items() for j in range(own.shape[-1])
    }  # fmt: skip


def uniformity(ranks: IntArray, draws: int) -> dict[str, Any]:
    """Counts in equal bins, and p-values of chi-square and Kolmogorov-Smirnov tests."""
    assert (draws + 1) % BINS == 0
    counts = np.bincount(ranks * BINS // (draws + 1), minlength=BINS)
    jitter = np.random.default_rng(0).random(ranks.size)
    return {
        "counts": counts.tolist(),
        "chi_square_p": float(stats.chisquare(counts).pvalue),
        "ks_p": float(stats.kstest((ranks + jitter) / (draws + 1), "uniform").pvalue),
    }


def calibrate(case: Case, seed: int) -> tuple[dict[str, Any], dict[str, Any]]:
    """Uniformity by parameter: of the sampler, and of the one with residual SDs scaled."""
    sound, wrong = of_batches(partial(ranks_of_batch, case), case, seed)
    return sound, wrong


def of_batches(
    ranks: Callable[[int, np.random.Generator], Sequence[dict[str, Any]]], case: Any, seed: int
) -> list[dict[str, Any]]:
    """Uniformity by parameter, of each sampler whose ranks come in batches of some databases."""
    rng = np.random.default_rng(seed)
    batches = [
        ranks(min(BATCH, case.replications - begin), rng)
        for begin in range(0, case.replications, BATCH)
    ]
    return [
        {
            name: uniformity(np.concatenate([part[name] for part in parts]), case.draws)
            for name in parts[0]
        }
        for parts in zip(*batches, strict=True)
    ]


def smallest(table: Mapping[str, Any]) -> float:
    """The smallest p-value of all parameters and both tests."""
    return min(min(row["chi_square_p"], row["ks_p"]) for row in table.values())


def run(seed: int, names: Sequence[str]) -> dict[str, Any]:
    """The cases named, as written to the golden file."""
    results = {}
    for offset, (name, case) in enumerate(CASES.items()):
        if name not in names:
            continue
        sound, wrong = calibrate(case, seed + offset)
        results[name] = {
            "settings": {**asdict(case), "seed": seed + offset},
            "smallest_p": smallest(sound),
            "tests": 2 * len(sound),
            "uniform": smallest(sound) > LEVEL,
            "smallest_p_of_the_wrong_sampler": smallest(wrong),
            "rejects_the_wrong_sampler": smallest(wrong) < LEVEL,
            "parameters": sound,
        }
        print(
            f"{name:34s} {case.replications} databases, {2 * len(sound)} tests: smallest p "
            f"{smallest(sound):.3g}; wrong sampler: {smallest(wrong):.3g}",
            flush=True,
        )
    versions = {
        "surveysynth": surveysynth.__version__,
        "numpy": np.__version__,
        "scipy": scipy.__version__,
        "python": platform.python_version(),
    }
    return {"date": date.today().isoformat(), "versions": versions, "cases": results}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--seed", type=int, default=2018)
    parser.add_argument("--out", type=Path, default=GOLDEN)
    parser.add_argument("--case", action="append", choices=list(CASES))
    arguments = parser.parse_args()
    results = run(arguments.seed, arguments.case or list(CASES))
    if arguments.case:
        before = json.loads(arguments.out.read_text(encoding="utf-8"))
        run_of = {"date": results["date"], "versions": results["versions"]}
        found = {name: {"run": run_of, **case} for name, case in results["cases"].items()}
        kept = before["cases"] | found
        results = {**before, "cases": {name: kept[name] for name in CASES if name in kept}}
    arguments.out.write_text(json.dumps(results, indent=1) + "\n", encoding="utf-8")
    failed = [name for name, case in results["cases"].items() if not case["uniform"]]
    failed += [n for n, c in results["cases"].items() if not c["rejects_the_wrong_sampler"]]
    if failed:
        raise SystemExit(f"Not as it should be: {', '.join(failed)}")


if __name__ == "__main__":
    main()
