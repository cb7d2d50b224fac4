"""The same numbers from other programs: ``python -m tests.long_runs.other_programs --svy PYTHON``.

svy (https://pypi.org/project/svy) in an interpreter of its own, samplics in this one, and R's
survey, whose results ``golden/taylor_survey.json`` has. The records, designs and rows are those of
``golden/taylor_survey.R``; results go to ``golden/other_programs.json``, from where
``tests/estimation/test_other_programs.py`` compares them with ours. Seconds of one sitting, a table
of 50 cells and their margins, are told as ratios to ours: machines differ, and this one is shared.
"""

import argparse
import itertools
import json
import subprocess
import sys
import tempfile
import time
import warnings
from collections.abc import Callable
from datetime import UTC, datetime
from functools import cache
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd

from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.taylor import estimate_domains

GOLDEN = Path(__file__).parents[1] / "golden"
RESULTS = GOLDEN / "other_programs.json"
RECORDS = GOLDEN / "taylor_survey.csv"
#: Ours, and what they are asked of other programs: a function and a column.
STATISTICS = {
    "count": ("total", "one"),
    "total": ("total", "y"),
    "mean": ("mean", "y"),
    "proportion": ("mean", "z"),
}
#: R's rules for lonely PSUs by svy's names of what does the same, as far as its words tell.
SINGLETON = {
    "fail": None,
    "remove": "skip",
    "certainty": "self_representing",
    "adjust": "center",
    "average": "scale",
}
ROW_LEVELS = {"a": ["a1", "a2", "a3", "a4"], "b": ["b1", "b2"], "c": ["c1", "c2"]}
#: The timed table: records, levels of the two variables, strata.
SIZE, LEVELS, STRATA, REPEATS = 20_000, (10, 5), 8, 3


def cases() -> list[dict[str, Any]]:
    """Designs of R's golden file."""
    return list(json.loads((GOLDEN / "taylor_survey.json").read_text(encoding="utf-8"))["cases"])


def job_of(case: dict[str, Any], statistics: dict[str, Any] = STATISTICS) -> dict[str, Any]:
    """A case as ``with_svy`` reads it: every subset of the by variables is a set of rows."""
    by = case["by"]
    subsets = itertools.chain.from_iterable(
        itertools.combinations(by, size) for size in range(len(by) + 1)
    )
    return {
        **{name: case[name] for name in ("strata", "psu", "fpc", "by")},
        "singleton": SINGLETON[case["lonely_psu"]],
        "margins": list(subsets),
        "statistics": statistics,
    }


def from_svy(interpreter: str, data: Path, jobs: list[dict[str, Any]]) -> dict[str, Any]:
    """Its version and a result a job."""
    run = subprocess.run(
        [interpreter, str(Path(__file__).with_name("with_svy.py"))],
        input=json.dumps({"data": str(data), "jobs": jobs}),
        capture_output=True, text=True, check=True,
    )  # fmt: skip
    return dict(json.loads(run.stdout))


def from_samplics(frame: pd.DataFrame, job: dict[str, Any]) -> dict[str, Any]:
    """The same of samplics: without lonely PSUs and finite populations."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from samplics import TaylorEstimator
        from samplics.utils.types import PopParam

    found: dict[str, Any] = {}
    for statistic, (what, column) in job["statistics"].items():
        rows = found.setdefault(statistic, {})
        for by in job["margins"]:
            keys = pd.Series("", index=frame.index)
            for name in job["by"]:
                keys = keys + "|" + (frame[name].astype(str) if name in by else "All")
            keys = keys.str.removeprefix("|")
            estimator = TaylorEstimator(PopParam(what.capitalize()))
            estimator.estimate(
                y=frame[column].to_numpy(float),
                samp_weight=frame["weight"].to_numpy(),
                stratum=None if job["strata"] is None else frame[job["strata"]].to_numpy(),
                psu=None if job["psu"] is None else frame[job["psu"]].to_numpy(),
                domain=keys.to_numpy(),
                remove_nan=True,
            )
            for key in keys.unique():
                rows[key] = [estimator.point_est[key], estimator.stderror[key]]
    return found


def compare(interpreter: str) -> list[dict[str, Any]]:
    """All cases by svy, those without lonely PSUs and finite populations by samplics."""
    given = cases()
    frame = pd.read_csv(RECORDS).assign(one=1.0)
    jobs = [job_of(case) for case in given]
    svy = from_svy(interpreter, RECORDS, jobs)["results"]
    made = []
    for case, job, result in zip(given, jobs, svy, strict=True):
        entry: dict[str, Any] = {"name": case["name"], "svy": result["found"]}
        if case["fpc"] is None and case["lonely_psu"] == "fail":
            try:
                entry["samplics"] = from_samplics(frame, job)
            except Exception as error:  # whatever it is: that it does not work is the result
                entry["samplics"] = {"refused": type(error).__name__}
        made.append(entry)
    return made


def ours(case: dict[str, Any], statistic: str, linearisation: str) -> pd.DataFrame:
    """Estimates and standard errors of surveysynth for a case, by the rows' keys."""
    frame, domains = records(), rows_by(tuple(case["by"]))
    codes = pd.factorize(frame[case["strata"]])[0] if case["strata"] else np.zeros(len(frame), int)
    psu = pd.factorize(frame[case["psu"]])[0] if case["psu"] else None
    fpc = frame.groupby(codes)[case["fpc"]].first().to_numpy() if case["fpc"] else None
    made = estimate_domains(
        domains,
        SampleDesign(codes, psu, fpc, case["lonely_psu"]),
        weight=frame["weight"].to_numpy(),
        outcome=frame[STATISTICS[statistic][1].replace("one", "y")].to_numpy(float),
        statistic=statistic,  # type: ignore[arg-type]
        linearisation=linearisation,  # type: ignore[arg-type]
        population_size=population(),
    )
    keys = ["|".join(map(str, row)) for row in domains.table[case["by"]].itertuples(index=False)]
    values = {"estimate": made.estimate, "se": np.sqrt(made.variance), "n": domains.n}
    return pd.DataFrame(values, index=keys)


@cache
def records() -> pd.DataFrame:
    """Those of R's golden file."""
    return pd.read_csv(RECORDS)


@cache
def rows_by(by: tuple[str, ...]) -> Domains:
    """Cells and margins."""
    return build_domains(records(), by, ROW_LEVELS)


@cache
def population() -> float:
    """The public total of R's golden file."""
    content = json.loads((GOLDEN / "taylor_survey.json").read_text(encoding="utf-8"))
    return float(content["population"])


def differences() -> pd.DataFrame:
    """A row a design, program and statistic: the largest relative differences from ours over the
    rows that both have, where one record or none tells of no standard error left out."""
    kept = {each["name"]: each for each in json.loads(RESULTS.read_text(encoding="utf-8"))["cases"]}
    found = []
    for case in cases():
        for statistic in STATISTICS:
            for linearisation in ("plain", "ratio"):
                mine = ours(case, statistic, linearisation)
                r = pd.DataFrame(case[linearisation][statistic], index=mine.index, dtype=float)
                programs = {"R survey" if linearisation == "plain" else "R survey, calibrated": r}
                if linearisation == "plain":
                    programs |= {
                        name: pd.DataFrame(rows, index=["estimate", "se"], dtype=float).T
                        for name in ("svy", "samplics")
                        if (rows := kept[case["name"]].get(name, {}).get(statistic)) is not None
                    }
                for program, theirs in programs.items():
                    estimate, se, rows = _largest(mine, theirs.reindex(mine.index))
                    found.append((case["name"], program, statistic, rows, estimate, se))
    return pd.DataFrame(
        found, columns=["design", "program", "statistic", "rows", "estimate", "se"]
    )


def _largest(mine: pd.DataFrame, theirs: pd.DataFrame) -> tuple[float, float, int]:
    """Of estimates and of standard errors, and how many rows have both."""
    told = (mine["n"] > 1) & theirs["se"].notna() & mine["se"].notna()
    small = 1e-9 * mine["estimate"].abs()  # a calibrated total has none, but for rounding
    gap = (theirs["se"] - mine["se"]).abs() / np.maximum(mine["se"], small)
    gap = gap.where((theirs["se"] > small) | (mine["se"] > small), 0.0)
    estimate = (theirs["estimate"] / mine["estimate"] - 1.0).abs()
    return float(estimate[told].max()), float(gap[told].max()), int(told.sum())


def best(function: Callable[[], Any]) -> float:
    """Seconds of the fastest of some runs."""
    seconds = []
    for _ in range(REPEATS):
        start = time.perf_counter()
        function()
        seconds.append(time.perf_counter() - start)
    return min(seconds)


R_PROGRAM = """
suppressPackageStartupMessages(library(survey))
d <- read.csv(commandArgs(TRUE)[1], colClasses = c(a = "character", b = "character"))
d$one <- 1
s <- svydesign(ids = ~1, strata = ~stratum, weights = ~weight, data = d)
once <- function() {
  svytotal(~one, s); svymean(~y, s)
  for (by in list(~a, ~b, ~a + b)) { svyby(~one, by, s, svytotal); svyby(~y, by, s, svymean) }
}
cat(min(replicate(%d, system.time(once())[["elapsed"]])))
"""


def timings(interpreter: str) -> dict[str, Any]:
    """Seconds for counts and means of all rows with standard errors, over ours."""
    rng = np.random.default_rng(7)
    frame = pd.DataFrame({
        "a": rng.integers(0, LEVELS[0], SIZE).astype(str),
        "b": rng.integers(0, LEVELS[1], SIZE).astype(str),
        "stratum": rng.integers(0, STRATA, SIZE),
        "weight": rng.lognormal(3, 0.5, SIZE),
        "y": rng.lognormal(10, 0.5, SIZE),
        "one": 1.0,
    })  # fmt: skip
    statistics = {name: STATISTICS[name] for name in ("count", "mean")}
    case = {"strata": "stratum", "psu": None, "fpc": None, "by": ["a", "b"], "lonely_psu": "fail"}
    job = job_of(case, statistics)

    def once() -> None:
        levels = {name: sorted(frame[name].unique()) for name in ("a", "b")}
        domains = build_domains(frame, ["a", "b"], levels)
        design = SampleDesign(frame["stratum"].to_numpy())
        for statistic in statistics:
            estimate_domains(
                domains, design, weight=frame["weight"].to_numpy(),
                outcome=frame["y"].to_numpy(), statistic=statistic, linearisation="plain",
            )  # fmt: skip

    with tempfile.TemporaryDirectory() as folder:
        data = Path(folder) / "records.csv"
        frame.drop(columns="one").to_csv(data, index=False)
        unit = best(once)
        runs = from_svy(interpreter, data, [job] * REPEATS)["results"]
        svy = min(each["seconds"] for each in runs)
        program = Path(folder) / "time.R"
        program.write_text(R_PROGRAM % REPEATS, encoding="utf-8")
        r = float(subprocess.check_output(["Rscript", str(program), str(data)], text=True))
        samplics = best(lambda: from_samplics(frame, job))
    seconds = {"R survey": r, "svy": svy, "samplics": samplics}
    return {
        "records": SIZE,
        "rows": (LEVELS[0] + 1) * (LEVELS[1] + 1),
        "ours_seconds": round(unit, 4),
        "ratios": {name: round(value / unit, 1) for name, value in seconds.items()},
    }


def main() -> None:
    """Writes the results."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--svy", default=sys.executable, help="a Python interpreter that has svy")
    interpreter = parser.parse_args().svy
    job = job_of(cases()[0])
    content = {
        "date": datetime.now(UTC).date().isoformat(),
        "versions": {
            "svy": from_svy(interpreter, RECORDS, [job])["version"],
            **{name: version(name) for name in ("samplics", "surveysynth", "numpy", "pandas")},
        },
        "cases": compare(interpreter),
        "timings": timings(interpreter),
    }
    RESULTS.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
