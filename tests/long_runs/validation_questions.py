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
        "Who checked this besides its authors?": (
            "Nobody. [The guide](../validated.md#what-is-weakest) lists what is weakest.",
        ),
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


def _worst() -> tuple[str, ...]:
    table = summaries()
    model = table[table["method"].isin(["fbs", "fbp", "fbs_noisy", "fbp_noisy"])
                  & (table["setting"] != "two stages")]  # fmt: skip
    worst = model.loc[model["coverage_min"].idxmin()]
    own = _row("fbs_noisy", "mean", n=10_355, epsilon=worst["epsilon"], setting="default formula")
    return (
        f"The worst cell of all is a {worst['statistic']} with {worst['n']:,} records, "
        f"epsilon {worst['epsilon']:g}, and {worst['setting']}: it covers "
        f"{worst['coverage_min']:.2f} of the time. With the "
        "[default formula](methods.md#31-the-model-matrix), "
        "which has the interactions, coverage of means is "
        f"{own['coverage_min']:.2f} in the worst cell "
        f"(Monte Carlo error {own['cell_coverage_mcse']:.2f}) and {own['coverage']:.2f} on average "
        f"({own['replicates']:.0f} samples).",
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
        "It is not a guarantee for your survey. In its favor: bounds contract as records grow "
        f"(spread over databases, relative to the smallest size: {contracts}){within}. Against it: "
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
        "If the model fits, residual scales of count models are off by up to "
        f"{off('before', scales=True):.2f} on the log scale before debiasing and by "
        f"{off('after', scales=True):.3f} afterward; coefficients, by "
        f"{off('before', scales=False):.3f} and {off('after', scales=False):.3f}. Debiasing cannot "
        "correct misfit.",
    )
