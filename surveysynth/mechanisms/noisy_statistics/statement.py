"""What a release by noisy statistics guarantees and what it does not, in words (strict 1)."""

from surveysynth._support.templates import render
from surveysynth.mechanisms.noisy_statistics.settings import RECORD, NoisySettings
from surveysynth.mechanisms.statement import (
    SEEDED,
    Statement,
    confidential_part,
    not_units,
    public_assumptions,
)
from surveysynth.models.base import Model, psu_codes
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.survey.survey import PublicDesign

GUARANTEE = "zero-concentrated differential privacy"


def strict_statement(
    design: PublicDesign, settings: NoisySettings, model: Model, *, test: bool = False
) -> Statement:
    """Return the statement of a release with these settings.

    ``test``: its noise came from a seed."""
    budget, clipping = settings.budget, settings.clipping(design)
    public, by_unit = design.public_weight is not None, settings.protect != RECORD
    scales = zip(
        column_names(design), clipping.centre.tolist(), clipping.spread.tolist(), strict=True
    )
    text = render(
        "surveysynth.mechanisms.noisy_statistics",
        "words/statement.md.j2",
        test=test,
        seeded=SEEDED,
        guarantee=GUARANTEE,
        rho=f"{budget.rho:.6g}",
        epsilon=f"{budget.epsilon:.6g}",
        delta=f"{budget.delta:.3g}",
        values=confidential_part(design, several=by_unit),
        unit=repr(settings.protect) if by_unit else None,
        unit_size=f"{settings.unit_size(design):,}",
        public_weight=public,
        general=isinstance(model, GeneralLocation),
        logs="" if public else " and log weights",
        psu=None if psu_codes(model, design) is None else design.psu_name,
        title=model.title,
        m=settings.m,
        public=public_assumptions(design),
        scales="; ".join(f"{name}: {mid:.6g} and {spread:.6g}" for name, mid, spread in scales),
        weight_defaults=_weight_defaults(design, settings),
        radius=f"{clipping.radius:.6g}",
        not_units=not_units(design),
    )
    return Statement.read(text)


def column_names(design: PublicDesign) -> list[str]:
    """Return the columns with a center and a spread: amounts, and the log weight."""
    amounts = [
        f"{outcome.name} {outcome.side_name(side)}".strip()
        for outcome in design.outcomes
        for side in outcome.sides
    ]
    return [*amounts, *(["log weight"] if design.weight_name else [])]


def _weight_defaults(design: PublicDesign, settings: NoisySettings) -> str:
    """Return which constants of the log weight nobody declared, and what they are instead."""
    if design.weight_name is None:
        return ""
    defaults = (
        (settings.weight.centre, "the center is log(N/n) with the public population size N"),
        (settings.weight.spread, "the spread is a default of the package"),
    )
    return " and ".join(words for declared, words in defaults if declared is None)
