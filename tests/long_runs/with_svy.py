"""What svy makes of the records in ``golden/taylor_survey.csv``; ``other_programs`` runs this file
in an interpreter that has it. Reads jobs as JSON from standard input, writes results to standard
output; imports nothing of surveysynth, so that any environment with svy will do.
"""

import json
import sys
import time
from typing import Any

import polars as pl
import svy


def design(job: dict[str, Any], frame: pl.DataFrame) -> Any:
    """The sample of a job: weights, strata, PSUs, population sizes of the strata."""
    size = None
    if job["fpc"]:
        keys = [job["strata"]] if job["strata"] else []
        units = pl.col(job["psu"]).n_unique() if job["psu"] else pl.len()
        sizes = (units.over(keys) if keys else units) / pl.col(job["fpc"])
        frame, size = frame.with_columns(size=sizes), "size"
    single = svy.Singleton(svy.SingletonMethod(job["singleton"])) if job["singleton"] else None
    chosen = svy.Design(
        stratum=job["strata"], psu=job["psu"], wgt="weight", pop_size=size, singleton=single
    )
    return svy.Sample(frame, chosen)


def estimates(job: dict[str, Any], frame: pl.DataFrame) -> dict[str, Any]:
    """Estimates and standard errors of the rows that svy gives, keyed by the levels of a row."""
    sample = design(job, frame)
    found: dict[str, Any] = {}
    for statistic, (what, column) in job["statistics"].items():
        rows = found.setdefault(statistic, {})
        for by in job["margins"]:
            made = getattr(sample.estimation, what)(column, by=by or None)
            for row in made.to_polars().iter_rows(named=True):
                key = "|".join(str(row[name]) if name in by else "All" for name in job["by"])
                rows[key] = [float(row["est"]), float(row["se"])]
    return found


def main() -> None:
    """Jobs from standard input; a job that svy refuses has the name of its error."""
    given = json.load(sys.stdin)
    frame = pl.read_csv(given["data"]).with_columns(one=pl.lit(1.0))
    results = []
    for job in given["jobs"]:
        start = time.perf_counter()
        try:
            found = estimates(job, frame)
        except Exception as error:  # whatever it is: that it does not work is the result
            found = {"refused": type(error).__name__}
        results.append({"found": found, "seconds": time.perf_counter() - start})
    json.dump({"version": svy.__version__, "results": results}, sys.stdout, allow_nan=True)


if __name__ == "__main__":
    main()
