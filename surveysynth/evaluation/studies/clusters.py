"""Which sample designs leave something to fit, and which synthesizers can fit clusters."""

from collections.abc import Sequence

from surveysynth.errors import InputError
from surveysynth.evaluation.studies.designs import SamplingDesign


def check_clusters(
    design: SamplingDesign, synthesizers: Sequence[str], design_effect: float | None
) -> None:
    """Raises ``InputError`` where weights are determined by strata or clusters, and for
    synthesizers without effects of the clusters of a two-stage design, unless a design effect is
    declared."""
    from surveysynth.models import get_model

    if design.equal_weights:
        raise InputError(
            f"records of a stratum have equal weights under the design {design.kind!r}, so that "
            "the strata tell them and nothing is left to model: choose a design by PPS (of two "
            "stages: within = 'pps')."
        )
    if not design.two_stage and design_effect is not None:
        raise InputError("design_effect is of a two-stage design; leave it out.")
    if not design.two_stage or design_effect is not None:
        return
    if design.within == "srs":
        raise InputError(
            "records of a cluster have equal weights under within = 'srs', which the effects of "
            "clusters would determine: choose within = 'pps' or give design_effect."
        )
    without = [name for name in synthesizers if not get_model(name).clustered]
    if without:
        raise InputError(
            f"the synthesizer {without[0]!r} has no effects of clusters, and its standard errors "
            "would be far too small: leave it out, or give design_effect."
        )
