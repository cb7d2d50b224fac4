"""What one record can move where few tell of a row: ``python -m tests.long_runs.strata_study``.

Log ratios of the weighted posteriors of two databases that differ in one record, over the stated
bound, as ``origin_study`` takes them: both with the same random numbers, the record in the row of
X with the highest leverage, its outcome or weight moved far. ``strata``: one small stratum as it
is, to find the rule; with independent draws of the conjugate posterior of FBS under a flat prior in
place of its Gibbs sampler, which takes a fraction of the time. ``mechanism``: databases as in a
release, small strata pooled by the rule, with every model's own sampler. The result is
``golden/strata_study.json``, which ``test_strata_study.py`` holds to what is claimed. ``--part
NAME`` and ``--row NUMBER`` run some of it and keep the rest.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator, Sequence  # noqa: E402
from dataclasses import dataclass, replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from scipy.special import gammaincinv  # noqa: E402

from surveysynth._support.types import FloatArray, Theta  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.fit import Database  # noqa: E402
from surveysynth.mechanisms.pseudo_posterior.settings import (  # noqa: E402
    Allowed,
    MechanismSettings,
)
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run_batch  # noqa: E402
from surveysynth.models import get_model  # noqa: E402
from surveysynth.models.base import Model  # noqa: E402
from surveysynth.models.gaussian.fbs import FBS  # noqa: E402
from surveysynth.models.gaussian.model import GaussianStats  # noqa: E402
from surveysynth.release.files import library_versions  # noqa: E402
from surveysynth.sampling.plan import SamplingPlan  # noqa: E402
from surveysynth.survey.design_matrix import records_per_coefficient  # noqa: E402
from surveysynth.survey.survey import Survey  # noqa: E402
from surveysynth.survey.transforms import Transform  # noqa: E402
from tests.long_runs import origin_study  # noqa: E402
from tests.long_runs.origin_study import Alike, Change, changed, rounded  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "strata_study.json"
SEED, M = 31, 3
CHANGES = (
    Change(2.0), Change(-2.0), Change(4.0), Change(8.0), Change(factor=50.0), Change(factor=0.02),
    Change(8.0, 50.0), Change(-8.0, 0.02),
)  # fmt: skip
#: Databases fitted side by side.
BATCH = 5
_MEANS = np.array([11.2, 11.45, 11.6, 11.1, 11.0, 11.3, 10.95, 11.25])


# --- databases --------------------------------------------------------------------------------


def one_small_stratum(n: int, smallest: int, sample: int) -> Survey:
    """A stratum of few records beside seven of equal size; salaries that tell of weights."""
    rng = np.random.default_rng([SEED, n, smallest, sample])
    others = np.full(7, (n - smallest) // 7) + (np.arange(7) < (n - smallest) % 7)
    stratum = np.repeat(np.arange(8), [smallest, *others])
    gender = np.where(rng.random(n) < 0.45, "F", "M")
    log_salary = _MEANS[stratum] - 0.15 * (gender == "F") + 0.4 * rng.standard_normal(n)
    log_weight = 5.0 - 0.6 * (log_salary - 11.2) + 0.3 * rng.standard_normal(n)
    frame = pd.DataFrame({
        "stratum": np.array(list("abcdefgh"))[stratum], "gender": gender,
        "salary": np.exp(log_salary), "weight": np.exp(log_weight),
    })  # fmt: skip
    return Survey.from_frame(
        frame, outcome="salary", weight="weight", by=["stratum", "gender"], strata="stratum",
        population_size=100_000, transforms=Transform("log"), predictors="stratum + gender",
    )  # fmt: skip


def exposed(survey: Survey) -> int:
    """The record nearest to its fit among those of the highest leverage."""
    x = survey.design.matrix
    rows, few = x.x_cells[x.cell], records_per_coefficient(x)[x.cell]
    z = survey.design.transforms[0].forward(survey.confidential.outcome[:, 0])
    distance = np.abs(z - rows @ np.linalg.lstsq(rows, z, rcond=None)[0])
    those = np.flatnonzero(few <= few.min() * (1.0 + 1e-9))
    return int(those[np.argmin(distance[those])])


# --- the models -------------------------------------------------------------------------------


class Independent(FBS):
    """FBS under a flat prior, drawn from its conjugate posterior: Sigma^-1 Wishart, beta normal.
    Draws move smoothly with the risk weights, as those of the Gibbs sampler do."""

    def sample(self, stats: GaussianStats, plan: SamplingPlan, rng: Any) -> Theta:
        """Leading axes (databases, chains, draws)."""
        made = [self._one(stats, b, plan.kept, rng[b]) for b in range(stats.total.shape[0])]
        beta, covariance = (np.stack(each) for each in zip(*made, strict=True))
        lead = (len(made), plan.chains, plan.draws)
        return {
            "beta": beta.reshape(*lead, *beta.shape[2:]),
            "covariance": covariance.reshape(*lead, *covariance.shape[2:]),
        }

    @staticmethod
    def _one(
        stats: GaussianStats, b: int, draws: int, rng: np.random.Generator
    ) -> tuple[FloatArray, FloatArray]:
        k, q = stats.fit.shape[1:]
        normals = rng.standard_normal((draws, k, q))
        bartlett = np.tril(rng.standard_normal((draws, q, q)), -1)
        half = 0.5 * np.maximum(stats.total[b] - k - np.arange(q), 0.5)
        diagonal = np.sqrt(2.0 * gammaincinv(half, rng.random((draws, q))))
        bartlett[:, np.arange(q), np.arange(q)] = diagonal
        root = np.linalg.cholesky(np.linalg.inv(stats.residual[b])) @ bartlett
        covariance = np.linalg.inv(root @ root.swapaxes(-1, -2))
        covariance = 0.5 * (covariance + covariance.swapaxes(-1, -2))
        spread = np.linalg.inv(np.linalg.cholesky(stats.gram[b])).T
        beta = stats.fit[b] + spread @ normals @ np.linalg.cholesky(covariance).swapaxes(-1, -2)
        return beta, covariance


# --- one record replaced ----------------------------------------------------------------------


@dataclass(frozen=True)
class Setting:
    """Databases, a model and a target: one row of the result."""

    name: str
    model: str
    n: int
    samples: int
    epsilon: float = 10.8
    smallest: int = 0
    pooled: bool = True
    alike: bool = True
    draws: int = 250

    @property
    def settings(self) -> MechanismSettings:
        """Of the mechanism."""
        plan = SamplingPlan(4, 250, self.draws)
        allow: tuple[Allowed, ...] = () if self.pooled else ("small_strata",)
        return MechanismSettings(epsilon=self.epsilon, m=M, plan=plan, allow=allow)

    @property
    def made(self) -> Model:
        """The model."""
        return Independent() if self.model == "independent" else get_model(self.model)

    def survey(self, sample: int) -> Survey:
        """With one small stratum, or of the published simulation or the counts of
        ``origin_study``."""
        if self.smallest:
            return one_small_stratum(self.n, self.smallest, sample)
        name = "fbs" if self.model == "independent" else self.model
        return origin_study.Neighbours(name, self.n).survey(sample)


def measured(setting: Setting) -> dict[str, Any]:
    """The largest ratio of every database, over changes."""
    start, ratios, refused, weights, few = time.process_time(), [], 0, [], []
    worst: dict[str, float] = {}
    for surveys in batches(setting):
        for row in log_ratios(setting, surveys):
            found = {name: value for name, value in row["ratios"].items() if value is not None}
            refused += len(row["ratios"]) - len(found)
            weights.append(row["mean_risk_weight"])
            few.append(row["records_per_coefficient"])
            ratios.append(max(found.values(), default=np.nan))
            worst = {name: max(worst.get(name, 0.0), value) for name, value in found.items()}
    return {
        "name": setting.name, "model": setting.model, "n": setting.n, "epsilon": setting.epsilon,
        "smallest_stratum": setting.smallest, "pooled": setting.pooled,
        "random_numbers": "alike" if setting.alike else "own", "draws": setting.settings.plan.kept,
        "samples": setting.samples, "refused": refused, "changes": len(CHANGES),
        "records_per_coefficient": min(few), "least": setting.settings.least_records,
        "mean_risk_weight": float(np.mean(weights)), "largest_over_stated": max(ratios),
        "median_over_stated": float(np.median(ratios)),
        "above": int(np.sum(np.array(ratios) >= 1.0)),
        "worst": dict(sorted(worst.items(), key=lambda each: -each[1])[:3]),
        "seconds": round(time.process_time() - start),
    }  # fmt: skip


def batches(setting: Setting) -> Iterator[list[tuple[Survey, int]]]:
    """Databases that are fitted side by side, prepared as in a release, and of each the record that
    is replaced: of the highest leverage before pooling or, in every second database, after it."""
    groups: dict[int, list[tuple[Survey, int]]] = {}
    for sample in range(setting.samples):
        survey = setting.survey(sample)
        design = setting.settings.prepared(survey.design)
        pooled = replace(survey, design=design)
        record = exposed(pooled if sample % 2 else survey)
        groups.setdefault(design.matrix.n_columns, []).append((pooled, record))
    for group in groups.values():
        yield from (group[start : start + BATCH] for start in range(0, len(group), BATCH))


def log_ratios(setting: Setting, surveys: list[tuple[Survey, int]]) -> Iterator[dict[str, Any]]:
    """Of each database the ratio of every change, None where a run was refused."""
    model, settings = setting.made, setting.settings
    records = [
        [
            model.records(survey.design, half)
            for half in (
                survey.confidential, *(changed(survey, record, change) for change in CHANGES)
            )
        ]
        for survey, record in surveys
    ]  # fmt: skip
    databases = [Database(each, surveys[0][0].design.n) for row in records for each in row]
    rng = Alike(SEED) if setting.alike else np.random.default_rng(SEED)
    results = run_batch(model, databases, settings, rng)
    for number, (survey, _) in enumerate(surveys):
        fits = results[number * len(records[0]) : (number + 1) * len(records[0])]
        few = float(records_per_coefficient(survey.design.matrix).min())
        row: dict[str, Any] = {
            "records_per_coefficient": few, "ratios": {}, "mean_risk_weight": np.nan,
        }  # fmt: skip
        if not isinstance(fits[0], tuple):
            yield {**row, "ratios": {change.name: None for change in CHANGES}}
            continue
        base = records[number][0], fits[0][1]
        row["mean_risk_weight"] = float(fits[0][1].risk_weights.mean())
        for change, each, fit in zip(CHANGES, records[number][1:], fits[1:], strict=True):
            if not isinstance(fit, tuple):
                row["ratios"][change.name] = None
                continue
            stated, other = 2.0 * settings.target_bound, (each, fit[1])
            ratio = origin_study.largest_log_ratio(model, base, other)
            row["ratios"][change.name] = ratio / stated
        yield row


# --- the whole --------------------------------------------------------------------------------

STRATA = (
    *(
        Setting(f"stratum of {size}", "independent", 400, samples, smallest=size, pooled=False)
        for size, samples in ((22, 20), (15, 10), (10, 10), (5, 5))
    ),
    Setting("stratum of 40", "independent", 400, 10, 4.0, 40, pooled=False),
    Setting("stratum of 20", "independent", 400, 5, 4.0, 20, pooled=False),
    Setting("stratum of 64", "independent", 800, 10, 4.0, 64, pooled=False),
    Setting("stratum of 8", "independent", 400, 5, 32.4, 8, pooled=False),
    Setting("stratum of 22, own numbers", "independent", 400, 5, smallest=22, pooled=False,
            alike=False),
)  # fmt: skip
MECHANISM = (
    Setting("published simulation", "independent", 1000, 20, 4.0),
    Setting("published simulation", "fbp", 300, 20),
    Setting("stratum of 3", "fbs", 400, 5, smallest=3),
    Setting("stratum of 3", "normal", 400, 3, smallest=3),
    Setting("two groups", "poisson", 300, 3),
)
PARTS = {"strata": STRATA, "mechanism": MECHANISM}


def key_of(row: Any) -> tuple[Any, ...]:
    """What says which row it is."""
    return tuple(row[name] for name in ("name", "model", "n", "epsilon"))


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=GOLDEN)
    parser.add_argument("--part", action="append", choices=list(PARTS))
    parser.add_argument("--row", type=int, action="append", help="numbers of rows of the part")
    given = parser.parse_args(arguments)
    kept: dict[str, Any] = {}
    if given.out.exists():
        kept = json.loads(given.out.read_text(encoding="utf-8"))
    for part in given.part or PARTS:
        for number, setting in enumerate(PARTS[part]):
            if given.row and number not in given.row:
                continue
            row = rounded(measured(setting))
            print(part, json.dumps(row), flush=True)
            others = [each for each in kept.get(part, []) if key_of(each) != key_of(row)]
            write(given.out, kept := {**kept, part: [*others, row]})


def write(path: Path, result: dict[str, Any]) -> None:
    """The result with what it was made by."""
    made = {"m": M, "seed": SEED, "changes": [each.name for each in CHANGES]}
    whole = {"settings": made, **result, "versions": library_versions()}
    path.write_text(json.dumps(whole, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
