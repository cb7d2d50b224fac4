"""What a skeptical methodologist would ask of ``vignettes/technical/validation.md``, with figures
of the committed results; a part of ``python -m tests.long_runs.validation_page``."""

import pandas as pd

from tests.long_runs.audit_page import decided
from tests.long_runs.validation_audits import beyond
from tests.long_runs.validation_page import filled, frame, golden, summaries


def questions() -> str:
    """Questions with their answers."""
    answers = {
        "Averages over cells hide the bad ones.": _worst(),
        "Why should I believe an asymptotic epsilon?": _asymptotic(),
        "And the proved one?": _strict(),
        "What does debiasing do where the model is wrong?": _debiasing(),
        "Who checked this besides its authors?": ("Nobody.",),
        "What is weakest?": _weakest(),
    }  # fmt: skip
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


def _worst() -> tuple[str, ...]:
    table = summaries()
    model = table[table["method"].isin(["fbs", "fbp", "fbs_noisy", "fbp_noisy"])
                  & (table["setting"] != "two stages")]  # fmt: skip
    worst = model.loc[model["coverage_min"].idxmin()]
    own = _row("fbs_noisy", "mean", n=10_355, epsilon=worst["epsilon"], setting="default formula")
    return (
        f"The worst cell of all is a {worst['statistic']} with {worst['n']:,} records, "
        f"epsilon {worst['epsilon']:g}, and {worst['setting']}: it covers "
        f"{worst['coverage_min']:.2f}. The misfit of main effects does not shrink with the number "
        "of records, but intervals do. With the [default formula](methods.md#31-the-model-matrix), "
        f"which has the interactions, the worst cell of means covers {own['coverage_min']:.2f} "
        f"(Monte Carlo error {own['cell_coverage_mcse']:.2f}), and means cover "
        f"{own['coverage']:.2f} on average ({own['replicates']:.0f} samples).",
    )


def _asymptotic() -> tuple[str, ...]:
    found = beyond(frame("audit_replacements"))
    passed = (
        f"replacing one record exceeded the bound in {len(found)} of the audited settings "
        f"({'; '.join(map(str, found.index))}); "
        if len(found)
        else ""
    )
    within = (
        ""
        if len(found)
        else "; and replacing one record exceeded the bound in none of the settings, which is no "
        "proof"
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
        "It is not a guarantee for your survey, and every statement says so. In its favor: bounds "
        "contract as records grow (spread of the bound over "
        f"databases, relative to the smallest size: {contracts}){within}. Against it: "
        f"{passed}{decides}the risk weights depend on the data and are treated as fixed; a refusal "
        "reveals something. If you need a guarantee, use noisy statistics.",
    )


def _strict() -> tuple[str, ...]:
    table = frame("audit_replacements")
    noisy = table[table["mechanism"] == "noisy_statistics"]
    return (
        "[Strict 1](strict.md#1-what-is-released-under-noise) proves the method. The program is "
        f"checked by exact sums of pairs of databases in {noisy['case'].nunique()} settings "
        f"(largest ratio {noisy['ratio'].max():.6f}) and by exact probabilities of the noise. "
        "Public columns, timing, and constants chosen by looking at the data are not covered.",
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
        "On a model that fits, residual scales of count "
        f"models were off by up to {off('before', scales=True):.2f} on the log scale and are off "
        f"by {off('after', scales=True):.3f} afterwards, coefficients by "
        f"{off('before', scales=False):.3f} and {off('after', scales=False):.3f}. It cannot "
        "correct misfit.",
    )


def _weakest() -> tuple[str, ...]:
    found = real_survey().xs("mean", level="kind")["max"]
    strict = frame("strict_study_summary")
    few = int(strict[strict["setting"] != "main effects"]["replicates"].min())
    return (
        "The pseudo-posterior's guarantee at finite n, and its bias on real "
        f"amounts (a row of means {found.xs('pseudo_posterior', level='method').max():.0f} sample "
        "standard errors off); intervals that ignore misfit, under both mechanisms (up to "
        f"{found.xs('noisy_statistics', level='method').max():.1f} standard errors under noisy "
        f"statistics); coverage studies of one population, some of them with {few} samples only; "
        "no check by outsiders; attacks on small surveys only; and no study of how people choose "
        "centers and spreads, on which noisy statistics depend.",
    )
