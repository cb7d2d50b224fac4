"""What the origin of the log-likelihood does: ``python -m tests.long_runs.origin_study``.

Four parts under origin = "density" and "peak" at a bound of 1.8 and m = 3. ``tables``: samples of
the published simulation, their mean risk weight and their tables against the population.
``one_record``: databases that differ in the outcome or the weight of one record, each through the
whole search; the log ratio of the two weighted posteriors at draws of both over the stated bound,
2 x 1.8. ``survey``: mean risk weights and what they do to residual scales in a real survey, and
``location``: what they do to its mean, and what debiasing would make of that (both left out where
the file is absent). Some minutes of processor time a part; the result is
``golden/origin_study.json``, which ``test_origin_study.py`` holds to what is claimed. ``--part
NAME`` runs single parts and keeps the results of the others.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Iterator, Sequence  # noqa: E402
from dataclasses import dataclass, replace  # noqa: E402
from functools import cache  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any, get_args  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import surveysynth as ss  # noqa: E402
from surveysynth._support.types import FloatArray, Theta  # noqa: E402
from surveysynth.evaluation.studies.population import (  # noqa: E402
    published_cells,
    simulate_population,
)
from surveysynth.inference.debias import debias_many  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.fit import ConfidentialFit, Database  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.settings import (  # noqa: E402
    MechanismSettings,
    Origin,
)
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch  # noqa: E402
from surveysynth.models import get_model  # noqa: E402
from surveysynth.models.base import Model  # noqa: E402
from surveysynth.models.gaussian.fbp import constant_direction, mean_row  # noqa: E402
from surveysynth.models.gaussian.fbs import FBS  # noqa: E402
from surveysynth.models.weighted import Coordinates  # noqa: E402
from surveysynth.release.files import library_versions  # noqa: E402
from surveysynth.sampling.plan import SamplingPlan  # noqa: E402
from surveysynth.survey.survey import Confidential, PublicDesign, Survey  # noqa: E402
from surveysynth.survey.transforms import Transform  # noqa: E402
from tests.audit import neighbours  # noqa: E402
from tests.audit.neighbours import CHANGES, Change  # noqa: E402
from tests.audit.posterior import (  # noqa: E402
    Alike,
    Side,
    databases,
)
from tests.audit.posterior import log_ratios as ratios_of_posteriors  # noqa: E402
from tests.long_runs import debias_study  # noqa: E402
from tests.long_runs.samples import sample_of  # noqa: E402

REAL = Path(__file__).parents[3] / "shared" / "data" / "ce2015q3.csv"
GOLDEN = Path(__file__).parents[1] / "golden" / "origin_study.json"
ORIGINS: tuple[Origin, ...] = get_args(Origin)
SEED = 29
M, BOUND = 3, 1.8
EPSILON = 2.0 * M * BOUND
#: Samples of each size that tables are made of.
TABLES = {1000: 16, 300: 16}
#: Half of the default draws, which is enough for tables and takes half of the time.
PLAN, DEBIAS_PLAN = SamplingPlan(4, 150, 125), SamplingPlan(2, 100, 250)


def settings_of(origin: Origin) -> MechanismSettings:
    """The mechanism's own settings but for the origin."""
    return MechanismSettings(epsilon=EPSILON, m=M, origin=origin)


def rounded(values: Any) -> Any:
    """Numbers to four significant digits, whatever holds them."""
    if isinstance(values, dict):
        return {key: rounded(value) for key, value in values.items()}
    if isinstance(values, list | tuple | np.ndarray):
        return [rounded(value) for value in values]
    return float(f"{values:.4g}") if isinstance(values, float) else values


# --- tables of simulated samples --------------------------------------------------------------


def tables(n: int, model: str) -> Iterator[dict[str, Any]]:
    """Mean risk weights and tables of the same samples under each origin."""
    for origin in ORIGINS:
        start = time.process_time()
        specs = [specification(model, origin, inference) for inference in ("debiased", "paper")]
        found = ss.coverage(
            frame(), specs[0], also=specs[1:], samples=TABLES[n], seed=SEED, n=n, design="pps_wr",
            size="size",
        )
        names = dict(zip([*dict.fromkeys(found.rows["method"])][1:], ("debiased", "as drawn"),
                         strict=True))  # fmt: skip
        rows = found.rows[found.rows["has_error"]]
        debiased = rows[rows["method"].map(names) == "debiased"]
        relative = (debiased["rmse"] / debiased["truth"]) ** 2
        yield {
            "n": n, "model": model, "origin": origin, "samples": TABLES[n],
            "refused": len(found.refusals),
            "mean_risk_weight": float(np.mean(mean_risk_weights(n, model, origin))),
            **{
                f"{row.statistic} {names[row.method]}": {
                    "coverage": float(row.coverage), "rmse_ratio": float(row.rmse_ratio),
                    "length_ratio": float(row.length_ratio),
                }
                for row in found.summary.itertuples() if row.method in names
            },
            "rmse": {str(k): float(np.sqrt(v.mean()))
                     for k, v in relative.groupby(debiased["statistic"])},
            "seconds": round(time.process_time() - start),
        }  # fmt: skip


@cache
def frame() -> pd.DataFrame:
    """One population for all."""
    return simulate_population(published_cells(), np.random.default_rng(SEED))


def specification(model: str, origin: Origin, inference: str) -> dict[str, Any]:
    """The release of a sample, in half of the default draws."""
    return {
        "survey": {"weight": "weight", "strata": "field", "population_size": len(frame())},
        "synthesizer": {"model": model, "outcome": "salary", "predictors": "field + gender",
                        "inference": inference, "chains": 4, "warmup": 150, "draws": 125},
        "privacy": {"mechanism": "pseudo_posterior", "epsilon": EPSILON, "m": M,
                    "origin": origin},
        "tables": {"by": ["field", "gender"], "statistics": ["count", "mean"]},
    }  # fmt: skip


def mean_risk_weights(n: int, model: str, origin: Origin) -> list[float]:
    """Of the first samples."""
    surveys = [sample_of(frame(), n, SEED, k) for k in range(min(12, TABLES[n]))]
    columns = surveys[0].design.matrix.columns
    made = get_model(model)
    databases = [
        Database(made.records(each.design, each.confidential), each.design.n)
        for each in surveys if each.design.matrix.columns == columns
    ]  # fmt: skip
    settings = replace(settings_of(origin), plan=PLAN)
    results = run_batch(made, databases, settings, np.random.default_rng(SEED))
    return [float(each[1].risk_weights.mean()) for each in results if isinstance(each, tuple)]


# --- one record replaced ----------------------------------------------------------------------


def changed(survey: Survey, record: int, change: Change) -> Confidential:
    """The survey's confidential half with one record replaced; an outcome without a transform is a
    count."""
    count = survey.design.transforms[0].kind == "identity"
    return neighbours.changed(survey, np.array([record]), change, count=count)


def largest_log_ratio(
    model: Model, one: tuple[Any, ConfidentialFit], other: tuple[Any, ConfidentialFit]
) -> float:
    """max over draws of both of |log xi(theta | D) - log xi(theta | D')|, each side
    (records, fit)."""
    sides = [Side(records, fit.risk_weights, fit.theta) for records, fit in (one, other)]
    return ratios_of_posteriors(model, *sides).largest


@dataclass(frozen=True)
class Neighbours:
    """A model, samples of n records, and whether all fits have the same random numbers."""

    model: str
    n: int
    samples: int = 1
    alike: bool = True

    def survey(self, sample: int) -> Survey:
        """A sample of the published simulation, or counts of the study of debiasing."""
        if self.model in ("fbs", "fbp", "normal"):
            return sample_of(frame(), self.n, SEED + 1, sample)
        return counts(self.model, self.n, sample)


NEIGHBOURS = (
    Neighbours("fbs", 1000, samples=3), Neighbours("fbp", 1000, samples=3),
    Neighbours("fbs", 1000, alike=False), Neighbours("fbp", 1000, alike=False),
    Neighbours("normal", 1000), Neighbours("poisson", 1000), Neighbours("negative_binomial", 1000),
    Neighbours("fbs", 300, samples=3), Neighbours("fbp", 300, samples=3),
)  # fmt: skip


def counts(name: str, n: int, sample: int) -> Survey:
    """Counts in two groups with weights, from known parameters."""
    case = debias_study.Case(name, weight=True, n=n)
    model, design = get_model(name), debias_study.design_of(case)
    truth = debias_study.truth_of(case, design)
    rng = np.random.default_rng([SEED, sample])
    simulated = model.simulate(truth, design, rng, "sample")
    confidential = Confidential(simulated.outcomes(design), model.drawn_weight(design, simulated))
    return Survey(design, confidential)


def one_record(case: Neighbours) -> Iterator[dict[str, Any]]:
    """Log ratios over the stated bound under each origin, by record and change."""
    model = get_model(case.model)
    for origin in ORIGINS:
        start = time.process_time()
        largest: dict[str, float] = {}
        alphas, refused = [], 0
        for sample in range(case.samples):
            survey = case.survey(sample)
            for where, (record,) in neighbours.places(survey).items():
                pairs = log_ratios(model, survey, record, case.alike, origin)
                for name, ratio in pairs.items():
                    if ratio is None:
                        refused += 1
                    elif name == "mean_risk_weight":
                        alphas.append(ratio)
                    else:
                        key = f"{where}: {name}"
                        largest[key] = max(largest.get(key, 0.0), ratio)
        worst = sorted(largest, key=largest.__getitem__, reverse=True)
        yield {
            "model": case.model, "n": case.n, "samples": case.samples, "origin": origin,
            "random_numbers": "alike" if case.alike else "own", "databases": len(largest),
            "refused": refused, "mean_risk_weight": float(np.mean(alphas)),
            "largest_over_stated": largest[worst[0]],
            "median_over_stated": float(np.median(list(largest.values()))),
            "worst": {name: largest[name] for name in worst[:5]},
            "seconds": round(time.process_time() - start),
        }  # fmt: skip


def log_ratios(
    model: Model, survey: Survey, record: int, alike: bool, origin: Origin
) -> dict[str, float | None]:
    """Of each change the largest log ratio over 2 x the bound of a draw; None where a run was
    refused."""
    halves = [survey.confidential, *(changed(survey, record, change) for change in CHANGES)]
    given, rng = databases(model, survey.design, halves), np.random.default_rng(SEED)
    results = run_batch(model, given, settings_of(origin), Alike(SEED) if alike else rng)
    if not isinstance(results[0], tuple):
        return {"": None}
    base = given[0].records, results[0][1]
    found: dict[str, float | None] = {"mean_risk_weight": float(base[1].risk_weights.mean())}
    for change, each, result in zip(CHANGES, given[1:], results[1:], strict=True):
        found[change.name] = None
        if isinstance(result, tuple):
            largest = largest_log_ratio(model, base, (each.records, result[1]))
            found[change.name] = largest / (2.0 * BOUND)
    return found


# --- a real survey ----------------------------------------------------------------------------

TRANSFORMS = {
    "asinh": Transform("asinh", scale=10_000.0),
    "yeo_johnson .4": Transform("yeo_johnson", scale=10_000.0, power=0.4),
}


def survey_of(transform: Transform) -> Survey:
    """Income by region and sex."""
    frame = pd.read_csv(REAL).dropna(subset=["region"])
    return Survey.from_frame(
        frame, outcome="income", weight="weight", by=["region", "sex"],
        population_size=129_000_000, transforms=transform,
    )  # fmt: skip


def real() -> Iterator[dict[str, Any]]:
    """Mean risk weights, and what they do to residual scales before debiasing."""
    for (name, transform), model in ((t, m) for t in TRANSFORMS.items() for m in ("fbs", "fbp")):
        survey, made = survey_of(transform), get_model(model)
        database = Database(made.records(survey.design, survey.confidential), survey.design.n)
        for origin in ORIGINS:
            rng = np.random.default_rng(SEED)
            (result,) = run_batch(made, [database], settings_of(origin), rng)
            if not isinstance(result, tuple):
                raise result
            fit = result[1]
            shift = fit.means - fit.unweighted_means
            yield {
                "transform": name, "model": model, "origin": origin, "n": survey.design.n,
                "mean_risk_weight": float(fit.risk_weights.mean()),
                "shift_of_log_scales": shift, "oscillation": float(fit.oscillation_by_record.max()),
            }  # fmt: skip


# --- location ---------------------------------------------------------------------------------


class WithLocation(FBS):
    """FBS of which the mean of the outcome is debiased as well, as log scales are."""

    def debiased(self, theta: Theta, design: PublicDesign) -> Coordinates:
        """Log scales, and the mean of each column of z but the weight's over the records."""
        means = mean_row(design.matrix) @ theta["beta"][..., :-1]
        logs = np.concatenate([self.log_scales(theta), means], axis=-1)
        return Coordinates.of_scales(logs)

    def with_debiased(self, theta: Theta, logs: FloatArray, design: PublicDesign) -> Theta:
        """theta with these scales and means."""
        moved = logs - self.debiased(theta, design).logs
        outcomes = theta["beta"].shape[-1] - 1
        scales = logs.shape[-1] - outcomes
        beta = theta["beta"].copy()
        along = constant_direction(design.matrix)
        beta[..., :outcomes] += along[:, None] * moved[:, None, scales:]
        return {**self.with_log_scales(theta, logs[:, :scales]), "beta": beta}


def location() -> Iterator[dict[str, Any]]:
    """By how many residual SDs weighting down moved the mean of a real outcome, and by how many
    debiasing says that it did."""
    model = WithLocation()
    for name, transform in TRANSFORMS.items():
        survey = survey_of(transform)
        design = survey.design
        database = Database(model.records(design, survey.confidential), design.n, design=design)
        for origin in ORIGINS:
            settings, rng = settings_of(origin), np.random.default_rng(SEED)
            settings = replace(settings, plan=PLAN)
            (result,) = run_batch(model, [database], settings, rng)
            if not isinstance(result, tuple):
                raise result
            private, fit = result
            (made,) = debias_many(model, [(design, private)], rng, plan=DEBIAS_PLAN)
            sd = float(np.exp(fit.unweighted_means[0]))
            yield {
                "transform": name, "origin": origin, "status": made.record.status,
                "moved": float((fit.means - fit.unweighted_means)[-1]) / sd,
                "said": -made.record.shift[-1] / sd,
                "standard_error": made.record.standard_error[-1] / sd,
                "sampling_error": 1.0 / np.sqrt(design.n),
            }  # fmt: skip


# --- the whole --------------------------------------------------------------------------------


def parts() -> dict[str, Callable[[], Iterator[dict[str, Any]]]]:
    """What each part gives, one row at a time."""
    return {
        "one_record": lambda: (row for case in NEIGHBOURS for row in one_record(case)),
        "location": lambda: location() if REAL.is_file() else iter(()),
        "survey": lambda: real() if REAL.is_file() else iter(()),
        "tables": lambda: (
            row for n in TABLES for model in ("fbs", "fbp") for row in tables(n, model)
        ),
    }


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=GOLDEN)
    parser.add_argument("--part", action="append", choices=list(parts()))
    given = parser.parse_args(arguments)
    kept: dict[str, Any] = {}
    if given.out.exists():
        kept = json.loads(given.out.read_text(encoding="utf-8"))
    settings = {"epsilon": EPSILON, "m": M, "bound": BOUND, "seed": SEED}
    for part in given.part or parts():
        rows = []
        for row in parts()[part]():
            rows.append(rounded(row))
            print(part, json.dumps(rows[-1]), flush=True)
            kept = {**kept, "settings": settings, part: rows, "versions": library_versions()}
            given.out.write_text(json.dumps(kept, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
