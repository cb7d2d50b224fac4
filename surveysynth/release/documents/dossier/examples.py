"""Worked examples of what epsilon, or rho, means: beliefs, tests, several records of a person."""

from surveysynth.mechanisms.adversary_odds import (
    gaussian_power,
    posterior,
    pure_power,
    zcdp_power,
)
from surveysynth.release.documents.dossier.blocks import Block, Grid, Section, Text
from surveysynth.release.documents.dossier.terms import TOLD_PRIOR, Terms, percent

PRIORS = (0.01, 0.1, 0.5)
FALSE_ALARMS = (0.01, 0.05, 0.1)
SEVERAL = (1, 2, 3, 5)


def examples(terms: Terms) -> Section:
    """Three tables, none of which looks at data: they follow from the declared budget alone."""
    blocks: list[Block] = [Text(_opening(terms)), _beliefs(terms)]
    if terms.strict:
        blocks.append(Text(_average(terms)))
    blocks += [Text(_testing(terms)), _tests(terms), Text(_sharing(terms)), _several(terms)]
    currency = "rho" if terms.strict else "epsilon"
    return Section(f"What {currency} means: worked examples", tuple(blocks))


def _opening(terms: Terms) -> str:
    far, limits = "", "These are limits over all attacks and all surveys"
    if not terms.strict:
        far = ", as far as the guarantee holds, which is asymptotic,"
        limits = (
            "They would be limits over all attacks if the guarantee held at this number of "
            f"records, which is not proved.{terms.outside} They are limits"
        )
    return (
        "Suppose an adversary knows everything but the confidential values of "
        f"{terms.unit}, and suspects that these lie in a certain set. By Bayes' rule the release "
        "multiplies the odds of the suspicion by a likelihood ratio, and the guarantee limits that "
        f"ratio. The table says{far} how strong the suspicion can become. {limits}"
        ", not predictions; an attack on this survey may fall far short "
        "of them, and nobody can promise by how much. An adversary who is unsure of other records "
        "too, and to whom these tell of the one (relatives, colleagues), can also learn through "
        "them: that is what statistics of groups do, and no such limit covers it."
    )


def _beliefs(terms: Terms) -> Grid:
    rows: list[tuple[str, ...]] = []
    for prior in PRIORS:
        cells = [f"{prior:.0%}"]
        if terms.strict:
            cells.append(percent(posterior(prior, terms.rho)))
        rows.append((*cells, percent(posterior(prior, terms.log_factor))))
    head: tuple[str, ...] = ("Belief before", "After, at most")
    if terms.strict:
        head = (
            "Belief before",
            "After, where the odds move as on average",
            f"After, at most, but for a probability of {terms.delta:.3g}",
        )
    return Grid(f"What an adversary can come to believe{_kind(terms)}", head, tuple(rows))


def _kind(terms: Terms) -> str:
    """In headings of tables, which are copied without the words about them."""
    return "" if terms.strict else " (asymptotic)"


def _average(terms: Terms) -> str:
    return (
        "The middle column is for a true suspicion whose log odds rise by their mean, which is at "
        f"most rho = {terms.rho:.4g}; the last for a rise of rho + 2 sqrt(rho log(1/delta)) = "
        f"{terms.log_factor:.4g}, which the noise exceeds with probability at most delta. That is "
        f"{terms.log_factor / terms.epsilon - 1.0:.0%} more than epsilon = {terms.epsilon:.4g}, "
        "which limits probabilities of results; a belief after one result takes a wider margin."
    )


def _testing(terms: Terms) -> str:
    return (
        "The same as a test. The adversary decides between two sets of values of the unit, and "
        "accepts a rate of false alarms: of raising the alarm where the suspicion is wrong. Power "
        "is the probability of raising it where the suspicion is right; without information it "
        "equals the rate of false alarms, and with all information it is 1."
        + (
            " The last column is the power of the best test against normal noise of this rho, "
            "which is nearly what was added; the one before it is the limit for any mechanism of "
            "this rho."
            if terms.strict
            else ""
        )
    )


def _tests(terms: Terms) -> Grid:
    if terms.strict:
        head: tuple[str, ...] = ("False alarms", "Power, at most", "Power against normal noise")
        powers: list[tuple[float, ...]] = [
            (zcdp_power(terms.rho, rate), gaussian_power(terms.rho, rate))
            for rate in FALSE_ALARMS
        ]
    else:
        head = ("False alarms", "Power, at most")
        powers = [(pure_power(terms.epsilon, rate),) for rate in FALSE_ALARMS]
    rows = [
        (f"{rate:.0%}", *map(percent, found))
        for rate, found in zip(FALSE_ALARMS, powers, strict=True)
    ]
    return Grid(f"How well a suspicion can be tested{_kind(terms)}", head, tuple(rows))


def _sharing(terms: Terms) -> str:
    grows = (
        "rho grows with the square of their number"
        if terms.strict
        else "epsilon grows in proportion to their number"
    )
    whose = "records" if terms.protected is None else f"units of {terms.protected!r}"
    return (
        f"Where one person or household has several {whose}, the limit for all of them together "
        f"is wider: {grows}."
    )


def _several(terms: Terms) -> Grid:
    rows = []
    for number in SEVERAL:
        cost = terms.rho * number**2 if terms.strict else terms.epsilon * number
        limit = posterior(TOLD_PRIOR, terms.of_several(number))
        rows.append((str(number), f"{cost:.4g}", percent(limit)))
    named = "records" if terms.protected is None else "units"
    currency = "rho" if terms.strict else "epsilon"
    last = f"A belief of {TOLD_PRIOR:.0%} becomes at most"
    return Grid(
        f"Several {named} of one person{_kind(terms)}",
        (named.capitalize(), currency, last),
        tuple(rows),
    )
