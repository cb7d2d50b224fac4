"""The guarantee of a release in words: the parts shared by all mechanisms.

Their text is in the templates of the folders ``words``.
"""

import re
from dataclasses import dataclass
from typing import Any

from surveysynth._support.templates import render
from surveysynth.survey.survey import PublicDesign

SEEDED = (
    "THIS IS A TEST AND NOT PRIVATE: its random numbers come from a seed, so anyone who has the "
    "seed can undo the protection."
)


@dataclass(frozen=True)
class Statement:
    """The guarantee in paragraphs, its conditions, and its limits.

    assumptions: what is public by assumption or assumed of the computation; not_covered: what
    epsilon does not cover. outside: the settings that take the release out of what is stated, as a
    clause that has to follow epsilon wherever it is named; empty for all others.
    """

    guarantee: tuple[str, ...]
    assumptions: tuple[str, ...]
    not_covered: tuple[str, ...]
    outside: str = ""

    @classmethod
    def read(cls, text: str, outside: str = "") -> "Statement":
        """Return the statement of a filled-in template.

        Its headings are "# guarantee" with paragraphs, and "# assumptions" and "# not covered" with
        a list each. Lines of a paragraph or an item are joined.
        """
        _, *parts = re.split(r"^# (.+)$", text, flags=re.MULTILINE)
        bodies = dict(zip(parts[::2], parts[1::2], strict=True))
        guarantee = _texts(bodies["guarantee"], r"^\s*$")
        assumptions, limits = (_texts(bodies[key], "^- ") for key in ("assumptions", "not covered"))
        return cls(guarantee, assumptions, limits, outside)

    @property
    def paragraphs(self) -> tuple[str, ...]:
        """The whole statement as Markdown paragraphs, lists included."""
        return (
            *self.guarantee,
            "Public by assumption, or assumed of the computation:\n\n" + _items(self.assumptions),
            "What epsilon does not cover:\n\n" + _items(self.not_covered),
        )

    def as_dict(self) -> dict[str, Any]:
        """Return the statement and its lists for privacy.json."""
        return {
            "statement": list(self.guarantee),
            "assumptions": list(self.assumptions),
            "not_covered": list(self.not_covered),
        }


def _texts(body: str, between: str) -> tuple[str, ...]:
    found = (each.strip() for each in re.split(between, body, flags=re.MULTILINE))
    return tuple(re.sub(r"\s*\n\s*", " ", each) for each in found if each)


def _items(texts: tuple[str, ...]) -> str:
    return "\n".join(f"- {text}" for text in texts)


def public_assumptions(design: PublicDesign) -> str:
    """Return what is taken as public under every mechanism, a list in Markdown."""
    sizes, effect, size = design.stratum_sizes, design.design_effect, design.population_size
    counts = () if sizes is None else (f"{level}: {n:,.10g}" for level, n in sizes.items())
    public = design.public_weight is not None
    return render(
        "surveysynth.mechanisms",
        "words/public.md.j2",
        n=f"{design.n:,}",
        columns=", ".join(map(str, design.frame.columns)),
        weight=design.public_weight_name if public else None,
        weight_is_predictor=design.public_weight_name in design.predictors,
        stratum_counts=", ".join(counts),
        fpc=design.fpc is not None,
        design_effect=None if effect is None else f"{effect:g}",
        population_size=None if size is None else f"{size:,.10g}",
        transforms=", ".join(each.formulas for each in design.outcomes if each.is_amount),
        kinds="; ".join(
            f"{each.name} ({each.public_words})" for each in design.outcomes if each.public_words
        ),
        dropped=f"{design.dropped:,}" if design.dropped else None,
    ).rstrip()


def confidential_part(design: PublicDesign, *, several: bool = False) -> str:
    """Return what neighbors differ in: outcomes, and sampling weights unless they are public."""
    if design.public_weight is not None:
        return "the outcomes"
    return f"the outcomes and {'sampling weights' if several else 'the sampling weight'}"


def not_units(design: PublicDesign) -> str:
    """Return the survey's own PSUs, by name, as a clause on what protection of records omits."""
    return "" if design.psu_name is None else f", not of primary sampling units ({design.psu_name})"
