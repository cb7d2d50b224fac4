"""How often adequacy reports a leaning table: false reports of a right model, power of a wrong one.

Samples of log-normal amounts in two by columns, with informative weights. The model has one
covariance and main effects. "right": so has the population. "wrong": its spread differs by gender
(``spread``, of the log SD), and it may have an interaction (``move``). Measured by release: whether
any lean or misfit is reported, and the distance of each row and margin over the sample's SE.

    python -m tests.long_runs.leaning_study [--case NAME] [--samples N]

writes ``tests/golden/leaning_study.json``.
"""

import argparse
import json
import time
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surveysynth.evaluation.compare.adequacy import compare_with_sample
from surveysynth.evaluation.compare.leaning import FALSE_REPORTS
from surveysynth.evaluation.compare.table_lean import LeanCollector, TableLean
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.release.pipeline import facts_of, private_estimates
from surveysynth.release.tables.table_builder import tables_of_each
from surveysynth.spec.build import engine_of, mechanism_of, model_of
from surveysynth.spec.in_memory import spec_of_survey
from surveysynth.survey.survey import Survey
from surveysynth.survey.transforms import Transform

GOLDEN = Path(__file__).parents[1] / "golden" / "leaning_study.json"
CENTRE, SPREAD = 20_000.0, 0.6


@dataclass(frozen=True)
class Case:
    """A population, a mechanism, and how far the model is wrong."""

    mechanism: str
    epsilon: float
    spread: float = 0.0
    move: float = 0.0
    n: int = 1500


#: By name: mechanism and epsilon; then spread and move, SPREAD_2 and BOTH_2 with a bias of two
#: errors of the sample in the margin of gender.
SETTINGS = {
    "noisy_10.8": ("noisy_statistics", 10.8), "noisy_3.6": ("noisy_statistics", 3.6),
    "pseudo_10.8": ("pseudo_posterior", 10.8),
}  # fmt: skip
WRONG = {"right": (0.0, 0.0), "spread_2": (0.6, 0.0), "both_2": (0.6, 0.3)}
CASES = {
    f"{setting}_{name}": Case(*SETTINGS[setting], *WRONG[name])
    for setting in SETTINGS for name in WRONG
}  # fmt: skip


def sample(rng: np.random.Generator, n: int, spread: float, move: float) -> pd.DataFrame:
    """Return records of four fields, the strata, and two genders."""
    field, gender = rng.choice(4, n, p=[0.4, 0.3, 0.2, 0.1]), rng.integers(0, 2, n)
    sd = 0.5 * np.exp(spread * (gender - 0.5))
    mean = np.log(CENTRE) + 0.2 * field - 0.15 * gender + move * ((field == 1) & (gender == 1))
    z = mean + sd * rng.standard_normal(n)
    log_weight = 4.1 - 0.3 * (z - np.log(CENTRE)) + 0.3 * rng.standard_normal(n)
    return pd.DataFrame({
        "field": np.array(list("abcd"))[field], "gender": np.array(list("fm"))[gender],
        "salary": np.exp(z), "weight": np.exp(log_weight),
    })  # fmt: skip


def leans_of(case: Case, seed: int) -> list[TableLean]:
    """Return the leans of one release, from one covariance and main effects."""
    of_sample, of_release = np.random.SeedSequence(seed).spawn(2)
    frame = sample(np.random.default_rng(of_sample), case.n, case.spread, case.move)
    noisy = case.mechanism == "noisy_statistics"
    survey = Survey.from_frame(
        frame, outcome="salary", weight="weight", by=["field", "gender"], strata="field",
        transforms=Transform("log"), predictors="field + gender", population_size=100_000,
    )  # fmt: skip
    declared = {"centre": CENTRE, "spread": SPREAD}
    sections: dict[str, Any] = {
        "synthesizer": {"model": "fbs", "covariance_by": []},
        "privacy": {"mechanism": case.mechanism, "epsilon": case.epsilon},
        "tables": {"by": ["field", "gender"], "statistics": ["count", "mean", "median"]},
    }
    if noisy:
        sections["outcomes"] = {"salary": declared}
    return collected_leans(spec_of_survey(survey.design, sections), survey, of_release)


def collected_leans(spec: Any, survey: Survey, stream: np.random.SeedSequence) -> list[TableLean]:
    """Return the leans of a release of a survey, without its files."""
    mechanism = mechanism_of(spec)
    chosen = engine_of(spec, model_of(spec))
    design = mechanism.prepared(chosen.with_ridge(survey.design))
    model = chosen.of(design)
    facts = facts_of(spec, design, mechanism, model, test=True)
    ours, later = map(np.random.default_rng, stream.spawn(2))
    released = mechanism.run(model, design, survey.confidential, ours, seeded=True)
    collector, first = LeanCollector(facts, survey), list[SyntheticDataset]()

    def see(dataset: SyntheticDataset) -> None:
        first.append(dataset) if not first else None
        collector.add(dataset)

    facts, estimates = private_estimates(
        facts, model, released.draws, later, lambda stage: None, None, see
    )
    tables = tables_of_each(facts.spec, design, estimates)
    found = compare_with_sample(facts, survey, tables, first[0], released, collector)
    return list(found.leans)


def measured(releases: Sequence[Sequence[TableLean]], seconds: float) -> dict[str, Any]:
    """Return rates of reports over releases, and by margin the bias and the rates of p < 5%."""
    by_margin: dict[str, list[tuple[float, float, float, float]]] = {}
    told, by_p = [], []
    for leans in releases:
        told.append([any(each.leans for each in leans), any(each.misfits for each in leans)])
        by_p.append(any(not each.mean_by_chance or not each.squares_by_chance for each in leans))
        for each in leans:
            name, lean = f"{each.key[0]}, {each.rows}", each.lean
            by_margin.setdefault(name, []).append((lean.mean, lean.se, lean.p, lean.p_rows))
    margins = {}
    for name, values in by_margin.items():
        mean, se, p, p_rows = np.array(values).T
        margins[name] = {
            "bias": round(float(mean.mean()), 3), "sd": round(float(mean.std(ddof=1)), 3),
            "se": round(float(np.sqrt(np.mean(se**2))), 3),
            "p_below_5%": round(float(np.mean(p < 0.05)), 3),
            "p_rows_below_5%": round(float(np.nanmean(p_rows < 0.05)), 3),
        }  # fmt: skip
    return {
        "releases": len(releases), "reported": round(float(np.any(told, axis=1).mean()), 3),
        "leans": round(float(np.mean(told, axis=0)[0]), 3),
        "misfits": round(float(np.mean(told, axis=0)[1]), 3),
        "beyond_chance": round(float(np.mean(by_p)), 3), "nominal": FALSE_REPORTS,
        "cpu_seconds_each": round(seconds / len(releases), 2), "margins": margins,
    }  # fmt: skip


def main() -> None:
    """Run the cases and write their results."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--case", action="append", choices=list(CASES))
    parser.add_argument("--samples", type=int, default=200)
    parser.add_argument("--out", type=Path, default=GOLDEN)
    given = parser.parse_args()
    for name in given.case or CASES:
        releases, begun = [], time.process_time()
        for seed in range(given.samples):
            releases.append(leans_of(CASES[name], seed))
            if len(releases) % 10 and len(releases) < given.samples:
                continue
            made = measured(releases, time.process_time() - begun)
            known = json.loads(given.out.read_text()) if given.out.exists() else {}
            known[name] = made
            given.out.write_text(json.dumps(dict(sorted(known.items())), indent=1) + "\n")
            print(name, {key: value for key, value in made.items() if key != "margins"}, flush=True)


if __name__ == "__main__":
    main()
