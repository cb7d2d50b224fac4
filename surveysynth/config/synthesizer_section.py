"""The section ``[synthesizer]`` of a specification file."""

from dataclasses import replace
from typing import Annotated, Any, Literal

from pydantic import AfterValidator, BeforeValidator, Field, model_validator

from surveysynth._support.messages import nearest
from surveysynth.config.sections import Name, Names, Section, distinct
from surveysynth.errors import InputError
from surveysynth.models import get_model, model_names, registered
from surveysynth.sampling.plan import SamplingPlan

#: Fewer than two chains have no R-hat; fewer draws a chain than this have no useful one.
MIN_CHAINS = 2
MIN_DRAWS = 20
MAX_DRAWS = 1_000_000


def _one_or_more(value: Any) -> Any:
    return tuple(value) if isinstance(value, list | tuple) else (value,)


def _model(value: str) -> str:
    name, counted, _ = value.partition("(")
    if counted and name in model_names():
        try:
            get_model(value)
        except InputError as error:
            raise ValueError(str(error)) from None
    elif value not in model_names() and not value.lower().endswith(".toml"):
        known = ", ".join(repr(name) for name in model_names())
        raise ValueError(
            f"expected one of {known}, or the path of a .toml file that declares a Stan program, "
            f"got {value!r}.{nearest(value, model_names())}"
        )
    return value


OneOrMoreNames = Annotated[
    tuple[Name, ...],
    BeforeValidator(_one_or_more),
    AfterValidator(distinct),
    Field(min_length=1),
]


class SynthesizerSection(Section):
    """``[synthesizer]``: the model of outcome and weight, and how it is fitted."""

    about = "The model of outcome and sampling weight, and how it is fitted."

    model: Annotated[str, AfterValidator(_model)] = "fbs"
    """`fbs` models outcomes and weight as observed in the sample. `fbp` models one outcome in the
    population and its inclusion in the sample. `normal` is a regression of one outcome. `poisson`
    and `negative_binomial` are models of a count. `normal_mixture` is a mixture of five
    regressions, `normal_mixture(3)` one of three. Type: one of the models, or the path of a .toml
    file that declares a Stan program. Public: The model."""
    outcome: OneOrMoreNames
    """The confidential columns to synthesize, one or a list. If outcomes are of several kinds, each
    is modeled given those before it. Type: name of a column, or a list of them. Default: required,
    unless sections [outcomes.NAME] name the outcomes, in their order. Public: That these columns
    were measured; their values are not."""
    predictors: Name | None = None
    """The right-hand side of the regression of every outcome and of the weight, such as "field *
    gender". Cells share what the formula says they share. It must span strata and the by columns;
    where PSUs have effects, these can stand for strata that are no by column.
    Interactions of categorical columns are shrunken towards main effects by the prior
    interaction_scale, in a formula of your own as well, if the formula has their main effects. It
    is in residual SDs; log odds have twice that, which is worth as many records. Under noisy
    statistics spreads of cells, and their slopes of the weight, are shrunken to main effects by it
    too. If rows still rest on too few records, the smallest cells are taken out of the
    interactions; `surveysynth check` names them. Type: a formula in quotes. Default: strata
    and by columns, with all interactions of two of them; without strata where more than 10 make
    more than 100 cells with fewer than 30 records on average. Public: The columns in the formula,
    record by record."""
    covariance_by: Names | None = None
    """For `fbs` and `fbp`: public columns whose cells have residual spreads of their own, shrunken
    towards a common one: amounts differ in spread by cell, and one spread for all puts means and
    medians off. With mechanism = "pseudo_posterior" there is one covariance for all. Type: list of
    names of columns. Default: by and strata columns with noisy statistics; [], one covariance for
    all, with the pseudo-posterior and where primary sampling units are too few to show how they
    differ beyond strata and predictors. Public: The columns, which are public anyway."""
    engine: Literal["auto", "embedded", "cmdstan"] = "auto"
    """What runs the chains: the batched samplers of the package ("embedded"), or the model's Stan
    program ("cmdstan", which must be installed). "auto" uses the embedded sampler if the model has
    one. Public: The engine; the privacy statement reports that CmdStan's seeds have 31 bits."""
    inference: Literal["debiased", "paper"] = "debiased"
    """"debiased" corrects draws for down-weighting by simulation, and computes variances from data
    as the sample would have been; a release whose correction has not converged is refused. "paper"
    is the method as published, with intervals that cover too little. Public: The rule. Neither
    choice costs epsilon."""
    chains: Annotated[int, Field(ge=MIN_CHAINS, le=1000)] = 4
    """The number of Markov chains of a fit. Public: The number: bounds are maxima over all kept
    draws."""
    draws: Annotated[int, Field(ge=MIN_DRAWS, le=MAX_DRAWS)] = 250
    """The number of draws kept from each chain. More draws make the bound larger, so fewer records
    keep their full weight. Public: The number."""
    warmup: Annotated[int, Field(ge=MIN_DRAWS, le=MAX_DRAWS)] = 250
    """The number of draws discarded at the start of each chain. Public: The number."""
    priors: dict[str, float] = Field(default_factory=dict)
    """Constants of the priors by name, such as { residual_scale = 5 }, on the scale of the
    transform, and by noisy statistics in spreads above 1. Default: those of the model, in the
    table below. Public: The constants, chosen without looking at the data."""

    @property
    def is_program(self) -> bool:
        """True if the model is a Stan program of the user, declared in a toml file."""
        return self.model.lower().endswith(".toml")

    def plan(self, default: SamplingPlan) -> SamplingPlan:
        """Chains, warm-up and draws as given, those of a mechanism's default for the rest."""
        given = self.model_fields_set & {"chains", "warmup", "draws"}
        return replace(default, **{key: getattr(self, key) for key in given})

    @model_validator(mode="after")
    def _agree(self) -> "SynthesizerSection":
        stan_alone = self.is_program or get_model(self.model).compiled
        if stan_alone and self.engine == "embedded":
            raise ValueError(
                f"engine: {self.model!r} is a Stan program and has no embedded sampler; leave "
                "engine out."
            )
        if self.covariance_by is not None and not self._takes_groups:
            owners = " or ".join(repr(each.name) for each in registered() if len(each.kinds) > 1)
            raise ValueError(f"covariance_by: this key is for model = {owners}; leave it out.")
        if self.is_program:
            return self  # its priors are in the file that declares it
        try:
            model = get_model(self.model, priors=self.priors)
        except InputError as error:
            raise ValueError(str(error)) from None
        if "one_outcome" in model.requires and len(self.outcome) > 1:
            able = [repr(each.name) for each in registered() if "one_outcome" not in each.requires]
            raise ValueError(
                f"outcome: model {self.model!r} takes one outcome, got {len(self.outcome)}; "
                f"a list of outcomes needs model = {' or '.join(able)}."
            )
        return self

    @property
    def _takes_groups(self) -> bool:
        """True for a model whose cells may have residual spreads of their own."""
        return not self.is_program and len(get_model(self.model).kinds) > 1

    @property
    def grouping(self) -> tuple[str, ...] | None:
        """Columns of ``covariance_by``; empty for a model that has one residual covariance."""
        return self.covariance_by if self._takes_groups else ()

    @property
    def requires(self) -> frozenset[str]:
        """The model's requirements for a survey; empty for a program, whose file states them."""
        return frozenset() if self.is_program else get_model(self.model).requires

    def with_model(self, name: str) -> "SynthesizerSection":
        """Return the section with another model, its priors and groups of its own by default."""
        if name == self.model:
            return self
        other = self.model_copy(update={"model": name, "priors": {}, "engine": "auto"})
        both = self._takes_groups and other._takes_groups
        return other if both else other.model_copy(update={"covariance_by": None})
