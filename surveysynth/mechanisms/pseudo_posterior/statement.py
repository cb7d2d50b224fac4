"""What a release guarantees and what it does not, in words (methods 2). Public inputs only."""

import math

import numpy as np

from surveysynth.mechanisms.pseudo_posterior.settings import DEFAULT_ORIGIN, MechanismSettings
from surveysynth.mechanisms.statement import SEEDED, Statement, not_units, public_assumptions
from surveysynth.models.base import Model, psu_codes
from surveysynth.sampling.convergence import MAX_R_HAT
from surveysynth.sampling.randomness import STAN_SEED_BITS
from surveysynth.survey.design_matrix import records_per_coefficient
from surveysynth.survey.survey import PublicDesign


def privacy_statement(
    design: PublicDesign, settings: MechanismSettings, model: Model, *, test: bool = False
) -> Statement:
    """The statement of a release with these settings.

    Parameters
    ----------
    design, settings, model
        Of the release, all public.
    test
        Whether a seed was given, which undoes the protection.

    Returns
    -------
    Statement
        ``guarantee``, ``assumptions`` and ``not_covered``; ``paragraphs`` has all of it.

    Examples
    --------
    >>> import surveysynth as ss
    >>> design, settings = ss.example_survey(n=100).design, ss.MechanismSettings(epsilon=10.8)
    >>> statement = ss.privacy_statement(design, settings, ss.get_model("fbs"))
    >>> statement.assumptions[0]
    'who is in the sample: the 100 records and hence every unweighted cell size'
    """
    return Statement(
        guarantee=(
            *_warnings(settings, test),
            *_guarantee(design, settings, model),
            *((_SHARED,) if settings.shares_weights_of(model) else ()),
            *_records(design, settings),
            *_effects(design, model),
        ),
        assumptions=(*public_assumptions(design), *_of_computing(settings, model, test)),
        not_covered=_not_covered(design, settings, model),
        outside=outside_of_stated(design, settings, model),
    )


def _warnings(settings: MechanismSettings, test: bool) -> tuple[str, ...]:
    warnings = []
    if test:
        warnings.append(SEEDED)
    if not settings.private:
        warnings.append(
            "NOT PRIVATE: risk = none. No record was down-weighted and no epsilon is claimed."
        )
    return tuple(warnings)


def _guarantee(
    design: PublicDesign, settings: MechanismSettings, model: Model
) -> tuple[str, ...]:
    public = design.public_weight is not None
    synthetic = (
        "Outcomes are synthetic; design variables and sampling weights are real."
        if public
        else "Outcomes and weights are synthetic; design variables are real."
    )
    differing = "outcome" if public else "outcome and sampling weight"
    source = (
        f"The data are {settings.m} synthetic draws from {model.title}, fitted to the "
        f"confidential survey. {synthetic}"
    )
    if not settings.private:
        return (source,)
    truncated = (
        f" These are what truncation left of {settings.plan.kept:,} draws: those up to the "
        f"{settings.truncate:g} quantile of their largest record bounds. Only they may generate "
        "data; which draws that leaves out depends on the confidential data."
        if settings.truncate < 1
        else ""
    )
    return (
        source,
        f"They satisfy asymptotic differential privacy with epsilon at most {settings.epsilon:g} "
        f"for the release as a whole. Neighbouring databases differ in the {differing} "
        "of one record; the number of records and their design variables stay the same.",
        "The likelihood of each record was down-weighted until no record's weighted "
        f"log-likelihood, {_ORIGIN[settings.origin or DEFAULT_ORIGIN]}, nor its range, "
        f"passed the target bound of {settings.target_bound:g} on any of {settings.kept_draws:,} "
        f"posterior draws: epsilon = 2 x m x bound, with m = {settings.m}."
        + (_REPLACEMENT if settings.origin == "peak" else "")
        + _risk(settings)
        + " The bound was found on "
        "this database over these draws. Asymptotic means that bounds found on databases contract "
        "onto a global bound at the rate of one over the square root of the number of records per "
        "coefficient; at any finite number the guarantee is not that of strict differential "
        "privacy." + truncated,
    )


#: Where log-likelihoods are measured from.
_ORIGIN = {
    "density": "measured from the unit of its density (origin = density)",
    "peak": "measured from near the mode of the records' densities (origin = peak)",
}
_REPLACEMENT = (
    " What is said of replacing a record rests on the range alone, which is the same from any "
    "origin."
)
_OWN_ORIGIN = (
    " So was the origin that log-likelihoods are measured from, which sets weights alone and is "
    "not published: one record can move it a little, and with it the weights of others."
)


def _of_computing(settings: MechanismSettings, model: Model, test: bool) -> tuple[str, ...]:
    """What epsilon takes for granted of the computation, none of it proved."""
    if not settings.private:
        return ()
    plan = settings.plan
    stan = (
        ". Stan's sampler has a generator of its own, whose seed has "
        f"{STAN_SEED_BITS} bits of these: so many seeds can be tried one by one"
        if model.compiled
        else ""
    )
    return (
        "that real numbers were computed: what is said of draws is said of real numbers, and what "
        "floating-point numbers (53 binary digits) show beyond these is not looked at. Last digits "
        "of draws are not published: synthetic values are rounded to a public number of digits "
        "before anything is computed from them",
        *(() if test else (
            "that nobody can foresee pseudo-random numbers: these are the key stream of ChaCha20 "
            "under a key of 256 bits of the operating system's cryptographic generator, which no "
            f"file keeps{stan}",
        )),
        f"that Markov chains give draws from the posterior, the {settings.m} released ones "
        f"independent of each other: they are states, far apart, of {plan.chains} chains of "
        f"finite length ({plan.warmup:,} iterations of warm-up and {plan.draws:,} kept), whose "
        f"convergence was checked (R-hat at most {MAX_R_HAT:g}) and cannot be proved",
    )  # fmt: skip


def smallest_records(design: PublicDesign) -> float:
    """Records per coefficient of the row of X that has fewest, to a tenth: public."""
    return float(np.round(records_per_coefficient(design.matrix).min(), 1))


def _records(design: PublicDesign, settings: MechanismSettings) -> tuple[str, ...]:
    """On how many records the rows of X rest, and what was pooled for that."""
    if not settings.private:
        return ()
    smallest, least = smallest_records(design), settings.least_records
    said = (
        "Records per coefficient (one over the leverage of a row of the model matrix): "
        f"{smallest:g} for the row that has fewest, and at least {least:.4g} are asked for, by a "
        "rule that looks at public columns alone."
    )
    if _few(design, settings):
        return (f"{said} THIS RELEASE FALLS SHORT OF THAT (small_strata = allow): {_BEYOND}",)
    if (pooling := design.pooling) is None:
        return (said,)
    return (f"{said} For that, the model pools {pooling.words}. {pooling.means}",)


def _few(design: PublicDesign, settings: MechanismSettings) -> bool:
    return smallest_records(design) < math.floor(10.0 * settings.least_records) / 10.0


def outside_of_stated(design: PublicDesign, settings: MechanismSettings, model: Model) -> str:
    """Which settings take a release out of what is stated, where some do."""
    few = settings.private and _few(design, settings)
    given = ((settings.shares_weights_of(model), "shared_weights"), (few, "small_strata"))
    keys = " and ".join(f"{key} = allow" for applies, key in given if applies)
    return keys and (
        f"outside of what is stated ({keys}): replacing one record was measured to move such "
        "releases by many times as much"
    )


_BEYOND = (
    "replacing one record where fewer tell of a row was measured to move the log posterior ratio "
    "by many times the stated bound."
)


def _effects(design: PublicDesign, model: Model) -> tuple[str, ...]:
    """What the data show of PSUs where the model has an effect of each."""
    if psu_codes(model, design) is None:
        return ()
    return (
        f"The records of a primary sampling unit ({design.psu_name}) share an effect in the model. "
        "The effects of the sampled units were fitted with it and are not released: synthetic "
        "data have fresh effects, drawn from the distribution of effects that belongs to each "
        "draw.",
    )


def _risk(settings: MechanismSettings) -> str:
    """Which records lose more weight than others, where the bound itself does not say it."""
    if settings.weights == "fixed_point":
        return ""
    measure = settings.measure
    raised = " Re-weighting then raised the weights of records below the bound."
    return (
        f" Records of higher risk (measure: {measure.name}) lost more weight; the risk of a record "
        f"is {measure.words}." + (raised if settings.reweight else "")
    )


#: A limit of the interface of CmdStan, which has no other way in for a seed.
_STAN_SEEDS = (
    "The random numbers of the Stan program that draws the posterior: they follow from a seed of "
    "31 bits. It comes from the operating system and is not kept, but all seeds can be tried by "
    "whoever has the resources, and CmdStan takes it on its command line: users of the machine "
    "that ran it may have read it in the list of processes. The embedded samplers have no such "
    "limit."
)


#: Measured in ``tests/long_runs/noisy_search.py`` (methods 2.6).
_NOISY_WEIGHTS = (
    "How one record moves the risk weights of the others: a fit of this model does not repeat the "
    "random numbers of the fit before, so that the weights of all records carry the noise of the "
    "sampler, and one record can decide how many fits the search takes. For a normal model with "
    "such a sampler replacing a record was measured to move the log posterior ratio by little more "
    "than half of the stated bound; for this model it was not measured."
)
#: Audited: normal mixtures of 300, 1,000 and 3,000 records.
_MANY_MODES = (
    "How one record moves the fit: this model's posterior has many modes, replacing one record can "
    "lead to another of them, and the weights of all records follow."
)


def _not_covered(
    design: PublicDesign, settings: MechanismSettings, model: Model
) -> tuple[str, ...]:
    if not settings.private:
        return ("Nothing is covered: there is no epsilon.",)
    items = [
        "The risk weights: epsilon treats them, with their targeting and re-weighting, as fixed, "
        "though they were computed from the confidential data."
        + (_OWN_ORIGIN if settings.origin == "peak" else ""),
        "That a release was made at all: fits that had not converged or missed the target would "
        "have been refused, and that decision depends on the confidential data.",
        f"Clusters: protection is of single records{not_units(design)}. A household, an employer "
        "or a primary sampling unit with several records is not protected as a whole.",
        "Other releases from the same survey: their epsilons add up.",
    ]
    if _few(design, settings):
        items.insert(0, "Rows of the model matrix with few records per coefficient: " + _BEYOND)
    if model.compiled:
        items.append(_STAN_SEEDS)
    if not model.identified:
        items.insert(1, f"{_MANY_MODES} {_MEASURED}")
    elif not model.common_random_numbers and settings.weights == "fixed_point":
        items.insert(1, _NOISY_WEIGHTS)
    if settings.weights == "linear":
        own = _OWN_DEPENDENCE.get(settings.measure.name, _OWN_MEASURE)
        items.insert(1, f"{own} {_MEASURED}" if settings.shares_weights else own)
    if settings.reweight:
        items.insert(
            2,
            "Re-weighting: it divides by record bounds found on the confidential data, which "
            "epsilon takes as fixed like the weights themselves.",
        )
    return tuple(items)


_MEASURED = (
    "Replacing one record was measured to move the log posterior ratio by more than ten times the "
    "stated bound."
)
_SHARED = (
    "THIS RELEASE DOES NOT KEEP WHAT IS STATED (shared_weights = allow): one record can set the "
    f"weights of all others. {_MEASURED}"
)
#: How one record reaches the weights of others, by measure: epsilon covers none of it.
_OWN_DEPENDENCE = {
    "lipschitz": (
        "Linear weights in particular: one record can move the smallest or largest risk and "
        "with it the weight of every record. Replacing a single outlying record can change "
        "the log posterior ratio by far more than epsilon/m says. Weights of the kind "
        "'fixed_point' have far less of this weakness."
    ),
    "count": (
        "Count-based risks in particular: the weight of a record depends on its own outcome and "
        "on those of all others of its pattern, so replacing one record moves the weights of "
        "others too. Epsilon does not cover this dependence of the weights on a record. Weights "
        "of the kind 'fixed_point' (risk = lipschitz) have far less of this weakness."
    ),
    "scalar": (
        "The scalar weight in particular: the record with the largest bound sets the weight of "
        "every record. Epsilon does not cover this dependence of the weight on a record."
    ),
}
_OWN_DEPENDENCE["pairwise"] = _OWN_DEPENDENCE["count"].replace("Count-based", "Pairwise", 1)
_OWN_MEASURE = (
    "The risk measure in particular, which is the publisher's own: how far one record can move "
    "the risks, and with them the weights, of others is not known here and not covered."
)
