"""Coverage with answers missing at random, against complete data and against complete cases.

    python -m tests.long_runs.missing_study --samples 300

writes golden/missing_study.json. Samples of a simulated population, drawn with probability in
proportion to a size that falls with income; incomes are missing at random given who owns a home.
Draws are those of the unweighted posterior, as noisy statistics with hardly any noise have them,
and tables combine as theirs.
"""

import argparse
import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

import surveysynth as ss
from surveysynth.estimation.domains import build_domains
from surveysynth.estimation.estimates import Estimates
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.total_variance import TotalVariance, public_rows_of
from surveysynth.inference.synthesis import synthesise
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform

GOLDEN = Path(__file__).parents[1] / "golden" / "missing_study.json"
SIZE, RECORDS, M, REPLICATES = 40_000, 500, 20, 2
PLAN = SamplingPlan(4, 60, 60)
RULES = ("complete", "model", "complete cases")
#: Of the mean of the amount overall and by region, and of the share of owners.
ROWS = ("income, all", "income, a", "income, b", "owner, all", "owner, a", "owner, b")


@lru_cache
def population() -> pd.DataFrame:
    """Incomes of owners are higher, and sizes fall with income."""
    rng = np.random.default_rng(11)
    region = rng.integers(0, 2, SIZE)
    owner = rng.random(SIZE) < stats.logistic.cdf(0.6 * region - 0.3)
    income = 3.0 + 0.3 * region + 1.2 * owner + 0.6 * rng.standard_normal(SIZE)
    size = np.exp(-0.25 * income + 0.2 * rng.standard_normal(SIZE))
    return pd.DataFrame({
        "region": np.where(region, "b", "a"), "owner": owner.astype(int), "income": income,
        "size": size / size.sum(),
    })  # fmt: skip


def truth() -> np.ndarray:
    """The rows in the population."""
    frame = population()
    parts = [frame[["income", "owner"]].mean()]
    parts += [frame.loc[frame["region"] == each, ["income", "owner"]].mean() for each in "ab"]
    return np.array([part[name] for name in ("income", "owner") for part in parts])


def sample_of(rng: np.random.Generator) -> pd.DataFrame:
    """Draw a sample in proportion to size."""
    frame = population()
    taken = rng.choice(SIZE, RECORDS, p=frame["size"])
    sample = frame.iloc[taken].reset_index(drop=True)
    return sample.assign(weight=1.0 / (RECORDS * sample["size"])).drop(columns="size")


def with_holes(sample: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Leave out incomes at random given owner: 35% of owners and 8% of others, about 20%."""
    lost = rng.random(len(sample)) < np.where(sample["owner"] == 1, 0.35, 0.08)
    return sample.assign(income=sample["income"].where(~lost))


def estimate(sample: pd.DataFrame, missing: str, seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Return the ends of 95% intervals of all rows, of a release that has no noise."""
    survey = Survey.from_frame(
        sample,
        outcomes=[Outcome("owner", "binary"), Outcome("income", transform=Transform("identity"))],
        weight="weight", by="region", population_size=SIZE, missing=missing,
    )  # fmt: skip
    rng, model = np.random.default_rng(seed), ss.get_model("fbs")
    design = model.with_ridge(survey.design)
    model = model.of(design)
    records = model.records(design, survey.confidential)
    theta = model.sample(model.compress(records, np.ones(design.n)), PLAN, rng)
    step = PLAN.kept // M
    kept = {
        name: value.reshape(-1, *value.shape[3:])[::step][:M] for name, value in theta.items()
    }
    keys = [("mean", 1), ("mean", 0)]
    estimates = Estimates(
        build_domains(design.frame, ("region",), design.levels),
        SampleDesign.from_public(design), keys,
        linearisation="ratio", population_size=SIZE, draws=M, replicates=REPLICATES,
        rule=TotalVariance(public_rows_of(design)), outcomes=design.outcomes,
    )  # fmt: skip
    draws = PrivateDraws("fbs", kept, ss.MechanismSettings(epsilon=10.8, m=M))
    for dataset in synthesise(
        model, design, draws, replicates_per_draw=REPLICATES, rng=rng, scale_to=SIZE
    ):
        estimates.add(dataset)
    found = [estimates.combined(key) for key in keys]
    centre = np.concatenate([each.estimate for each in found])
    half = np.concatenate([stats.t.ppf(0.975, each.df) * each.standard_error for each in found])
    return centre - half, centre + half


def covered(seed: int) -> dict[str, tuple[np.ndarray, np.ndarray]]:
    """Return, for each rule, which rows cover the truth in one sample, and the lengths."""
    rng = np.random.default_rng([seed, 5])
    sample = sample_of(rng)
    holes, found = with_holes(sample, rng), {}
    given = {"complete": (sample, "fail"), "model": (holes, "model"),
             "complete cases": (holes, "drop")}  # fmt: skip
    for rule, (frame, missing) in given.items():
        low, high = estimate(frame, missing, seed)
        found[rule] = (low <= truth()) & (truth() <= high), high - low
    return found


def summary(samples: range) -> dict[str, dict[str, list[float]]]:
    """Return coverage and median length of all rows by rule."""
    runs = [covered(seed) for seed in samples]
    return {
        rule: {
            "coverage": np.mean([run[rule][0] for run in runs], axis=0).round(4).tolist(),
            "length": np.median([run[rule][1] for run in runs], axis=0).round(5).tolist(),
        }
        for rule in RULES
    }


def main() -> None:
    """Run the study and keep its result."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--samples", type=int, default=300)
    given = parser.parse_args()
    result = {"samples": given.samples, "rows": ROWS, "rules": summary(range(given.samples))}
    GOLDEN.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
