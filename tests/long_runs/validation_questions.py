"""What a sceptical methodologist would ask of ``vignettes/validation.md``, answered with figures
of the committed results; a part of ``python -m tests.long_runs.validation_page``."""

import pandas as pd

from tests.long_runs.audit_page import decided
from tests.long_runs.validation_audits import beyond
from tests.long_runs.validation_page import filled, frame, golden, summaries


def questions() -> str:
    """Questions with their answers."""
    answers = {
        "Your population is simulated from your own model: of course they cover.": _own_model(),
        "Do they cover because they are long?": _length(),
        "Averages over cells hide the bad ones.": _worst(),
        "What does the protection cost, and would plain noise not do?": _noise(),
        "Why should I believe an asymptotic epsilon?": _asymptotic(),
        "And the strict one?": _strict(),
        "Small strata?": _strata(),
        "Clustered samples?": _clusters(),
        "What does debiasing do where the model is wrong?": _debiasing(),
        "Who checked this who did not write it?": (
            "Nobody outside. Its authors wrote code, tests and this page. What stands against "
            "that: "
            "truths that do not share the code (other programs, published figures, identities, "
            "simulations with known answers), tests that must reject wrong implementations, and "
            "results that anyone can make again by one command each. An audit of the noise and of "
            "the accounting by someone else would be worth more than further tests of ours.",
        ),
        "What is weakest?": _weakest(),
    }
    parts = [
        "## What would a sceptical methodologist ask?",
        *(f"**{question}**\n\n{filled(*texts)}" for question, texts in answers.items()),
    ]
    return "\n\n".join(parts)


def _row(method: str, statistic: str, *, n: int = 1000, epsilon: float, setting: str) -> pd.Series:
    table = summaries()
    chosen = table[
        (table["method"] == method) & (table["statistic"] == statistic) & (table["n"] == n)
        & (table["epsilon"] == epsilon) & (table["setting"] == setting)
    ]  # fmt: skip
    assert len(chosen) == 1, (method, statistic, n, epsilon, setting, len(chosen))
    return chosen.iloc[0]


def real_survey() -> pd.DataFrame:
    """Distances of the real survey's rows from the sample's estimates, in its standard errors: the
    median and the worst row by table, mechanism and statistic."""
    table = frame("kinds_study")
    table = table[table["method"].isin(["noisy_statistics", "pseudo_posterior"])]
    table = table.assign(far=table["rmse"].abs(), kind=table["statistic"].where(
        table["statistic"] == "count", "mean"))  # fmt: skip
    table = table[table["release"] != "all six"]  # by one of the mechanisms only
    grouped = table.groupby(["by", "method", "kind"])["far"]
    return grouped.agg(["median", "max"])


def _own_model() -> tuple[str, ...]:
    found = real_survey()
    facts = golden("kinds_study")
    told = "; ".join(
        f"by {by}: noisy statistics {_pair(found, by, 'noisy_statistics')}, pseudo-posterior "
        f"{_pair(found, by, 'pseudo_posterior')}"
        for by in found.index.unique("by")
    )
    return (
        "True of its shape: the population is log-normal, as the model. With main effects the "
        "model "
        "of cell means is wrong there, and at 10,355 records that shows (below).",
        f"On a real survey ({facts['n']:,} consumer units, six confidential variables with zeros, "
        "spikes and negative values) the truth is not known, and tables are held against the "
        "sample's own estimates. Distances in the sample's standard errors, root mean squares over "
        f"releases, in the median and in the worst row of means: {told}. Rows far off are where "
        f"the "
        "model of an amount misses, and under the pseudo-posterior where down-weighting bends "
        "tails; no interval says so ([outcomes](outcomes.md)).",
    )


def _pair(found: pd.DataFrame, by: str, method: str) -> str:
    row = found.loc[(by, method, "mean")]
    return f"{row['median']:.1f} and {row['max']:.1f}"


def _length() -> tuple[str, ...]:
    sentences = []
    for method, name, epsilon in (
        ("fbs_noisy", "noisy statistics", 10.8), ("fbs_noisy", "noisy statistics", 3.6),
        ("fbs", "the pseudo-posterior", 10.8),
    ):  # fmt: skip
        row = _row(method, "mean", epsilon=epsilon, setting="main effects")
        sentences.append(
            f"{name} at {epsilon:g} {row['length_ratio']:.2f} times as long as the sample's, with "
            f"an RMSE of {row['rmse_ratio']:.2f} times"
        )
    laplace = _row("laplace", "mean", epsilon=10.8, setting="main effects")
    return (
        f"Intervals of means (FBS, 1,000 records): {'; '.join(sentences)}. The papers' Laplace "
        f"comparator covers {laplace['coverage']:.2f} with intervals "
        f"{laplace['length_ratio']:,.0f} "
        "times as long: coverage alone says nothing. A model that borrows strength between cells "
        "can beat direct estimates, as far as cells are alike.",
    )


def _worst() -> tuple[str, ...]:
    table = summaries()
    model = table[table["method"].isin(["fbs", "fbp", "fbs_noisy", "fbp_noisy"])
                  & (table["setting"] != "two stages")]  # fmt: skip
    worst = model.loc[model["coverage_min"].idxmin()]
    own = _row("fbs_noisy", "mean", n=10_355, epsilon=worst["epsilon"], setting="default formula")
    return (
        f"They do. The worst cell of all is a {worst['statistic']} with {worst['n']:,} records, "
        f"epsilon {worst['epsilon']:g} and {worst['setting']}: it covers "
        f"{worst['coverage_min']:.2f}. Misfit of the main effects does not shrink with the number "
        "of records while intervals do. With the default formula, which has the interactions, the "
        f"worst cell of means covers {own['coverage_min']:.2f} there ({own['replicates']:.0f} "
        "samples). The reason for "
        "the default is in [methods 3](methods.md#31-the-model-matrix).",
    )


def _noise() -> tuple[str, ...]:
    rows = []
    for epsilon in (10.8, 3.6, 1.0):
        for n in (1000, 10_355):
            table = summaries()
            there = table[
                (table["n"] == n) & (table["epsilon"] == epsilon)
                & (table["setting"] == "main effects") & (table["statistic"] == "mean")
            ]  # fmt: skip
            by = there.set_index("method")["rmse_ratio"]
            if {"gaussian", "fbs_noisy"} <= set(by.index):
                rows.append(
                    f"epsilon {epsilon:g}, {n:,} records: {by['gaussian']:.2f} for noise on "
                    f"totals, "
                    f"{by['fbs_noisy']:.2f} for FBS by noisy statistics"
                )
    return (
        f"RMSE of means over the sample's: {'; '.join(rows)}. Where epsilon or the survey is large "
        "there is little between them, and noise on totals needs no model. Where both are small, "
        "the model is worth much. Direct estimates have their own bad cells: of means by noise on "
        f"totals the worst covers {_worst_of_totals():.2f}. Noise on totals gives no microdata.",
    )


def _worst_of_totals() -> float:
    table = summaries()
    totals = table[(table["method"] == "gaussian") & (table["statistic"] == "mean")]
    return float(totals["coverage_min"].min())


def _asymptotic() -> tuple[str, ...]:
    found = beyond(frame("audit_replacements"))
    passed = (
        f"replacing one record passed the bound in {len(found)} of the settings that were audited "
        f"({'; '.join(map(str, found.index))}); "
        if len(found)
        else ""
    )
    within = (
        ""
        if len(found)
        else "; and replacing one record passed the bound in none of the settings that were "
        "measured, which is no proof"
    )
    decisions = len(decided(frame("audit_replacements")))
    decides = (
        f"with {decisions} replacements the one record decided whether there was a release; "
        if decisions
        else ""
    )
    contraction = frame("contraction")
    survey = contraction[contraction["source"].str.startswith("survey")]
    spread = survey.groupby("n")["sd_ratio"].mean()
    contracts = ", ".join(f"{n:,} records {ratio:.2f}" for n, ratio in spread.items())
    return (
        "Not as a guarantee for your survey: it is not one, and every statement says so. What "
        "supports it: bounds found on one database hold over others as records grow (spread of the "
        f"bound over databases, relative to the smallest size: {contracts}){within}. What speaks "
        f"against it: {passed}{decides}the risk weights depend on the data and are "
        "treated as fixed; a refusal tells something. Where a guarantee is needed, take noisy "
        "statistics.",
    )


def _strict() -> tuple[str, ...]:
    table = frame("audit_replacements")
    noisy = table[table["mechanism"] == "noisy_statistics"]
    return (
        "Its proof is of the method ([strict 1](strict.md#1-what-is-released-under-noise)): "
        "sensitivity of clipped, rounded sums in whole numbers, the exact sampler of Canonne, "
        "Kamath and Steinke, the accounting of zCDP. The program is held to it by exact sums of "
        f"pairs of databases in {noisy['case'].nunique()} settings (largest ratio "
        f"{noisy['ratio'].max():.6f}, none above 1), by OpenDP's sampler and accounting, and by "
        "deliberate mistakes in its formulas. What it does not cover is in the statement: the "
        "public "
        "columns, timing, the choice of constants by looking.",
    )


def _strata() -> tuple[str, ...]:
    study = golden("strata_study")["strata"]
    told = ", ".join(
        f"{each['smallest_stratum']} records {each['largest_over_stated']:.3g}"
        for each in study
        if each["epsilon"] == 10.8 and each["n"] == 400 and each["random_numbers"] == "alike"
    )
    return (
        "Under the pseudo-posterior they are where it breaks: the largest ratio of what one record "
        f"moves to what is stated, at epsilon 10.8 and 400 records, by size of the smallest "
        f"stratum, without pooling: {told}. Levels with too few records are therefore pooled by a "
        "rule on public columns, or refused. Under noisy statistics they cost accuracy only.",
    )


def _clusters() -> tuple[str, ...]:
    table = frame("cluster_study")
    told = table[(table["statistic"] == "mean") & (table["rows"] == "overall")]
    values = told.set_index(["model", "effects", "epsilon"])["coverage"]
    with_, without = values[("fbs", "with", "1")], values[("fbs", "without", "1")]
    sample = table[(table["model"] == "sample") & (table["statistic"] == "mean")]["coverage"].min()
    two = frame("strict_study_summary").query("setting == 'two stages' and statistic == 'mean'")
    two = two.set_index("method")
    return (
        f"The overall mean of a two-stage sample covers {with_:.2f} with effects of PSUs in the "
        f"model and {without:.2f} without. The direct estimates that all is compared with are poor "
        f"themselves with few PSUs a stratum (as low as {sample:.2f}). By noisy statistics at "
        f"epsilon 10.8 means cover {two.loc['fbs_noisy', 'coverage']:.2f} where the sample's cover "
        f"{two.loc['sample', 'coverage']:.2f}, over {two.loc['fbs_noisy', 'replicates']:.0f} "
        "samples. Clusters as units of protection have no study of coverage of their own.",
    )


def _debiasing() -> tuple[str, ...]:
    cases = golden("debias_study")["cases"]
    moved = [
        (scale["before"]["mean"], scale["after"]["mean"])
        for case in cases.values()
        for scale in case["scales"].values()
    ]
    before = max((abs(value) for value, _ in moved))
    after = max((abs(value) for _, value in moved))
    return (
        "It undoes what down-weighting does to a model that holds: residual scales of count models "
        f"were off by up to {before:.2f} on the log scale and are off by {after:.3f} afterwards. "
        f"It "
        "cannot mend a model that does not hold: the distances on the real survey above are those "
        "of debiased releases.",
    )


def _weakest() -> tuple[str, ...]:
    found = real_survey().xs("mean", level="kind")["max"]
    strict = frame("strict_study_summary")
    few = int(strict[strict["setting"] != "main effects"]["replicates"].min())
    return (
        "In our judgement: the pseudo-posterior's guarantee at finite n, and its bias on real "
        f"amounts (a row of means {found.xs('pseudo_posterior', level='method').max():.0f} sample "
        "standard errors off); that intervals know nothing of misfit, under both mechanisms (up to "
        f"{found.xs('noisy_statistics', level='method').max():.1f} standard errors under noisy "
        f"statistics); coverage studies of one population, some of them with {few} samples only; "
        "one real survey; no check by outsiders; attacks on small surveys only; and no study of "
        "how "
        "people choose centres and spreads, on which noisy statistics rest.",
    )
