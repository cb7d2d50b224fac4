"""What a release guarantees, in words: what the statements of all mechanisms share."""

from dataclasses import dataclass
from typing import Any

from surveysynth.survey.survey import PublicDesign

SEEDED = (
    "THIS IS A TEST AND NOT PRIVATE: its random numbers come from a seed, so anyone who has the "
    "seed can undo the protection."
)


@dataclass(frozen=True)
class Statement:
    """The guarantee in paragraphs, what is public by assumption, what epsilon does not cover.

    ``outside``: the settings that take the release out of what is stated, as a clause that has to
    follow epsilon wherever it is named; empty for all others."""

    guarantee: tuple[str, ...]
    assumptions: tuple[str, ...]
    not_covered: tuple[str, ...]
    outside: str = ""

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The whole statement as Markdown paragraphs, lists included."""
        return (
            *self.guarantee,
            "Public by assumption, or assumed of the computation:\n\n" + _items(self.assumptions),
            "What epsilon does not cover:\n\n" + _items(self.not_covered),
        )

    def as_dict(self) -> dict[str, Any]:
        """For privacy.json: the statement and its lists."""
        return {
            "statement": list(self.guarantee),
            "assumptions": list(self.assumptions),
            "not_covered": list(self.not_covered),
        }


def _items(texts: tuple[str, ...]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def public_assumptions(design: PublicDesign) -> tuple[str, ...]:
    """What is taken as public, under every mechanism."""
    columns = list(design.frame.columns)
    items = [f"who is in the sample: the {design.n:,} records and hence every unweighted cell size"]
    if columns:
        items.append("the design variables of each record: " + ", ".join(map(str, columns)))
    if design.public_weight is not None:
        items.append(_public_weight(design))
    if design.fpc is not None:
        items.append("the sampling fractions of the strata")
    if design.design_effect is not None:
        items.append(
            f"the design effect of clustering, {design.design_effect:g}, declared by the publisher"
        )
    if design.population_size is not None:
        items.append(f"the population size, {design.population_size:,.10g}")
    amounts = [outcome for outcome in design.outcomes if outcome.is_amount]
    if amounts:
        constants = ", ".join(each.formulas for each in amounts)
        items.append(f"the transforms of the outcomes with their constants: {constants}")
    kinds = [f"{each.name} ({each.public_words})" for each in design.outcomes if each.public_words]
    if kinds:
        items.append(
            "the kinds of outcomes with their levels, spikes, splits and bounds, none of them read "
            f"from the data: {'; '.join(kinds)}"
        )
    items.append(
        "the settings: model, formula, priors, epsilon and all others, chosen without a look at "
        "the outcomes" + ("" if design.public_weight is not None else " and weights")
    )
    if design.dropped:
        items.append(
            f"which records were dropped for missing values ({design.dropped:,}), item "
            "nonresponse included"
        )
    return tuple(items)


def _public_weight(design: PublicDesign) -> str:
    name, sizes = design.public_weight_name, design.stratum_sizes
    made = ""
    if sizes is not None:
        counts = ", ".join(f"{level}: {size:,.10g}" for level, size in sizes.items())
        made = f" that follow from the population counts of the strata ({counts})"
    known = (
        f"log({name}) is a predictor of the model"
        if name in design.predictors
        else "records that are alike in the predictors have equal weights"
    )
    return (
        f"the sampling weights ({name}), constants of the sample design{made}. They are neither "
        f"modelled nor protected but used and published as they are; {known}. Numbers of "
        "units in rows by public columns follow from public values alone"
    )


def confidential_part(design: PublicDesign, *, several: bool = False) -> str:
    """What neighbours differ in: outcomes, and sampling weights unless they are public."""
    if design.public_weight is not None:
        return "the outcomes"
    return f"the outcomes and {'sampling weights' if several else 'the sampling weight'}"


def not_units(design: PublicDesign) -> str:
    """The survey's own PSUs, by name, for a sentence on what protection of records leaves out."""
    return "" if design.psu_name is None else f", not of primary sampling units ({design.psu_name})"
