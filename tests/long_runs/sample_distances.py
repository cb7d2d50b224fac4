"""How near releases lie to the sample: ``python -m tests.long_runs.sample_distances``.

Three real files, default models, what a statistician would declare. Releases with seeds by noisy
statistics at epsilon 3.6 and 10.8, and by the pseudo-posterior at 10.8. Each row of means and
medians is compared with the confidential sample's own estimate, in the sample's standard errors,
from ``adequacy.csv``.

``golden/sample_distances.json`` has the median and the largest distance of each release, and the
tables of the ``vignettes/technical/two_mechanisms.md`` are made of it; ``--pages`` writes these
alone. A release takes 10 to 60 processor seconds. ``--file`` and ``--method`` run parts and keep
the other results. The consumer survey is read from beside the checkout, NHANES II comes with
samplics, and earnings come with a package that ``pip`` downloads.
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
from surveysynth.evaluation.studies.population import Population, SamplingDesign  # noqa: E402
from surveysynth.release.files import library_versions  # noqa: E402
from tests.long_runs.real_populations.frames import FRAMES  # noqa: E402

REAL = Path(__file__).parents[3] / "shared" / "data" / "ce2015q3.csv"
#: Where downloaded files are kept.
RAW = Path(tempfile.gettempdir()) / "real_populations"
GOLDEN = Path(__file__).parents[1] / "golden" / "sample_distances.json"
SEED = 71
STATISTICS = ("mean", "median")


@dataclass(frozen=True)
class RealFile:
    """A file and its outcome in words; its records; its specification but for [privacy]."""

    words: str
    outcome: str
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
        "region": raw["region"].map(str), "race": raw["race"].map(str), "zinc": raw["zinc"],
        "weight": raw["finalwgt"],
    }).dropna()  # fmt: skip


def earnings() -> pd.DataFrame:
    """2,000 of 61,395 workers of the US Current Population Survey, drawn by age in regions."""
    RAW.mkdir(exist_ok=True)
    population = Population(FRAMES["earnings"].made(RAW), ("earnings",), (), "region", "size")
    drawn = SamplingDesign(n=2000).draw(population, np.random.default_rng(SEED))
    return drawn[["region", "sex", "earnings", "weight"]]


_CONSUMERS = """
[survey]
data = "survey.csv"
weight = "weight"
population_size = 129000000
[outcomes.income]
kind = "semicontinuous"
spikes = [0]
transform = { kind = "yeo_johnson", scale = 10000, power = 0.4 }
center = 45000
spread = 2.0
[tables]
by = ["region", "sex"]
"""
_NHANES = """
[survey]
data = "survey.csv"
weight = "weight"
population_size = 117000000
[outcomes.zinc]
transform = "log"
center = 85
spread = 0.18
[tables]
by = ["region", "race"]
"""
_EARNINGS = """
[survey]
data = "survey.csv"
weight = "weight"
strata = "region"
population_size = 61395
[outcomes.earnings]
transform = "log"
center = 16
spread = 0.6
[tables]
by = ["region", "sex"]
"""
FILES = {
    "consumers": RealFile("Consumer Expenditure Survey", "income", consumers, _CONSUMERS),
    "nhanes": RealFile("NHANES II", "serum zinc", nhanes, _NHANES),
    "earnings": RealFile("Current Population Survey", "hourly earnings", earnings, _EARNINGS),
}
METHODS = {
    "noisy 3.6": 'mechanism = "noisy_statistics"\nepsilon = 3.6\n',
    "noisy 10.8": 'mechanism = "noisy_statistics"\nepsilon = 10.8\n',
    "pseudo-posterior 10.8": 'mechanism = "pseudo_posterior"\nepsilon = 10.8\n',
}


METHOD_WORDS = {
    "noisy 3.6": "noisy statistics, 3.6",
    "noisy 10.8": "noisy statistics, 10.8",
    "pseudo-posterior 10.8": "pseudo-posterior, 10.8",
}
ROOT = Path(__file__).parents[2]
#: Pages with a table, and the methods that it shows.
PAGES = {
    ROOT / "vignettes" / "technical" / "two_mechanisms.md": tuple(METHODS),
}
BEGIN, END = "<!-- by tests/long_runs/sample_distances.py -->", "<!-- end of distances -->"


def released(file: str, method: str, seed: int) -> dict[str, Any]:
    """Distances of one release, or why it was refused."""
    text = FILES[file].specification.replace(
        "[tables]\n", f"[privacy]\n{METHODS[method]}[tables]\nstatistics = {list(STATISTICS)}\n"
    )
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
            ss.adequacy(folder / "out")
        except RefusedError as error:
            return found | {"refused": str(error)}
        rows = pd.read_csv(folder / "out" / "confidential" / "adequacy.csv")
    found["seconds"] = round(time.process_time() - start, 1)
    for statistic in STATISTICS:
        own = rows[(rows["statistic"] == statistic) & rows["difference"].notna()]
        z = ((own["published"] - own["sample"]) / own["sample_se"]).abs()
        found[statistic] = {
            "rows": len(z), "median": round(float(z.median()), 2),
            "largest": round(float(z.max()), 2),
        }
    return found


def table(releases: Sequence[dict[str, Any]]) -> pd.DataFrame:
    """Means over releases: file, statistic, method, distance of the median and farthest row."""
    lines = [
        {"file": each["file"], "method": each["method"], "statistic": name, **each[name]}
        for each in releases if "refused" not in each for name in STATISTICS
    ]  # fmt: skip
    by = ["file", "statistic", "method"]
    return pd.DataFrame(lines).groupby(by, sort=False)[["median", "largest"]].mean()


def page_lines(releases: Sequence[dict[str, Any]], methods: Sequence[str]) -> list[str]:
    """Return the table of these methods as Markdown, with a sentence on which is nearer."""
    found, far = (
        table(releases)[key].unstack().reindex(columns=list(METHODS))
        for key in ("median", "largest")
    )
    records = {each["file"]: each["records"] for each in releases}
    lines = [
        f"| real file | records | of | {' | '.join(METHOD_WORDS[each] for each in methods)} |",
        "|---|---|---|" + "---|" * len(methods),
    ]
    for file, each in FILES.items():
        for name in STATISTICS:
            at = (file, name)
            cells = [
                "refused" if np.isnan(found.loc[at, m]) else
                f"{found.loc[at, m]:.1f}, {far.loc[at, m]:.1f}" for m in methods
            ]  # fmt: skip
            lines.append(
                f"| {each.words}: {each.outcome} | {records[file]:,} | {name}s | "
                f"{' | '.join(cells)} |"
            )
    return [
        *lines, "",
        "Median rows of noisy statistics are closer to the sample than those of the "
        "pseudo-posterior at 10.8:",
        *(f"at {method.removeprefix('noisy ')}, {_nearer(found, method)}{end}"
          for method, end in (("noisy 3.6", ";"), ("noisy 10.8", "."))),
    ]  # fmt: skip


def _nearer(found: pd.DataFrame, method: str) -> str:
    """Count the files on which a method's median row is nearer than the pseudo-posterior's."""
    counted = []
    for name in STATISTICS:
        rows = found.xs(name, level="statistic")
        nearer = int((rows[method] < rows["pseudo-posterior 10.8"]).sum())
        counted.append(f"for {name}s on {nearer} of {len(rows)} files")
    return " and ".join(counted)


def with_table(text: str, lines: Sequence[str]) -> str:
    """Return a page with the table between its two marks replaced."""
    before, begin, rest = text.partition(BEGIN)
    _, end, after = rest.partition(END)
    assert begin
    assert end
    return f"{before}{begin}\n\n{chr(10).join(lines)}\n\n{end}{after}"


def write_pages(releases: Sequence[dict[str, Any]]) -> None:
    """Write the tables of the pages."""
    for path, methods in PAGES.items():
        text = path.read_text(encoding="utf-8")
        path.write_text(with_table(text, page_lines(releases, methods)), encoding="utf-8")


def main(arguments: Sequence[str] | None = None) -> None:
    """Command line."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--file", action="append", choices=list(FILES), default=[])
    parser.add_argument("--method", action="append", choices=list(METHODS), default=[])
    parser.add_argument("--releases", type=int, default=3)
    parser.add_argument("--out", type=Path, default=GOLDEN)
    parser.add_argument("--pages", action="store_true", help="write the tables of the pages alone")
    given = parser.parse_args(arguments)
    for file in () if given.pages else given.file or FILES:
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
    releases = json.loads(given.out.read_text(encoding="utf-8"))["releases"]
    print(table(releases).round(2).to_string())
    if given.out == GOLDEN:
        write_pages(releases)


if __name__ == "__main__":
    main()
