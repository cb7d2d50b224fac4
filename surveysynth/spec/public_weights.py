"""What a specification with public weights cannot ask for."""

from surveysynth.spec.outcome_section import Outcomes
from surveysynth.spec.outcomes import WEIGHT
from surveysynth.spec.sections import SurveySection, SynthesizerSection, TablesSection


def public_weight_problems(
    survey: SurveySection,
    synthesizer: SynthesizerSection,
    tables: TablesSection,
    outcomes: Outcomes,
) -> list[str]:
    """Models of confidential weights, and settings of weights that are modelled or scaled."""
    if not survey.public_weights:
        return []
    problems = []
    if "confidential_weight" in synthesizer.requires:
        problems.append(
            f"synthesizer.model: {synthesizer.model!r} models selection by confidential weights, "
            "and weights = 'public' leaves none; use 'fbs'."
        )
    if WEIGHT in outcomes and WEIGHT not in synthesizer.outcome:
        problems.append(
            "outcomes.weight: weights = 'public' are not modelled and need neither centre nor "
            "spread; leave it out."
        )
    if tables.linearisation == "ratio":
        problems.append(
            "tables.linearisation: 'ratio' is for weights that are scaled to "
            "survey.population_size; weights = 'public' are used as they are. Leave it out."
        )
    return problems
