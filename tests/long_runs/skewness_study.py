"""How far down-weighting moves means where residuals are skewed: ``python -m
tests.long_runs.skewness_study``.

Log amounts of two sexes in four strata with residuals of a known shape (SD 0.5) and log weights
correlated with them by -0.7; FBS with the log transform, which takes residuals for normal. Shifts
are those of the posterior mean under risk weights against the unweighted posterior mean of the same
sample: of the mean log amount, in residual SDs and in sampling SEs, over the whole sample and in
the median cell; and of the model's mean amount, exp(x b + s^2 / 2), in SEs, as drawn and debiased.
Debiasing simulates from the model, whose residuals are normal. It sees what happens to s, and
nothing of the location. The result is ``golden/skewness_study.json``.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

from surveysynth._support.types import FloatArray  # noqa: E402
from surveysynth.inference.debias import debias_many  # noqa: E402
from surveysynth.mechanisms.base import PrivateDraws  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior import weighted_fits  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.fit import Database  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.settings import MechanismSettings  # noqa: E402
from surveysynth.models.base import Simulated  # noqa: E402
from surveysynth.models.gaussian.fbs import FBS  # noqa: E402
from surveysynth.models.weighted import Coordinates  # noqa: E402
from surveysynth.release.files import library_versions  # noqa: E402
from surveysynth.sampling.plan import SamplingPlan  # noqa: E402
from surveysynth.survey.survey import PublicDesign, Survey  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "skewness_study.json"
SEED = 17
SD = 0.5
SAMPLES = 8
PLAN = SamplingPlan(4, 60, 150)
NS = (1000, 3000)
EPSILONS = (10.8, 5.0)


def gamma(skewness: float) -> Callable[[np.random.Generator, int], FloatArray]:
    """Centered gamma errors of SD 1; a negative skewness mirrors them."""
    k = 4.0 / skewness**2
    sign = np.sign(skewness)
    return lambda rng, n: sign * (rng.gamma(k, size=n) - k) / np.sqrt(k)


SHAPES: dict[str, Callable[[np.random.Generator, int], FloatArray]] = {
    "normal": lambda rng, n: rng.standard_normal(n),
    "skewness 0.5": gamma(0.5),
    "skewness 1": gamma(1.0),
    "skewness 2": gamma(2.0),
    "skewness -0.5": gamma(-0.5),
    "skewness -1": gamma(-1.0),
    "skewness -2": gamma(-2.0),
    "heavy tails (t, 5 df)": lambda rng, n: rng.standard_t(5, n) / np.sqrt(5.0 / 3.0),
}


class Observed(FBS):
    """FBS of which coefficients are looked at as well; debiasing shifts the scales alone."""

    def debiased(self, theta: Any, design: PublicDesign) -> Coordinates:
        """Log scales, then the mean log amount in each cell of X."""
        cells = theta["beta"][..., 0] @ design.matrix.x_cells.T
        return Coordinates.joined(
            super().debiased(theta, design), Coordinates.of("location", cells)
        )


def design_of(n: int) -> PublicDesign:
    """Four strata of equal size by two sexes, 60% and 40%."""
    i = np.arange(n)
    frame = pd.DataFrame(
        {
            "stratum": np.array(list("abcd"))[i % 4],
            "sex": np.where(i // 4 % 5 < 3, "f", "m"),
            "income": np.exp(i % 7 / 7.0),
            "weight": 1.0 + i % 5,
        }
    )
    return Survey.from_frame(
        frame, outcome="income", weight="weight", by=["sex"], strata="stratum",
        population_size=100_000,
    ).design  # fmt: skip


def sample(design: PublicDesign, shape: str, rng: np.random.Generator) -> Database:
    """Records with residuals of a shape."""
    e = SHAPES[shape](rng, design.n)
    mean = np.linspace(2.5, 3.5, len(design.matrix.x_cells))[design.matrix.cell]
    log_weight = 4.0 - 0.28 * e + 0.28 * rng.standard_normal(design.n)
    z = np.stack([mean + SD * e, log_weight], axis=1)
    return Database.simulated(Observed(), design, Simulated(z))


def study(shape: str, n: int, epsilon: float) -> dict[str, Any]:
    """The shifts of one setting, means over samples."""
    start, design, model = time.process_time(), design_of(n), Observed()
    settings = MechanismSettings(epsilon=epsilon, m=3, plan=PLAN)
    rng = np.random.default_rng([SEED, n, int(10 * epsilon), list(SHAPES).index(shape)])
    databases = [sample(design, shape, rng) for _ in range(SAMPLES)]
    runs = weighted_fits.run_batch(model, databases, settings, rng)
    results = [run for run in runs if isinstance(run, tuple)]
    before, plain = (
        np.array([getattr(fit, name) for _, fit in results])
        for name in ("means", "unweighted_means")
    )
    scale = debiased_scale(design, results[0][0])
    sizes = np.bincount(design.matrix.cell)
    shares = sizes / n
    moved = (before - plain)[:, 2:] / SD
    overall = moved @ shares
    debiased = before + np.concatenate([scale, np.zeros(moved.shape[1])])
    of_amounts = [
        np.log(amount(each, shares) / amount(plain, shares)) / (cv(SD) / np.sqrt(n))
        for each in (before, debiased)
    ]
    return {
        "shape": shape, "n": n, "epsilon": epsilon, "released": len(results),
        "mean_risk_weight": float(np.mean([fit.risk_weights.mean() for _, fit in results])),
        "overall_residual_sds": float(overall.mean()),
        "overall_residual_sds_error": float(overall.std(ddof=1) / np.sqrt(len(results))),
        "overall_ses": float(overall.mean() * np.sqrt(n)),
        "median_cell_ses": float(np.median(np.abs(moved.mean(axis=0)) * np.sqrt(sizes))),
        "log_scale": float((before - plain)[:, 0].mean()),
        "log_scale_debiased": float((debiased - plain)[:, 0].mean()),
        "mean_amount_ses": float(of_amounts[0].mean()),
        "mean_amount_ses_debiased": float(of_amounts[1].mean()),
        "seconds": round(time.process_time() - start),
    }  # fmt: skip


def debiased_scale(design: PublicDesign, private: PrivateDraws) -> FloatArray:
    """The shift of both log scales, from the draws of one release."""
    rng = np.random.default_rng(SEED)
    (made,) = debias_many(FBS(), [(design, private)], rng, databases=6, rounds=2)
    if not made.record.debiased:
        raise RuntimeError(made.record.reason)
    return np.array(made.record.shift)


def amount(coordinates: FloatArray, shares: FloatArray) -> FloatArray:
    """The model's mean amount, exp(x b + s^2 / 2), over cells."""
    half = 0.5 * np.exp(2.0 * coordinates[:, :1])
    return np.asarray(np.exp(coordinates[:, 2:] + half) @ shares)


def cv(sd: float) -> float:
    """Coefficient of variation of a log-normal amount."""
    return float(np.sqrt(np.expm1(sd * sd)))


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=GOLDEN)
    arguments = parser.parse_args()
    rows: list[dict[str, Any]] = []
    for n in NS:
        for epsilon in EPSILONS:
            for shape in SHAPES:
                row = study(shape, n, epsilon)
                rows.append(
                    {k: float(f"{v:.4g}") if isinstance(v, float) else v for k, v in row.items()}
                )
                print(json.dumps(rows[-1]), flush=True)
                found = {"samples": SAMPLES, "sd": SD, "rows": rows, "versions": library_versions()}
                arguments.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
