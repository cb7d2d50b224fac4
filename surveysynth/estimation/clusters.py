"""Primary sampling units in a release: what stands for their correlation, and in which words."""

from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

from surveysynth.estimation.sample_design import SampleDesign

if TYPE_CHECKING:
    from surveysynth.models.base import Model
    from surveysynth.survey.survey import PublicDesign


@dataclass(frozen=True)
class Clusters:
    """The PSUs of a design: their column and number, and the design's degrees of freedom.

    effects: the model has an effect of each of them; else ``design_effect`` was declared, the
    factor by which they raise the variances of a one-stage sample.
    """

    column: str
    units: int
    strata: int
    df_design: int
    effects: bool
    design_effect: float | None

    def as_dict(self) -> dict[str, Any]:
        """Return the facts for privacy.json, all public."""
        return asdict(self)

    @property
    def note(self) -> str:
        """A sentence below every table."""
        strata = "one stratum" if self.strata == 1 else f"{self.strata:,} strata"
        sampled = f"{self.units:,} primary sampling units in {strata}"
        if self.design_effect is None:
            return (
                f"Standard errors are by primary sampling unit: {sampled}, "
                f"{self.df_design:,} degrees of freedom."
            )
        return (
            "Standard errors are those of a one-stage sample times the square root of a declared "
            f"design effect of {self.design_effect:g}, with the {self.df_design:,} degrees of "
            f"freedom of {sampled}."
        )


def clusters_of(design: "PublicDesign", model: "Model | None" = None) -> Clusters | None:
    """Return the PSUs of a design, None without PSUs; without a model ``effects`` is False."""
    from surveysynth.models.base import psu_codes

    if design.psu is None or design.psu_name is None:
        return None
    sample = SampleDesign.from_public(design)
    return Clusters(
        column=design.psu_name,
        units=len(sample.psu_strata),
        strata=sample.n_strata,
        df_design=sample.degrees_of_freedom,
        effects=model is not None and psu_codes(model, design) is not None,
        design_effect=design.design_effect,
    )


def cluster_lines(design: "PublicDesign", model: "Model") -> list[str]:
    """Return lines for ``surveysynth check`` on the treatment of the PSUs."""
    clusters = clusters_of(design, model)
    if clusters is None:
        return []
    if clusters.effects:
        how = "an effect of each in the model, standard errors by unit"
    else:
        how = (
            f"no effects in the model, standard errors of a one-stage sample times the square "
            f"root of the declared design effect of {clusters.design_effect:g}"
        )
    return [
        f"Clusters: {clusters.units:,} primary sampling units ({clusters.column}), "
        f"{clusters.df_design:,} degrees of freedom; {how}.",
        *_repeated_labels(design, clusters),
    ]


def _repeated_labels(design: "PublicDesign", clusters: Clusters) -> list[str]:
    """Return a note on labels of PSUs that occur in several strata.

    Such labels are right where PSUs are numbered by stratum, and a mistake where a PSU crosses
    strata.
    """
    if design.strata is None:
        return []
    labels = design.frame[clusters.column]
    strata = labels.to_frame("label").assign(stratum=design.strata).groupby("label").nunique()
    repeated = int((strata["stratum"] > 1).sum())
    if not repeated:
        return []
    return [
        f"  {repeated:,} of {len(strata):,} labels of units occur in several strata: each is taken "
        "as a unit of its own in every stratum."
    ]
