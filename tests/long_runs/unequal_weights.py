"""Coverage where weights are very unequal: ``python -m tests.long_runs.unequal_weights FOLDER``.

FOLDER is of ``tests.long_runs.ten_surveys.files``. A population of 300,000 is made of its car
crashes: each record as many times as its weight says, each copy with the answers of a record of its
cell whose weight is within a factor of two. So answers depend on weights as in the survey, and no
single record is a large part of the population. Samples of 6,000 are drawn in proportion to one
over the weight and released with the survey's specification.
"""

import argparse
import json
import subprocess
import sys
import tempfile
from pathlib import Path

import numpy as np
import pandas as pd

GOLDEN = Path(__file__).parents[1] / "golden" / "unequal_weights.json"
UNITS, RECORDS, NEAR, SEED = 300_000, 6_000, 2.0, 8
ANSWERS = ["dead", "ageOFocc"]


def population(survey: pd.DataFrame, rng: np.random.Generator) -> pd.DataFrame:
    """Return the units with their cells, answers and sizes."""
    copies = np.floor(survey["weight"] * UNITS / survey["weight"].sum() + rng.random(len(survey)))
    parts = []
    for cell, rows in survey.assign(copies=copies.astype(int)).groupby(["dvcat", "sex"]):
        own = rows.sort_values("weight", key=np.log)
        log_weight = np.log(own["weight"].to_numpy())
        first = np.searchsorted(log_weight, log_weight - np.log(NEAR))
        end = np.searchsorted(log_weight, log_weight + np.log(NEAR), "right")
        unit = np.repeat(np.arange(len(own)), own["copies"])
        donor = first[unit] + np.floor(rng.random(unit.size) * (end - first)[unit]).astype(int)
        size = (1.0 / own["weight"].to_numpy()[unit]).round(6)
        part = own[ANSWERS].iloc[donor].reset_index(drop=True)
        parts.append(part.assign(dvcat=cell[0], sex=cell[1], size=size))  # type: ignore[index]
    return pd.concat(parts, ignore_index=True)


def main() -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("folder", type=Path)
    parser.add_argument("--samples", type=int, default=40)
    given = parser.parse_args()
    units = population(pd.read_csv(given.folder / "crashes.csv"), np.random.default_rng(SEED))
    text = (given.folder / "crashes.toml").read_text(encoding="utf-8")
    for old, new in (
        ("# population_size = ..", f"population_size = {len(units)}"),
        ("centre = 6.1", f"centre = {np.log(len(units) / RECORDS):.1f}"),
    ):
        assert old in text, old
        text = text.replace(old, new)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        units.to_csv(folder / "population.csv", index=False)
        units.head(100).to_csv(folder / "crashes.csv", index=False)
        (folder / "crashes.toml").write_text(text, encoding="utf-8")
        subprocess.run(
            [sys.executable, "-m", "surveysynth", "study", folder / "crashes.toml",
             "--population", folder / "population.csv", "--design", "pps_wr", "--size-column",
             "size", "--n", str(RECORDS), "--samples", str(given.samples), "--workers", "1",
             "--out", folder / "out"],
            check=True,
        )  # fmt: skip
        keep(folder / "out", given.samples)


def keep(study: Path, samples: int) -> None:
    """Write coverage, and errors over the sample's own, of a study."""
    summary = pd.read_csv(study / "summary.csv")
    columns = ["statistic", "outcome", "method", "coverage", "coverage_mcse", "rmse_ratio"]
    rows = summary[columns].round(4).to_dict("records")
    lines = ",\n  ".join(json.dumps({k: v for k, v in row.items() if pd.notna(v)}) for row in rows)
    GOLDEN.write_text(
        f'{{"samples": {samples}, "records": {RECORDS}, "rows": [\n  {lines}\n]}}\n',
        encoding="utf-8",
    )


if __name__ == "__main__":
    main()
