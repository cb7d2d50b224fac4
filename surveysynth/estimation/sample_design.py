"""The sample design as variance estimation needs it: strata, PSUs, fpc, lonely PSUs (methods 5).

``Clusters`` describes how the correlation within PSUs is taken into account.
"""

from dataclasses import asdict, dataclass, replace
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, TypeAlias, cast, get_args

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError

if TYPE_CHECKING:
    from surveysynth.models.base import Model
    from surveysynth.survey.survey import PublicDesign

LonelyPsu: TypeAlias = Literal["fail", "remove", "certainty", "adjust", "average"]

#: R's survey takes a stratum as completely sampled if its share of units not sampled is below.
FULLY_SAMPLED = 1e-7


@dataclass(frozen=True)
class SampleDesign:
    """Strata, PSUs and finite population corrections of n records.

    Parameters
    ----------
    strata
        Stratum of each record, codes 0..H-1 all in use, shape (n,).
    psu
        PSU of each record, codes unique across strata, shape (n,). None: each record is its own.
    fpc
        Sampling fraction of PSUs in each stratum, in [0, 1], shape (H,). None: all zero, as in
        sampling with replacement.
    lonely_psu
        The contribution of a stratum with a single PSU, in R's words: "remove" and "certainty"
        nothing, "adjust" the square of its value around zero, "average" the average of the other
        strata, "fail" an error. A completely sampled stratum is not lonely: it contributes nothing.
    design_effect
        A declared factor for clustering: variances are then those of a one-stage sample of the
        records, times this factor, with the degrees of freedom of the PSUs. None: by PSU.

    Raises
    ------
    InputError
        If the arrays do not fit together, or under "fail" if a stratum has a single PSU.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> ss.SampleDesign(np.array([0, 0, 0, 1, 1])).degrees_of_freedom
    3
    """

    strata: IntArray
    psu: IntArray | None = None
    fpc: FloatArray | None = None
    lonely_psu: LonelyPsu = "fail"
    design_effect: float | None = None

    def __post_init__(self) -> None:
        if self.lonely_psu not in get_args(LonelyPsu):
            raise InputError(
                f"lonely_psu must be one of {', '.join(get_args(LonelyPsu))}, "
                f"but got '{self.lonely_psu}'."
            )
        _check_codes("strata", self.strata)
        if self.design_effect is not None and not 0 < self.design_effect < np.inf:
            raise InputError(
                f"A design effect must be a positive number, but got {self.design_effect}."
            )
        if self.psu is not None:
            if self.psu.shape != self.strata.shape:
                raise InputError(
                    f"Strata and PSUs must be of the same records, but there are {self.n} stratum "
                    f"codes and {len(self.psu)} PSU codes."
                )
            _check_codes("PSUs", self.psu)
            split = np.unique(self.psu[self.psu_strata[self.psu] != self.strata]).size
            if split:
                raise InputError(
                    f"A PSU must lie in one stratum, but {split} of {len(self.psu_strata)} lie in "
                    "several; give PSUs codes that are unique across strata."
                )
        if self.fpc is not None:
            if self.fpc.shape != (self.n_strata,):
                raise InputError(
                    f"The fpc needs one sampling fraction for each of the {self.n_strata} strata, "
                    f"but has {self.fpc.size}."
                )
            outside = int((~((self.fpc >= 0) & (self.fpc <= 1))).sum())
            if outside:
                raise InputError(
                    f"The fpc must be a sampling fraction between 0 and 1, but {outside} of "
                    f"{self.n_strata} strata have another value; divide the PSUs sampled by the "
                    "PSUs of the stratum."
                )
        lonely = int(self.lonely.sum())
        if lonely and self.lonely_psu == "fail":
            raise InputError(
                "A variance needs at least two PSUs (without a psu column: records) in each "
                f"stratum, but {lonely} of {self.n_strata} strata have one; combine strata, or set "
                "lonely_psu to remove, certainty, adjust or average."
            )

    @classmethod
    def from_public(cls, design: "PublicDesign") -> "SampleDesign":
        """Take the sample design from the public part of a survey; no strata means one stratum."""
        strata = design.strata
        return cls(
            strata=np.zeros(design.n, dtype=np.int64) if strata is None else strata,
            psu=design.psu,
            fpc=design.fpc,
            lonely_psu=cast("LonelyPsu", design.lonely_psu),  # the word is checked above
            design_effect=design.design_effect,
        )

    @property
    def one_stage(self) -> "SampleDesign":
        """The records as a one-stage sample; the sampling fractions stay those of the PSUs."""
        return replace(self, psu=None, design_effect=None)

    @property
    def n(self) -> int:
        """Number of records."""
        return len(self.strata)

    @cached_property
    def n_strata(self) -> int:
        """Number of strata, H."""
        return int(self.strata.max()) + 1

    @cached_property
    def psu_strata(self) -> IntArray:
        """Stratum of each PSU, in the order of the PSU codes, shape (number of PSUs,)."""
        if self.psu is None:
            return self.strata
        strata = np.full(int(self.psu.max()) + 1, -1, dtype=np.int64)
        strata[self.psu] = self.strata
        return strata

    @cached_property
    def psus_in_stratum(self) -> IntArray:
        """Number of PSUs of each stratum, n_h, shape (H,)."""
        return np.bincount(self.psu_strata, minlength=self.n_strata)

    @cached_property
    def share_not_sampled(self) -> FloatArray:
        """Share of the PSUs of each stratum that were not sampled, 1 - f_h, shape (H,)."""
        if self.fpc is None:
            return np.ones(self.n_strata)
        share = 1.0 - self.fpc
        return np.where(share < FULLY_SAMPLED, 0.0, share)

    @cached_property
    def lonely(self) -> BoolArray:
        """True where a stratum has one PSU and is not completely sampled, shape (H,)."""
        lonely: BoolArray = (self.psus_in_stratum == 1) & (self.share_not_sampled > 0)
        return lonely

    @cached_property
    def multiplier(self) -> FloatArray:
        """Factor of each stratum's sum of squares, (1 - f_h) n_h / (n_h - 1), shape (H,)."""
        single = self.psus_in_stratum == 1
        factor = self.psus_in_stratum / np.where(single, 1, self.psus_in_stratum - 1)
        factor[single] = 1.0 if self.lonely_psu == "adjust" else 0.0
        return self.share_not_sampled * factor

    @property
    def degrees_of_freedom(self) -> int:
        """Number of PSUs less number of strata."""
        return len(self.psu_strata) - self.n_strata


def _check_codes(name: str, codes: IntArray) -> None:
    """Raise InputError unless the codes are 0, 1, .. with none left out."""
    if codes.size == 0:
        raise InputError(f"A sample design needs at least one record, but the {name} are empty.")
    if codes.ndim != 1 or codes.min() < 0 or not np.bincount(codes).all():
        raise InputError(f"The codes of the {name} must be one axis of 0, 1, .. all in use.")


@dataclass(frozen=True)
class Clusters:
    """The PSUs of a design: their column and number, and the design's degrees of freedom.

    Without a column, as in a file that has replicate weights alone, records stand for them and a
    design effect was declared. effects: the model has an effect of each of them; else
    ``design_effect`` was declared, the factor by which they raise the variances of a one-stage
    sample.
    """

    column: str | None
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
        units = "records" if self.column is None else "primary sampling units"
        sampled = f"{self.units:,} {units} in {strata}"
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
    """Return the PSUs of a design, or records with a declared design effect; None without both.

    Without a model ``effects`` is False.
    """
    from surveysynth.models.base import psu_codes

    if design.psu is None and design.design_effect is None:
        return None
    sample = SampleDesign.from_public(design)
    return Clusters(
        column=design.psu_name if design.psu is not None else None,
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
    units = f"{clusters.units:,} primary sampling units ({clusters.column})"
    if clusters.column is None:
        units = f"no column of primary sampling units, {clusters.units:,} records"
    lines = [f"Clusters: {units}, {clusters.df_design:,} degrees of freedom; {how}."]
    if design.strata is None or clusters.column is None:
        return lines
    # Right where PSUs are numbered by stratum, and a mistake where a PSU crosses strata.
    labels = design.frame[clusters.column]
    strata = labels.to_frame("label").assign(stratum=design.strata).groupby("label").nunique()
    repeated = int((strata["stratum"] > 1).sum())
    if repeated:
        lines.append(
            f"  {repeated:,} of {len(strata):,} labels of units occur in several strata: each is "
            "taken as a unit of its own in every stratum."
        )
    return lines
