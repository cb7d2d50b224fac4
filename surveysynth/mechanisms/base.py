"""Members of a mechanism, which turns a confidential survey into draws that may be published.

A mechanism owns its settings, its guarantee in words, what it publishes beside the draws, and how
estimates from them combine. Nothing outside this package knows risk weights, bounds or noise.
The text of statements is in the templates of the folders ``words``.
"""

import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Literal, Protocol

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.resources import render
from surveysynth._support.types import Theta
from surveysynth.models.base import Model
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.survey.declaration import MEASURED, RHO_FACTORS
from surveysynth.survey.outcome import BELOW, Outcome
from surveysynth.survey.survey import Confidential, PublicDesign

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


def gap_of_weights(design: PublicDesign) -> str:
    """Return what is not known about the weights, as a sentence; empty if it is declared."""
    given = design.weights_from
    weighted = design.weight_name is not None or design.public_weight is not None
    if not weighted or design.stratum_sizes is not None or isinstance(given, tuple):
        return ""
    if given is None:
        return "What the weights were computed from is not stated (weights_from)."
    return f"What the weights were computed from is not known (weights_from = {given})."


def uncovered_weights(design: PublicDesign, *, proved: bool) -> str:
    """Return what is not covered of weights that may come from answers: one item, or nothing."""
    return render(
        "surveysynth.mechanisms",
        "words/weights_gap.md.j2",
        gap=gap_of_weights(design),
        public_weight=design.public_weight is not None,
        proved=proved,
        low=f"{MEASURED[0]:g}",
        high=f"{MEASURED[1]:g}",
        few=f"{RHO_FACTORS[0]:g}",
        many=f"{RHO_FACTORS[1]:g}",
    ).rstrip()


def public_assumptions(design: PublicDesign, *, by_unit: bool = False) -> str:
    """Return what every mechanism treats as public, a list in Markdown."""
    sizes, effect, size = design.stratum_sizes, design.design_effect, design.population_size
    counts = () if sizes is None else (f"{level}: {n:,.10g}" for level, n in sizes.items())
    public = design.public_weight is not None
    return render(
        "surveysynth.mechanisms",
        "words/public.md.j2",
        n=f"{design.n:,}",
        columns=", ".join(map(str, design.frame.columns)),
        predictors=design.matrix.words,
        weight=design.public_weight_name if public else None,
        weighted=design.weight_name is not None,
        gap=gap_of_weights(design),
        sources=", ".join(design.weights_from) if isinstance(design.weights_from, tuple) else "",
        unit=by_unit,
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
        drops=design.missing == "drop",
    ).rstrip()


def confidential_part(design: PublicDesign, *, several: bool = False) -> str:
    """Return what neighbors differ in: outcomes, and sampling weights unless they are public."""
    if design.public_weight is not None:
        return "the outcomes"
    return f"the outcomes and {'sampling weights' if several else 'the sampling weight'}"


def not_units(design: PublicDesign) -> str:
    """Return the survey's own PSUs, by name, as a clause on what protection of records omits."""
    return "" if design.psu_name is None else f", not of primary sampling units ({design.psu_name})"


Progress = Callable[[str], None]
"""Called with the name of each stage as it begins; never with anything computed from the data."""


class Settings(Protocol):
    """The settings that every mechanism has: fixed before the data are seen, hence public."""

    @property
    def epsilon(self) -> float:
        """The target of the whole release."""

    @property
    def m(self) -> int:
        """Number of released draws."""

    @property
    def plan(self) -> SamplingPlan:
        """Size of a fit."""

    @property
    def private(self) -> bool:
        """True if anything is protected."""


@dataclass(frozen=True)
class PrivateDraws:
    """The draws that a mechanism releases: nothing confidential.

    Parameters
    ----------
    model
        Name of the synthesizer.
    theta
        Its parameters by name, m draws on the leading axis.
    settings
        The mechanism's settings, all public.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> settings = ss.MechanismSettings(epsilon=10.8, m=3)
    >>> draws = ss.PrivateDraws("fbs", {"beta": np.ones((3, 2))}, settings)
    >>> draws.draw(0)
    {'beta': array([1., 1.])}
    """

    model: str
    theta: Theta
    settings: Settings

    def draw(self, index: int) -> Theta:
        """Return the parameters of released draw ``index`` (from 0), without a leading axis."""
        return {name: values[index] for name, values in self.theta.items()}


Currency = Literal["epsilon", "rho"]
"""What the costs of releases add up in: an asymptotic epsilon, or the rho of zCDP."""

Combining = Literal["partial_synthesis", "total_variance"]
"""How estimates from the datasets of several draws combine (methods 5, strict 3)."""

COMBINING_RULES: Mapping[Combining, str] = {
    "partial_synthesis": "rules of partial synthesis",
    "total_variance": "law of total variance",
}


@dataclass(frozen=True, repr=False)
class Released(Unpickled):
    """The result of a run: draws and files to publish, and what must stay confidential.

    published: contents of further published files, JSON-ready, by name; realized: scalars for the
    confidential folder, JSON-ready; by_record: columns (n,) for it, or none; design: the
    one that draws are of, where transforms were learned.
    """

    draws: PrivateDraws
    published: Mapping[str, Any] = field(default_factory=dict)
    realised: Mapping[str, Any] = field(default_factory=dict)
    by_record: Mapping[str, Any] = field(default_factory=dict)
    design: PublicDesign | None = None

    def design_of(self, given: PublicDesign) -> PublicDesign:
        """Return the design that the draws are of: the given one, or with learned transforms."""
        own = self.design
        if own is None or own.modelled == given.modelled:
            return given
        return replace(given, outcomes=own.outcomes, weight_transform=own.weight_transform)


class NoiseKeeper(Protocol):
    """Records noise as soon as it is drawn, before anything follows from it."""

    def earlier(self) -> Mapping[str, Any] | None:
        """Return noisy numbers of an earlier, unreleased run to continue from; None: draw anew."""

    def keep(self, statistics: Mapping[str, Any]) -> None:
        """Record noisy numbers that were drawn, JSON-ready."""


class Mechanism(Protocol):
    """A mechanism with its settings: all public except what ``run`` receives."""

    @property
    def name(self) -> str:
        """The name in a specification."""

    @property
    def settings(self) -> Settings:
        """As declared."""

    @property
    def combining(self) -> Combining:
        """The rule for estimates from its draws."""

    @property
    def down_weights(self) -> bool:
        """True if draws are from a down-weighted posterior, which debiasing undoes."""

    @property
    def risk(self) -> str | None:
        """The measure of what records risk, where one is taken."""

    @property
    def note(self) -> str:
        """One sentence below every table."""

    def prepared(self, design: PublicDesign) -> PublicDesign:
        """Return the design that models are fitted to, from public columns alone.

        Raises ``RefusedError`` for one that it cannot protect.
        """

    def run(
        self,
        model: Model,
        design: PublicDesign,
        confidential: Confidential,
        rng: np.random.Generator,
        progress: Progress | None = None,
        *,
        seeded: bool = False,
        keeper: NoiseKeeper | None = None,
    ) -> Released:
        """Return what may be published, and what must stay confidential.

        ``seeded``: a test, which rng repeats; ``keeper``: keeps the noise of a mechanism
        that draws noise before all else."""

    def statement(self, model: Model, design: PublicDesign, *, test: bool = False) -> Statement:
        """Return the guarantee in words."""

    def guarantee(self) -> dict[str, Any]:
        """Return the guarantee for programs: the head of privacy.json."""

    def described(self, design: PublicDesign) -> dict[str, Any]:
        """Return the other settings for programs, JSON-ready."""


@dataclass(frozen=True)
class Declared:
    """The public constants of a column, from public sources and never from the data.

    Parameters
    ----------
    center
        A typical value, in the units of an outcome or as a log weight.
    spread
        A typical SD, on the scale of the transform or of log weights.

    Examples
    --------
    >>> import surveysynth as ss
    >>> ss.Declared(center=40_000.0, spread=0.6).spread
    0.6
    """

    center: float | None = None
    spread: float | None = None


def typical(
    outcome: Outcome, side: int, above: Mapping[str, Declared], below: Mapping[str, Declared]
) -> tuple[float, float] | None:
    """Return center and spread of an amount on the scale of its transform; None if undeclared.

    above, below: what is declared by name, of amounts above a split (or of all) and below it."""
    if outcome.learned is not None:
        return 0.0, 1.0  # its values are about standard normal
    given = (below if side == BELOW else above).get(outcome.name)
    if given is None or given.center is None or given.spread is None:
        return None
    return float(outcome.forward(np.array([given.center]), side)[0]), given.spread
