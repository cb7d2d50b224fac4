"""How near releases lie to the sample: ``python -m tests.long_runs.sample_distances``.

Three real files, default models, what a statistician would declare. Releases with seeds by noisy
statistics at epsilon 3.6 and 10.8, and by the pseudo-posterior at 10.8. Each row of means and
medians is compared with the confidential sample's own estimate, in the sample's standard errors,
as ``confidential/adequacy.csv`` of every release has it.

``golden/sample_distances.json`` has the median and the largest distance of each release. A release
takes 10 to 60 processor seconds. ``--file`` and ``--method`` run parts and keep the other results.
The consumer survey is read from beside the checkout; the other files come with packages.
"""

import os

for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

import argparse  # noqa: E402
import json  # noqa: E402
import tempfile  # noqa: E402
import time  # noqa: E402
from collections.abc import Callable, Sequence  # noqa: E402
from dataclasses import dataclass  # noqa: E402
from importlib.util import find_spec  # noqa: E402
from pathlib import Path  # noqa: E402
from typing import Any  # noqa: E402

import numpy as np  # noqa: E402
import pandas as pd  # noqa: E402

import surveysynth as ss  # noqa: E402
from surveysynth.errors import RefusedError  # noqa: E402
from surveysynth.evaluation.studies.designs import stratified_pps_sample  # noqa: E402
from surveysynth.release.documents.privacy_file import library_versions  # noqa: E402

REAL = Path(__file__).parents[3] / "shared" / "data" / "ce2015q3.csv"
GOLDEN = Path(__file__).parents[1] / "golden" / "sample_distances.json"
SEED = 71
STATISTICS = ("mean", "median")


@dataclass(frozen=True)
class RealFile:
    """A file, in words; its records; its specification but for [privacy]."""

    words: str
    records: Callable[[], pd.DataFrame]
    specification: str


def consumers() -> pd.DataFrame:
    """Households of the US Consumer Expenditure Survey, with their weights."""
    found = pd.read_csv(REAL, dtype={"region": str, "sex": str})
    return found.dropna(subset="region")[["region", "sex", "income", "weight"]]


def nhanes() -> pd.DataFrame:
    """Participants of NHANES II with a measured zinc, with their weights."""
    module = find_spec("samplics")
    assert module is not None
    assert module.origin is not None
    raw = pd.read_csv(Path(module.origin).parent / "datasets" / "data" / "nhanes2.csv")
    return pd.DataFrame({
        "stratum": raw["stratid"], "area": raw["psuid"], "region": raw["region"].map(str),
        "race": raw["race"].map(str), "zinc": raw["zinc"], "weight": raw["finalwgt"],
    }).dropna()  # fmt: skip


def insured() -> pd.DataFrame:
    """A sample of the RAND Health Insurance Experiment, by size within levels of health.

    2,000 of its 20,190 person-years, in proportion to a size that rises with visits to a doctor.
    """
    import statsmodels.api as sm

    raw = sm.datasets.randhie.load_pandas().data
    health = np.select([raw["hlthg"] == 1, raw["hlthf"] + raw["hlthp"] > 0], ["good", "fair"])
    population = pd.DataFrame({
        "health": np.where(health == "0", "excellent", health),
        "plan": np.where(raw["idp"] == 1, "individual", "family"),
        "disease": raw["disea"], "size": 2.0 + raw["mdvis"],
    })  # fmt: skip
    rng = np.random.default_rng(SEED)
    drawn = stratified_pps_sample(population, strata="health", size="size", n=2000, rng=rng)
    return drawn[["health", "plan", "disease", "weight"]]


_CONSUMERS = """
[survey]
data = "survey.csv"
weight = "weight"
population_size = 129000000
[outcomes.income]
kind = "semicontinuous"
spikes = [0]
transform = "yeo_johnson"
scale = 10000
power = 0.4
centre = 45000
spread = 2.0
[tables]
by = ["region", "sex"]
"""
_NHANES = """
[survey]
data = "survey.csv"
weight = "weight"
strata = "stratum"
psu = "area"
population_size = 117000000
[synthesizer]
predictors = "stratum + race"
[outcomes.zinc]
transform = "log"
centre = 85
spread = 0.18
[tables]
by = ["region", "race"]
"""
_INSURED = """
[survey]
data = "survey.csv"
weight = "weight"
strata = "health"
population_size = 20190
[outcomes.disease]
transform = "yeo_johnson"
scale = 1
power = 0.5
centre = 10
spread = 2.0
[tables]
by = ["health", "plan"]
"""
FILES = {
    "consumers": RealFile("incomes of households, by region and sex", consumers, _CONSUMERS),
    "nhanes": RealFile("serum zinc, by region and race, in clusters", nhanes, _NHANES),
    "insured": RealFile("an index of disease, by health and plan", insured, _INSURED),
}
METHODS = {
    "noisy 3.6": 'mechanism = "noisy_statistics"\nepsilon = 3.6\n',
    "noisy 10.8": 'mechanism = "noisy_statistics"\nepsilon = 10.8\n',
    "pseudo-posterior 10.8": 'mechanism = "pseudo_posterior"\nepsilon = 10.8\n',
}


def released(file: str, method: str, seed: int) -> dict[str, Any]:
    """Distances of one release, or why it was refused."""
    text = FILES[file].specification.replace(
        "[tables]\n", f"[privacy]\n{METHODS[method]}[tables]\nstatistics = {list(STATISTICS)}\n"
    )
    if "[synthesizer]" not in text:
        text = f"[synthesizer]\nmodel = 'fbs'\n{text}"
    start = time.process_time()
    frame = FILES[file].records()
    found: dict[str, Any] = {"file": file, "method": method, "seed": seed, "records": len(frame)}
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        frame.to_csv(folder / "survey.csv", index=False)
        (folder / "spec.toml").write_text(text, encoding="utf-8")
        try:
            ss.release(folder / "spec.toml", folder / "out", seed=seed)
        except RefusedError as error:
            return found | {"refused": str(error)}
        rows = pd.read_csv(folder / "out" / "confidential" / "adequacy.csv")
    found["seconds"] = round(time.process_time() - start, 1)
    for statistic in STATISTICS:
        z = rows.loc[rows["statistic"] == statistic, "difference"].dropna().abs()
        found[statistic] = {
            "rows": len(z), "median": round(z.median(), 2), "largest": round(z.max(), 2)
        }
    return found


def table(releases: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Medians over releases: file, method, statistic, distance of the median and farthest row."""
    lines = [
        {"file": each["file"], "method": each["method"], "statistic": name, **each[name]}
        for each in releases if "refused" not in each for name in STATISTICS
    ]  # fmt: skip
    by = ["file", "statistic", "method"]
    return pd.DataFrame(lines).groupby(by, sort=False)[["median", "largest"]].median().round(2)


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", action="append", choices=list(FILES), default=[])
    parser.add_argument("--method", action="append", choices=list(METHODS), default=[])
    parser.add_argument("--releases", type=int, default=3)
    parser.add_argument("--out", type=Path, default=GOLDEN)
    given = parser.parse_args(arguments)
    for file in given.file or FILES:
        for method in given.method or METHODS:
            kept = []
            if given.out.exists():
                kept = json.loads(given.out.read_text(encoding="utf-8"))["releases"]
            kept = [each for each in kept if (each["file"], each["method"]) != (file, method)]
            for seed in range(given.releases):
                kept.append(released(file, method, SEED + seed))
                print(kept[-1], flush=True)
            content = {"versions": library_versions(), "releases": kept}
            given.out.write_text(json.dumps(content, indent=1) + "\n", encoding="utf-8")
    print(table(kept).to_string())


if __name__ == "__main__":
    main()
