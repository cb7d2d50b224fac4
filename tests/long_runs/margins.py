"""Margins of 20 releases against their parts, and estimates against R's survey on all datasets:
``python -m tests.long_runs.margins`` (R and its package survey are needed).

Four releases of each of five specifications: the example's and those of ``tables/``. In every row
of a mean, a proportion or a share the margin lies in the range of its parts; counts and totals add
up; a mean is that of its parts weighted by their counts. Of one release of each specification all
datasets (``rebuild`` with ``all_datasets``, or the published ones where these are all) are stacked,
and R estimates every row. The result is ``tests/golden/margins.json``.
"""

import json
import shutil
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surveysynth._support.resources import tables_directory
from surveysynth.api.start import write_example
from surveysynth.config.spec import Spec, load_spec
from surveysynth.estimation.statistics import LEVEL
from surveysynth.mechanisms.noisy_statistics.mechanism import STATISTICS_NAME
from surveysynth.release.pipeline import rebuild, release
from surveysynth.release.reader import Release, read_release

RESULT = Path(__file__).resolve().parents[1] / "golden" / "margins.json"
RELEASES = 4
SUMS = ("counts", "totals")
#: Where the parts of a margin are alike, the order of a sum tells.
ROUNDING = 1e-12
Margins = Mapping[str, str]


def margins_of(spec: Spec) -> dict[str, str]:
    """The name of the row over all levels, by column."""
    labels = spec.labels
    return {by: labels[by].margin if by in labels else "All" for by in spec.tables[0].by}


def parts_of(table: pd.DataFrame, margins: Margins) -> Iterator[tuple[Any, pd.DataFrame]]:
    """Every row of a margin with the rows that it is over, once for each column."""
    keys = [each for each in ("outcome", LEVEL, *margins) if each in table]
    for by, margin in margins.items():
        others = [key for key in keys if key != by]
        for _, rows in table.groupby(others, sort=False) if others else [("", table)]:
            whole = rows[rows[by] == margin].iloc[0]
            yield whole, rows[rows[by] != margin]


def wrong(tables: Mapping[str, pd.DataFrame], margins: Margins) -> tuple[int, list[str]]:
    """How many margins were compared, and what is wrong with some of them."""
    compared, found = 0, []
    for stem, table in tables.items():
        for whole, parts in parts_of(table, margins):
            values = parts["estimate"].to_numpy()
            withheld = np.isnan(values) & (parts["n"] > 0).to_numpy()
            if withheld.any() or np.isnan(whole["estimate"]):
                continue
            compared += 1
            margin, values = whole["estimate"], values[~np.isnan(values)]
            far = ROUNDING * max(abs(margin), 1e-300)
            if stem in SUMS:
                right = abs(values.sum() - margin) <= 1e3 * far
            else:
                right = values.min() - far <= margin <= values.max() + far
            if stem == "means" and "counts" in tables:
                sizes = tables["counts"].loc[parts.index, "estimate"].to_numpy()
                sizes = sizes[parts["estimate"].notna()]
                if not np.isnan(sizes).any():
                    right &= abs(np.average(values, weights=sizes) / margin - 1) <= 1e3 * ROUNDING
            if not right:
                found.append(f"{stem} {whole.to_dict()}: {values.tolist()}")
    return compared, found


def differences_from_r(made: Release, spec: Spec, folder: Path) -> dict[str, Any]:
    """The largest relative difference of R's estimates, of how many rows and records."""
    margins, asked, ours = margins_of(spec), [], []
    stacked = pd.concat([each for _, _, each in made.datasets()], ignore_index=True)
    positions = [made.dataset(*key, positions=True) for key in made.keys]
    numbers = pd.concat(positions, ignore_index=True)
    records = stacked[list(margins)].assign(w=stacked[spec.survey.weight] / len(made.keys), one=1.0)
    for stem, table in made.tables.items():
        for _, row in table.iterrows():
            if np.isnan(row["estimate"]):
                continue
            outcome = row["outcome"] if "outcome" in row else _only(made, stem)
            statistic, y = ("total", "one") if stem == "counts" else ("mean", f"y_{outcome}")
            if stem == "totals":
                statistic = "total"
            if LEVEL in row:
                y = f"is_{outcome}_{row[LEVEL]}"
                own = stacked[outcome].astype(str)
                spikes = [each for each in table.loc[table["outcome"] == outcome, LEVEL].unique()
                          if each != "other"]  # fmt: skip
                values = pd.to_numeric(stacked[outcome], errors="coerce")
                hit = (own == row[LEVEL]) | (values == _number(row[LEVEL]))
                if row[LEVEL] == "other":
                    hit = ~values.isin([float(each) for each in spikes])
                records[y] = hit.astype(float)
            elif y != "one":
                records[y] = numbers[outcome].astype(float)
            at = {by: "" if row[by] == margin else row[by] for by, margin in margins.items()}
            asked.append({"statistic": statistic, "y": y, **at})
            ours.append(row["estimate"])
    data, rows, found = (folder / name for name in ("data.csv", "rows.csv", "r.csv"))
    records.to_csv(data, index=False)
    pd.DataFrame(asked).to_csv(rows, index=False)
    script = Path(__file__).with_suffix(".R")
    package = subprocess.check_output(["Rscript", script, data, rows, found], text=True)
    theirs = pd.read_csv(found)["estimate"].to_numpy()
    return {
        "rows": len(ours), "records": len(records), "survey": package,
        "largest_relative_difference": float(np.abs(np.array(ours) / theirs - 1).max()),
    }  # fmt: skip


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        return float("nan")


def _only(made: Release, stem: str) -> str:
    """The outcome of a table that does not name it: the first, or the one with two levels."""
    outcomes = [each for each in made.codebook["columns"] if "outcome" in each["roles"]]
    binary = [each for each in outcomes if each["declared"]["kind"] == "binary"]
    return str((binary if stem == "proportions" and binary else outcomes)[0]["name"])


def specifications(folder: Path) -> Iterator[tuple[str, Path]]:
    """Copies of the five specifications, whose flags mark and do not withhold."""
    _, example = write_example(folder / "example", 1000)
    yield "example", _marked(example)
    for entry in sorted(tables_directory().glob("*/spec.toml")):
        copied = shutil.copytree(entry.parent, folder / entry.parent.name)
        yield entry.parent.name, _marked(copied / "spec.toml")


def _marked(path: Path) -> Path:
    text = path.read_text(encoding="utf-8")
    lines = [line for line in text.splitlines() if not line.startswith(("flags", "formats"))]
    path.write_text("\n".join([*lines, ""]), encoding="utf-8")
    return path


def main() -> int:
    """Return 0 where every margin is between its parts and R has the same estimates."""
    result: dict[str, Any] = {}
    with tempfile.TemporaryDirectory(prefix="margins-") as name:
        folder = Path(name)
        for kind, path in specifications(folder / "specifications"):
            spec, compared, found = load_spec(path), 0, []
            for seed in range(1, RELEASES + 1):
                out = folder / f"{kind}-{seed}"
                release(path, out, ledger=folder / "ledger.jsonl", seed=seed)
                made = read_release(out)
                more = wrong(made.tables, margins_of(spec))
                compared, found = compared + more[0], found + more[1]
            if (out / "release" / STATISTICS_NAME).is_file():
                rebuild(out, folder / f"{kind}-all", all_datasets=True)
                made = made.with_datasets(folder / f"{kind}-all" / "microdata")
            r = differences_from_r(made, spec, folder)
            result[kind] = {"releases": RELEASES, "margins": compared, "wrong": found, "r": r}
            print(kind, result[kind], flush=True)
    RESULT.write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")
    sound = all(
        not each["wrong"] and each["r"]["largest_relative_difference"] < 1e-10
        for each in result.values()
    )
    return 0 if sound else 1


if __name__ == "__main__":
    sys.exit(main())
