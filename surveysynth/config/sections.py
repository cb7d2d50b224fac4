"""The sections of a specification file as frozen pydantic models; here those of the design.

Rules for one key or one section are in the module of the section, rules for several sections in
``spec``. The text below a key is its entry in the reference (``reference``): what the key does,
then Type, Values and Default unless the annotation gives them, and what becomes Public by it.
Validators raise ``ValueError`` with a sentence for the user.
"""

import math
import re
from collections.abc import Mapping, Sequence
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Annotated, Any, ClassVar, Literal, TypeVar, get_args

import numpy as np
from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    PlainValidator,
    field_validator,
    model_validator,
)
from pydantic_core import PydanticKnownError

from surveysynth._support.messages import has_control, listing
from surveysynth.errors import InputError
from surveysynth.estimation.replication import (
    ReplicateMethod,
    ReplicateWeights,
    agency_replicates,
    replication_scale,
)
from surveysynth.survey.declaration import (
    MAX_DESIGN_EFFECT,
    UNKNOWN,
    Roles,
    Weights,
    WeightsFrom,
    weight_problems,
    weights_from_problems,
)
from surveysynth.survey.files import SUFFIX_WORDS, SUFFIXES, open_table
from surveysynth.survey.survey import Survey

_FAY = re.compile(r"fay\((0(?:\.\d+)?|\.\d+)\)")
#: Keys that no release depends on, and that none publishes.
REPLICATE_KEYS = tuple(
    f"replicate_{key}" for key in ("weights", "method", "scale")
)


def columns_of_pattern(
    given: str | tuple[str, ...] | None, columns: Sequence[str]
) -> tuple[str, ...]:
    """Return the columns that match a pattern such as "repwt*", in the order of the file."""
    if isinstance(given, str):
        return tuple(name for name in columns if fnmatchcase(name, given))
    return tuple(given or ())


def setting_problems(section: "SurveySection") -> list[str]:
    """Return settings of replicate weights that contradict each other."""
    given = [key for key in REPLICATE_KEYS[1:] if getattr(section, key) is not None]
    if section.replicate_weights is None:
        return [
            f"{key}: this key needs replicate_weights, the columns; name them or leave "
            "it out."
            for key in given
        ]
    if section.replicate_method is None:
        return [
            "replicate_method: missing; name the method of the replicate weights: brr, fay(0.5), "
            "jk1, jk2, jkn, successive_difference or bootstrap. The documentation of the data "
            "states it."
        ]
    if section.replicate_method == "jkn" and not isinstance(section.replicate_scale, tuple):
        return [
            "replicate_scale: missing; a stratified jackknife needs a list of one number for each "
            "replicate, (n_h - 1)/n_h of its stratum."
        ]
    return []


def _replicate_method(value: Any) -> Any:
    """Return the method with Fay's factor in its standard form; raise the error of a Literal."""
    methods = [f"{name}(0.5)" if name == "fay" else name for name in get_args(ReplicateMethod)]
    found = _FAY.fullmatch(value) if isinstance(value, str) else None
    if found:
        return f"fay({float(found[1]):g})"
    return value if value is None else known_name(value, methods)


def replicate_problems(
    section: "SurveySection", found: Sequence[str], roles: Roles, columns: Sequence[str]
) -> list[str]:
    """Return what is wrong with the columns of replicate weights, by their names alone."""
    if section.replicate_weights is None:
        return []
    absent = [name for name in found if name not in columns]
    used = [name for name in found if name in roles.needed]
    scale = section.replicate_scale
    checks = [
        (len(found) > 1, f"replicate_weights: {section.replicate_weights!r} names {len(found)} "
         "columns of the data; expected at least two."),
        (not absent, f"replicate_weights: the data have no column {listing(absent)}."),
        (not used, f"replicate_weights: {listing(used)} has another role; name other columns."),
        (not isinstance(scale, tuple) or len(scale) == len(found),
         f"replicate_scale: expected {len(found)} numbers, one for each column of replicate "
         f"weights, got {len(scale) if isinstance(scale, tuple) else 1}."),
    ]  # fmt: skip
    return [text for holds, text in checks if not holds]


def replicates_of(section: "SurveySection", survey: Survey) -> ReplicateWeights | None:
    """Return the replicate weights of a survey, with the scale of their method; or None.

    Raises ``InputError`` for values that are no weights, without showing them.
    """
    columns, weight = survey.confidential.replicate_weights, survey.sampling_weight
    if columns is None or weight is None or section.replicate_method is None:
        return None
    wrong = int((~(columns >= 0)).sum())
    if wrong:
        raise InputError(
            f"replicate_weights: expected numbers from 0, got {wrong:,} other or blank cells of "
            f"{columns.size:,}. Correct them, or leave replicate_weights out."
        )
    names, total = survey.confidential.replicate_names, weight.sum()
    sums = columns.sum(axis=0)
    other = [
        name for name, each in zip(names, sums, strict=True) if not 0.5 <= each / total <= 2.0
    ]
    if other:
        raise InputError(
            f"replicate_weights: {len(other):,} of {len(names):,} columns ({listing(other)}) add "
            "up to less than half or more than twice the weight. A column that is no replicate "
            "weight must not be named, and factors must be multiplied by the weight first."
        )
    scale, rscales = section.replicate_scale, None
    if isinstance(scale, tuple):  # one for each replicate, which is all of the factor
        scale, rscales = 1.0, np.array(scale)
    if scale is None:
        name, _, factor = section.replicate_method.rstrip(")").partition("(")
        method: Any = name
        scale = replication_scale(method, columns.shape[1], float(factor or 0.0))
    return agency_replicates(columns, scale=scale, rscales=rscales)


def replicate_lines(section: "SurveySection", data: Path) -> list[str]:
    """Return a line for ``surveysynth check``; ``data``: the file, for the names of its columns."""
    if section.replicate_weights is None:
        return []
    found = columns_of_pattern(section.replicate_weights, open_table(data).columns)
    return [
        f"Replicate weights: {len(found):,} columns, {found[0]!r} to {found[-1]!r}, "
        f"{section.replicate_method}. Standard errors of the sample in comparisons come from them; "
        "the release does not depend on them."
    ]


T = TypeVar("T")
#: How ``survey.weights`` names an earlier release.
OF_RELEASE = "release:"


def known_name(value: Any, names: Sequence[str]) -> Any:
    """Return the value if it is one of the names; else raise the error of a Literal."""
    if isinstance(value, str) and value in names:
        return value
    *others, last = map(repr, names)
    expected = f"{', '.join(others)} or {last}" if others else last
    raise PydanticKnownError("literal_error", {"expected": expected})


def as_tuple(value: Any) -> Any:
    """Return a list as a tuple, and other values unchanged."""
    return tuple(value) if isinstance(value, list) else value


def distinct(values: tuple[T, ...]) -> tuple[T, ...]:
    """Return the values; raises ``ValueError`` if one occurs twice."""
    repeated = sorted({str(value) for value in values if values.count(value) > 1})
    if repeated:
        raise ValueError(f"every entry may occur once; {listing(repeated)} is repeated.")
    return values


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


def _weights(value: Any) -> Any:
    if isinstance(value, str) and value.startswith(OF_RELEASE) and value[len(OF_RELEASE) :].strip():
        return value
    return known_name(value, ("confidential", "public", f"{OF_RELEASE}PATH"))


Text = Annotated[str, AfterValidator(_writable)]
Name = Annotated[str, Field(min_length=1)]
Names = Annotated[tuple[Name, ...], BeforeValidator(as_tuple), AfterValidator(distinct)]


def _sources(value: Any) -> Any:
    names = as_tuple(value)
    if names is None or names == UNKNOWN:
        return names
    if not (isinstance(names, tuple) and all(isinstance(name, str) and name for name in names)):
        raise ValueError(
            "expected a list of names of columns, [] for design weights, or 'unknown', got "
            f"{value!r}."
        )
    return distinct(names)


def _population_size(value: Any) -> float | dict[str, float] | None:
    """Validate a number above zero, or one for each stratum; raise the errors of a number."""
    if value is None:
        return None
    if isinstance(value, Mapping):
        sizes = {str(name): size for name, size in value.items()}
        for name, size in sizes.items():
            if type(size) not in (int, float) or not 0 < size < math.inf:
                raise ValueError(
                    f"expected a number greater than 0 for each stratum, got {size!r} for {name!r}."
                )
        return {name: float(size) for name, size in sizes.items()}
    if type(value) not in (int, float):
        raise PydanticKnownError("float_type")
    if not math.isfinite(value):
        raise PydanticKnownError("finite_number")
    if value <= 0:
        raise PydanticKnownError("greater_than", {"gt": 0.0})
    return float(value)


class Section(BaseModel):
    """Base of the sections: frozen, no unknown keys, no conversion between types.

    about: the purpose of the section, for the reference.
    """

    about: ClassVar[str] = ""

    model_config = ConfigDict(
        frozen=True, extra="forbid", strict=True, allow_inf_nan=False, validate_default=False
    )


class SurveySection(Section):
    """``[survey]``: the data file and the sampling design."""

    about = (
        "The data file and the sampling design. Everything here is public: the names of the "
        "columns and, except for the weight, all their values."
    )

    data: Name
    """The data file, with one row per record. A relative path starts at the folder of the
    specification. Titles of columns, and labels of values of public columns, are taken from a file
    of Stata, SPSS or SAS unless [labels] has its own. Type: a path that ends in .csv, .parquet,
    .dta, .sav or .xpt. Default: required. Public: The ending of the file's name, and the titles and
    labels in the file; neither its name nor its location."""
    id: Annotated[str, AfterValidator(_id)] | None = None
    """The name of the survey in the ledger, which adds up all releases with the same id. Without
    it, a copy of the data file in another folder counts as another survey. Default: the location of
    the data file. Public: Nothing: the id stays in the ledger."""
    weight: Name | None = None
    """The column of sampling weights. They are synthesized together with the outcomes. Type: name
    of a column. Public: Synthetic weights. The real ones are confidential, unless weights =
    "public"."""
    strata: Name | None = None
    """The column of sampling strata. It is part of the default model formula and of the variances.
    Type: name of a column. Public: The stratum of each record, as written in the data."""
    psu: Name | None = None
    """The column of primary sampling units. Models `fbs` and `fbp` give each unit an effect on
    amounts, zeros, levels and the weight; standard errors are computed by unit, with as many
    degrees of freedom as units less strata. A label that occurs in two strata means two units.
    Type: name of a column. Public: The unit of each record; its label is in the microdata."""
    fpc: Name | None = None
    """The column of sampling fractions (no value above 1) or of population sizes in sampling units,
    with one value per stratum. Variances are multiplied by one minus the fraction. Type: name of a
    column. Default: none: sampling fractions count as zero. Public: The fraction of each
    stratum."""
    lonely_psu: Literal["fail", "remove", "certainty", "adjust", "average"] = "fail"
    """How to treat a stratum with one sampling unit, as in R's survey package: "fail" is an error,
    "remove" and "certainty" contribute nothing to the variance, "adjust" centers the unit at zero,
    "average" uses the average of the other strata. Public: The rule."""
    weights: Annotated[str, BeforeValidator(_weights)] = "confidential"
    """Whether the weights are protected and synthesized, or are constants of the design that anyone
    can compute and are used and published unchanged. With "release:PATH" they are protected, and
    add up in every cell and dataset to those of an earlier release by noisy statistics of the same
    sample, whose folder is at PATH: no cell has two counts, and counts cost nothing again. Type:
    "confidential", "public", or "release:PATH". Public: With "public": the weight of every record.
    With "release:PATH": the counts, which are public already; not the path."""
    weights_from: Annotated[WeightsFrom, BeforeValidator(_sources)] = None
    """The columns that the weights were computed from, besides the design: [] for design weights;
    the margins of a raking, or the predictors of an adjustment for nonresponse. A release by
    weights from a column that is not public is refused, since one changed answer would change the
    weights of others. "unknown" releases all the same, and the statement names the gap. Type: list
    of names of columns, or "unknown". Default: none: the statement spells out the assumption that
    nobody's weight depends on the answers of others. Public: The names."""
    replicate_weights: Annotated[str | Names | None, Field(union_mode="left_to_right")] = None
    """The columns of replicate weights that the agency supplies, complete weights as `weight`. The
    standard errors of the sample in `surveysynth compare` and `surveysynth adequacy` come from
    them. The release does not depend on them: it needs `strata` and `psu`, or a declared
    `design_effect`. Type: a pattern such as "repwt*", or a list of names of columns. Default: none:
    standard errors of the sample by strata and units. Public: Nothing: neither the weights nor
    their names are published."""
    replicate_method: Annotated[str | None, BeforeValidator(_replicate_method)] = None
    """How the replicate weights were made: balanced half-samples, Fay's method with its factor, a
    jackknife without strata, by pairs or with strata, successive differences, a bootstrap. It sets
    the scale as R's svrepdesign does. Type: "brr", "fay(0.5)", "jk1", "jk2", "jkn",
    "successive_difference" or "bootstrap". Public: Nothing."""
    replicate_scale: (
        Annotated[float, Field(gt=0)]
        | Annotated[tuple[Annotated[float, Field(ge=0)], ...], BeforeValidator(as_tuple)]
        | None
    ) = None
    """The factor of the sum of squares, where the agency states another than that of the method, or
    a factor for each replicate, which "jkn" requires: (n_h - 1)/n_h of the stratum, in the order of
    the columns in the file. Type: a number, or a list of numbers. Default: that of the method.
    Public: Nothing."""
    design_effect: Annotated[float, Field(ge=1, le=MAX_DESIGN_EFFECT)] | None = None
    """For models without effects of `psu`, and files that do not name the units: the factor by
    which clustering alone raises variances, from an earlier survey. All variances are multiplied by
    it. Public: The factor. Never estimate it from this survey."""
    population_size: Annotated[
        float | dict[str, float] | None, PlainValidator(_population_size)
    ] = None
    """The size of the population, to which synthetic weights are scaled. `fbp` requires it. Noisy
    statistics take the center of the log weight from it. Sizes by stratum replace `weight` and
    `fpc` for a stratified sample with weights = "public": a table { North = 41000, South = 59000 },
    or a csv file with the column of `strata` and a column `total`. Type: a number, sizes by
    stratum, or a path that ends in .csv. Public: The numbers, and with sizes by stratum the
    weights. They come from a frame or a published source, never from the sum of the weights."""
    missing: Literal["fail", "drop", "model"] = "fail"
    """What to do with records that have blank cells: "fail" is an error, "drop" leaves them out.
    With "model" a missing answer of an outcome is a category of its own, protected as answers are,
    and synthetic records have no missing values: the model fills them after the noise. It requires
    noisy statistics; blank cells of other columns are errors. Public: With "drop": which records
    have a missing value, and so how many. With "model": nothing."""
    public_columns: Names = ()
    """Further columns for the microdata and for `pattern`. Type: list of names of columns. Public:
    These columns, unchanged."""

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
        problems = weight_problems(
            self.kind_of_weights, self.weight, self.stratum_sizes, self.strata, self.psu, self.fpc
        ) or weights_from_problems(self.weights_from, self.weight, self.stratum_sizes)
        problems = problems or setting_problems(self)
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def stratum_sizes(self) -> dict[str, float] | None:
        """Population sizes by stratum, if the weights follow from them."""
        return self.population_size if isinstance(self.population_size, dict) else None

    @property
    def public_weights(self) -> bool:
        """True if the weights are used and published unchanged."""
        return self.weights == "public"

    @property
    def kind_of_weights(self) -> Weights:
        """The weights as the survey has them, wherever their sums come from."""
        return "public" if self.public_weights else "confidential"


class LabelSection(Section):
    """``[labels.COLUMN]``: how to show a column; ``levels`` also fixes the order of levels."""

    about = "`[labels.COLUMN]`: how to show a by column or an outcome."

    title: Text | None = None
    """The title that readers see instead of the column's name. Default: the column's name. Public:
    The text."""
    unit: Text | None = None
    """The unit or the currency of an outcome, in the headings of its tables. Public: The text."""
    margin: Annotated[Text, Field(min_length=1)] = "All"
    """The label of the row over all levels. Public: The text."""
    levels: dict[str, Text] = {}
    """The labels of the levels, as code = "label", in the order of the tables. They also define
    which levels exist: a record of a public column with another level is refused. Type: table: code
    = "label". Default: those in the data, in numerical order if all are numbers, otherwise in
    alphabetical order. Public: The levels and their labels."""
    digits: Annotated[int, Field(ge=0, le=15)] | None = None
    """The number of decimals of an outcome's means in tables for reading. Its totals then have a
    fixed rounding rule too. Default: the power of ten of the median standard error. Public: Nothing
    else."""

    @model_validator(mode="after")
    def _agree(self) -> "LabelSection":
        if self.margin in self.levels or self.margin in self.levels.values():
            raise ValueError(
                f"margin: {self.margin!r} is also the name of a level; set margin to another word."
            )
        labels = list(self.levels.values())
        repeated = sorted({label for label in labels if labels.count(label) > 1})
        if repeated:
            raise ValueError(f"levels: {listing(repeated)} labels more than one level.")
        return self
