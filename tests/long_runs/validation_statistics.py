"""Parts of the validation page on statistics beside counts and means, on a survey made hard, and on
large tables."""

import pandas as pd

from tests.long_runs.validation_page import GOLDEN, filled, golden, markdown

_PARTS = {
    "strict": "noisy statistics, main effects",
    "strict_interactions": "noisy statistics, interactions",
    "pseudo": "pseudo-posterior, main effects",
}


def contrasts() -> str:
    """Coverage of medians, quantiles, contrasts and shares of rows."""
    table = pd.read_csv(GOLDEN / "statistics_study.csv")
    own = table[table["method"] != "sample"]
    rows = []
    for statistic, part in own.groupby("statistic", sort=False):
        of_part = part.set_index("part")
        cells = [
            f"{row.coverage:.2f} ({row.coverage_min:.2f}), {row.rmse_ratio:.2f}, "
            f"{row.length_ratio:.2f}"
            for row in of_part.loc[list(_PARTS)].itertuples()
        ]
        rows.append((f"`{statistic}`", *cells))
    samples = own.groupby("part")["replicates"].max()
    head = [f"{words} ({samples[part]:.0f} samples)" for part, words in _PARTS.items()]
    return f"""\
### Medians, quantiles, contrasts

{filled(
    '''For FBS with 1,000 records at epsilon 10.8, the table shows coverage (in parentheses that of
    the worst row), RMSE, and length. The misfit of main effects shows in differences, whose
    intervals are half as long as the sample's. Intervals of medians and quantiles do not assume the
    normal residuals of this population, so their coverage exceeds 0.95.'''
)}

{markdown(("statistic", *head), rows)}"""


def hard_survey() -> str:
    """How far rows lie from the sample."""
    rows = pd.read_csv(GOLDEN / "hard_survey.csv")
    few = rows["n"].min()
    rest = rows[rows["n"] > few]
    names = {"fbs": "FBS, pseudo-posterior", "fbp": "FBP, pseudo-posterior",
             "fbs_noisy": "FBS, noisy statistics"}  # fmt: skip
    lines = []
    for method, name in names.items():
        of_method = rows[rows["method"] == method].assign(distance=lambda each: each["z"].abs())
        median = of_method.groupby("release")["distance"].median()
        own = rest.loc[rest["method"] == method, "z"].abs()
        small = rows.loc[(rows["method"] == method) & (rows["n"] == few), "z"].abs()
        lines.append((name, f"{median.min():.2f} to {median.max():.2f}", f"{own.max():.1f}",
                      f"{small.max():.1f}"))  # fmt: skip
    return f"""\
### A survey made hard on purpose

{filled(
    f'''This survey has 12,000 records in 12 cells, one of which has {few}; residual SDs from 0.3 to
    0.9 by cell; a top code shared by 19% of the records; 0.5% zeros; and skewed weights that are
    related to the amount. The table shows how many of its standard errors counts and means lie from
    the confidential sample, in five default releases at epsilon 10.8. The pseudo-posterior pools
    and flags the smallest cell.'''
)}

{markdown(("", "median row", "worst row of the others", f"worst of the {few} records"), lines)}"""


def large_tables() -> str:
    """A sentence for the timings."""
    small, large = golden("large_tables")["sizes"]
    return filled(
        f"""Means by 26 x 26 x 10 levels with standard errors ({small["cells"]:,} cells of
        {small["records"]:,} records) took R's `svyby` {small["R survey"]["ratio"]:,.0f} times and
        svy {small["svy"]["ratio"]:,.0f} times as long as us; results agree to twelve digits. For
        {large["records"]:,} records, judging by {large["R survey"]["cells_made"]} cells, R takes
        {large["R survey"]["ratio"]:,.0f} times as long."""
    )
