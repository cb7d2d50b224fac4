"""How near releases of real files lie to their samples, and what they take:
``python -m tests.long_runs.real_files SPEC .. [--releases 3] [--out FILE.json]``.

A specification names its file, which need not lie in the checkout. Each is released with seeds,
and every row of its tables is compared with the confidential sample's own estimate and standard
error, as ``confidential/adequacy.csv`` has them: by linearization, strata and units as declared,
or by the agency's replicate weights. A share of 2 to 5% is one that the sample estimates so.

Run as a file, with another checkout in PYTHONPATH, it measures that one:
``PYTHONPATH=OTHER python tests/long_runs/real_files.py SPEC``. Seconds are of the processor, of a
whole release with its adequacy report; peak memory is that of the program so far. The JSON file has
a line of every row, so it is as confidential as the file: this is for public-use files.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import resource  # noqa: E402
import subprocess  # noqa: E402
import tempfile  # noqa: E402
import warnings  # noqa: E402
from collections.abc import Sequence  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import surveysynth as ss  # noqa: E402
from surveysynth.errors import SurveySynthError  # noqa: E402
from surveysynth.release.files import library_versions  # noqa: E402
from surveysynth.release.pipeline import ReleaseResult  # noqa: E402

SEED = 71
RARE = "share of 2 to 5%"
#: Rows of fewer records are in everything but the worst row of ``summary``.
MANY = 100


def processor_seconds() -> float:
    """Return the seconds that this process and its finished children took."""
    return sum(os.times()[:4])


def commit_of(package: Path) -> str:
    """Return the commit of the checkout that holds the package, marked if files were changed."""
    told = ["git", "-C", str(package), "describe", "--always", "--abbrev=12", "--dirty"]
    return subprocess.run(told, capture_output=True, text=True, check=True).stdout.strip()


def released(spec: Path, seed: int) -> dict[str, Any]:
    """Release once: seconds by stage and rows, or the message of a refusal."""
    begun: list[tuple[str, float]] = []
    start = processor_seconds()
    result: dict[str, Any] = {"spec": spec.stem, "seed": seed}
    with tempfile.TemporaryDirectory() as name, warnings.catch_warnings():
        warnings.simplefilter("ignore")
        folder = Path(name)
        try:
            made = ss.release(
                spec, folder / "out", ledger=folder / "ledger.csv", seed=seed,
                progress=lambda stage: begun.append((stage, processor_seconds() - start)),
            )  # fmt: skip
        except SurveySynthError as error:
            result["refused"] = f"{type(error).__name__}: {error}"
        else:
            ss.adequacy(made.out)
            result["rows"] = rows_of(made).to_dict("records")
    result["seconds"] = round(processor_seconds() - start, 1)
    result["stages"] = [(stage, round(seconds, 1)) for stage, seconds in begun]
    result["peak_mb"] = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss // 1024
    return result


def rows_of(made: ReleaseResult) -> pd.DataFrame:
    """Return a line for each row of a release of one table that the sample has an error of.

    distance: from the sample's own estimate, in its standard errors; own: in published ones;
    ratio: of published over the sample's standard error; holds: the interval contains the
    sample's own estimate; records: in the row (0 where an outcome makes the rows).
    """
    found = pd.read_csv(made.confidential / "adequacy.csv", keep_default_na=False, na_values=[""])
    tables = [table for each in made.tables.values() for table in each]
    published = pd.concat([table.frame for table in tables], ignore_index=True)
    if not np.allclose(published["estimate"], found["published"], equal_nan=True):
        raise ValueError("Rows of tables are not in the order of adequacy.csv.")
    apart = found["published"] - found["sample"]
    lines = pd.DataFrame({
        "statistic": found["statistic"], "outcome": found["outcome"].fillna(""),
        "records": found["n"].fillna(0).astype(int), "sample": found["sample"],
        "distance": (apart / found["sample_se"]).abs(),
        "own": (apart / found["published_se"]).abs(),
        "ratio": found["published_se"] / found["sample_se"],
        "holds": (published["ci_lower"] <= found["sample"])
        & (found["sample"] <= published["ci_upper"]),
    })  # fmt: skip
    compared: pd.DataFrame = lines[np.isfinite(lines["distance"]) & found["published_se"].notna()]
    return compared.round({"distance": 3, "own": 3, "ratio": 3})


def summary(rows: pd.DataFrame) -> dict[str, Any]:
    """Return what is looked at of some rows; the worst one also among those of many records."""
    many = rows.loc[rows["records"] >= MANY, "distance"]
    return {
        "rows": len(rows),
        "median distance": rows["distance"].median(),
        "worst": rows["distance"].max(),
        f"worst of {MANY} records": many.max() if len(many) else float("nan"),
        "ratio of SEs": rows["ratio"].median(),
        "within 3 own SEs": (rows["own"] <= 3).mean(),
        "within 3 sample SEs": (rows["distance"] <= 3).mean(),
        "intervals that hold the sample": rows["holds"].mean(),
    }


def lines_of(releases: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return a line for each specification and statistic, of the rows of all its releases."""
    lines = []
    for spec in dict.fromkeys(each["spec"] for each in releases):
        done = [each for each in releases if each["spec"] == spec and "rows" in each]
        rows = pd.DataFrame([row for each in done for row in each["rows"]])
        if not len(rows):
            continue
        parts = {str(name): part for name, part in rows.groupby("statistic", sort=False)}
        if "share" in parts:
            shares = parts["share"]
            parts[RARE] = shares[shares["sample"].between(0.02, 0.05)]
        for name, part in parts.items():
            if len(part):
                lines.append({"file": spec, "statistic": name, **summary(part)})
    return pd.DataFrame(lines)


def markdown(table: pd.DataFrame) -> list[str]:
    """Return a table as lines of Markdown, numbers with two digits."""
    words = [
        [f"{value:.2f}" if isinstance(value, float) else str(value) for value in row]
        for row in table.itertuples(index=False)
    ]
    lines = [[*table.columns], ["---"] * table.shape[1], *words]
    return [f"| {' | '.join(line)} |" for line in lines]


def costs(releases: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Return a line for each release: its seconds, memory, and what became of it."""
    return pd.DataFrame([
        {
            "file": each["spec"], "seed": each["seed"], "CPU seconds": f"{each['seconds']:.1f}",
            "peak MB": each["peak_mb"], "result": each.get("refused", "released"),
            "on the way": "; ".join(stage for stage, _ in each["stages"] if "R-hat" in stage),
        }
        for each in releases
    ])  # fmt: skip


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("spec", type=Path, nargs="+")
    parser.add_argument("--releases", type=int, default=3)
    parser.add_argument("--seed", type=int, default=SEED, help="of the first release")
    parser.add_argument("--out", type=Path, help="a JSON file, written after each release")
    given = parser.parse_args(arguments)
    about = {
        "commit": commit_of(Path(ss.__file__).parent), "versions": library_versions(),
        "options": {"releases": given.releases, "seed": given.seed},
    }  # fmt: skip
    releases: list[dict[str, Any]] = []
    for spec in given.spec:
        for seed in range(given.seed, given.seed + given.releases):
            releases.append(released(spec, seed))
            if given.out:
                content = json.dumps({**about, "releases": releases}, indent=1, default=float)
                given.out.write_text(content + "\n", encoding="utf-8")
    refused = sum("refused" in each for each in releases)
    print(f"Commit {about['commit']}: {len(releases)} releases, {refused} refused.\n")
    for table in (lines_of(releases), costs(releases)):
        if len(table):  # no row where every release was refused
            print("\n".join(markdown(table)), end="\n\n")


if __name__ == "__main__":
    main()
