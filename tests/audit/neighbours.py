"""Databases that differ from a given one in one record, or in the records of one unit.

The replaced records are those whose replacement is likely to reveal the most. The new values are
extreme but valid: outcomes many SDs from the others, weights many times larger or smaller, other
categories.
"""

from dataclasses import dataclass, replace

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.survey.design_matrix import records_per_coefficient
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import Confidential, PublicDesign, Survey

#: Leverages this close to the largest count as ties.
TIE = 1e-9


@dataclass(frozen=True)
class Change:
    """A change of a record.

    sds: amounts are put so many SDs from their fit, with several outcomes in the same direction, or
    in turns if ``turns``; None: they stay. factor: of the weight. recode: outcomes with categories
    or spikes move to the rarest of their other categories.
    """

    sds: float | None = None
    factor: float = 1.0
    recode: bool = False
    turns: bool = False

    @property
    def name(self) -> str:
        """The change in words."""
        turns = ", in turns" if self.turns else ""
        parts = (
            "" if self.sds is None else f"outcome {self.sds:+g} SD{turns}",
            "other category" if self.recode else "",
            "" if self.factor == 1.0 else f"weight x {self.factor:g}",
        )
        return ", ".join(filter(None, parts))


#: Changes of the outcome, of the weight, and of both together.
CHANGES = (
    *(Change(sign * size) for size in (2.0, 4.0, 8.0) for sign in (-1, 1)),
    Change(factor=50.0), Change(factor=0.02),
    Change(8.0, 50.0), Change(8.0, 0.02), Change(-8.0, 50.0), Change(-8.0, 0.02),
)  # fmt: skip
#: Added for several outcomes, and for outcomes with categories or spikes.
IN_TURNS = (Change(4.0, turns=True), Change(-8.0, 50.0, turns=True))
RECODED = (Change(recode=True), Change(factor=50.0, recode=True), Change(8.0, 0.02, recode=True))
#: The changes that are worst in most settings, for a quick test.
FEW = (Change(2.0), Change(factor=50.0), Change(factor=0.02), Change(-8.0, 50.0))


def changes_for(design: PublicDesign, *, few: bool = False) -> tuple[Change, ...]:
    """Return the changes that are meaningful in a design, none twice."""
    chosen = FEW if few else CHANGES
    if sum(each.is_amount for each in design.outcomes) > 1:
        chosen += IN_TURNS[1:] if few else IN_TURNS
    if any(each.is_discrete for each in design.outcomes):
        chosen += RECODED[:1] if few else RECODED
    if design.weight_name is None:
        chosen = tuple(replace(each, factor=1.0) for each in chosen)
    if not any(each.is_amount for each in design.outcomes):
        chosen = tuple(replace(each, sds=None, turns=False) for each in chosen)
    return tuple(dict.fromkeys(each for each in chosen if each.name))


@dataclass(frozen=True, repr=False)
class Centres:
    """Centres of amounts on the scale of their transform: of each record (n, p), and SDs (p,)."""

    fit: FloatArray
    sd: FloatArray

    @classmethod
    def of(cls, survey: Survey) -> "Centres":
        """Fit transformed amounts on X by least squares, for records at no spike."""
        design = survey.design
        rows = design.matrix.x_cells[design.matrix.cell]
        fits, sds = np.zeros(survey.confidential.outcome.shape), []
        for j, outcome in enumerate(design.outcomes):
            values = survey.confidential.outcome[:, j]
            there = outcome.regular(values)
            if not there.any():
                sds.append(1.0)
                continue
            z = outcome.transform.forward(values[there])
            fits[:, j] = rows @ np.linalg.lstsq(rows[there], z, rcond=None)[0]
            sds.append(float(np.std(z - fits[there, j])) or 1.0)
        return cls(fits, np.array(sds))


def places(survey: Survey, centres: Centres | None = None) -> dict[str, IntArray]:
    """Return records to replace, by kind.

    Kinds: in the largest cell of X, the smallest, the smallest stratum, the smallest PSU, of
    highest leverage, and of the rarest answer to an outcome with categories. Of each kind it is the
    record nearest to its fit. A record of several kinds occurs under each.
    """
    design, centres = survey.design, centres or Centres.of(survey)
    cell = design.matrix.cell
    leverage = 1.0 / records_per_coefficient(design.matrix)[cell]
    sizes = np.bincount(cell)[cell]
    groups = {
        "typical": sizes == sizes.max(),
        "smallest cell": sizes == sizes.min(),
        "highest leverage": leverage >= leverage.max() * (1 - TIE),
    }
    for name, codes in (("smallest stratum", design.strata), ("smallest PSU", design.psu)):
        if codes is not None:
            own = np.bincount(codes)[codes]
            groups[name] = own == own.min()
    for j, outcome in enumerate(design.outcomes):
        if outcome.is_discrete:
            category = outcome.category(survey.confidential.outcome[:, j])
            own = np.bincount(category)[category]
            groups[f"rarest {outcome.name}"] = own == own.min()
    distance = _distances(survey, centres)
    return {
        name: np.flatnonzero(group)[[np.argmin(distance[group])]]
        for name, group in groups.items()
    }


def apart(found: dict[str, IntArray]) -> dict[str, IntArray]:
    """Merge the kinds of equal records: every record once, under all of its names."""
    names: dict[tuple[int, ...], list[str]] = {}
    for name, records in found.items():
        names.setdefault(tuple(records.tolist()), []).append(name)
    return {", ".join(each): np.array(records) for records, each in names.items()}


def _distances(survey: Survey, centres: Centres) -> FloatArray:
    """Return each record's distance from its fit, in SDs, (n,); spikes and categories have none."""
    distance = np.zeros(survey.design.n)
    for j, outcome in enumerate(survey.design.outcomes):
        values = survey.confidential.outcome[:, j]
        there = outcome.regular(values)
        z = outcome.transform.forward(values[there])
        distance[there] += np.abs(z - centres.fit[there, j]) / centres.sd[j]
    return distance


def changed(
    survey: Survey,
    records: IntArray,
    change: Change,
    *,
    count: bool = False,
    centres: Centres | None = None,
) -> Confidential:
    """Return the survey's confidential half with these records replaced.

    ``count``: outcomes are whole numbers of at least zero.
    """
    centres = centres or Centres.of(survey)
    outcome = survey.confidential.outcome.copy()
    weight = survey.confidential.sampling_weight
    sign = 1.0
    for j, each in enumerate(survey.design.outcomes):
        if change.recode and each.is_discrete:
            outcome[records, j] = _recoded(each, outcome[:, j], records)
        elif change.sds is not None and each.is_amount:
            z = centres.fit[records, j] + sign * change.sds * centres.sd[j]
            outcome[records, j] = _amount(each, z, count=count)
            sign = -sign if change.turns else sign
    if weight is not None and change.factor != 1.0:
        weight = weight.copy()
        weight[records] *= change.factor
    return Confidential(outcome, weight)


def _amount(outcome: Outcome, z: FloatArray, *, count: bool) -> FloatArray:
    """Return transformed values in original units, within the outcome's range."""
    values = outcome.transform.inverse(z)
    if count:
        return np.maximum(0.0, np.round(values))
    return np.asarray(np.clip(values, outcome.lower, outcome.upper), dtype=np.float64)


def _recoded(outcome: Outcome, values: FloatArray, records: IntArray) -> FloatArray:
    """Return the rarest other category of each record; an amount if that is at no spike."""
    category = outcome.category(values)
    sizes = np.bincount(category, minlength=outcome.categories).astype(np.float64)
    new = np.empty(records.size, dtype=np.int64)
    for position, own in enumerate(category[records]):
        new[position] = np.argmin(np.where(np.arange(sizes.size) == own, np.inf, sizes))
    amount = np.median(values[category == 0]) if (category == 0).any() else 1.0
    transformed = outcome.transform.forward(np.full(records.size, amount))
    return outcome.values(new, transformed)
