"""Coverage in two-stage samples under noisy statistics: ``python -m tests.long_runs.unit_study``.

A simulated population of 480,000 in 1,200 units, by region and sex: a yes or no, a semicontinuous
amount whose zeros depend on it, and three levels, all with effects of units, an intraclass
correlation of .06. Samples have 72 units of 80 records, region as stratum and as a predictor.
Releases at two epsilons, the sample's own figures by unit, and, for every second sample, releases
that ignore units (a design effect of 1) are compared with the population, over 15 rows each of
counts, means, and shares. ``golden/unit_study.json`` has the summary; ten seconds a release.

``--design visits`` is like visits to physicians: 400 units of 21 records, an intraclass correlation
of .36, and weights that are constant within units (``golden/unit_study_visits.json``).
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
from collections.abc import Iterator, Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402
from scipy import stats  # noqa: E402

import surveysynth as ss  # noqa: E402
from surveysynth.estimation.domains import build_domains  # noqa: E402
from surveysynth.estimation.sample_design import SampleDesign  # noqa: E402
from surveysynth.estimation.taylor import estimate_domains  # noqa: E402
from surveysynth.release.files import library_versions  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "unit_study.json"


@dataclass(frozen=True)
class Design:
    """Units of the population and their records, those of a sample, the intraclass correlation."""

    units: int
    of_unit: int
    sampled: int
    records: int
    icc: float
    weights_by_unit: bool


DESIGNS = {
    "usual": Design(1200, 400, 72, 80, 0.06, weights_by_unit=False),
    "visits": Design(4000, 100, 400, 21, 0.36, weights_by_unit=True),
}
REGIONS, LEVELS = ("north", "east", "south", "west"), ("a", "b", "c")
POWER = ss.Transform("yeo_johnson", scale=1000.0, power=0.4)
OUTCOMES = [
    ss.Outcome("yes", "binary"),
    ss.Outcome("amount", "semicontinuous", POWER, spikes=(0.0,)),
    ss.Outcome("level", "categorical", levels=LEVELS),
]
#: Epsilon of a release, and whether units have effects.
METHODS = {"units, 10.8": (10.8, True), "units, 3.6": (3.6, True), "ignored, 10.8": (10.8, False)}
#: A row: statistic with what it is of, region and sex; its estimate, and the ends of its interval.
Rows = dict[tuple[str, str, str], tuple[float, float, float]]


def population(design: Design, seed: int = 1) -> pd.DataFrame:
    """Everybody."""
    rng = np.random.default_rng(seed)
    unit = np.repeat(np.arange(design.units), design.of_unit)
    ratio = design.icc / (1.0 - design.icc)
    effects = np.sqrt(ratio) * rng.standard_normal((design.units, 4))[unit]
    sex = rng.choice(["f", "m"], unit.size)
    region = np.array(REGIONS)[unit % 4]
    base = 0.3 * (sex == "f") + 0.4 * (region == "north") - 0.2 * (region == "south")
    sd = np.pi / np.sqrt(3.0)  # of the logistic distribution

    def chosen(log_odds: np.ndarray) -> np.ndarray:
        return rng.random(unit.size) < 1.0 / (1.0 + np.exp(-log_odds))

    yes = chosen(-0.6 + base + sd * effects[:, 0]).astype(int)
    there = chosen(0.5 + 0.5 * yes - base + sd * effects[:, 1])
    z = 3.0 + 0.5 * base + 0.3 * yes + effects[:, 2] + rng.standard_normal(unit.size)
    utility = rng.gumbel(size=(unit.size, 3)) + np.outer(base, [0.0, 0.3, -0.3])
    utility[:, 1] += 0.2 + sd * effects[:, 3]
    utility[:, 2] -= 0.5 + 0.7 * sd * effects[:, 3]
    return pd.DataFrame({
        "region": region, "sex": sex, "yes": yes, "amount": np.where(there, POWER.inverse(z), 0.0),
        "level": np.array(LEVELS)[utility.argmax(1)], "unit": unit,
    })  # fmt: skip


def sample(people: pd.DataFrame, design: Design, seed: int) -> pd.DataFrame:
    """As many units of each region, as many records of each unit; weights vary by chance."""
    rng = np.random.default_rng([seed, 7])
    rows = []
    for region in range(4):
        chosen = 4 * rng.choice(design.units // 4, design.sampled // 4, replace=False) + region
        for unit in chosen:
            own = rng.choice(design.of_unit, design.records, replace=False)
            rows.append(unit * design.of_unit + own)
    made = people.iloc[np.concatenate(rows)].reset_index(drop=True)
    if design.weights_by_unit:
        sd, normals = 0.6, np.repeat(rng.standard_normal(design.sampled), design.records)
    else:
        sd, normals = 0.3, rng.standard_normal(len(made))
    weight = len(people) / len(made) * np.exp(sd * normals - 0.5 * sd**2)
    return made.assign(weight=weight, unit=made["unit"].astype(str))


def survey_of(frame: pd.DataFrame, people: int, *, effects: bool = True) -> ss.Survey:
    """The survey of a sample."""
    return ss.Survey.from_frame(
        frame, outcomes=OUTCOMES, weight="weight", by=["region", "sex"], strata="region",
        psu="unit", population_size=people, design_effect=None if effects else 1.0,
    )  # fmt: skip


def columns(frame: pd.DataFrame) -> Iterator[tuple[str, str, np.ndarray | None]]:
    """What rows are of: label, statistic, and values."""
    yield "count", "count", None
    yield "mean of amounts", "mean", frame["amount"].to_numpy()
    for label, flags in (
        ("yes: 1", frame["yes"] == 1), ("amount: 0", frame["amount"] == 0.0),
        *((f"level: {each}", frame["level"] == each) for each in LEVELS),
    ):  # fmt: skip
        yield label, "proportion", flags.to_numpy().astype(float)


def truth(people: pd.DataFrame) -> dict[tuple[str, str, str], float]:
    """The population's own figures."""
    result = {}
    for region in ("All", *REGIONS):
        for sex in ("All", "f", "m"):
            inside = people["region"].isin([region]) | (region == "All")
            own = people[inside & (people["sex"].isin([sex]) | (sex == "All"))]
            for label, _, values in columns(own):
                mean = float(len(own)) if values is None else float(values.mean())
                result[label, region, sex] = mean
    return result


def own_rows(frame: pd.DataFrame, people: int) -> Rows:
    """The sample's own figures by unit."""
    survey = survey_of(frame, people)
    design, result = survey.design, {}
    domains = build_domains(design.frame, design.by, design.levels)
    t = stats.t.ppf(0.975, frame["unit"].nunique() - 4)
    for label, statistic, values in columns(frame):
        made = estimate_domains(
            domains, SampleDesign.from_public(design), weight=frame["weight"].to_numpy(),
            outcome=values, statistic=statistic, linearisation="ratio",
            population_size=design.population_size,
        )  # fmt: skip
        cells = domains.table[["region", "sex"]].itertuples(index=False)
        for cell, mean, half in zip(cells, made.estimate, t * np.sqrt(made.variance), strict=True):
            result[label, *cell] = mean, mean - half, mean + half
    return result


def released_rows(
    frame: pd.DataFrame, people: int, epsilon: float, effects: bool, seed: int
) -> Rows:
    """The figures of one release."""
    tables = ss.tables(
        survey_of(frame, people, effects=effects), "fbs", epsilon,
        statistics=["count", "mean", "share"], replicates_per_draw=3, seed=seed,
        sections={
            "outcomes": {"amount": {"center": 7000.0, "spread": 1.0}},
            "privacy": {"mechanism": "noisy_statistics"},
        },
    )  # fmt: skip
    result = {}
    for table in (each for several in tables.tables.values() for each in several):
        for _, row in table.frame.iterrows():
            label = "mean of amounts" if table.statistic == "mean" else "count"
            label = f"{table.outcome}: {row['level']}" if table.statistic == "share" else label
            result[label, row["region"], row["sex"]] = (
                row["estimate"], row["ci_lower"], row["ci_upper"]
            )  # fmt: skip
    return result


def summary(expected: dict[tuple[str, str, str], float], runs: Sequence[dict[str, Rows]]) -> Any:
    """Coverage, and length and RMSE over the sample's own, by method: of all rows, and by kind."""
    result: dict[str, Any] = {}
    for method in ("sample", *METHODS):
        own = [each for each in runs if method in each]
        kinds: dict[str, list[tuple[float, float, float]]] = {}
        for key, value in expected.items():
            mine, other = (np.array([each[name][key] for each in own])
                           for name in (method, "sample"))  # fmt: skip
            if (other[:, 2] - other[:, 1]).max() < 1e-6 * value:
                continue  # scaled to the population
            covered = ((mine[:, 1] <= value) & (value <= mine[:, 2])).mean()
            length = np.median((mine[:, 2] - mine[:, 1]) / (other[:, 2] - other[:, 1]))
            errors = [np.sqrt(np.mean((each[:, 0] - value) ** 2)) for each in (mine, other)]
            kinds.setdefault(key[0], []).append((covered, length, errors[0] / errors[1]))
        figures = {kind: np.mean(rows, axis=0) for kind, rows in kinds.items()}
        figures["all"] = np.mean([row for rows in kinds.values() for row in rows], axis=0)
        names = ("coverage", "length", "rmse")
        result[method] = {"samples": len(own)} | {
            kind: dict(zip(names, np.round(row, 3).tolist(), strict=True))
            for kind, row in figures.items()
        }
    return result


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--design", choices=list(DESIGNS), default="usual")
    parser.add_argument("--out", type=Path)
    parser.add_argument("--samples", type=int, default=24)
    given = parser.parse_args(arguments)
    design = DESIGNS[given.design]
    name = "unit_study" if given.design == "usual" else f"unit_study_{given.design}"
    out = given.out or GOLDEN.with_name(f"{name}.json")
    people = population(design)
    expected, runs = truth(people), []
    for k in range(given.samples):
        frame = sample(people, design, k)
        runs.append({"sample": own_rows(frame, len(people))})
        for method, (epsilon, effects) in METHODS.items():
            if effects or k % 2 == 0:
                runs[-1][method] = released_rows(frame, len(people), epsilon, effects, k)
        found = {"summary": summary(expected, runs), "versions": library_versions()}
        out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        print(k + 1, {name: each["all"] for name, each in found["summary"].items()}, flush=True)


if __name__ == "__main__":
    main()
