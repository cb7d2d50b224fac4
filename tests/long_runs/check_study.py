"""The first line of ``check`` beside releases: ``python -m tests.long_runs.check_study FRAMES``.

Each case is a specification with epsilon 3.6 and default settings: a sample of a real population
(``python -m tests.long_runs.real_populations fetch FRAMES``), with declared constants or with
a public range alone, and a file of the Consumer Expenditure Survey, where it lies beside the
checkout. What ``check`` announces, standard errors of means over the sample's in the median row, is
set beside releases of other surveys that are simulated in the same way and of the real sample.
``filled`` is what a check would announce whose records fill the declared ranges: the wrong one.
Results go to ``tests/golden/check_study.json``.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Iterator, Mapping, Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402
from unittest.mock import patch  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import surveysynth as ss  # noqa: E402
from surveysynth.config.build import model_of, read_design, read_survey  # noqa: E402
from surveysynth.config.spec import Spec, validate_spec  # noqa: E402
from surveysynth.errors import RefusedError  # noqa: E402
from surveysynth.evaluation.studies import simulated  # noqa: E402
from surveysynth.evaluation.studies.study import released, row_keys, sample_rows  # noqa: E402
from surveysynth.survey.survey import Survey  # noqa: E402
from tests.long_runs.real_files import commit_of  # noqa: E402
from tests.long_runs.real_populations.__main__ import SETTINGS, write_sample  # noqa: E402
from tests.long_runs.real_populations.frames import FRAMES  # noqa: E402

GOLDEN = Path(__file__).parents[1] / "golden" / "check_study.json"
REAL = Path(__file__).parents[3] / "shared" / "data" / "ce2015q3.csv"
POPULATIONS = ("fares", "earnings", "villages")
EPSILON = 3.6
EXPENDITURE = {
    "spec_version": 1,
    "survey": {"weight": "weight", "psu": "psu", "population_size": 129_000_000},
    "synthesizer": {"model": "fbs", "outcome": ["health_spending"]},
    "outcomes": {"health_spending": {"range": [-10_000, 100_000]}},
    "privacy": {"mechanism": "noisy_statistics", "epsilon": EPSILON},
    "tables": {"by": ["region", "sex"], "statistics": ["count", "mean"]},
}


def cases(frames: Path, folder: Path) -> Iterator[tuple[str, Spec]]:
    """Yield names and specifications of the files, which are written to a folder."""
    for words, setting in {"range alone": "learned_3.6", "declared": "noisy_3.6"}.items():
        for name in POPULATIONS:
            (folder / f"{name}.csv").write_bytes((frames / f"{name}.csv").read_bytes())
            write_sample(folder, FRAMES[name])
            yield f"{name}, {words}", spec_of(SETTINGS[setting].specification(FRAMES[name]), folder)
    if REAL.is_file():
        found = pd.read_csv(REAL)
        found[found["region"].notna()].to_csv(folder / "expenditure.csv", index=False)
        survey = {**EXPENDITURE["survey"], "data": "expenditure.csv"}  # type: ignore[dict-item]
        yield "expenditure, range alone", spec_of({**EXPENDITURE, "survey": survey}, folder)


def spec_of(sections: Mapping[str, Any], folder: Path) -> Spec:
    """Return a specification whose file would lie in a folder."""
    return validate_spec({**sections, "path": folder / "spec.toml"}, "a case of the study")


def ratio(spec: Spec, survey: Survey, seed: int) -> float:
    """Return the median over rows of one release: standard errors of means over the sample's."""
    keys = row_keys(spec)
    made = released(spec, survey, np.random.SeedSequence([7, seed]))[0][[*keys, "se"]]
    both = made.merge(sample_rows(spec, survey)[[*keys, "se"]], on=keys, suffixes=("", "_sample"))
    both = both[(both["statistic"] == "mean") & (both["se_sample"] > 0)]
    return float((both["se"] / both["se_sample"]).median())


def several(spec: Spec, surveys: Sequence[Survey]) -> list[float]:
    """Return the ratios of releases, without those that were refused."""
    found = []
    for seed, survey in enumerate(surveys):
        try:
            found.append(round(ratio(spec, survey, seed), 3))
        except RefusedError as error:
            print(f"refused: {error}", flush=True)
    return found


def announced(spec: Spec) -> float:
    """Return the median row of ``check``."""
    (made,) = simulated.simulated_releases(spec, read_design(spec))
    rows = made.rows[made.rows["statistic"] == "mean"]
    return round(float(rows["se_over_sample"].median()), 3)


def study(spec: Spec, releases: int) -> dict[str, Any]:
    """Return what is announced, and the releases of simulated surveys and of the real one."""
    began = time.process_time()
    result: dict[str, Any] = {"announced": announced(spec)}
    result["seconds"] = round(time.process_time() - began, 1)
    with patch.multiple(simulated, AMOUNT_SD=np.inf, WEIGHT_SD=np.inf, REPEATS=1):
        result["filled"] = announced(spec)
    design, own = read_design(spec), spec.for_records(read_design(spec).n)
    model = model_of(spec).of(design)
    others = [
        Survey(design, simulated._values(spec, design, model, {}, np.random.default_rng(seed)))
        for seed in range(1, releases + 1)
    ]
    result["simulated"] = several(own, others)
    result["real"] = several(own, [read_survey(spec)] * releases)
    return result


def page(results: Mapping[str, Mapping[str, Any]]) -> list[str]:
    """Return lines of Markdown."""
    lines = ["| case | announced | simulated | real | ranges filled |", "|---" * 5 + "|"]
    for name, found in results.items():
        medians = [float(np.median(found[which])) for which in ("simulated", "real")]
        numbers = [found["announced"], *medians, found["filled"]]
        lines.append("| " + " | ".join([name, *(f"{each:.2f}" for each in numbers)]) + " |")
    return lines


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("frames", type=Path)
    parser.add_argument("--releases", type=int, default=5)
    parser.add_argument("--out", type=Path, default=GOLDEN)
    given = parser.parse_args()
    found: dict[str, Any] = {
        "commit": commit_of(Path(ss.__file__).parent), "epsilon": EPSILON, "cases": {},
    }  # fmt: skip
    with tempfile.TemporaryDirectory() as name:
        for case, spec in cases(given.frames, Path(name)):
            found["cases"][case] = study(spec, given.releases)
            print(case, found["cases"][case], flush=True)
            given.out.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
    print("\n".join(page(found["cases"])))


if __name__ == "__main__":
    main()
