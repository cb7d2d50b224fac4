"""The sections of a specification file as frozen pydantic models.

Rules that concern one key or one section live here; what needs several sections is in ``spec``.
Validators raise ``ValueError`` with a sentence for the reader, or ``NotBuilt`` for a value that the
contract names and that no code stands behind yet.
"""

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Annotated, Any, Literal, TypeVar

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    create_model,
    field_validator,
    model_validator,
)

from surveysynth._support.messages import listing, nearest
from surveysynth._support.xml_text import has_control
from surveysynth.errors import InputError
from surveysynth.estimation.statistics import COUNT, MEAN
from surveysynth.models import get_model, model_names, registered
from surveysynth.models.options import Choice, ColumnNames, Option
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.spec.flags import FlagChoice, check_flags
from surveysynth.spec.formats import format_names
from surveysynth.spec.statistic_names import known_name, own_files, statistic_name
from surveysynth.spec.tables_in_file import table_name, where_text
from surveysynth.survey.declaration import EFFECT_WITHOUT_PSU, MAX_DESIGN_EFFECT, weight_problems
from surveysynth.survey.files import SUFFIX_WORDS, SUFFIXES
from surveysynth.survey.transforms import TransformKind

T = TypeVar("T")

#: Fewer than two chains have no R-hat; fewer draws a chain than this have no useful one.
MIN_CHAINS = 2
MIN_DRAWS = 20
MAX_DRAWS = 1_000_000


def built(planned: Sequence[str], works: str) -> BeforeValidator:
    """Say what works when the value is one of those planned but not built."""

    def check(value: Any) -> Any:
        if isinstance(value, str) and value in planned:
            raise ValueError(f"{value!r} is not built yet; what works now: {works}.")
        return value

    return BeforeValidator(check)


def _one_of(known: Callable[[], Sequence[str]]) -> BeforeValidator:
    """One of the names of a registry, refused in the words of a Literal of them."""
    return BeforeValidator(lambda value: known_name(value, known()))


def _as_tuple(value: Any) -> Any:
    return tuple(value) if isinstance(value, list) else value


def _one_or_more(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    repeated = sorted({str(value) for value in values if values.count(value) > 1})
    if repeated:
        raise ValueError(f"every entry may occur once; {listing(repeated)} is repeated.")
    return values


def _model(value: str) -> str:
    if value not in model_names() and not value.lower().endswith(".toml"):
        known = ", ".join(repr(name) for name in model_names())
        raise ValueError(
            f"expected one of {known}, or the path of a .toml file that declares a Stan program, "
            f"got {value!r}.{nearest(value, model_names())}"
        )
    return value


def _id(value: str) -> str:
    if not value.strip() or value != value.strip() or not value.isprintable() or len(value) > 200:
        raise ValueError(
            "expected a name of 1 to 200 printable characters without blanks around it, such as "
            f"'sdr-2026', got {value!r}."
        )
    return value


def _writable(value: str) -> str:
    if has_control(value):
        raise ValueError(
            f"expected text without control characters, which xlsx, svg and XML files cannot hold, "
            f"got {value!r}."
        )
    return value


Text = Annotated[str, AfterValidator(_writable)]
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], BeforeValidator(_as_tuple), AfterValidator(_distinct)]
OneOrMoreNames = Annotated[
    tuple[Name, ...],
    BeforeValidator(_one_or_more),
    AfterValidator(_distinct),
    Field(min_length=1),
]
OneOrMoreNumbers = Annotated[tuple[float, ...], BeforeValidator(_one_or_more), Field(min_length=1)]
OneOrMoreKinds = Annotated[
    tuple[TransformKind, ...], BeforeValidator(_one_or_more), Field(min_length=1)
]


class Section(BaseModel):
    """Base of the sections: frozen, no unknown keys, no conversion between types."""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=False
    )


class SurveySection(Section):
    """``[survey]``: the data file and the sampling design; all of it is public.

    id: what the survey is called in the ledger, whatever its file is called.
    """

    data: Name
    id: Annotated[str, AfterValidator(_id)] | None = None
    weight: Name | None = None
    strata: Name | None = None
    psu: Name | None = None
    fpc: Name | None = None
    lonely_psu: Literal["fail", "remove", "certainty", "adjust", "average"] = "fail"
    weights: Literal["confidential", "public"] = "confidential"
    stratum_sizes: dict[Name, Annotated[float, Field(gt=0)]] | None = None
    design_effect: Annotated[float, Field(ge=1, le=MAX_DESIGN_EFFECT)] | None = None
    population_size: Annotated[float, Field(gt=0)] | None = None
    missing: Literal["fail", "drop"] = "fail"
    public_columns: Names = ()

    @field_validator("data")
    @classmethod
    def _known_suffix(cls, value: str) -> str:
        if not value.lower().endswith(SUFFIXES):
            raise ValueError(
                f"expected a file ending in {SUFFIX_WORDS}, got {value!r}; export the data as one "
                "of them."
            )
        return value

    @model_validator(mode="after")
    def _agree(self) -> "SurveySection":
        if self.design_effect is not None and self.psu is None:
            raise ValueError(EFFECT_WITHOUT_PSU)
        problems = weight_problems(
            self.weights, self.weight, self.stratum_sizes, self.strata, self.psu, self.fpc
        )
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def public_weights(self) -> bool:
        """Whether the weights are used and published as they are."""
        return self.weights == "public"


def _type_of(option: Option) -> Any:
    """What pydantic makes of a model's option."""
    if isinstance(option, Choice):
        return Literal[option.choices]
    if isinstance(option, ColumnNames):
        return Names | None
    return Annotated[int, Field(ge=option.least, le=option.most)]


#: The models' own options, by their keys in ``[synthesizer]``, and the models that take each.
_OPTIONS = {key: option for model in registered() for key, option in model.options.items()}
_OWNERS = {
    key: tuple(model.name for model in registered() if key in model.options) for key in _OPTIONS
}
if TYPE_CHECKING:
    _WithOptions = Section
else:
    _WithOptions = create_model(
        "_WithOptions",
        __base__=Section,
        **{key: (_type_of(option), option.default) for key, option in _OPTIONS.items()},
    )


class SynthesizerSection(_WithOptions):
    """``[synthesizer]``: the model of outcome and weight, and how it is fitted.

    Besides the keys below it has those that the models declare as their ``options``.
    """

    model: Annotated[str, AfterValidator(_model)] = "fbs"
    outcome: OneOrMoreNames
    predictors: Name | None = None
    transform: OneOrMoreKinds = ("log",)
    transform_scale: OneOrMoreNumbers = (1.0,)
    transform_shift: OneOrMoreNumbers = (0.0,)
    transform_power: OneOrMoreNumbers = (0.5,)
    engine: Literal["auto", "embedded", "cmdstan"] = "auto"
    inference: Literal["debiased", "paper"] = "debiased"
    # Of these, defaults are the mechanism's (``plan``).
    chains: Annotated[int, Field(ge=MIN_CHAINS, le=1000)] = 4
    draws: Annotated[int, Field(ge=MIN_DRAWS, le=MAX_DRAWS)] = 250
    warmup: Annotated[int, Field(ge=MIN_DRAWS, le=MAX_DRAWS)] = 250
    priors: dict[str, float] = Field(default_factory=dict)

    @property
    def is_program(self) -> bool:
        """Whether the model is a Stan program of the caller's own, declared in a toml file."""
        return self.model.lower().endswith(".toml")

    def plan(self, default: SamplingPlan) -> SamplingPlan:
        """Chains, warm-up and draws as given, those of a mechanism's default for the rest."""
        given = self.model_fields_set & {"chains", "warmup", "draws"}
        return replace(default, **{key: getattr(self, key) for key in given})

    @model_validator(mode="after")
    def _agree(self) -> "SynthesizerSection":
        if self.is_program and self.engine == "embedded":
            raise ValueError(
                "engine: a Stan program of your own has no embedded sampler; leave engine out."
            )
        self._check_model()
        for key in ("transform", "transform_scale", "transform_shift", "transform_power"):
            given = len(getattr(self, key))
            if given not in (1, len(self.outcome)):
                raise ValueError(
                    f"{key}: expected one value or a list as long as outcome "
                    f"({len(self.outcome)}), got {given} values."
                )
        return self

    def _check_model(self) -> None:
        """What the model takes: outcomes, options and priors.

        A program's priors are in the file that declares it."""
        for key, option in _OPTIONS.items():
            value = getattr(self, key)
            if self.model not in _OWNERS[key] and value != option.default:
                shown = f"{value!r} is" if isinstance(value, str) else "this is"
                owners = " or ".join(map(repr, _OWNERS[key]))
                raise ValueError(f"{key}: {shown} for model = {owners}; leave it out.")
        if self.is_program:
            return
        try:
            model = get_model(self.model, priors=self.priors, **self.options)
        except InputError as error:
            raise ValueError(str(error)) from None
        if "one_outcome" in model.requires and len(self.outcome) > 1:
            able = [repr(each.name) for each in registered() if "one_outcome" not in each.requires]
            raise ValueError(
                f"outcome: model {self.model!r} takes one outcome, got {len(self.outcome)}; "
                f"a list of outcomes needs model = {' or '.join(able)}."
            )
        if model.takes_count:
            self._check_count()

    def _check_count(self) -> None:
        """A count enters its model as it is."""
        for key, plain in (
            ("transform", "identity"), ("transform_scale", 1.0), ("transform_shift", 0.0)
        ):  # fmt: skip
            other = [value for value in getattr(self, key) if value != plain]
            if key in self.model_fields_set and other:
                raise ValueError(
                    f"{key}: model {self.model!r} takes a count as it is, so {plain!r} is the one "
                    f"value, got {other[0]!r}; leave it out."
                )

    @property
    def options(self) -> dict[str, Any]:
        """The model's own options, given or not."""
        owned = (key for key, owners in _OWNERS.items() if self.model in owners)
        return {key: getattr(self, key) for key in owned}

    @property
    def grouping(self) -> tuple[str, ...] | None:
        """Columns of ``covariance_by``; empty for a model that has one residual covariance."""
        groups: tuple[str, ...] | None = self.options.get("covariance_by", ())
        return groups

    @property
    def requires(self) -> frozenset[str]:
        """What the model needs of a survey, as far as it is known: a program says it in its own
        file."""
        return frozenset() if self.is_program else get_model(self.model).requires

    def with_model(self, name: str) -> "SynthesizerSection":
        """The same with another model, whose options and priors are its defaults."""
        if name == self.model:
            return self
        kept = {
            key: getattr(self, key)
            if {name, self.model} <= set(_OWNERS[key])
            else option.default
            for key, option in _OPTIONS.items()
        }
        return self.model_copy(update={"model": name, "priors": {}, "engine": "auto", **kept})


class TablesSection(Section):
    """``[tables]``: which tables are made and how they are written.

    microdata: format of the synthetic datasets, csv unless the survey is a parquet file; dta
    (Stata) and sav (SPSS) have labels. microdata_digits: significant
    digits of synthetic amounts and weights, which tables are made from. name: of one among several
    ``[[tables]]``, and of its folder. where: the subpopulation that the table is of, a condition on
    columns such as ``age >= 18 and field in ("A", "B")``.
    """

    name: Annotated[str, AfterValidator(table_name)] | None = None
    by: Names = ()
    where: Annotated[str, AfterValidator(where_text)] | None = None
    statistics: Annotated[
        tuple[Annotated[str, BeforeValidator(statistic_name)], ...],
        BeforeValidator(_as_tuple),
        AfterValidator(_distinct),
        AfterValidator(own_files),
        Field(min_length=1),
    ] = (COUNT.name, MEAN.name)
    level: Annotated[float, Field(gt=0, lt=1)] = 0.95
    linearisation: Literal["ratio", "plain"] | None = None
    interval: Literal["auto", "t"] = "auto"
    flags: FlagChoice = "none"
    flag_action: Literal["suppress", "mark"] = "suppress"
    layout: Literal["columns", "compact", "crosstab"] = "columns"
    round_counts: Annotated[int, Field(ge=1, le=10**9)] | None = None
    digits_mean: Annotated[int, Field(ge=0, le=15)] = 0
    microdata: Annotated[
        Literal["csv", "parquet", "dta", "sav"] | None, built(("none",), "csv, parquet, dta, sav")
    ] = None
    microdata_digits: Annotated[int, Field(ge=3, le=9)] = 6
    title: Text = ""
    source: Text = ""
    formats: Annotated[
        tuple[Annotated[str, _one_of(lambda: format_names("tables"))], ...],
        BeforeValidator(_as_tuple),
        AfterValidator(_distinct),
        Field(min_length=1),
    ] = ("csv", "html")
    figures: Annotated[
        tuple[Annotated[str, _one_of(lambda: format_names("figures"))], ...],
        BeforeValidator(_as_tuple),
        AfterValidator(_distinct),
    ] = ()

    @field_validator("flags", mode="plain")
    @classmethod
    def _flags(cls, value: Any) -> FlagChoice:
        return check_flags(value)

    @model_validator(mode="after")
    def _agree(self) -> "TablesSection":
        if self.flags == "none" and self.flag_action != "suppress":
            raise ValueError("flag_action: there are no flags; set flags or leave it out.")
        return self


class LabelSection(Section):
    """``[labels.<column>]``: how a column is shown; ``levels`` also fixes the order of levels."""

    title: Text | None = None
    unit: Text | None = None
    currency: Text | None = None
    margin: Annotated[Text, Field(min_length=1)] = "All"
    levels: dict[str, Text] = {}
    digits: Annotated[int, Field(ge=0, le=15)] | None = None

    @model_validator(mode="after")
    def _agree(self) -> "LabelSection":
        if self.unit is not None and self.currency is not None:
            raise ValueError("unit and currency: give one of them (a currency is a unit).")
        if self.margin in self.levels or self.margin in self.levels.values():
            raise ValueError(
                f"margin: {self.margin!r} is also the name of a level; set margin to another word."
            )
        labels = list(self.levels.values())
        repeated = sorted({label for label in labels if labels.count(label) > 1})
        if repeated:
            raise ValueError(f"levels: {listing(repeated)} labels more than one level.")
        return self
