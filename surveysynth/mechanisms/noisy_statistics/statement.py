"""What a release by noisy statistics guarantees and what it does not, in words (strict 1)."""

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
    """The statement of a release with these settings; ``test``: the noise came from a seed."""
    return Statement(
        guarantee=((SEEDED,) if test else ()) + _guarantee(design, settings, model),
        assumptions=(*public_assumptions(design), *_constants(design, settings)),
        not_covered=_not_covered(design, settings),
    )


def _neighbours(design: PublicDesign, settings: NoisySettings) -> str:
    weights = ", weights above zero" if design.public_weight is None else ""
    kept = (
        "the number of records, their design variables and which values are missing stay the same, "
        f"and both databases are valid: finite numbers{weights}, outcomes whose "
        "transform is a finite number"
    )
    if settings.protect == RECORD:
        values = confidential_part(design)
        return f"Neighbouring databases differ in {values} of one record; {kept}."
    values = confidential_part(design, several=True)
    return (
        f"Neighbouring databases differ in {values} of all records of one "
        f"unit of {settings.protect!r}; {kept}. Units have up to "
        f"{settings.unit_size(design):,} records, a public number, and who belongs to a unit is "
        "public."
    )


def _guarantee(
    design: PublicDesign, settings: NoisySettings, model: Model
) -> tuple[str, ...]:
    budget = settings.budget
    by_unit = (
        f" Sums by primary sampling unit ({design.psu_name}) are among them."
        if psu_codes(model, design) is not None
        else ""
    )
    logs = "" if design.public_weight is not None else " and log weights"
    what = (
        "Numbers of records by row of the model matrix and category of every outcome and, for each "
        "set of amounts that records have and each group of rows with one residual spread, sums "
        f"and sums of products of the transformed amounts{logs},"
        if isinstance(model, GeneralLocation)
        else f"Sums and sums of products of the transformed outcomes{logs}, by the columns of the "
        "model matrix,"
    )
    return (
        f"{what} were released with noise (statistics.json). Everything else in this "
        "release is computed from those numbers and from public ones alone: the draws of "
        f"{model.title}, the {settings.m} synthetic datasets and the tables.{by_unit}",
        f"The noisy sums satisfy {GUARANTEE} with rho = {budget.rho:.6g}, and hence differential "
        f"privacy with epsilon = {budget.epsilon:.6g} and delta = {budget.delta:.3g}. This is "
        "proved for every pair of neighbouring databases of any size; nothing in it is "
        f"asymptotic. {_neighbours(design, settings)}",
        "How it is proved: every record is centred and scaled by declared public constants, "
        "clipped to a ball and rounded to a grid of whole numbers, so that sums are exact; one "
        "unit of protection moves them by no more than a known distance, whatever it holds; and "
        "discrete Gaussian noise is drawn exactly, in whole numbers, from the operating system's "
        "random numbers. The mechanism answers on every valid database: nothing that the data say "
        "can stop it. Nothing is assumed of floating-point numbers, of the pseudo-random numbers "
        "or of the Markov chains that follow the noise: what follows can make tables worse, not "
        "less private.",
        "Further tables, other models of the same columns and any number of further draws from "
        "the published noisy sums cost nothing more. Noise drawn anew does: its rho adds up.",
    )


def column_names(design: PublicDesign) -> list[str]:
    """Columns with a centre and a spread: amounts, and the log weight."""
    amounts = [
        f"{outcome.name} {outcome.side_name(side)}".strip()
        for outcome in design.outcomes
        for side in outcome.sides
    ]
    return [*amounts, *(["log weight"] if design.weight_name else [])]


def _constants(design: PublicDesign, settings: NoisySettings) -> tuple[str, ...]:
    clipping = settings.clipping(design)
    names = column_names(design)
    scales = "; ".join(
        f"{name}: {centre:.6g} and {spread:.6g}"
        for name, centre, spread in zip(
            names, clipping.centre.tolist(), clipping.spread.tolist(), strict=True
        )
    )
    return (
        "centre and spread of each column on the scale of its transform, declared from public "
        f"sources and not from these data ({scales}){_of_weight(design, settings)}, and the radius "
        f"of the ball, {clipping.radius:.6g} spreads",
        "which values are valid and which are missing",
        "that the operating system's random numbers cannot be predicted",
    )


def _of_weight(design: PublicDesign, settings: NoisySettings) -> str:
    """What of the log weight nobody declared."""
    if design.weight_name is None:
        return ""
    parts = []
    if settings.weight.centre is None:
        parts.append("centre, which is log(N/n) with the public population size N")
    if settings.weight.spread is None:
        parts.append("spread, which is a default of the package")
    if not parts:
        return ""
    return f", but of the log weight the {' and the '.join(parts)}"


def _not_covered(design: PublicDesign, settings: NoisySettings) -> tuple[str, ...]:
    items = []
    if settings.protect == RECORD:
        items.append(
            f"Clusters: protection is of single records{not_units(design)}. A household, an "
            "employer or a primary sampling unit with several records is protected as a whole "
            "only by a larger budget: rho grows with the square of its size."
        )
    items += [
        "Other releases from the same survey: their rhos add up, and so does that of a run that "
        "was refused or stopped after its noise was drawn, unless this release went on from its "
        "noisy numbers. An asymptotic epsilon of the pseudo-posterior mechanism is another "
        "currency and is never added to rho.",
        "The choice of the constants, the model and the tables, if it was made by looking at these "
        f"outcomes{' or weights' if design.public_weight is None else ''}.",
        "How long the computation took, and other traces of it outside the published files.",
    ]
    return tuple(items)
