"""Reference posteriors under noise: ``python -m tests.long_runs.reference_posteriors CASE 3.6``.

Long runs of the exact chain of commit 1b99ea65, which keeps the true sums as unknowns beside the
parameters, so that another way to the same posterior can be held against it: each file in
tests/golden/reference_posteriors has the noisy statistics of a simulated survey, and means and SDs
of ``tests.posterior_functionals`` given these, with Monte Carlo errors. ``CASES`` builds surveys
and settings from the package's public parts alone; ``run`` needs that commit.
"""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from unittest import mock

import numpy as np
import pandas as pd

import surveysynth as ss
from surveysynth._support.types import FloatArray
from surveysynth.mechanisms.learned.histogram import (
    first_stage,
    histograms_in,
    learned_design,
    spread_counts,
)
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import LocationStatistics
from surveysynth.mechanisms.noisy_statistics.release.noise import SeededNoise
from surveysynth.mechanisms.noisy_statistics.release.survey_statistics import (
    release_statistics,
)
from surveysynth.mechanisms.noisy_statistics.settings import NoisySettings
from surveysynth.models.general_location.layout import default_columns
from surveysynth.models.general_location.model import GeneralFBP, GeneralFBS, GeneralLocation
from surveysynth.survey.survey import PublicDesign
from tests.posterior_functionals import functionals

COMMIT = "1b99ea65"
GOLDEN = Path(__file__).parents[1] / "golden" / "reference_posteriors"
EPSILONS, DELTA = (3.6, 10.8), 1e-6
REGIONS, AGES = list("abcd"), list("wxyz")
#: Of a case, since several share a frame.
SEED = 20_260

# --- cases ------------------------------------------------------------------------------------


def frame(sizes: Any, seed: int) -> pd.DataFrame:
    """Records in 16 cells of these sizes: outcomes of every kind that a common cause joins with
    informative weights; means and spreads differ by cell."""
    rng = np.random.default_rng(seed)
    cell = np.repeat(np.arange(16), sizes)
    region, age = cell // 4, cell % 4
    effect = np.array([0.3, 0.0, -0.2, 0.1])[region] + np.array([0.4, 0.1, 0.0, -0.3])[age]
    effect = effect + 0.15 * rng.standard_normal(16)[cell]
    wide = np.exp(0.2 * rng.standard_normal(16))[cell]
    cause = effect + wide * rng.standard_normal(cell.size)
    noise = rng.standard_normal((4, cell.size))
    income = np.exp(10.0 + 0.5 * cause + 0.4 * noise[0])
    zero = rng.random(cell.size) < np.array([0.05, 0.1, 0.1, 0.15])[region]
    level = np.clip(np.floor(1.5 + cause + noise[2]), 0, 3).astype(int)
    return pd.DataFrame({
        "region": np.array(REGIONS)[region],
        "age": np.array(AGES)[age],
        "pay": income.round(2),
        "wealth": np.exp(11.0 + 0.5 * cause + 0.6 * noise[1]).round(2),
        "income": np.where(zero, 0.0, income).round(2),
        "works": (rng.random(cell.size) < 1.0 / (1.0 + np.exp(-cause))).astype(int),
        "health": (level + 1).astype(str),
        "rooms": np.clip(rng.poisson(3.0 * np.exp(0.2 * cause)), 0, 15),
        "weight": np.exp(3.1 - 0.25 * cause + 0.35 * noise[3]),
    })  # fmt: skip


def fitting(sizes: Any, seed: int) -> pd.DataFrame:
    """``frame`` with four outcomes that follow the model: what answers and amounts add is the same
    in every cell, and residuals are normal."""
    own, rng = frame(sizes, seed), np.random.default_rng((seed, 1))
    cell = np.repeat(np.arange(16), sizes)
    effect = (0.3 * rng.standard_normal(16))[cell]
    wide = np.exp(0.2 * rng.standard_normal(16))[cell]

    def chance(logit: Any) -> Any:
        return rng.random(cell.size) < 1.0 / (1.0 + np.exp(-logit))

    zero = chance(-2.2 + effect)
    works = chance(0.3 + effect - 0.5 * zero)
    eta = np.outer(0.4 * works - 0.3 * zero + effect, np.arange(4)) + np.array(
        [0.0, 0.3, 0.2, -0.4]
    )
    health = (eta + rng.gumbel(size=eta.shape)).argmax(1)
    answers = 0.3 * works + 0.15 * health
    noise = wide * rng.standard_normal((3, cell.size))
    pay = 0.5 * effect + answers - 0.2 * zero + 0.6 * noise[0]
    income = 0.5 * effect + answers + 0.4 * noise[0] + 0.5 * noise[1]
    weight = 3.1 - 0.2 * answers - 0.2 * noise[0] - 0.1 * noise[1] * ~zero + 0.35 * noise[2]
    return own.assign(
        pay=np.exp(10.0 + pay), income=np.where(zero, 0.0, np.exp(10.0 + income)),
        works=works.astype(int), health=(health + 1).astype(str), weight=np.exp(weight),
    )  # fmt: skip


OUTCOMES = {
    "pay": ss.Outcome("pay"),
    "learned pay": ss.Outcome("pay", transform=ss.LearnedTransform(low=0.0, high=1_000_000.0)),
    "wealth": ss.Outcome("wealth"),
    "income": ss.Outcome("income", "semicontinuous", spikes=(0.0,)),
    "works": ss.Outcome("works", "binary"),
    "health": ss.Outcome("health", "categorical", levels=("1", "2", "3", "4")),
    "rooms": ss.Outcome("rooms", "count", ss.LearnedTransform(low=0.0, high=20.0, by="cells")),
}
DECLARED = {
    "pay": ss.Declared(22_000.0, 0.7), "wealth": ss.Declared(60_000.0, 0.8),
    "income": ss.Declared(22_000.0, 0.7), "salary": ss.Declared(100_000.0, 0.5),
}  # fmt: skip


def kinds(
    *names: str, least: float = 62.5, most: float = 187.5, records: Any = frame
) -> Callable[[int], ss.Survey]:
    """A case with these outcomes of ``records``, in cells of so many of them, by its seed."""
    sizes = np.random.default_rng(5).permutation(np.round(np.linspace(least, most, 16)).astype(int))

    def survey(seed: int) -> ss.Survey:
        return ss.Survey.from_frame(
            records(sizes, seed), outcomes=[OUTCOMES[name] for name in names], weight="weight",
            strata="region", by=("region", "age"), population_size=24.0 * sizes.sum(),
        )  # fmt: skip

    return survey


def main_effects(seed: int) -> ss.Survey:
    """README's example without interactions, which has a seed of its own."""
    return ss.Survey.from_frame(
        ss.datasets.example().frame, outcome="salary", weight="weight", strata="field",
        by=("field", "gender"), population_size=100_000, predictors="field + gender",
    )  # fmt: skip


@dataclass(frozen=True)
class Case:
    """A survey by seed; covariance_by None: spread by cell. seconds: processor time of the run."""

    survey: Callable[[int], ss.Survey]
    form: type[GeneralLocation] = GeneralFBS
    covariance_by: tuple[str, ...] | None = None
    seconds: float = 150.0

    def model(self, design: PublicDesign) -> GeneralLocation:
        """The general form of the model."""
        names = self.covariance_by
        return self.form(default_columns(design) if names is None else names).of(design)


CASES = {
    "example": Case(lambda seed: ss.example_survey()),
    "example_one_covariance": Case(main_effects, covariance_by=()),
    "yes_or_no": Case(kinds("works")),
    "amount_with_zeros": Case(kinds("income")),
    "four_categories": Case(kinds("health")),
    "small_cells": Case(kinds("pay", least=8, most=30)),
    "two_amounts": Case(kinds("pay", "wealth")),
    "count": Case(kinds("rooms")),
    "fbp_with_zeros": Case(kinds("income"), form=GeneralFBP),
    "learned_amount": Case(kinds("learned pay")),
    "four_mixed": Case(
        kinds("pay", "income", "works", "health", least=625, most=1875), seconds=360.0
    ),
    "four_fitting": Case(
        kinds("pay", "income", "works", "health", least=625, most=1875, records=fitting),
        seconds=360.0,
    ),
}  # fmt: skip


def settings(epsilon: float) -> NoisySettings:
    """Those of the noise, of every case."""
    return NoisySettings(Budget.of_epsilon(epsilon, DELTA), DECLARED)


def design_of(case: Case, content: Mapping[str, Any]) -> PublicDesign:
    """The design of a case with the curves that a golden file has, if any."""
    design = case.survey(content["seed"]).design
    return learned_design(design, histograms_in(content)) if "learned" in content else design


# --- the run ----------------------------------------------------------------------------------

#: Rounds that nothing is kept of, rounds a draw, draws between looks, and the least ESS to reach.
WARMUP, THIN, BLOCK, ENOUGH, CHAINS = 400, 4, 50, 4000.0, 32


def released(case: Case, epsilon: float, seed: int) -> dict[str, Any]:
    """Noisy statistics of a case, and histograms of what is learned."""
    survey, rho = case.survey(seed), settings(epsilon).budget.rho
    source = SeededNoise(np.random.default_rng((seed, 1)))
    first = first_stage(survey.design, survey.confidential, budget=rho, source=source)
    spread = spread_counts(first.design, survey.confidential, np.random.default_rng((seed, 2)))
    model = case.model(first.design)
    made = release_statistics(model, first.design, spread, settings(epsilon), source)
    return {**first.kept(), "statistics": made.to_dict()}


def run(name: str, epsilon: float) -> dict[str, Any]:
    """One case as written to its golden file."""
    case, content = CASES[name], {"case": name, "epsilon": epsilon, "seed": SEED, "commit": COMMIT}
    content |= released(case, epsilon, SEED)
    design = design_of(case, content)
    statistics = LocationStatistics.from_dict(content["statistics"])
    model = case.model(design)
    content["default_fit"] = default_fit(model, design, statistics, settings(epsilon))
    return content | long_run(model, design, statistics, case.seconds)


def default_fit(
    model: Any, design: PublicDesign, statistics: Any, settings: NoisySettings
) -> dict[str, Any]:
    """What the package itself does: released or not, R-hat of each stage, processor seconds."""
    from surveysynth.errors import RefusedError
    from surveysynth.mechanisms.noisy_statistics.posterior import draws

    stages, judged = [], draws.draws_if_converged

    def noted(model: Any, theta: Any, settings: Any, thinning: int) -> Any:
        result = judged(model, theta, settings, thinning)
        refused = isinstance(result, RefusedError)
        r_hat = result.r_hat if refused else max(result[1].r_hat.values())
        stages.append({"rounds_a_draw": thinning, "r_hat": round(r_hat, 3)})
        return result

    started = time.process_time()
    with mock.patch.object(draws, "draws_if_converged", noted):
        rng = np.random.default_rng((SEED, 3))
        result = draws.location_draws(model, design, statistics, settings, rng)
    return {
        "released": not isinstance(result, RefusedError),
        "stages": stages,
        "cpu_seconds": round(time.process_time() - started, 1),
    }


def long_run(model: Any, design: PublicDesign, statistics: Any, seconds: float) -> dict[str, Any]:
    """Functionals of the exact chain: until all have an effective sample size of ``ENOUGH``."""
    from surveysynth.mechanisms.noisy_statistics.posterior import draws as exact
    from surveysynth.sampling.convergence import effective_sample_size, r_hat

    layout, shape = exact.Layout.of(design, model.grouped), exact.table_of(model, design)
    root = exact.alike(design.matrix)
    plain = exact.LocationTarget.of(shape, design.matrix.cell, [statistics], CHAINS)
    target = plain.about_centre().on_columns(root)
    streams = exact.Streams((np.random.default_rng((SEED, 4)),), 1)
    started = time.process_time()
    sweeps = exact.LocationSweeps(layout, target, model.priors, streams, 1)
    sweeps.warm_up(WARMUP)
    sweeps.thin = THIN
    plan = exact.SamplingPlan(chains=1, warmup=0, draws=BLOCK)
    blocks: list[dict[str, FloatArray]] = []
    least, spent, next_look = 0.0, 0.0, 4.0
    while least < ENOUGH and spent < seconds:
        theta = {key: values[:, 0] for key, values in exact.run_sweeps(sweeps, plan).items()}
        theta |= exact.on_x(theta, layout, root, plain.ones, statistics.centre)
        group = model.groups(design).cell
        blocks.append(functionals(theta, layout, group, design.matrix.x_cells))
        spent = time.process_time() - started
        if len(blocks) >= next_look or spent >= seconds:
            next_look = 1.3 * len(blocks)
            kept = {name: np.concatenate([b[name] for b in blocks], axis=1) for name in blocks[0]}
            ess = {name: effective_sample_size(values) for name, values in kept.items()}
            least = min(each.min() for each in ess.values())
    found = {}
    for name, values in kept.items():
        sd = values.std(axis=(0, 1))
        row = {
            "mean": values.mean(axis=(0, 1)), "sd": sd,
            "mcse": sd / np.sqrt(np.maximum(ess[name], 1.0)), "r_hat": r_hat(values),
        }  # fmt: skip
        found[name] = {key: [float(f"{v:.6g}") for v in each] for key, each in row.items()}
    size = {"chains": CHAINS, "warmup": WARMUP, "rounds_a_draw": THIN, "draws": BLOCK * len(blocks)}
    return {"long_run": {**size, "cpu_seconds": round(spent, 1)}, "functionals": found}


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("case", choices=list(CASES))
    parser.add_argument("epsilon", type=float, choices=EPSILONS)
    arguments = parser.parse_args()
    content = run(arguments.case, arguments.epsilon)
    GOLDEN.mkdir(exist_ok=True)
    path = GOLDEN / f"{arguments.case}_{arguments.epsilon:g}.json"
    path.write_text(json.dumps(content) + "\n", encoding="utf-8")
    print(content["case"], content["epsilon"], content["default_fit"], content["long_run"])


if __name__ == "__main__":
    main()
