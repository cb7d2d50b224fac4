"""How powers fit, on the confidential page of a comparison."""

from html import escape
from typing import TYPE_CHECKING

from surveysynth._support.page import bullets, scrolled
from surveysynth.evaluation.compare.power_fit import LEAST_IN_CELL
from surveysynth.release.tables.labels import Labels
from surveysynth.release.tables.rounding import show_ratio, to_digits

if TYPE_CHECKING:
    import pandas as pd

WARNING = (
    "Choosing a power by these numbers is a look at the data, which epsilon does not cover. Take "
    "it from an earlier year or from another survey."
)
_RATIOS = ("skewness", "kurtosis", "median", "largest", "median_by_cell", "largest_by_cell")
_LOG_LIK = to_digits(3)
_HEAD = (
    "<tr><th>Transform</th><th>Log-likelihood</th><th>Skewness</th><th>Kurtosis</th>"
    "<th>Median, one spread</th><th>Largest</th><th>Median, by cell</th><th>Largest</th></tr>"
)


def power_section(powers: "pd.DataFrame", labels: Labels) -> str:
    """A table for each amount, the declared transform in bold; nothing where there is none."""
    if powers.empty:
        return ""
    parts = [f"<h2>How a public power would fit</h2><p><strong>{escape(WARNING)}</strong></p>"]
    for (outcome, side), frame in powers.groupby(["outcome", "side"], sort=False):
        lines = []
        for row in frame.to_dict("records"):
            numbers = f"<td>{_LOG_LIK.show(row['log_lik'])}</td>" + "".join(
                f"<td>{show_ratio(row[name])}</td>" for name in _RATIOS
            )
            strong = ' class="strong"' if row["declared"] else ""
            words = f"{row['transform']}{' (declared)' if row['declared'] else ''}"
            lines.append(f"<tr{strong}><th>{escape(words)}</th>{numbers}</tr>")
        title = labels.titled_with_unit(str(outcome)) + (f", {side}" if side else "")
        parts.append(scrolled(title, [_HEAD], lines, "side"))
    notes = [
        "A regression of the transformed amounts on X, weighted by the survey weights; records at "
        "a spike are left out. Log-likelihood: of one record in the units of the outcome, on "
        "average: the larger the better. Skewness and excess kurtosis are of residuals: 0 for a "
        "normal distribution.",
        "Median and largest: over the rows of the tables, how far the mean that the normal "
        "distribution implies lies from the sample's, in standard errors of the sample; with one "
        f"residual spread, and with one for each cell of the tables that has {LEAST_IN_CELL} "
        "records or more. Where X has every cell, means under power 1 are right by themselves, "
        "whatever amounts look like within a cell: read likelihood and skewness first.",
    ]
    return "\n".join([*parts, bullets(notes)])
