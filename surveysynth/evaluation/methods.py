"""The methods of a comparison by name, and what each of them promises."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from surveysynth._support.messages import listing, nearest
from surveysynth.errors import InputError
from surveysynth.spec.build import mechanism_of, method_name

if TYPE_CHECKING:
    from surveysynth.mechanisms.noisy_statistics.accounting import Budget
    from surveysynth.spec.spec import Spec

SAMPLE, LAPLACE, CONSISTENT, GAUSSIAN = "sample", "laplace", "laplace_consistent", "gaussian"
#: Without a model.
NOISE = (SAMPLE, LAPLACE, CONSISTENT, GAUSSIAN)
#: Follows a model's name where the mechanism is that of noisy statistics.
NOISY = "_noisy"
#: Compared besides the specification's own model, by either mechanism.
DEFAULT_MODELS = ("fbs", "fbp")


@dataclass(frozen=True)
class Synthesizer:
    """A model by a mechanism: ``noisy`` for noisy statistics, else the pseudo-posterior."""

    model: str
    noisy: bool = False

    @property
    def name(self) -> str:
        """Of the method."""
        return method_name(self.model) + (NOISY if self.noisy else "")


def noisy_models() -> tuple[str, ...]:
    """The models that have the statistics which noisy statistics need."""
    from surveysynth.mechanisms.noisy_statistics.posterior.model_adapters import implied_sample
    from surveysynth.models import get_model, model_names

    able = []
    for name in model_names():
        try:
            implied_sample(get_model(name))
        except InputError:
            continue
        able.append(name)
    return tuple(able)


def method_names(spec: "Spec | None" = None) -> tuple[str, ...]:
    """Every method that can be asked for, the specification's own program among them."""
    from surveysynth.models import model_names

    own = () if spec is None else (method_name(spec.synthesizer.model),)
    noisy = (f"{name}{NOISY}" for name in noisy_models())
    return tuple(dict.fromkeys((*NOISE, *model_names(), *own, *noisy)))


def noise_methods(methods: Sequence[str]) -> tuple[str, ...]:
    """The methods without a model that are asked for: all where none is named."""
    return tuple(name for name in NOISE if not methods or name in methods)


def synthesizers(
    spec: "Spec", models: Sequence[str] = (), methods: Sequence[str] = ()
) -> tuple[list[Synthesizer], list[str]]:
    """The synthesizers to compare, each once, and the order of the pseudo-posterior's models.

    By default fbs and fbp by both mechanisms, the specification's own model by its own, and
    ``models`` by the pseudo-posterior. ``methods`` chooses; the order, by which random numbers are
    told apart, is that of all. Raises ``InputError`` for a model or a method that is not known.
    """
    from surveysynth.models import model_names

    unknown = [name for name in models if name not in model_names()]
    if unknown:
        raise InputError(f"there is no model {unknown[0]!r}; known: {', '.join(model_names())}.")
    check_methods(methods, method_names(spec))
    own, by_noise = spec.synthesizer.model, not spec.privacy.down_weights
    asked = [name for name in methods if name in model_names()]
    order = list(dict.fromkeys([*DEFAULT_MODELS, *([] if by_noise else [own]), *models, *asked]))
    made = [Synthesizer(name) for name in order]
    named = [name.removesuffix(NOISY) for name in methods if name.endswith(NOISY)]
    noisy = dict.fromkeys([*DEFAULT_MODELS, *([own] if by_noise else []), *named])
    made += [Synthesizer(name, noisy=True) for name in noisy]
    if methods:
        made = [each for each in made if each.name in methods or (
            each.model in models and not each.noisy)]  # fmt: skip
    return made, order


def check_methods(methods: Sequence[str], known: Sequence[str]) -> None:
    """Raises ``InputError`` for the first method that is not known."""
    for name in methods:
        if name not in known:
            raise InputError(
                f"there is no method {name!r}.{nearest(name, known)} Known: "
                f"{listing(known, limit=40)}."
            )


def by_reason(left_out: Mapping[str, str]) -> dict[str, list[str]]:
    """Methods by why they are missing: several may lack the same."""
    result: dict[str, list[str]] = {}
    for name, why in left_out.items():
        result.setdefault(why, []).append(name)
    return result


def promise_of(spec: "Spec") -> dict[str, Any]:
    """What a synthesizer promises, JSON-ready; ``spec`` as it ran."""
    privacy = spec.privacy
    return {
        **mechanism_of(spec).guarantee(),
        "mechanism": privacy.mechanism,
        "m": privacy.m,
        "replicates_per_draw": privacy.replicates_per_draw,
    }


def promises(
    spec: "Spec", ran: Mapping[str, "Spec"], methods: Sequence[str], budget: "Budget | None"
) -> dict[str, dict[str, Any]]:
    """What each method promises: ``ran`` are the specifications of the synthesizers as they ran,
    ``budget`` that of noisy totals."""
    unprotected = {
        "guarantee": "none: sensitivities are read from the confidential data",
        "noise_for_pure_epsilon": spec.privacy.stated_epsilon,
    }
    result: dict[str, dict[str, Any]] = {}
    for name in methods:
        if name == SAMPLE:
            result[name] = {"guarantee": "none: confidential estimates"}
        elif name in (LAPLACE, CONSISTENT):
            result[name] = unprotected
        elif name in ran:
            result[name] = promise_of(ran[name])
        elif budget is not None:
            result[name] = totals_promise(budget)
    return result


def totals_promise(budget: "Budget") -> dict[str, Any]:
    """What noisy totals promise."""
    from surveysynth.mechanisms.noisy_statistics.statement import GUARANTEE

    return {
        "guarantee": GUARANTEE,
        "rho": budget.rho,
        "epsilon": budget.epsilon,
        "delta": budget.delta,
    }


def two_currencies(budget: "Budget") -> str:
    """Said wherever both epsilons stand side by side."""
    return (
        f"The number {budget.epsilon:.4g} stands for two promises, which are not the same. The "
        "pseudo-posterior's is an asymptotic epsilon: 2 m times a bound that is found on this one "
        "database, and that a neighbouring database can pass at any finite n. That of noisy "
        "statistics and of Gaussian noise is "
        f"(epsilon, delta) = ({budget.epsilon:.4g}, {budget.delta:.3g}), "
        f"rho = {budget.rho:.4g}, proved for all valid databases at any number of records. Equal "
        "numbers make methods comparable in what they cost in accuracy, not in what they protect."
    )
