"""Learned and declared transforms on heavy tails: ``python -m tests.long_runs.learned_study``.

A simulated population of incomes as a tax office sees them: a log-normal body that differs by
region and sex, a Pareto tail of index 1.8, a tenth zeros, and losses. Samples of 2,000 with
informative weights, each released by noisy statistics at epsilon 10.8: with a range alone, and with
transforms of a declared power (0.4 and 0.2) whose center and spread are the population's own. RMSE
and coverage of counts, means and medians against the population, beside those of the sample. The
part ``remedies`` has losses apart from other amounts.

The pseudo-posterior gets samples of the incomes above zero, which a logarithm takes too: how many
records lose weight, and how far the mean of a release lies from the sample's own.

Of a real survey, US consumers in the third quarter of 2015, income, health spending and taxes are
released with ranges from their codebook alone, beside the transforms of ``kinds_study``: how far
means and medians of its cells lie from the sample's own. The codebook describes the columns
(income of a year before taxes, a few negative; spending of a quarter; taxes, which can be negative)
and has no ends, so the ranges are round numbers that no such amount should pass.

``golden/learned_study.json`` has a line for each method and statistic;
``test_learned_study.py`` holds it to what is claimed. About 15 seconds of processor time a release;
``--samples`` says how many.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Mapping  # noqa: E402
from dataclasses import replace  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import surveysynth as ss  # noqa: E402
from surveysynth._support.types import FloatArray  # noqa: E402
from surveysynth.estimation.domains import build_domains  # noqa: E402
from surveysynth.estimation.sample_design import SampleDesign  # noqa: E402
from surveysynth.estimation.taylor import estimate_domains  # noqa: E402
from tests.long_runs import kinds_study  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "learned_study.json"
SEED, UNITS, RECORDS = 23, 40_000, 2_000
RANGE = (-1e6, 1e7)
EPSILON = 10.8
#: Transforms with their constants; centers and spreads are the population's own, rounded.
TRANSFORMS: dict[str, dict[str, Any]] = {
    "learned": {"range": list(RANGE)},
    "power 0.4": {
        "transform": {"scale": 5000.0, "power": 0.4}, "center": 30_000.0, "spread": 2.5,
    },
    "power 0.2": {
        "transform": {"scale": 5000.0, "power": 0.2}, "center": 30_000.0, "spread": 2.3,
    },
}  # fmt: skip


#: Losses apart: medians without a posterior ask for it (``learned_medians``), means do not bear it.
REMEDIES: dict[str, dict[str, Any]] = {
    "learned, split at 0": {"range": list(RANGE), "split": 0.0},
}


def population(seed: int = SEED) -> pd.DataFrame:
    """Simulate the population: region, sex, income, and a measure of size that rises with it."""
    rng = np.random.default_rng(seed)
    region = rng.choice(["east", "north", "south", "west"], UNITS, p=[0.3, 0.3, 0.2, 0.2])
    sex = rng.choice(["f", "m"], UNITS)
    place = 10.2 + 0.25 * (region == "north") - 0.2 * (region == "east") + 0.2 * (sex == "m")
    body = np.exp(place + 0.7 * rng.normal(size=UNITS))
    tail = 1e5 * (1.0 - rng.random(UNITS)) ** (-1.0 / 1.8)
    kind = rng.random(UNITS)
    income = np.where(kind < 0.04, tail, body)
    income = np.where(kind > 0.97, -0.3 * body, income)
    income = np.where(rng.random(UNITS) < 0.1, 0.0, np.clip(np.round(income), *RANGE))
    size = np.clip(np.abs(income), 1e4, 3e5) ** 0.3 * np.exp(0.2 * rng.normal(size=UNITS))
    return pd.DataFrame({"region": region, "sex": sex, "income": income, "size": size.round(3)})


def specification(transform: Mapping[str, Any]) -> dict[str, Any]:
    """Return the sections of a specification by noisy statistics."""
    return {
        "survey": {"data": "survey.csv", "weight": "weight", "strata": "region",
                   "population_size": UNITS},
        "synthesizer": {"model": "fbs", "outcome": "income"},
        "outcomes": {"income": {"kind": "semicontinuous", "spikes": [0.0], **transform}},
        "privacy": {"mechanism": "noisy_statistics", "epsilon": EPSILON},
        "tables": {"by": ["region", "sex"], "statistics": ["count", "mean", "median"]},
    }


def study(samples: int, transforms: Mapping[str, Mapping[str, Any]]) -> dict[str, Any]:
    """Release the same samples by all methods; return a line for each method and statistic."""
    first, *also = map(specification, transforms.values())
    began = time.process_time()
    found = ss.coverage(
        population(), first, also=also, samples=samples, seed=SEED, n=RECORDS, size="size"
    )
    rows = found.rows[found.rows["has_error"]]
    methods = dict(zip(rows["method"].unique(), ("sample", *transforms), strict=True))
    rows = rows.assign(method=rows["method"].replace(methods))
    return {
        "samples": samples,
        "refused": len(found.refusals),
        "seconds": round(time.process_time() - began),
        "lines": [
            _line(method, statistic, part)
            for (method, statistic), part in rows.groupby(["method", "statistic"], sort=False)
        ],
    }


def _line(method: str, statistic: str, rows: pd.DataFrame) -> dict[str, Any]:
    """Return what the rows of all cells and margins say together; bias: in the sample's SEs."""
    found = {
        "rmse_ratio": rows["rmse_ratio"].median(),
        "largest_rmse_ratio": rows["rmse_ratio"].max(),
        "coverage": rows["coverage"].mean(),
        "bias": rows["bias_ratio"].mean(),
        "length_ratio": rows["length_ratio"].median(),
    }
    numbers = {name: round(float(value), 3) for name, value in found.items()}
    return {"method": method, "statistic": statistic, "rows": len(rows), **numbers}


#: Of the pseudo-posterior, which declares no center or spread.
BY_WEIGHTS: dict[str, dict[str, Any]] = {
    "learned": {"range": [0.0, RANGE[1]]},
    "log": {"transform": "log"},
    "power 0.4": {"transform": {"scale": 5000.0, "power": 0.4}},
}


def pseudo_posterior(samples: int) -> list[dict[str, Any]]:
    """Release the same samples by all transforms; return a line for each."""
    found: dict[str, list[tuple[int, float]]] = {name: [] for name in BY_WEIGHTS}
    frame = population()
    frame = frame[frame["income"] > 0]
    for seed in range(samples):
        rng = np.random.default_rng([SEED, seed])
        sample = frame.iloc[rng.choice(len(frame), RECORDS, replace=False)].copy()
        sample["weight"] = np.round(np.exp(3.0 + 0.3 * rng.normal(size=RECORDS)), 2)
        mean = np.average(sample["income"], weights=sample["weight"])
        squares = (sample["weight"] * (sample["income"] - mean)) ** 2
        se = np.sqrt(squares.sum()) / sample["weight"].sum()
        for name, transform in BY_WEIGHTS.items():
            weights, estimate = _released(sample, transform)
            found[name].append((int((weights < 0.999).sum()), (estimate - mean) / se))
    return [
        {
            "method": name, "releases": samples,
            "down_weighted": float(np.mean([count for count, _ in own])),
            "bias": round(float(np.mean([z for _, z in own])), 2),
            "rmse": round(float(np.sqrt(np.mean([z**2 for _, z in own]))), 2),
        }
        for name, own in found.items()
    ]  # fmt: skip


def _released(sample: pd.DataFrame, transform: Mapping[str, Any]) -> tuple[pd.Series, float]:
    """Return risk weights (n,), and the mean of all, of one release by the pseudo-posterior."""
    with tempfile.TemporaryDirectory() as folder:
        path = Path(folder)
        sample.to_csv(path / "survey.csv", index=False)
        keys = "\n".join(f"{key} = {json.dumps(each)}" for key, each in transform.items())
        (path / "spec.toml").write_text(
            'spec_version = 1\n[survey]\ndata = "survey.csv"\nweight = "weight"\n'
            'strata = "region"\n[synthesizer]\noutcome = "income"\n'
            f"[outcomes.income]\n{keys}\n"
            f'[privacy]\nmechanism = "pseudo_posterior"\nepsilon = {EPSILON}\n'
            '[tables]\nby = ["region"]\nstatistics = ["mean"]\n'
        )
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # of rows that lean, as they do here
            ss.release(path / "spec.toml", path / "out", ledger=path / "ledger.jsonl")
        records = pd.read_csv(path / "out" / "confidential" / "records.csv")
        means = pd.read_csv(path / "out" / "release" / "tables" / "means.csv")
        overall = means.loc[means["region"] == "All", "estimate"]
        return records["risk_weight"], float(overall.iloc[0])


#: Ranges of columns of the real survey, in dollars.
RANGES = {
    "income": (-200_000.0, 2_000_000.0),
    "health_spending": (0.0, 100_000.0),
    "tax": (-100_000.0, 1_000_000.0),
}
STATISTICS = ("mean", "median")
SPLIT = "learned, split at 0"
#: Income is split at zero by itself; taxes are split already, and no spending is below zero.
METHODS = {
    "income": ("declared", "learned", SPLIT),
    "health_spending": ("declared", "learned"),
    "tax": ("declared", "learned"),
}
PARTS = ("noisy_statistics", "remedies", "pseudo_posterior", "consumers")


def consumer_survey(name: str, method: str) -> tuple[ss.Survey, dict[str, Any]]:
    """Return the survey of one outcome by region and sex, and what is declared of its moments.

    Spikes and splits are those of ``kinds_study``; ``SPLIT`` splits what is not split there.
    """
    outcome, moments = kinds_study.OUTCOMES[name]
    learned = method != "declared"
    if learned:
        low, high = RANGES[name]
        outcome = replace(outcome, transform=ss.LearnedTransform(low=low, high=high))
    if method == SPLIT:
        outcome = replace(outcome, split=0.0)
    frame = kinds_study.frame()
    survey = ss.Survey.from_frame(
        frame, outcomes=outcome, weight="weight", by=["region", "sex"], strata="region",
        population_size=round(kinds_study.HOUSEHOLDS * len(frame) / 6481),
    )  # fmt: skip
    given = dict(zip(("center", "spread"), moments, strict=True)) if moments else {}
    return survey, {} if learned else {name: given}


def of_sample(survey: ss.Survey, statistic: str) -> tuple[FloatArray, FloatArray]:
    """Return the sample's own estimates and standard errors of all cells and margins."""
    design, weight = survey.design, survey.confidential.sampling_weight
    assert weight is not None
    found = estimate_domains(
        build_domains(design.frame, design.by, design.levels), SampleDesign.from_public(design),
        weight=weight, outcome=survey.confidential.outcome[:, 0], statistic=statistic,
        linearisation="ratio", population_size=design.population_size,
    )  # fmt: skip
    return found.estimate, np.sqrt(found.variance)


def consumers(name: str, method: str, releases: int) -> list[dict[str, Any]]:
    """Release the survey of one outcome some times; return a line for each statistic."""
    survey, moments = consumer_survey(name, method)
    z: dict[str, list[FloatArray]] = {each: [] for each in STATISTICS}
    ratio: dict[str, list[FloatArray]] = {each: [] for each in STATISTICS}
    for seed in range(releases):
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)
            made = ss.tables(
                survey, "fbs", EPSILON, statistics=list(STATISTICS), replicates_per_draw=2,
                seed=SEED + seed,
                sections={"outcomes": moments, "privacy": {"mechanism": "noisy_statistics"}},
            )  # fmt: skip
        for each in STATISTICS:
            estimate, se = of_sample(survey, each)
            z[each].append((made[each].frame["estimate"].to_numpy() - estimate) / se)
            ratio[each].append(made[each].frame["se"].to_numpy() / se)
    return [
        {
            "outcome": name, "method": method, "statistic": each, "releases": releases,
            "rmse": round(float(np.median(np.sqrt(np.mean(np.square(z[each]), axis=0)))), 2),
            "worst_rmse": round(float(np.sqrt(np.mean(np.square(z[each]), axis=0)).max()), 2),
            "bias": round(float(np.sqrt(np.square(np.mean(z[each], axis=0)).mean())), 2),
            "se_ratio": round(float(np.median(ratio[each])), 2),
        }
        for each in STATISTICS
    ]  # fmt: skip


def main() -> None:
    """Run all parts, or one of them, and keep the results."""
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--samples", type=int, default=15)
    parser.add_argument("--part", choices=PARTS)
    parser.add_argument("--releases", type=int, default=10, help="of each part of the real survey")
    parser.add_argument("--missing", action="store_true", help="only consumers that are not there")
    given = parser.parse_args()
    made = json.loads(GOLDEN.read_text(encoding="utf-8")) if GOLDEN.exists() else {}
    if given.part in (None, "noisy_statistics"):
        made["noisy_statistics"] = study(given.samples, TRANSFORMS)
    if given.part in (None, "remedies"):
        made["remedies"] = study(given.samples, REMEDIES)
    if given.part in (None, "pseudo_posterior"):
        made["pseudo_posterior"] = pseudo_posterior(given.samples)
    if given.part in (None, "consumers"):
        kept = [each for each in made.get("consumers", []) if given.missing]
        done = {(each["outcome"], each["method"]) for each in kept}
        made["consumers"] = kept + [
            line
            for name in RANGES
            for method in METHODS[name]
            if (name, method) not in done
            for line in consumers(name, method, given.releases)
        ]
    GOLDEN.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
