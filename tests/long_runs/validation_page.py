"""``vignettes/technical/validation.md``, made of committed results:
``python -m tests.long_runs.validation_page``.

Every number on the page comes from ``tests/golden`` and ``tests/benchmarks``, or from comparing
ours with another program's results there. Run this command after making one of these again;
``tests/test_validation_page.py`` compares the page with them.
"""

import json
import textwrap
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from scipy.stats import binom

from tests.long_runs import other_programs, published_tables

ROOT = Path(__file__).parents[2]
GOLDEN = ROOT / "tests" / "golden"
PAGE = ROOT / "vignettes" / "technical" / "validation.md"
#: Relative differences below this are those of rounding.
ROUNDING = 1e-9
#: Coverage by fewer samples is not shown.
FEWEST = 40
SBC = {
    "sbc": "full data, alpha = 1 (`sbc`)",
    "location_sbc": "noisy statistics (`location_sbc`)",
}
METHODS = {
    "sample": "confidential sample",
    "fbs": "FBS, pseudo-posterior",
    "fbp": "FBP, pseudo-posterior",
    "fbs_noisy": "FBS, noisy statistics",
    "fbp_noisy": "FBP, noisy statistics",
    "laplace": "Laplace noise, the papers' comparator",
}


def golden(name: str) -> Any:
    """A committed JSON result."""
    return json.loads((GOLDEN / f"{name}.json").read_text(encoding="utf-8"))


def frame(name: str) -> pd.DataFrame:
    """A committed table."""
    return pd.read_csv(GOLDEN / f"{name}.csv")


def markdown(head: Sequence[str], rows: Iterable[Sequence[str]]) -> str:
    """A table; numbers to the right of the first column."""
    lines = [head, ["---", *["---:"] * (len(head) - 1)], *rows]
    return "\n".join(f"| {' | '.join(row)} |" for row in lines)


def filled(*paragraphs: str) -> str:
    """Paragraphs in lines of the length of the other pages."""
    return "\n\n".join(
        textwrap.fill(" ".join(each.split()), 104, break_on_hyphens=False, break_long_words=False)
        for each in paragraphs
    )


def render() -> str:
    """The whole page."""
    from tests.long_runs.validation_audits import audits
    from tests.long_runs.validation_questions import questions
    from tests.long_runs.validation_statistics import contrasts, hard_survey, large_tables

    parts = [
        _HEAD,
        same_numbers(),
        tables_again(),
        calibration(),
        coverage(),
        contrasts(),
        hard_survey(),
        audits(),
        changes(),
        timings(),
        large_tables(),
        questions(),
    ]
    return "\n\n".join(part.strip("\n") for part in parts) + "\n"


_HEAD = "# Validation\n\n" + filled(
    """This page reports what was checked, against what, and with what result, including bad
    news. `python -m tests.long_runs.validation_page` computes every number from committed results
    (`tests/golden`)."""
)


def same_numbers() -> str:
    """Other programs on the same records."""
    found = other_programs.differences()
    content = golden("other_programs")
    r = golden("taylor_survey")
    rows = []
    for program, part in found.groupby("program", sort=False):
        designs = part.groupby("design")["se"].max()
        agree = designs[designs < ROUNDING]
        own = part[part["design"].isin(agree.index)]
        rows.append((
            str(program), f"{len(agree)} of {len(designs)}", f"{own['rows'].sum():,}",
            _shown(own["estimate"].max()), _shown(own["se"].max()),
        ))  # fmt: skip
    apart = found[found["se"] >= ROUNDING]
    versions = content["versions"]
    return f"""\
## The same numbers from other programs

{filled(
    f'''The table compares counts, totals, means, and proportions of all cells and margins, with
    Taylor standard errors, for {len(r['cases'])} designs of one survey of
    {len(other_programs.records()):,} records: with and without strata, PSUs, and finite
    populations, and with lonely PSUs under R's four rules. "Calibrated" is ratio linearization, the
    default here. Versions:
    {r['r'].split(' Patched')[0]}, survey {r['survey']}, svy {versions['svy']}, samplics
    {versions['samplics']}.'''
)}

{markdown(("program", "designs that agree", "rows", "largest relative difference of an estimate",
           "of a standard error"), rows)}

{filled(*_apart(apart), _further())}"""


def _shown(difference: float) -> str:
    return f"{difference:.0e}" if difference else "0"


def _apart(apart: pd.DataFrame) -> list[str]:
    """Where programs differ, named."""
    sentences = []
    for program, part in apart.groupby("program"):
        sentences.append(
            f"{program} gives different standard errors in designs with lonely PSUs, by up to "
            f"{part['se'].max():.0%}. Ours agree with R's."
        )
    content = golden("other_programs")["cases"]
    refused = [each["name"] for each in content if "refused" in each.get("svy", {})]
    if refused:
        sentences.append(f"svy refuses: {'; '.join(refused)}.")
    sentences.append(
        "samplics was compared only for designs without lonely PSUs or finite populations. Its "
        "bootstrap and its selection with replacement (`pps_wr`) are wrong and were not compared."
    )
    return sentences


def _further() -> str:
    names = {
        "replication_survey": "jackknife and bootstrap replicates",
        "shares_survey": "shares with intervals by `svyciprop`",
        "statistics_survey": "quantiles with Woodruff's intervals, ratios and contrasts",
        "public_weights": "R's `apistrat` with public weights",
    }
    counted = ", ".join(f"{words} ({_numbers(golden(name)):,})" for name, words in names.items())
    return (
        f"Tests also compare with R's survey, to 1e-8 or better: {counted}."
    )


def _numbers(value: Any) -> int:
    """How many numbers a JSON value holds."""
    if isinstance(value, dict):
        return sum(map(_numbers, value.values()))
    if isinstance(value, list):
        return sum(map(_numbers, value))
    return int(isinstance(value, int | float) and not isinstance(value, bool))


def tables_again() -> str:
    """Published tables, and the catalog."""
    table = published_tables.comparison()
    apart = published_tables.differences(table, "published").abs()
    ratio = table["published_ci_length"] / table["ci_length"]
    return f"""\
## Published tables

{filled(
    f'''With the settings of Hu, Savitsky, and Williams (2022), our intervals of {len(table)} cells
    are {ratio.min():.2f} to {ratio.max():.2f} times as long as theirs. Coverage differs by
    less than two Monte Carlo standard errors in {int((apart < 2).sum())} cells and by more than
    three in {int((apart > 3).sum())}. [Replication](replication.md) shows every cell. On every
    change of the code, `python -m tests.catalog` regenerates the four releases in `tables/` and
    compares every number.''',
)}"""


def calibration() -> str:
    """Simulation-based calibration of the samplers."""
    rows, every = [], []
    for name, words in SBC.items():
        cases = golden(name)["cases"]
        tests = sum(each["tests"] for each in cases.values())
        smallest = min(each["smallest_p"] for each in cases.values())
        wrong = [p for each in cases.values() for p in _wrong(each)]
        replications = [each["settings"]["replications"] for each in cases.values()]
        every.append((tests, smallest))
        rows.append((
            words, f"{len(cases)}", _range(replications),
            f"{tests:,}", f"{smallest:.1e}", f"{len(wrong)}", _tiny(max(wrong)),
        ))  # fmt: skip
    tests, smallest = sum(each[0] for each in every), min(each[1] for each in every)
    expected = smallest * tests
    return f"""\
## Do the samplers draw from the posteriors?

{filled(
    '''In simulation-based calibration (Talts and others 2018), ranks of the true values are uniform
    if the sampler is right. Every parameter is tested twice (chi-square and Kolmogorov-Smirnov).
    Wrong samplers (a scale times 1.1, wrong distributions of noisy statistics) must be detected.'''
)}

{markdown(("samplers", "models and settings", "replications", "tests", "smallest p",
           "wrong samplers", "largest p of a wrong one"), rows)}

{filled(
    f'''Of {tests:,} tests the smallest p is {smallest:.1e}; uniform ranks would give one as
    small in {_chance(expected)} of such collections if tests were independent, which those of
    one posterior are not. These tests use fixed fractional weights, not the pseudo-posterior's
    own.'''
)}"""


def _range(numbers: list[int]) -> str:
    least, most = min(numbers), max(numbers)
    return f"{least:,}" if least == most else f"{least:,} to {most:,}"


def _tiny(p: float) -> str:
    """A p-value that may be zero as far as numbers go."""
    return f"{p:.0e}" if p > 1e-300 else "below 1e-300"


def _wrong(case: dict[str, Any]) -> list[float]:
    """p-values of the wrong samplers of a case."""
    found = [value for key, value in case.items()
             if key.startswith("smallest_p_of") and not isinstance(value, dict)]  # fmt: skip
    return found + list(case.get("smallest_p_of_wrong_laws", {}).values())


def _chance(expected: float) -> str:
    """1 - exp(-expected) in percent."""
    from math import exp

    return f"{1.0 - exp(-expected):.0%}"


def summaries() -> pd.DataFrame:
    """Coverage of releases: the default study, and the one of noisy statistics."""
    usual = frame("coverage_default_summary").assign(n=1000, setting="main effects")
    cells = frame("coverage_default_cells").groupby(["method", "statistic"])["rmse_ratio_mcse"]
    keys = zip(usual["method"], usual["statistic"], strict=True)
    usual["cell_rmse_ratio_mcse"] = [cells.median()[key] for key in keys]
    strict = frame("strict_study_summary")
    usual = usual[usual["method"].isin(["sample", "laplace", "fbs", "fbp"])]
    strict = strict[~strict["method"].isin(["sample", "fbs", "fbp"])]
    return pd.concat([usual, strict], ignore_index=True)


def coverage() -> str:
    """What intervals cover; by fewer than ``FEWEST`` samples nothing is shown."""
    table = summaries()
    table = table[(table["setting"] == "main effects") & (table["replicates"] >= FEWEST)]
    rows = []
    for (n, epsilon, method), part in table.groupby(["n", "epsilon", "method"], sort=False):
        by = part.set_index("statistic")
        cells = []
        for statistic in ("count", "mean"):
            row = by.loc[statistic]
            error = f" ({row['cell_rmse_ratio_mcse']:.2f})" if row["cell_rmse_ratio_mcse"] else ""
            cells += [
                f"{row['coverage']:.2f} ({row['coverage_min']:.2f})",
                f"{row['rmse_ratio']:.2f}{error}", f"{row['length_ratio']:.2f}",
            ]  # fmt: skip
        shown = "" if epsilon == float("inf") else f"{epsilon:g}"
        samples = f"{by['replicates'].max():.0f}"
        rows.append((METHODS[str(method)], f"{n:,}", shown, *cells, samples))
    rows.sort(key=lambda row: int(row[1].replace(",", "")))
    return f"""\
## Do intervals cover?

{filled(
    f'''Samples are drawn from the papers' [simulation](methods.md#7-simulation-design) and fitted
    with main effects, which the population does not follow exactly. There are 27 cells and margins;
    delta is 1e-6; draws are m = 3 with 6 datasets each (pseudo-posterior) or m = 20 with 10. All
    cells have a center of 100,000 and a spread of 0.42 on the log scale. The table shows the
    coverage of nominal 95% intervals, on average and in the worst cell (in parentheses). Root mean
    squared error (RMSE, with its Monte Carlo standard error) and length are those of the median
    cell, relative to the confidential sample's. Results from fewer than {FEWEST} samples are not
    shown.'''
)}

{markdown(("method", "records", "epsilon", "counts: coverage", "RMSE", "length",
           "means: coverage", "RMSE", "length", "samples"), rows)}

{filled(
    f'''Mean coverage has a Monte Carlo standard error of at most
    {table['coverage_mcse'].max():.2f}; that of a cell is 0.02 with 100 samples and 0.035 with 40.
    If all 27 cells have the right coverage, the worst shows about {lucky(300):.2f} with 300
    samples, {lucky(100):.2f} with 100, and {lucky(40):.2f} with 40.'''
)}"""


def lucky(samples: int, cells: int = 27) -> float:
    """Median of the smallest coverage of so many independent cells that are right."""
    shares = range(samples + 1)
    below = (1.0 - (1.0 - binom.cdf(each, samples, 0.95)) ** cells for each in shares)
    return next(each for each, p in zip(shares, below, strict=True) if p >= 0.5) / samples


def changes() -> str:
    """Tests that test the tests."""
    mutation, kills = golden("mutation"), golden("kill_fits")
    files = {each["file"] for each in mutation["results"]}
    survivors = mutation["mutations"] - mutation["killed"]
    published = sum(bool(each["published"]) for each in kills["each"])
    return f"""\
## Would the tests notice?

{filled(
    f'''{mutation['mutations']} deliberate mistakes were put into {len(files)} files of the
    package, one at a time, mostly in code that privacy and variances depend on. The tests find
    {mutation['killed']}, {mutation['killed_by_an_independent_truth']} of them by comparing with
    something that does not share the code; {survivors or 'none'}
    survive{'s' if survivors == 1 else ''}.''',
    f'''Of {kills['runs']} releases that were killed during a fit, {published or 'none'} left a
    published file.''',
)}"""


def timings() -> str:
    """Ratios of one sitting."""
    found = golden("other_programs")["timings"]
    ratios = ", ".join(f"{name} {value:g}" for name, value in found["ratios"].items())
    return f"""\
## Timings

{filled(
    f'''Counts and means with standard errors for {found['rows']} rows of {found['records']:,}
    records took, as multiples of our time in one session: {ratios}.
    [Both mechanisms](two_mechanisms.md#time-and-memory) has the times of whole releases.'''
)}"""


def main() -> None:
    """Writes the page."""
    PAGE.write_text(render(), encoding="utf-8")


if __name__ == "__main__":
    main()
