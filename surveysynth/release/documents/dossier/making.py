"""The dossier of a release from its facts."""

from surveysynth.release.documents.dossier.blocks import Dossier, Section, Text
from surveysynth.release.documents.dossier.examples import examples
from surveysynth.release.documents.dossier.questions import questions
from surveysynth.release.documents.dossier.risks import checklist, residual_risks
from surveysynth.release.documents.dossier.terms import Terms
from surveysynth.release.documents.dossier.variables import public_by_assumption
from surveysynth.release.documents.dossier.words import in_words
from surveysynth.release.facts import ReleaseFacts


def make_dossier(facts: ReleaseFacts) -> Dossier:
    """What a board reads: from public facts alone, which before debiasing are the same for every
    survey file with the same public columns. Without a guarantee there is nothing to work out, and
    nothing to sign."""
    terms = Terms(facts)
    last = (questions(terms), examples(terms)) if terms.private else ()
    signed = (residual_risks(terms), checklist(terms)) if terms.private else ()
    return Dossier(
        f"Dossier for review: {facts.title}",
        facts.warnings,
        (_summary(terms), in_words(terms), *last, public_by_assumption(terms), *signed),
    )


def _made_from(facts: ReleaseFacts) -> str:
    """Whether debiasing worked, and its factors, follow from draws, not from settings."""
    if facts.debias is None or facts.debias.status == "not asked for":
        return "This dossier is made from the specification and the public columns alone."
    return (
        "This dossier is made from the specification, the public columns and, where it speaks of "
        "debiasing, the released draws."
    )


def _summary(terms: Terms) -> Section:
    facts = terms.facts
    return Section(
        "In short",
        (
            Text(
                f"A release of tables and synthetic microdata from a survey of "
                f"{facts.design.n:,} records. Confidential: {terms.values}. Guarantee, for the "
                f"release as a whole: {terms.budget}. Unit of protection: {terms.unit}."
                if terms.private
                else f"Tables and microdata from a survey of {facts.design.n:,} records, without "
                "any guarantee. They must not be published."
            ),
            Text(
                f"{_made_from(facts)} Nothing in it was computed from confidential values in any "
                "other way than through the mechanism, and it may be published with the release. "
                "README.md says how to use the data, privacy.json has the same "
                "settings for programs, registry.json is a draft entry for the registry of "
                "deployments of differential privacy."
            ),
        ),
    )
