"""What a skeptical methodologist would ask of ``vignettes/technical/validation.md``, with figures
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
        "What does the protection cost?": _noise(),
        "Why should I believe an asymptotic epsilon?": _asymptotic(),
        "And the strict one?": _strict(),
        "Small strata?": _strata(),
        "Clustered samples?": _clusters(),
        "What does debiasing do where the model is wrong?": _debiasing(),
        "Who checked this besides its authors?": (
            "Nobody. Its authors wrote the code, the tests, and this page. Against that stand "
            "truths that do not share the code (other programs, published figures, identities, "
            "simulations with known answers), tests that must reject wrong implementations, and "
            "results that anyone can reproduce with one command each. An audit of the noise and of "
            "the accounting by someone else would be worth more than further tests of ours.",
        ),
        "What is weakest?": _weakest(),
    }
    parts = [
        "## What would a skeptical methodologist ask?",
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
        "The shape is the same: the population is log-normal, as is the model. A model of main "
        "effects is wrong about the cell means there, and at 10,355 records this shows (below).",
        f"On a real survey ({facts['n']:,} consumer units, six confidential variables with zeros, "
        "spikes, and negative values) the truth is not known, so tables are compared with the "
        "sample's own estimates. The distances of means, in the sample's standard errors (root "
        f"mean squares over releases), are in the median and in the worst row: {told}. Rows are "
        "far off where the model of an amount does not fit, and under the pseudo-posterior where "
        "down-weighting distorts tails. No interval shows this "
        "([studies](studies.md#kinds-of-outcome)).",
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
            f"{name} at {epsilon:g}, {row['length_ratio']:.2f} times as long as the sample's, with "
            f"an RMSE of {row['rmse_ratio']:.2f} times"
        )
    laplace = _row("laplace", "mean", epsilon=10.8, setting="main effects")
    return (
        f"Compare intervals of means (FBS, 1,000 records): {'; '.join(sentences)}. The papers' "
        f"Laplace comparator covers {laplace['coverage']:.2f} with intervals "
        f"{laplace['length_ratio']:,.0f} times as long: coverage alone says nothing. A model that "
        "borrows strength between cells can beat direct estimates, to the extent that cells are "
        "alike.",
    )


def _worst() -> tuple[str, ...]:
    table = summaries()
    model = table[table["method"].isin(["fbs", "fbp", "fbs_noisy", "fbp_noisy"])
                  & (table["setting"] != "two stages")]  # fmt: skip
    worst = model.loc[model["coverage_min"].idxmin()]
    own = _row("fbs_noisy", "mean", n=10_355, epsilon=worst["epsilon"], setting="default formula")
    return (
        f"They do. The worst cell of all is a {worst['statistic']} with {worst['n']:,} records, "
        f"epsilon {worst['epsilon']:g}, and {worst['setting']}: it covers "
        f"{worst['coverage_min']:.2f}. The misfit of main effects does not shrink with the number "
        "of records, but intervals do. With the default formula, which has the interactions, the "
        f"worst cell of means covers {own['coverage_min']:.2f} there ({own['replicates']:.0f} "
        "samples). [Methods 3](methods.md#31-the-model-matrix) gives the reason for the default.",
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
            rows.append(f"epsilon {epsilon:g}, {n:,} records: {by['fbs_noisy']:.2f}")
    return (
        "RMSE of means over the sample's, FBS by noisy statistics, main effects: "
        f"{'; '.join(rows)}. Where epsilon or the survey is large, protection costs little; where "
        "both are small, noise outweighs the sample's own error.",
    )


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
        else "; and replacing one record passed the bound in none of the settings kept today, "
        "which is not a proof"
    )
    decisions = len(decided(frame("audit_replacements")))
    decides = (
        f"in {decisions} replacements one record decided whether there was a release; "
        if decisions
        else ""
    )
    contraction = frame("contraction")
    survey = contraction[contraction["source"].str.startswith("survey")]
    spread = survey.groupby("n")["sd_ratio"].mean()
    contracts = ", ".join(f"{n:,} records {ratio:.2f}" for n, ratio in spread.items())
    return (
        "Do not believe it as a guarantee for your survey: it is not one, and every statement says "
        "so. What supports it: bounds found on one database hold for others as records grow "
        "(spread of the bound over databases, relative to the smallest size: "
        f"{contracts}){within}. What speaks against it: {passed}{decides}the risk weights depend "
        "on the data and are treated as fixed; a refusal reveals something. If you need a "
        "guarantee, use noisy statistics.",
    )


def _strict() -> tuple[str, ...]:
    table = frame("audit_replacements")
    noisy = table[table["mechanism"] == "noisy_statistics"]
    return (
        "Its proof is of the method ([strict 1](strict.md#1-what-is-released-under-noise)): the "
        "sensitivity of clipped, rounded sums in whole numbers, the exact sampler of Canonne, "
        "Kamath and Steinke, and the accounting of zCDP. The program is checked by exact sums of "
        f"pairs of databases in {noisy['case'].nunique()} settings (largest ratio "
        f"{noisy['ratio'].max():.6f}, none above 1), by exact probabilities of the noise, and by "
        "deliberate mistakes in its formulas. The statement lists what it does not cover: the "
        "public columns, timing, and constants chosen by looking at the data.",
    )


def _strata() -> tuple[str, ...]:
    study = golden("strata_study")["strata"]
    told = ", ".join(
        f"{each['smallest_stratum']} records {each['largest_over_stated']:.3g}"
        for each in study
        if each["epsilon"] == 10.8 and each["n"] == 400 and each["random_numbers"] == "alike"
    )
    return (
        "They are where the pseudo-posterior fails. Without pooling, the largest ratio of the "
        "effect of one record to the stated bound, at epsilon 10.8 and 400 records, by size of the "
        f"smallest stratum, is: {told}. Levels with too few records are therefore pooled by a rule "
        "on public columns, or refused. Under noisy statistics they only cost accuracy.",
    )


def _clusters() -> tuple[str, ...]:
    two = frame("strict_study_summary").query("setting == 'two stages' and statistic == 'mean'")
    two = two.set_index("method")
    return (
        "They are released by noisy statistics, whose model has effects of PSUs. At epsilon 10.8 "
        f"means cover {two.loc['fbs_noisy', 'coverage']:.2f} where the sample's cover "
        f"{two.loc['sample', 'coverage']:.2f}, over {two.loc['fbs_noisy', 'replicates']:.0f} "
        "samples. There is no study of coverage with clusters as units of protection.",
    )


def _debiasing() -> tuple[str, ...]:
    cases = golden("debias_study")["cases"].values()

    def off(when: str, *, scales: bool) -> float:
        """Return the largest mean error, of log scales or of coefficients."""
        return max(
            abs(shift[when]["mean"])
            for case in cases
            for name, shift in case["shifts"].items()
            if name.startswith("log ") == scales
        )

    return (
        "It reverses the effect of down-weighting on a model that fits: residual scales of count "
        f"models were off by up to {off('before', scales=True):.2f} on the log scale and are off "
        f"by {off('after', scales=True):.3f} afterwards, coefficients by "
        f"{off('before', scales=False):.3f} and {off('after', scales=False):.3f}. It cannot "
        "correct a model that does not fit: the distances on the real survey above are those of "
        "debiased releases.",
    )


def _weakest() -> tuple[str, ...]:
    found = real_survey().xs("mean", level="kind")["max"]
    strict = frame("strict_study_summary")
    few = int(strict[strict["setting"] != "main effects"]["replicates"].min())
    return (
        "In our judgment: the pseudo-posterior's guarantee at finite n, and its bias on real "
        f"amounts (a row of means {found.xs('pseudo_posterior', level='method').max():.0f} sample "
        "standard errors off); intervals that ignore misfit, under both mechanisms (up to "
        f"{found.xs('noisy_statistics', level='method').max():.1f} standard errors under noisy "
        f"statistics); coverage studies of one population, some of them with {few} samples only; "
        "one real survey; no check by outsiders; attacks on small surveys only; and no study of "
        "how people choose centers and spreads, on which noisy statistics depend.",
    )
