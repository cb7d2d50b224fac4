"""A survey made hard on purpose: ``python -m tests.long_runs.hard_survey``.

12,000 simulated records in 12 cells of field by gender, one of which has 11: residual SDs of the
log amount from .3 to .9 by cell, a top code that holds 19% of the records, 0.5% zeros, skewed
weights that hang together with the amount. Declared is what a statistician would: two spikes, a
power, the groups by default. Releases with seeds by both mechanisms at epsilon 10.8; how far each
row lies from the sample's own, in the sample's standard errors.

``golden/hard_survey.csv`` has a line a row of a table, over releases; ``hard_survey.json`` what
it took. ``--method`` runs parts and keeps the others' results.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import time  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import surveysynth as ss  # noqa: E402
from surveysynth._support.types import FloatArray  # noqa: E402
from surveysynth.estimation.domains import build_domains  # noqa: E402
from surveysynth.estimation.sample_design import SampleDesign  # noqa: E402
from surveysynth.estimation.taylor import estimate_domains  # noqa: E402
from surveysynth.release.files import library_versions  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "hard_survey"
N, TOP, FEW, EPSILON, SEED = 12_000, 150_000.0, 11, 10.8, 53
STATISTICS = ("count", "mean")


@dataclass(frozen=True)
class Method:
    """Model, and whether by noisy statistics."""

    model: str
    noisy: bool


METHODS = {
    "fbs": Method("fbs", False),
    "fbp": Method("fbp", False),
    "fbs_noisy": Method("fbs", True),
}


def frame(seed: int) -> pd.DataFrame:
    """The records."""
    rng = np.random.default_rng([SEED, seed])
    shares = np.array([0.16, 0.14, 0.12, 0.11, 0.10, 0.09, 0.08, 0.07, 0.06, 0.04, 0.03, 0.0])
    sizes = np.floor(shares * (N - FEW)).astype(int)
    sizes[0] += N - FEW - sizes.sum()
    sizes[-1] = FEW
    cell = np.repeat(np.arange(12), sizes)
    sd = np.linspace(0.3, 0.9, 12)[rng.permutation(12)]
    middle = 11.15 + 0.25 * rng.standard_normal(12)
    residual = rng.standard_normal(N)
    log_amount = middle[cell] + sd[cell] * residual
    # So many lie above the top code that it holds 19%.
    log_amount += np.log(TOP) - np.quantile(log_amount, 0.81)
    amount = np.minimum(np.exp(log_amount), TOP)
    amount[rng.random(N) < 0.005] = 0.0
    log_weight = 3.5 + 0.4 * rng.standard_normal(12)[cell] - 0.2 * residual
    log_weight += 0.6 * (rng.gamma(2.0, size=N) - 2.0) / np.sqrt(2.0)
    return pd.DataFrame({
        "field": np.array(list("abcdef"))[cell % 6], "gender": np.array(["f", "m"])[cell // 6],
        "salary": amount.round(-2), "weight": np.exp(log_weight),
    })  # fmt: skip


def survey_of(seed: int) -> ss.Survey:
    """With what is declared."""
    data = frame(seed)
    salary = ss.Outcome(
        "salary", "semicontinuous", ss.Transform("yeo_johnson", scale=1e4, power=0.5),
        spikes=(0.0, TOP), lower=0.0, upper=TOP,
    )  # fmt: skip
    return ss.Survey.from_frame(
        data, outcomes=[salary], weight="weight", by=["field", "gender"],
        population_size=500_000,
    )  # fmt: skip


def rows(survey: ss.Survey) -> pd.DataFrame:
    """The sample's own: statistic, row, n, sample, sample_se."""
    design, weight = survey.design, survey.confidential.sampling_weight
    assert weight is not None
    domains = build_domains(design.frame, design.by, design.levels)
    parts = []
    for statistic in STATISTICS:
        made = estimate_domains(
            domains, SampleDesign.from_public(design), weight=weight,
            outcome=survey.confidential.outcome[:, 0] if statistic == "mean" else None,
            statistic=statistic, linearisation="ratio", population_size=design.population_size,
        )  # fmt: skip
        parts.append(pd.DataFrame({
            "statistic": statistic, "row": domains.table[list(design.by)].agg(", ".join, axis=1),
            "n": domains.n, "sample": made.estimate, "sample_se": np.sqrt(made.variance),
        }))  # fmt: skip
    return pd.concat(parts, ignore_index=True)


def distances(survey: ss.Survey, truth: pd.DataFrame, method: Method, seed: int) -> FloatArray:
    """(rows,): estimate less the sample's, in the sample's standard errors, of one release."""
    mechanism = "noisy_statistics" if method.noisy else "pseudo_posterior"
    outcomes = {"salary": {"center": 70_000.0, "spread": 1.5}}
    tables = ss.tables(
        survey, method.model, EPSILON, mechanism=mechanism, statistics=list(STATISTICS), seed=seed,
        sections={"outcomes": outcomes},
    )  # fmt: skip
    made = np.concatenate([
        key.frame["estimate"].to_numpy() for name in STATISTICS for key in tables.tables[name]
    ])  # fmt: skip
    return np.asarray((made - truth["sample"]) / truth["sample_se"])


def run(name: str, releases: int) -> tuple[pd.DataFrame, dict[str, object]]:
    """Every row over releases, each of a survey of its own."""
    start, found = time.process_time(), []
    for seed in range(releases):
        survey = survey_of(seed)
        truth = rows(survey)
        z = distances(survey, truth, METHODS[name], seed)
        told = (truth["sample_se"] > 0).to_numpy()  # but for the total count, which is public
        truth, z = truth[told], z[told]
        few = (truth["n"] == FEW).to_numpy()
        print(name, seed, np.median(np.abs(z)).round(2), np.abs(z[~few]).max().round(2),
              np.abs(z[few]).round(2), flush=True)  # fmt: skip
        found.append(truth.assign(method=name, release=seed, z=z))
    took = {
        "method": name, "releases": releases,
        "seconds_a_release": (time.process_time() - start) / releases,
    }  # fmt: skip
    columns = ["method", "release", "statistic", "row", "n", "z"]
    return pd.concat(found, ignore_index=True)[columns], took


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--method", action="append", choices=list(METHODS), default=[])
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--out", type=Path, default=GOLDEN)
    given = parser.parse_args(arguments)
    for name in given.method or METHODS:
        lines, took = run(name, given.releases)
        facts: dict[str, object] = {"parts": []}
        if given.out.with_suffix(".json").exists():
            facts = json.loads(given.out.with_suffix(".json").read_text(encoding="utf-8"))
            before = pd.read_csv(given.out.with_suffix(".csv"))
            lines = pd.concat([before[before["method"] != name], lines], ignore_index=True)
        parts = facts["parts"]
        assert isinstance(parts, list)
        others = [each for each in parts if each["method"] != name]
        facts = {"parts": [*others, took], "versions": library_versions()}
        lines.to_csv(given.out.with_suffix(".csv"), index=False, float_format="%.4g")
        text = json.dumps(facts, indent=1)
        given.out.with_suffix(".json").write_text(f"{text}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
