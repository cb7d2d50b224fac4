"""Questions on the topics of NIST SP 800-226 (Near, Darais, Lefkovitz and Howarth, Guidelines for
Evaluating Differential Privacy Guarantees, 2025), answered from the settings.

Its pyramid goes from the parameter at the top down to how data are collected; each layer holds as
far as those below it do. The wording of the questions is ours.
"""

from surveysynth._support.messages import capitalised
from surveysynth.release.documents.dossier.blocks import Answer, Block, Part, Section, Text
from surveysynth.release.documents.dossier.operation import operation
from surveysynth.release.documents.dossier.terms import Terms
from surveysynth.release.tables.labels import listed

SOURCE = "NIST SP 800-226, Guidelines for Evaluating Differential Privacy Guarantees (March 2025)"


def questions(terms: Terms) -> Section:
    """The pyramid from its top down."""
    blocks: list[Block] = [
        Text(
            f"By the topics of {SOURCE}, https://doi.org/10.6028/NIST.SP.800-226, from the top of "
            "its pyramid to the ground; the wording of the questions is ours. Each layer holds as "
            "far as those below it do."
        ),
        Part("Top: what is claimed"),
        *_claimed(terms),
        Part("Middle: algorithms, accuracy and bias"),
        *_algorithms(terms),
        Part("Base: who is trusted, how it runs, how data come in"),
        *operation(terms),
    ]
    return Section("The questions of NIST SP 800-226", tuple(blocks))


def _claimed(terms: Terms) -> tuple[Answer, ...]:
    facts = terms.facts
    return (
        Answer("Which definition of privacy is met?", (_definition(terms),)),
        Answer("How large are the privacy parameters?", (_parameters(terms),)),
        Answer("What is the unit of privacy?", (_unit(terms),)),
        Answer(
            "When are two databases neighbours: bounded or unbounded?",
            (
                f"Bounded, by replacement: neighbours differ in the confidential values of "
                f"{terms.unit} and in nothing else. The number of records, who they are and "
                "their public columns are the same in both. That a record was added or left out is "
                "not protected: membership in the sample is public. A guarantee for adding or "
                "removing a record with some epsilon implies one for replacing it with twice that; "
                "the other way round nothing follows, so parameters of both kinds do not compare "
                "as they stand.",
            ),
        ),
        Answer(
            "What is published that no noise protects (invariants)?",
            (
                f"The numbers of records, {facts.design.n:,} in all and by every public column, "
                "and the public columns themselves, listed below variable by variable. Nothing "
                "else: no total, minimum, mean weight or diagnostic of the confidential values "
                "leaves the mechanism in the clear.",
            ),
        ),
        Answer("How do privacy losses add up?", _composition(terms)),
    )


def _definition(terms: Terms) -> str:
    if terms.strict:
        return (
            f"{capitalised(terms.budget)}. It is proved for every pair of "
            "neighbouring databases and every number of records."
        )
    return (
        f"{capitalised(terms.budget)}. This is weaker than differential privacy "
        "as the publication understands it: the bound behind it was found on this database, and "
        "only in the limit of many records does it hold for all. Whoever asks for differential "
        "privacy in the usual sense should take it for a heuristic with a stated target."
    )


def _parameters(terms: Terms) -> str:
    if terms.strict:
        times = terms.delta * terms.facts.design.n
        return (
            f"rho = {terms.rho:.4g}; epsilon = {terms.epsilon:.4g} at delta = {terms.delta:.3g}, "
            f"for everything in the folder together. delta times the number of records is "
            f"{times:.2g}; it should be far below 1. Other values of delta have other epsilons of "
            "the same rho. What this allows an adversary is worked out below."
        )
    m = terms.facts.settings.m
    return (
        f"epsilon = {terms.epsilon:.4g} for all {m} released draws together, "
        f"{terms.epsilon / m:.4g} for each; there is no delta. It is the target, which the bound "
        "found on the data was not allowed to pass. What this would allow an adversary is worked "
        "out below."
    )


def _unit(terms: Terms) -> str:
    design = terms.facts.design
    if terms.protected is not None:
        return (
            f"All records of a unit of the public column {terms.protected!r} together; noise is "
            "scaled to the largest unit."
        )
    clusters = "" if design.psu_name is None else f", and a whole {design.psu_name},"
    return (
        f"One record of the survey file. If a person has one record, it is the person. A household "
        f"or employer with several records{clusters} has a wider limit, see the worked examples."
    )


def _composition(terms: Terms) -> tuple[str, ...]:
    many = (
        "Within the release nothing adds up: noise is drawn once, and all draws, datasets and "
        "tables are computed from the noisy numbers (post-processing). Releases add up: their rhos "
        "do, whatever one release knew of the other."
        if terms.strict
        else f"Within the release the {terms.facts.settings.m} draws add up to the stated epsilon; "
        "datasets and tables are computed from the draws (post-processing). Releases add up: their "
        "epsilons do."
    )
    return (
        many,
        "Every run is written to the ledger of the survey before anything is published, and a run "
        "that would take it above a declared budget is refused. The total is not in this folder; "
        "the checklist asks for it. A release under a guarantee does not mend earlier publications "
        "from the same survey that have none.",
    )


def _algorithms(terms: Terms) -> tuple[Answer, ...]:
    return (
        Answer("Which mechanism, and how is the influence of a record bounded?", (_how(terms),)),
        Answer("How is it known that the software does this?", (_correct(terms),)),
        Answer("How accurate are the results?", _accuracy(terms)),
        Answer("Which systematic errors are there, and whom do they meet?", _bias(terms)),
        Answer(
            "Are the microdata synthetic, and is that what protects?",
            (
                "They are, and it is not: synthetic data as such protect nobody. The protection is "
                "that of the mechanism, and data simulated from what it released inherit it. They "
                "show what the model knows; relations that it leaves out are not in them.",
            ),
        ),
        Answer("Were settings tuned on the data?", (_tuning(terms),)),
    )


def _how(terms: Terms) -> str:
    facts = terms.facts
    if terms.strict:
        logs = "" if facts.design.weight_name is None else " and log weights"
        radius = facts.mechanism.described(facts.design)["radius"]
        discrete = any(outcome.is_discrete for outcome in facts.design.outcomes)
        counts = ", numbers of records by category of the outcomes among them" if discrete else ""
        return (
            f"Discrete Gaussian noise on sufficient statistics{counts}. Transformed values{logs} "
            f"are centred and scaled by declared constants and clipped to a ball of {radius:.4g} "
            "spreads, so that no unit, however extreme, moves the sums by more than a known "
            "distance; noise is in proportion to that distance. A Bayesian model that knows of the "
            "noise turns the noisy sums into draws, synthetic data and tables."
        )
    return (
        f"{facts.settings.m} draws from a posterior in which records are weighted down by their "
        f"risk (measure: {facts.mechanism.risk}), so that no record's weighted log-likelihood, nor "
        f"its range, passes {facts.settings.lipschitz_bound:.4g} on the draws that were looked at. "
        "No noise is added: the randomness of the draws protects. The bound is found on the data, "
        "not proved beforehand."
    )


def _correct(terms: Terms) -> str:
    common = (
        "The software is open. Its validation page lists what it was held against: other "
        "programs, published tables, simulation-based calibration, coverage of intervals, planted "
        "values searched for in all published files, mutations of its own code, and audits that "
        "try to tell neighbouring databases apart, with controls that must be found out."
    )
    if not terms.strict:
        return common
    return (
        f"{common} This release can be made again from its published files alone "
        "(surveysynth rebuild), to the last digit: so it is seen that nothing but the noisy "
        "numbers and public columns went into it."
    )


def _accuracy(terms: Terms) -> tuple[str, ...]:
    if terms.strict:
        covered = "sampling, the noise and what the model leaves open"
    else:
        covered = "sampling, and with two or more draws their synthesis"
    debiased = terms.facts.debias is not None and terms.facts.debias.debiased
    short = "" if terms.strict or debiased else " Not debiased, they cover less than they say."
    return (
        f"Published estimates have a standard error and an interval, which cover {covered}; a row "
        "of one record has none, nor do the microdata. They "
        f"come from the published draws and cost nothing further.{short}",
        "How far the tables lie from those of the confidential sample is in the confidential "
        "folder, for the publisher alone.",
    )


def _bias(terms: Terms) -> tuple[str, ...]:
    facts = terms.facts
    first = (
        "Noise is the same for large and small groups, so that small ones have larger errors "
        "relative to what they are; intervals say so. Records beyond the clipping radius are drawn "
        "in: constants that are far off bend means and spreads, and intervals do not say so."
        if terms.strict
        else "Records with unusual values lose most weight, so that tails, rare levels and small "
        f"groups are drawn towards the rest. {_debiased(terms)}"
    )
    pooling = facts.design.pooling
    pooled = () if pooling is None else (
        f"Pooled because few records tell of them: {pooling.words}. {pooling.means}"
        + (" Rows that are mostly of such records are flagged." if pooling.record.any() else ""),
    )  # fmt: skip
    return (
        first,
        "The tables rest on a model. Where it misses (another relation within cells, another shape "
        "of the distribution), error does not shrink with the number of records.",
        *pooled,
        "Errors of the survey itself (coverage, nonresponse, wrong answers) are neither larger nor "
        "smaller for the protection"
        + (
            f"; {facts.design.dropped:,} records with missing values were left out."
            if facts.design.dropped
            else "."
        ),
    )


def _debiased(terms: Terms) -> str:
    record = terms.facts.debias
    if record is not None and record.debiased:
        return (
            "This was estimated and corrected from public inputs (debiasing); not all of it can be."
        )
    reason = "" if record is None or not record.reason else f" ({record.reason})"
    return f"In this release it was not corrected{reason}."


def _tuning(terms: Terms) -> str:
    declared = ["model", "formula", "transforms", "levels", "tables", "the parameters above"]
    if terms.strict:
        declared.append("centres and spreads")
    else:
        declared.append("the size of a fit")
    found = (
        " The mechanism finds the risk weights on the data, to reach its target; that search is "
        "not covered by epsilon."
        if not terms.strict
        else " Nothing is tuned on the confidential values."
    )
    return (
        f"The settings ({listed(declared)}) are declared in the specification. Whether they were "
        f"chosen without a look at the data is for the publisher to say (checklist).{found}"
    )
