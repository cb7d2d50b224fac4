"""Outcomes of several kinds in a real survey: ``python -m tests.long_runs.kinds_study``.

6,206 households of the US Consumer Expenditure Survey by region and sex, and by education: amounts
that are often zero, counts, an age, a yes or no. Releases with seeds by noisy statistics and by the
pseudo-posterior, each outcome in one of its own and all six in one, and Laplace noise on the
sample's tables; how far their cells lie from the sample's own, in the sample's standard errors. The
centres, spreads, powers and scales are declared, and are round numbers.

``golden/kinds_study.csv`` has a line a cell, ``kinds_study.json`` a summary of each release and
statistic; ``test_kinds_study.py`` holds them to what is claimed. Some 15 to 30 seconds of processor
time a release. ``--by``, ``--outcome`` and ``--method`` run parts and keep the results of the
others; ``--releases`` says how many.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator, Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from functools import cache  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import surveysynth as ss  # noqa: E402
from surveysynth.errors import RefusedError  # noqa: E402
from surveysynth.estimation.domains import build_domains  # noqa: E402
from surveysynth.estimation.sample_design import SampleDesign  # noqa: E402
from surveysynth.estimation.taylor import estimate_domains  # noqa: E402
from surveysynth.evaluation.laplace import laplace_tables  # noqa: E402
from surveysynth.release.files import library_versions  # noqa: E402
from surveysynth.survey.survey import Survey  # noqa: E402

REAL = Path(__file__).parents[3] / "shared" / "data" / "ce2015q3.csv"
GOLDEN = Path(__file__).parents[1] / "golden" / "kinds_study"
SEED = 41
#: Households that the whole file stands for.
HOUSEHOLDS = 129e6
BY = {"region and sex": ("region", "sex"), "education": ("education",)}
TOGETHER = "all six"


def power(scale: float, exponent: float = 0.4) -> ss.Transform:
    """Yeo and Johnson's, with public constants."""
    return ss.Transform("yeo_johnson", scale=scale, power=exponent)


#: Kind and transform of each outcome, then a typical value and a typical SD of the transform; of
#: tax those above and below its split.
OUTCOMES: dict[str, tuple[ss.Outcome, tuple[Any, Any] | None]] = {
    "income": (
        ss.Outcome("income", "semicontinuous", power(1e4), spikes=(0.0,)), (45_000.0, 2.0)
    ),
    "health_spending": (
        ss.Outcome("health_spending", "semicontinuous", power(100.0), spikes=(0.0,)), (300.0, 1.7)
    ),
    "tax": (
        ss.Outcome("tax", "semicontinuous", power(1e3, 0.3), spikes=(0.0,), split=0.0),
        ((5_000.0, -1_000.0), (1.5, 1.0)),
    ),
    "age": (ss.Outcome("age", transform=ss.Transform("identity", scale=10.0)), (50.0, 1.7)),
    "vehicles": (ss.Outcome("vehicles", transform=power(1.0, 0.5)), (2.0, 1.0)),
    "earning": (ss.Outcome("earning", "binary"), None),
}  # fmt: skip


@dataclass(frozen=True)
class Method:
    """How tables are made: keys of [privacy], and how many releases unless told otherwise."""

    name: str
    epsilon: float
    releases: int
    privacy: tuple[tuple[str, Any], ...] = ()


METHODS = {
    each.name: each
    for each in (
        Method("noisy_statistics", 3.6, 3,
               (("mechanism", "noisy_statistics"), ("replicates_per_draw", 2))),
        Method("pseudo_posterior", 10.8, 2,
               (("mechanism", "pseudo_posterior"), ("replicates_per_draw", 10))),
        Method("laplace", 10.8, 200),
        Method("laplace_3.6", 3.6, 200),
    )
}  # fmt: skip


@cache
def frame() -> pd.DataFrame:
    """The file with every region known; earners or not is a column of its own."""
    found = pd.read_csv(REAL, dtype={"region": str, "sex": str, "education": str})
    found = found[found["region"].notna()].reset_index(drop=True)
    return found.assign(earning=(found["earners"] > 0).astype(int))


def survey_of(by: str, outcomes: Sequence[str]) -> Survey:
    """With the confidential weights; N is the file's, less the records that were dropped."""
    return ss.Survey.from_frame(
        frame(), outcomes=[OUTCOMES[name][0] for name in outcomes], weight="weight",
        by=list(BY[by]), population_size=round(HOUSEHOLDS * len(frame()) / 6481),
    )  # fmt: skip


def keys_of(survey: Survey) -> list[tuple[str, int | None]]:
    """Statistics with the column of their outcome: counts, means, proportions of binary ones."""
    outcomes = survey.design.outcomes
    named = [("mean" if each.is_amount else "proportion", j) for j, each in enumerate(outcomes)]
    return [("count", None), *named]


@dataclass(frozen=True)
class Part:
    """One kind of release: rows, outcomes, method."""

    by: str
    outcome: str
    method: Method

    @property
    def survey(self) -> Survey:
        """The survey of its outcomes."""
        return survey_of(self.by, list(OUTCOMES) if self.outcome == TOGETHER else [self.outcome])

    @property
    def labels(self) -> dict[str, Any]:
        """In every line."""
        return {"by": self.by, "release": self.outcome, "method": self.method.name}

    def truth(self, survey: Survey) -> pd.DataFrame:
        """The sample's own rows: statistic, outcome, cell, is_margin, n, sample, sample_se."""
        design, weight = survey.design, survey.confidential.sampling_weight
        assert weight is not None
        domains = build_domains(design.frame, design.by, design.levels)
        parts = []
        for statistic, column in keys_of(survey):
            made = estimate_domains(
                domains, SampleDesign.from_public(design), weight=weight,
                outcome=None if column is None else survey.confidential.outcome[:, column],
                statistic=statistic, linearisation="ratio",
                population_size=design.population_size,
            )  # fmt: skip
            parts.append(pd.DataFrame({
                "statistic": statistic,
                "outcome": "" if column is None else design.outcome_names[column],
                "cell": domains.table[list(design.by)].agg(", ".join, axis=1),
                "is_margin": domains.table["is_margin"], "n": domains.n,
                "sample": made.estimate, "sample_se": np.sqrt(made.variance),
            }))  # fmt: skip
        return pd.concat(parts, ignore_index=True)

    def estimates(self, survey: Survey, seed: int) -> tuple[np.ndarray, np.ndarray]:
        """Of one release, in the order of ``truth``: estimates and their standard errors."""
        if self.method.name.startswith("laplace"):
            design, weight = survey.design, survey.confidential.sampling_weight
            assert weight is not None
            made = laplace_tables(
                build_domains(design.frame, design.by, design.levels),
                SampleDesign.from_public(design), weight=weight,
                outcomes=survey.confidential.outcome, keys=keys_of(survey),
                epsilon=self.method.epsilon, rng=np.random.default_rng([SEED, seed]),
                linearisation="ratio", population_size=design.population_size,
            )  # fmt: skip
            return (
                np.concatenate([each.estimate for each in made]),
                np.sqrt(np.concatenate([each.variance for each in made])),
            )
        moments = {
            name: dict(zip(("center", "spread"), given, strict=True))
            for name, (_, given) in OUTCOMES.items()
            if given is not None and self.method.privacy and name in survey.design.outcome_names
        }
        privacy = dict(self.method.privacy)
        tables = ss.tables(
            survey, "fbs", self.method.epsilon,
            statistics=list(dict.fromkeys(name for name, _ in keys_of(survey))),
            replicates_per_draw=privacy.pop("replicates_per_draw"), seed=SEED + seed,
            sections={"outcomes": moments, "privacy": privacy},
        )  # fmt: skip
        by_key = {(k.statistic, k.outcome or ""): k.frame
                  for several in tables.tables.values() for k in several}  # fmt: skip
        wanted = [
            by_key[name, "" if column is None else survey.design.outcome_names[column]]
            for name, column in keys_of(survey)
        ]
        return (
            np.concatenate([each["estimate"] for each in wanted]),
            np.concatenate([each["se"] for each in wanted]),
        )

    def run(self, releases: int) -> tuple[pd.DataFrame, dict[str, Any]]:
        """Cells with bias, RMSE and median published SE in the sample's SEs; what it took."""
        survey = self.survey
        truth, start, refused = self.truth(survey), time.process_time(), []
        shown = (~truth["is_margin"] & (truth["n"] > 1)).to_numpy()
        sample, error = (truth.loc[shown, name].to_numpy() for name in ("sample", "sample_se"))
        z, ratios = [], []
        for seed in range(releases):
            try:
                estimate, se = self.estimates(survey, seed)
            except RefusedError as refusal:
                refused.append(str(refusal).splitlines()[0])
                print(self.labels, seed, refused[-1], flush=True)
                continue
            z.append((estimate[shown] - sample) / error)
            ratios.append(se[shown] / error)
            if not self.method.name.startswith("laplace"):
                print(self.labels, seed, np.abs(z[-1]).max().round(2), flush=True)
        took = {
            **self.labels, "epsilon": self.method.epsilon, "releases": len(z), "refused": refused,
            "seconds_a_release": (time.process_time() - start) / releases,
        }  # fmt: skip
        cells = truth[shown].drop(columns="is_margin").assign(
            bias=np.mean(z, axis=0) if z else np.nan,
            rmse=np.sqrt(np.mean(np.square(z), axis=0)) if z else np.nan,
            se_ratio=np.median(ratios, axis=0) if z else np.nan,
        )  # fmt: skip
        for position, (key, value) in enumerate(self.labels.items()):
            cells.insert(position, key, value)
        return cells, took


def summary(cells: pd.DataFrame) -> list[dict[str, Any]]:
    """By release and statistic: RMSE of the median and of the worst cell, the worst bias, and the
    published SE of the median cell, all in the sample's SEs."""
    keys = ["by", "release", "method", "statistic", "outcome"]
    return [
        {
            **dict(zip(keys, names, strict=True)), "cells": len(own),
            "rmse": float(own["rmse"].median()), "worst_rmse": float(own["rmse"].max()),
            "worst_bias": float(own["bias"].abs().max()),
            "worst_cell": str(own.loc[own["bias"].abs().idxmax(), "cell"]),
            "se_ratio": float(own["se_ratio"].median()),
        }
        for names, own in cells[cells["rmse"].notna()].groupby(keys, sort=False)
    ]  # fmt: skip


def rounded(values: Any) -> Any:
    """Numbers to four significant digits, whatever holds them."""
    if isinstance(values, dict):
        return {key: rounded(value) for key, value in values.items()}
    if isinstance(values, list):
        return [rounded(value) for value in values]
    return float(f"{values:.4g}") if isinstance(values, float) else values


def read_cells(path: Path = GOLDEN) -> pd.DataFrame:
    """The lines of all cells."""
    return pd.read_csv(path.with_suffix(".csv"), keep_default_na=False, na_values=["nan"],
                       dtype={"cell": str})  # fmt: skip


def table(lines: Sequence[dict[str, Any]]) -> list[str]:
    """Lines of Markdown, of a summary: each outcome in a release of its own, "-" where a part is
    yet to be run."""
    found = {(each["by"], each["release"], each["method"]): each
             for each in lines if each["outcome"] and each["release"] != TOGETHER}  # fmt: skip
    head = "| mean, by | noisy statistics, 3.6 | pseudo-posterior, 10.8 | Laplace, 3.6 | Laplace,"
    made = [f"{head} 10.8 |", "|---" * 5 + "|"]
    columns = ("noisy_statistics", "pseudo_posterior", "laplace_3.6", "laplace")
    for by in BY:
        for outcome in OUTCOMES:
            numbers = []
            for method in columns:
                own = found.get((by, outcome, method))
                numbers.append(f"{own['rmse']:.1f} ({own['worst_rmse']:.1f})" if own else "-")
            if set(numbers) != {"-"}:
                made.append(f"| {outcome}, by {by} | {' | '.join(numbers)} |")
    return made


def parts(by: Sequence[str], outcomes: Sequence[str], methods: Sequence[str]) -> Iterator[Part]:
    """Those of these names; none: all."""
    for method in METHODS.values():
        for rows in BY:
            for outcome in (*OUTCOMES, TOGETHER):
                chosen = ((rows, by), (outcome, outcomes), (method.name, methods))
                if all(not named or name in named for name, named in chosen):
                    yield Part(rows, outcome, method)


def keep(path: Path, cells: pd.DataFrame, took: dict[str, Any]) -> None:
    """Put one part's result in the place of what there was of it."""
    before, facts = None, {"parts": []}
    if path.with_suffix(".json").exists():
        before = read_cells(path)
        facts = json.loads(path.with_suffix(".json").read_text(encoding="utf-8"))
    names = ["by", "release", "method"]
    others = [each for each in facts["parts"] if any(each[k] != took[k] for k in names)]
    if before is not None:
        same = (before[names] == [took[k] for k in names]).all(axis=1)
        cells = pd.concat([before[~same], cells], ignore_index=True)
    cells.to_csv(path.with_suffix(".csv"), index=False, float_format="%.5g")
    made = {
        "seed": SEED, "n": len(frame()), "parts": [*others, rounded(took)],
        "summary": rounded(summary(cells)), "versions": library_versions(),
    }  # fmt: skip
    text = json.dumps(made, indent=1, allow_nan=False)
    path.with_suffix(".json").write_text(f"{text}\n", encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, default=GOLDEN)
    parser.add_argument("--by", action="append", choices=list(BY), default=[])
    parser.add_argument("--outcome", action="append", choices=[*OUTCOMES, TOGETHER], default=[])
    parser.add_argument("--method", action="append", choices=list(METHODS), default=[])
    parser.add_argument("--releases", type=int)
    given = parser.parse_args(arguments)
    for part in parts(given.by, given.outcome, given.method):
        cells, took = part.run(given.releases or part.method.releases)
        took["peak_memory_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        keep(given.out, cells, took)
        for line in summary(cells):
            print(json.dumps(rounded(line)), flush=True)
        print(json.dumps(rounded(took)), flush=True)


if __name__ == "__main__":
    main()
