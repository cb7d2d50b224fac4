"""The guarantee in words: for a lawyer, for a statistician, for a respondent.

Both mechanisms, each as what it is: noisy statistics are proved at every number of records, the
pseudo-posterior is asymptotic, and nobody is told otherwise.
"""

from surveysynth.mechanisms.adversary_odds import posterior
from surveysynth.release.documents.dossier.blocks import Block, Part, Section, Text
from surveysynth.release.documents.dossier.terms import TOLD_PRIOR, Terms, percent
from surveysynth.release.tables.labels import listed


def in_words(terms: Terms) -> Section:
    """Three times the same, from the outside in."""
    if not terms.private:
        return Section("The guarantee", tuple(map(Text, terms.facts.statement.paragraphs[:1])))
    blocks: list[Block] = [Part("For a lawyer"), *map(Text, _lawyer(terms))]
    blocks += [Part("For a statistician"), *_statistician(terms)]
    blocks += [Part("For a respondent"), *map(Text, _respondent(terms))]
    return Section("The guarantee in words", tuple(blocks))


def _lawyer(terms: Terms) -> tuple[str, ...]:
    first = _promise(terms) if terms.strict else _aim(terms)
    return (
        first,
        "What it is not. It does not say that nothing can be learned about a person: what the "
        "tables say of a group applies to its members, whether they answered or not, and is "
        "published on purpose. It does not hide who is in the sample, nor the columns listed below "
        "as public. It is not a promise about other publications from the same survey: their "
        "limits add up. And it is a mathematical limit, not a finding under any statute: whether a "
        "limit of this size, with these columns public, is what the law in force asks for "
        "(anonymity, confidentiality, no reasonable likelihood of identification) is for the "
        "reader of this dossier to decide.",
        "On what it rests. The publisher answers for what is declared (which columns are public, "
        "that constants come from other sources than these data), for a machine whose random "
        "numbers nobody can predict, for keeping the confidential "
        "folder and the survey file to themselves, and for adding up what other releases cost. "
        "The software answers for the rest: it writes nothing here that was computed from "
        "confidential values in any other way than through the mechanism.",
    )


def _promise(terms: Terms) -> str:
    return (
        f"What is promised. Had the confidential values of {terms.unit} ({terms.values}) been "
        "others, whatever anyone can compute from this release, by whatever method, with whatever "
        "other information, now or later, would have come out with a probability that differs by "
        f"a factor of at most {terms.factor}, give or take a probability of {terms.delta:.3g}. "
        "This is proved, for every valid survey file of any size, and no part of the proof is an "
        "assumption about what an attacker knows or can do. What remains open is the size of the "
        "limit: the worked examples below say what it allows."
    )


def _aim(terms: Terms) -> str:
    return (
        f"What is aimed at. Had the confidential values of {terms.unit} ({terms.values}) been "
        f"others, the probability density of the {terms.facts.settings.m} released draws should "
        f"have been another by a factor of at most {terms.factor}. This is asymptotic: a statement "
        "about surveys of more and more records, under the assumptions listed below. For the "
        "survey at hand it is not proved: the bound behind it was found on these very data, over a "
        "limited number of draws, and holds for the weights that records were given, though these "
        "depend on the data too. A text that binds the publisher must not call it differential "
        "privacy without the word asymptotic and these conditions. Where a proved guarantee is "
        "needed, the mechanism noisy_statistics of the same software has one."
        f"{terms.outside}"
    )


def _statistician(terms: Terms) -> tuple[Block, ...]:
    modelled = "y_i" if terms.facts.design.weight_name is None else "y_i, w_i"
    formula = (
        "For all neighbouring databases D, D' and all orders a > 1 the Renyi divergence "
        f"D_a(M(D) || M(D')) is at most rho a, with rho = {terms.rho:.4g} (Bun and Steinke 2016); "
        "epsilon at delta is the conversion of Canonne, Kamath and Steinke (2020). M adds discrete "
        "Gaussian noise, drawn exactly, to clipped and rounded sufficient statistics, with the "
        "covariance of a D-optimal design over the public rows of X; posterior draws given the "
        "noisy statistics, synthetic data and tables are post-processing."
        if terms.strict
        else "The draws are from the pseudo-posterior proportional to prod_i "
        f"p({modelled} | x_i, theta)^alpha_i times the prior. With "
        "L_i = max_s alpha_i |log p_i(theta_s)| over the S kept draws, from the origin named "
        "below, and osc_i the range of alpha_i log p_i(theta_s), 2 m max_i max(L_i, osc_i) is at "
        f"most epsilon = {terms.epsilon:.4g} for m = {terms.facts.settings.m} draws (how far below "
        "is confidential): Lipschitz bounds of this database, which contract onto a global one as "
        "the root of n grows (Savitsky, Williams and Hu); with several coefficients n is that of "
        "the records that tell of one, in this package's reading."
    )
    return Text(formula), *map(Text, terms.facts.statement.guarantee)


def _respondent(terms: Terms) -> tuple[str, ...]:
    facts = terms.facts
    design = facts.design
    outcomes = listed([facts.labels.title(name) for name in design.outcome_names])
    seen = listed([facts.labels.title(str(name)) for name in design.frame.columns])
    known = (
        f"What others may know of you: that somebody with your {seen} is in the sample. These are "
        "treated as known and are published as they are."
        if seen
        else "What others may know of you: that you are in the sample."
    )
    several = (
        "The promise is for one record. If several records of the survey are about you or your "
        "household, the limit for all of them together is wider."
        if terms.protected is None
        else f"The promise is for all records of your {terms.protected} together."
    )
    return (
        f"You were asked, among other things, for {outcomes}. Your answers were used together with "
        f"those of {design.n - 1:,} other records. None of these answers is published, neither "
        "yours nor anyone's: a computer drew made-up records from a statistical model of all "
        "answers, and the tables are computed from those. If a made-up record looks like you, that "
        "is chance.",
        known,
        _learned(terms),
        "What is published about a group you belong to can be used to guess about you; that is "
        f"what statistics are for, and it would be much the same without you. {several}",
        "For questions, ask the publisher: ____________________",
    )


def _learned(terms: Terms) -> str:
    limit = posterior(TOLD_PRIOR, terms.log_factor)
    verdict = next(words for most, words in _VERDICTS if limit <= most)
    but = (
        f" (but for a chance of {terms.delta:.3g})"
        if terms.strict
        else ", as far as the guarantee holds, which is not proved for a survey of this size"
        + (" and which this release was not made to keep" if terms.outside else "")
    )
    return (
        "What others can learn because you answered: somebody who knows every other answer, and "
        f"thought before that a certain answer of yours had a chance of {TOLD_PRIOR:.0%}, "
        f"cannot afterwards give it a chance above {percent(limit)}{but}. {verdict}"
    )


#: What a limit on the told belief amounts to, by the largest limit for which it is said.
_VERDICTS = (
    (0.2, "That is hardly more than before."),
    (0.5, "That is more than before, and still no more than a guess."),
    (0.9, "They can become a good deal more certain, and still not be sure."),
    (
        1.0,
        "That is close to certainty: as a worst case the limit is weak. It does not say that "
        "anyone can get so far, and it promises no more than this.",
    ),
)
