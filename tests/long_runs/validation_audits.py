"""Audits in ``vignettes/validation.md``; a part of
``python -m tests.long_runs.validation_page``."""

import pandas as pd

from surveysynth.evaluation.audit.cases import EXAMPLES
from tests.long_runs.audit_page import decided, replaced
from tests.long_runs.validation_page import filled, frame, golden, markdown


def audits() -> str:
    """One record replaced, and attacks."""
    table = frame("audit_replacements")
    facts = golden("audit")
    rows = []
    for mechanism, part in table.groupby("mechanism", sort=False):
        largest = part.groupby("case")["ratio"].max()
        tried, refused = replaced(part), decided(part)
        rows.append((
            str(mechanism).replace("_", " "), f"{part['case'].nunique()}",
            f"{len(tried) - len(refused):,}", f"{len(refused)}",
            f"{int((largest <= 1.0).sum())}", f"{int((largest > 1.0).sum())}",
            f"{int(part.groupby('case')['ratio'].count().eq(0).sum())}",
        ))  # fmt: skip
    attacks = [
        (
            row["mechanism"].replace("_", " ") or "none", row["control"] or "as released",
            f"{row['runs']:,}", f"{row['stated']:g}", f"{row['proven']:.2f}",
            f"{row['most_provable']:.2f}",
        )
        for row in facts["attacks"]
    ]  # fmt: skip
    return f"""\
## Does one record move more than is stated?

{filled(
    '''A record of a simulated survey is replaced (typical, in the smallest cell or stratum, of
    highest leverage), and what that moves is divided by what is stated. Noisy statistics: exact
    sums, whose bound is proved and should be reached and not passed; of all pairs of changes
    (outcomes 2, 4 and 8 standard deviations off, weights times and over 50) the worst.
    Pseudo-posterior: the whole search on either side. All changes were tried for FBS with 1,000
    records alone; elsewhere four (outcomes 2 SDs up, weights times 50, weights over 50, outcomes
    8 SDs down with weights times 50; two where weights are public), and where there are several
    amounts, or categories and spikes, one more (8 SDs off in turns, another category).''',
    '''Three settings (`poisson`, `negative_binomial`; `fbp`, amounts with zeros) were fitted with
    the chains of a release, all others with 8 of 100 draws (of 200 with effects of primary sampling
    units): what extremes over so few draws add is part of the ratios.''',
)}

{markdown(("mechanism", "settings", "replacements measured",
           "refused with the record replaced", "settings within the bound", "beyond it",
           "refused at every size"), rows)}

{filled(_beyond(table), _unmeasured(table))}

{filled('''An attacker who knows all other records guesses which of two databases was used, over
    many
    runs; what is proven of epsilon from the guesses may not pass what is stated, and has to where
    protection is taken away.''')}

{markdown(("mechanism", "protection", "runs a side", "stated epsilon", "proven",
           "provable at most"), attacks)}

{filled('''These attacks are on small surveys at a small epsilon: they would find a mechanism that
    is
    grossly wrong, not one that is a little worse than stated. More on [audits](audit.md).''')}"""


def beyond(table: pd.DataFrame) -> "pd.Series[float]":
    """Settings in which one record moved more than is stated, with their largest ratio."""
    largest = table.groupby("case", sort=False)["ratio"].max()
    return largest[largest > 1.0]


def _beyond(table: pd.DataFrame) -> str:
    found = beyond(table)
    if found.empty:
        return "In no setting that was measured did one record move more than is stated."
    named = ", ".join(f"{case} ({ratio:.3g} times)" for case, ratio in found.items())
    return (
        f"Beyond the stated bound: {named}. These are failures of what is stated, not of the test; "
        "the page on audits says why. Noisy statistics have no weights that could do so."
    )


def _unmeasured(table: pd.DataFrame) -> str:
    """What no ratio shows: releases that one record decided on, and settings without a line."""
    lines = decided(table)
    sentences = [
        f"With {len(part)} replacements of {case} at {n:,} records "
        f"({'; '.join(part['change'].unique())}) the release was refused with the record replaced "
        "and made without: there one record decided whether a release exists, which is no ratio "
        "and not covered by epsilon."
        for (case, n), part in lines.groupby(["case", "n"], sort=False)
    ]
    absent = [each.name for each in EXAMPLES if each.name not in set(table["case"])]
    if absent:
        sentences.append(f"Not run: {', '.join(f'`{name}`' for name in absent)}.")
    return " ".join(sentences)
