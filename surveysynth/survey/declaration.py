"""The public declarations about a survey: the role of each column, and settings."""

import math
import numbers
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, fields, replace
from functools import cached_property
from typing import Any, Literal, get_args

from surveysynth._support.messages import listing
from surveysynth.errors import InputError, RefusedError
from surveysynth.survey.columns import missing_column, text_of
from surveysynth.survey.formula import parse_formula
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.transforms import Transform

#: Largest design effect of clustering that can be declared; it is about the size of a PSU.
MAX_DESIGN_EFFECT = 1000
MISSING_RULES = ("fail", "drop", "model")
LONELY_RULES = ("fail", "remove", "certainty", "adjust", "average")

Weights = Literal["confidential", "public"]
UNKNOWN: Literal["unknown"] = "unknown"
#: Columns that the weights were computed from, or that they are not known; None where nothing is
#: declared.
WeightsFrom = tuple[str, ...] | Literal["unknown"] | None

#: Of three public files, by replacing one answer and post-stratifying again: how far the weights of
#: the other records move the sums, relative to the stated sensitivity.
MEASURED = (0.29, 0.83)
#: The same as factors on rho, with what the record itself moves.
RHO_FACTORS = (1.7, 3.4)


@dataclass(frozen=True)
class Roles:
    """The role of each column; names only."""

    outcomes: tuple[str, ...]
    weight: str | None
    by: tuple[str, ...]
    strata: str | None
    psu: str | None
    fpc: str | None
    predictors: tuple[str, ...]
    public_columns: tuple[str, ...]
    public_weight: str | None = None

    @cached_property
    def confidential(self) -> tuple[str, ...]:
        """Outcomes and the confidential weight."""
        return self.outcomes + ((self.weight,) if self.weight is not None else ())

    @cached_property
    def classifying(self) -> tuple[str, ...]:
        """Columns of classes of records: by and strata, each once."""
        return tuple(dict.fromkeys([*self.by, *filter(None, [self.strata])]))

    @cached_property
    def text(self) -> tuple[str, ...]:
        """Columns that are read as codes: by, strata, and psu."""
        return tuple(dict.fromkeys([*self.classifying, *filter(None, [self.psu])]))

    @cached_property
    def needed(self) -> tuple[str, ...]:
        """All columns to read, each once."""
        public = filter(None, [self.fpc, self.public_weight])
        names = *self.confidential, *self.text, *public, *self.predictors, *self.public_columns
        return tuple(dict.fromkeys(names))

    def public(self) -> list[tuple[str, str]]:
        """Return (role, column) of every public column."""
        names = {
            "by": self.by, "strata": (self.strata,), "psu": (self.psu,), "fpc": (self.fpc,),
            "weight": (self.public_weight,), "predictors": self.predictors,
            "public_columns": self.public_columns,
        }  # fmt: skip
        return [(role, name) for role, each in names.items() for name in each if name is not None]

    def problems(self, columns: Sequence[str]) -> list[str]:
        """List columns that are absent, repeated, or both public and confidential."""
        problems = [] if self.outcomes else ["outcome: expected at least one column."]
        for role, names in (("outcome", self.outcomes), ("by", self.by)):
            repeated = sorted({name for name in names if names.count(name) > 1})
            if repeated:
                problems.append(f"{role}: {listing(repeated)} is repeated; name each column once.")
        if self.weight is not None and self.weight in self.outcomes:
            problems.append(f"weight: {self.weight!r} is also an outcome; name another column.")
        for role, name in dict.fromkeys(self.public()):
            if name in self.confidential:
                what = "the sampling weight" if name == self.weight else "an outcome"
                problems.append(
                    f"{role}: {name!r} is {what}, which is confidential; name a public column."
                )
        outcomes = [("outcome", name) for name in self.outcomes]
        weight = [] if self.weight is None else [("weight", self.weight)]
        absent: dict[str, str] = {}
        for role, name in [*outcomes, *weight, *self.public()]:
            if name not in columns:
                absent.setdefault(name, role)
        return problems + [
            f"{role}: {missing_column(name, columns, self.needed)}" for name, role in absent.items()
        ]


def make_roles(
    outcomes: tuple[str, ...],
    weight: str | None,
    by: tuple[str, ...],
    strata: str | None,
    psu: str | None,
    fpc: str | None,
    formula: str | None,
    public_columns: tuple[str, ...],
    *,
    weights: str = "confidential",
) -> Roles:
    """Return the role of each column; ``weights`` is "public" for a public weight column.

    Raises ``InputError`` for a formula that cannot be parsed.
    """
    predictors = () if formula is None else parse_formula(formula).variables
    own, public = (None, weight) if weights == "public" else (weight, None)
    return Roles(outcomes, own, by, strata, psu, fpc, predictors, public_columns, public)


@dataclass(frozen=True, kw_only=True, eq=False, repr=False)
class Facts:
    """Public facts about a sample, as declared: no column of it is read.

    Attributes
    ----------
    outcomes
        Each outcome: name, kind, transform, spikes, bounds, levels.
    lonely_psu
        The rule for a stratum with one PSU.
    missing
        The rule for blank cells.
    design_effect
        The factor by which clustering raises variances, or None.
    population_size
        The public N, or None.
    stratum_sizes
        Population counts by level of the strata, if public weights come from them; or None.
    weights_from
        Columns that the weights were computed from besides the design, or "unknown"; None where
        nothing is declared.
    weight_transform
        Transform of the confidential weight: the log, or a learned one.
    """

    outcomes: tuple[Outcome, ...] = ()
    lonely_psu: str = "fail"
    missing: str = "fail"
    design_effect: float | None = None
    population_size: float | None = None
    stratum_sizes: Mapping[str, float] | None = None
    weights_from: WeightsFrom = None
    weight_transform: Transform = Transform()  # noqa: RUF009  (frozen)

    @property
    def facts(self) -> dict[str, Any]:
        """These facts by name, without what a subclass adds."""
        return {each.name: getattr(self, each.name) for each in fields(Facts)}


@dataclass(frozen=True, kw_only=True, repr=False)
class Declaration(Facts):
    """The public declarations about a survey, as ``Survey.from_frame`` explains them.

    ``source``: the name of the data in messages; ``orders`` and ``margins``: levels in table order
    and margin names, by column; ``replicates``: columns of replicate weights, which are
    confidential like the weight; ``missing_codes``: codes for no answer, by outcome.
    """

    roles: Roles
    source: str
    predictors: str | None = None
    orders: Mapping[str, Sequence[str]] = field(default_factory=dict)
    margins: Mapping[str, str] = field(default_factory=dict)
    statistics: Sequence[str] = ()
    binary_for: Sequence[str] = ()
    refuse_degenerate: bool = False
    weights: str = "confidential"
    replicates: tuple[str, ...] = ()
    missing_codes: Mapping[str, tuple[float, ...]] = field(default_factory=dict)

    @property
    def columns(self) -> tuple[str, ...]:
        """All columns to read, each once."""
        return tuple(dict.fromkeys([*self.roles.needed, *self.replicates]))

    def levels_of(self, name: str) -> tuple[str, ...]:
        """Return the declared levels of a public column; empty if the data define them."""
        sizes = self.stratum_sizes if name == self.roles.strata else None
        return tuple(self.orders.get(name) or sizes or ())

    def public_part(self) -> "Declaration":
        """Return the same declarations about the public columns alone."""
        return replace(self, roles=replace(self.roles, outcomes=(), weight=None), replicates=())

    def problems(self, columns: Sequence[str]) -> list[str]:
        """List all that is wrong whatever the records; ``columns``: names in the data."""
        roles, effect, size = self.roles, self.design_effect, self.population_size
        weight = roles.weight if roles.public_weight is None else roles.public_weight
        rules = ", ".join(map(repr, LONELY_RULES))
        settings = [
            (self.lonely_psu in LONELY_RULES,
             f"lonely_psu: expected one of {rules}, got {self.lonely_psu!r}."),
            (self.missing in MISSING_RULES,
             f"missing: expected 'fail', 'drop' or 'model', got {self.missing!r}."),
            (not self.statistics or roles.weight is not None or self.weights == "public",
             "weight: missing; tables need the column of sampling weights. Name it as weight."),
            (effect is None or 1.0 <= effect <= MAX_DESIGN_EFFECT,
             f"design_effect: expected a number between 1 and {MAX_DESIGN_EFFECT}, got "
             f"{effect!r}."),
            (size is None or 0 < size < math.inf,
             f"population_size: expected a finite number above zero, got {size!r}."),
        ]  # fmt: skip
        sources = self.weights_from if self.weights_from != UNKNOWN else None
        return [
            *weight_problems(
                self.weights, weight, self.stratum_sizes, roles.strata, roles.psu, roles.fpc
            ),
            *weights_from_problems(self.weights_from, weight, self.stratum_sizes),
            *(f"weights_from: {missing_column(name, columns, roles.needed)}"
              for name in sources or () if name not in columns),
            *(text for holds, text in settings if not holds),
            *roles.problems(columns),
        ]


def declared_outcomes(
    names: str | Sequence[str] | None,
    outcomes: Outcome | Sequence[Outcome] | None,
    transforms: Transform | Sequence[Transform] | None,
) -> tuple[Outcome, ...]:
    """Return the declared outcomes, or continuous ones from names and transforms.

    Raises ``InputError`` unless exactly one of the two is given.
    """
    if (names is None) == (outcomes is None):
        raise InputError(
            "outcome: expected either names as outcome, with transforms, or Outcome objects as "
            "outcomes."
        )
    if outcomes is not None:
        declared = (outcomes,) if isinstance(outcomes, Outcome) else tuple(outcomes)
        if other := [type(each).__name__ for each in declared if not isinstance(each, Outcome)]:
            raise InputError(
                f"outcomes: expected Outcome objects, got {other[0]}; give names as outcome."
            )
        if transforms is not None:
            raise InputError("transforms: every Outcome has its own; remove transforms.")
        return declared
    each = (names,) if isinstance(names, str) else tuple(names or ())
    given = Transform() if transforms is None else transforms
    several = (given,) * len(each) if isinstance(given, Transform) else tuple(given)
    if len(several) != len(each):
        raise InputError(
            f"transforms: expected one, or one for each of the {len(each)} outcomes, got "
            f"{len(several)}."
        )
    pairs = zip(each, several, strict=True)
    return tuple(Outcome(name, transform=transform) for name, transform in pairs)


def declared_sizes(given: float | Mapping[Any, Any] | None) -> dict[str, Any]:
    """Return the public N, or sizes by level of the strata as text, by their names in ``Facts``.

    Raises ``InputError`` for sizes by level that are not numbers.
    """
    if not isinstance(given, Mapping):
        return {"population_size": given, "stratum_sizes": None}
    wrong = [k for k, v in given.items() if not isinstance(v, numbers.Real)]
    if wrong:
        raise InputError(f"population_size: expected numbers, got another type for {wrong[0]!r}.")
    sizes = {text_of(name, "strata"): float(size) for name, size in given.items()}
    return {"population_size": None, "stratum_sizes": sizes}


def weight_problems(
    weights: str,
    weight: str | None,
    stratum_sizes: Mapping[str, float] | None,
    strata: str | None,
    psu: str | None,
    fpc: str | None,
) -> list[str]:
    """List settings of weights that contradict each other, whatever the data."""
    if weights not in get_args(Weights):
        return [f"weights: expected 'confidential' or 'public', got {weights!r}."]
    if stratum_sizes is None:
        return [] if weights == "confidential" or weight is not None else [
            "weights: 'public' needs the column of the weights as weight, or population_size by "
            "stratum."
        ]  # fmt: skip
    if weights == "confidential":
        return [
            "population_size: sizes by stratum give public weights; set weights = 'public', or "
            "give one number."
        ]
    wrong = [name for name, size in stratum_sizes.items() if not 0 < size < math.inf]
    checks = [
        (weight is None,
         "population_size: sizes by stratum give the weights, and weight also names a column of "
         "weights; remove one of the two."),
        (strata is not None,
         "population_size: these are sizes of strata; name the column of the strata as strata."),
        (fpc is None,
         "fpc: population_size by stratum already gives the sampling fractions; remove fpc."),
        (psu is None,
         "population_size: sizes by stratum are for simple random samples of records within "
         "strata; for a sample of primary sampling units name the column of the weights as weight."
        ),
        (not wrong,
         f"population_size: expected finite numbers above zero, got another for {listing(wrong)}."),
    ]  # fmt: skip
    return [text for holds, text in checks if not holds]


def given_weights_from(given: str | Sequence[str] | None) -> WeightsFrom:
    """Return the declaration; a column may be given by its name alone.

    Raises ``InputError`` for what is neither names nor "unknown".
    """
    if given is None:
        return None
    if given == UNKNOWN:
        return UNKNOWN
    names = (given,) if isinstance(given, str) else tuple(given)
    if not all(isinstance(name, str) and name for name in names):
        raise InputError(
            "weights_from: expected names of columns, an empty list for design weights, or "
            f"'unknown', got {given!r}."
        )
    return tuple(dict.fromkeys(names))


def weights_from_problems(
    given: WeightsFrom, weight: str | None, stratum_sizes: Mapping[str, Any] | None
) -> list[str]:
    """List declarations that contradict the weights, whatever the data."""
    if not given:
        return []
    if stratum_sizes is not None:
        return [
            "weights_from: population_size by stratum gives the weights, which depend on nothing "
            "else; leave weights_from out."
        ]
    if weight is None:
        return ["weights_from: there is no column of weights; name it as weight."]
    return []


def refuse_sources(names: Sequence[str]) -> None:
    """Raise ``RefusedError`` for confidential columns that weights were computed from."""
    if not names:
        return
    few, many = RHO_FACTORS
    raise RefusedError(
        f"weights_from: the weights were computed from {listing(names)}, not a public column. One "
        "changed answer would then change the weights of other records too, which the guarantee "
        f"does not cover: on three public files the actual rho was {few:g} to {many:g} times what "
        "is stated. Nothing was fitted. Give the base weights as weight, name what these were "
        "computed from, and calibrate after the noise with a section [[calibration]], which costs "
        "nothing. Or set "
        f"weights_from = \"{UNKNOWN}\": the statement then names this gap. A column that is public "
        "for every record belongs in public_columns."
    )
