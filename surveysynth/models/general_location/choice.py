"""When FBS and FBP take the form of a general location model, and which one."""

from collections.abc import Mapping

from surveysynth.errors import InputError
from surveysynth.models.base import require
from surveysynth.models.general_location.groups import LEAST_RECORDS, covariance_groups
from surveysynth.models.general_location.model import GeneralLocation
from surveysynth.survey.survey import PublicDesign


def general_form(
    form: type[GeneralLocation],
    design: PublicDesign,
    covariance_by: tuple[str, ...] | None,
    priors: Mapping[str, float],
    least: int = LEAST_RECORDS,
) -> GeneralLocation | None:
    """The general form of a model that a design needs, or None: the papers' will do.

    It needs one for outcomes with a discrete part or bounds, and where the residual spread is by
    groups. covariance_by None: the finest groups by the by columns where an outcome needs the
    general form anyway, which PSUs with effects do not let it have; else none. ``priors``: those
    that are not the model's defaults; ``least``: records of a group.

    Raises ``InputError`` for columns that groups cannot be made of, and PSUs without a declared
    design effect where the design needs the general form.
    """
    clustered = design.psu is not None and design.design_effect is None
    special = [outcome for outcome in design.outcomes if not outcome.is_plain]
    names = covariance_by
    if names is None:
        names = design.by if special and not clustered else ()
    if names and covariance_groups(design, names, least).count == 1:
        names = ()
    if not (names or special):
        return None
    if clustered:
        what = f"outcome {special[0].name!r}" if special else "covariance_by"
        raise InputError(
            f"The model {form.name!r} has no effects of primary sampling units together with "
            f"{what}: only continuous outcomes without bounds and without covariance_by have them. "
            "Declare survey.design_effect, a public factor by which clustering raises variances."
        )
    known = GeneralLocation.default_priors
    own = {key: value for key, value in priors.items() if key in known}
    model = form(names, least, priors=own)
    require(model, design)
    return model
