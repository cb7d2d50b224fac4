"""Coverage with answers missing at random, against complete data and against complete cases.

    python -m tests.long_runs.missing_study --samples 300

writes golden/missing_study.json. Samples of a simulated population, drawn with probability in
proportion to a size that falls with income; incomes are missing at random given who owns a home.
Releases are by noisy statistics, at an epsilon whose noise is small beside what sampling varies.
"""

import argparse
import json
from functools import lru_cache
from pathlib import Path

import numpy as np
import pandas as pd
from scipy import stats

import surveysynth as ss
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform

GOLDEN = Path(__file__).parents[1] / "golden" / "missing_study.json"
SIZE, RECORDS, M, REPLICATES, EPSILON = 40_000, 500, 20, 2, 20.0
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
    """Return the ends of 95% intervals of all rows, of a release with little noise."""
    survey = Survey.from_frame(
        sample,
        outcomes=[Outcome("owner", "binary"), Outcome("income", transform=Transform("identity"))],
        weight="weight", by="region", population_size=SIZE, missing=missing,
    )  # fmt: skip
    made = ss.tables(
        survey, mechanism="noisy_statistics", epsilon=EPSILON, statistics=["mean", "proportion"],
        m=M, replicates_per_draw=REPLICATES, seed=seed,
        sections={"outcomes": {"income": {"center": 4.0, "spread": 1.0}}},
    )  # fmt: skip
    ends = pd.concat([made["mean"].frame, made["proportion"].frame])[["ci_lower", "ci_upper"]]
    low, high = ends.to_numpy(dtype=float).T
    return low, high


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
