"""The registry of methods: names, labels, colors, and promises, for comparisons and studies.

A method is the sample itself, noise on its tables, or a synthesizer by one of the two mechanisms.
Names of synthesizers may end in ``_noisy`` (noisy statistics).
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache

from surveysynth._support.messages import listing, nearest
from surveysynth.config.build import method_name
from surveysynth.config.spec import Spec
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.models import get_model, model_names

SAMPLE, LAPLACE = "sample", "laplace"
#: Methods without a model.
MODEL_FREE = (SAMPLE, LAPLACE)
#: Follows a model's name if the mechanism is noisy statistics.
NOISY = "_noisy"
#: Compared by default, by both mechanisms.
DEFAULT_MODELS = ("fbs", "fbp")

#: Okabe and Ito's palette, distinct under every common color blindness; its yellow is too pale.
_COLORS = {
    SAMPLE: "#4d4d4d", LAPLACE: "#D55E00", "fbs": "#0072B2",
    "fbp": "#009E73", "fbs_noisy": "#56B4E9", "fbp_noisy": "#7FC97F",
}  # fmt: skip
_OTHER_COLORS = ("#CC79A7", "#7F5AA2", "#882255", "#999933")
_LABELS = {"fbs": "FBS", "fbp": "FBP"}


@dataclass(frozen=True)
class Method:
    """A method by name.

    model: of a synthesizer, else empty; noisy: whether it promises zero-concentrated privacy.
    """

    name: str
    model: str = ""
    noisy: bool = False


@cache
def noisy_models() -> tuple[str, ...]:
    """Return the models that have the statistics that the noisy-statistics mechanism needs."""
    able = []
    for name in model_names():
        try:
            get_model(name).under_noise()
        except InputError:
            continue
        able.append(name)
    return tuple(able)


def synthesizers(
    spec: Spec, models: Sequence[str] = (), methods: Sequence[str] = ()
) -> tuple[list[Method], list[str]]:
    """Return the synthesizers to compare and the order of the pseudo-posterior's models.

    By default fbs and fbp by both mechanisms, the specification's own model by its own, and
    ``models`` by the pseudo-posterior. ``methods`` selects among all. The order assigns random
    numbers to models and does not depend on the selection of mechanisms. Raises ``InputError`` for
    an unknown model or method.
    """
    unknown = [name for name in models if name not in model_names()]
    if unknown:
        raise InputError(f"there is no model {unknown[0]!r}; known: {', '.join(model_names())}.")
    noisy_names = (f"{name}{NOISY}" for name in noisy_models())
    own_program = method_name(spec.synthesizer.model)
    known = tuple(dict.fromkeys((*MODEL_FREE, *model_names(), own_program, *noisy_names)))
    for name in methods:
        if name not in known:
            raise InputError(
                f"there is no method {name!r}.{nearest(name, known)} Known: "
                f"{listing(known, limit=40)}."
            )
    own, noisy_own = spec.synthesizer.model, not spec.privacy.down_weights
    asked = [name for name in methods if name in model_names()]
    order = list(dict.fromkeys([*DEFAULT_MODELS, *([] if noisy_own else [own]), *models, *asked]))
    made = [Method(method_name(name), name) for name in order]
    named = [name.removesuffix(NOISY) for name in methods if name.endswith(NOISY)]
    noisy = dict.fromkeys([*DEFAULT_MODELS, *([own] if noisy_own else []), *named])
    made += [Method(method_name(name) + NOISY, name, noisy=True) for name in noisy]
    if methods:
        made = [each for each in made if each.name in methods or (
            each.model in models and not each.noisy)]  # fmt: skip
    return made, order


def label_of(name: str) -> str:
    """Return a method's name for readers."""
    if name.endswith(NOISY):
        return f"{label_of(name.removesuffix(NOISY))}, noisy statistics"
    return _LABELS.get(name, name.replace("_", " ").capitalize())


def color_of(name: str, names: Sequence[str] = ()) -> str:
    """Return a method's color, the same in every figure that shows the methods ``names``."""
    others = [each for each in names if each not in _COLORS]
    return _COLORS.get(name) or _OTHER_COLORS[others.index(name) % len(_OTHER_COLORS)]


def by_reason(left_out: Mapping[str, str]) -> dict[str, list[str]]:
    """Group methods by the reason why they were left out."""
    result: dict[str, list[str]] = {}
    for name, why in left_out.items():
        result.setdefault(why, []).append(name)
    return result


def two_currencies(budget: Budget) -> str:
    """Explain that the epsilons of the two mechanisms mean different things."""
    return (
        f"The number {budget.epsilon:.4g} stands for two promises, which are not the same. The "
        "pseudo-posterior's is an asymptotic epsilon: 2 m times a bound that is found on this one "
        "database, and that a neighboring database can pass at any finite n. That of noisy "
        "statistics is "
        f"(epsilon, delta) = ({budget.epsilon:.4g}, {budget.delta:.3g}), "
        f"rho = {budget.rho:.4g}, proved for all valid databases at any number of records. Equal "
        "numbers make methods comparable in what they cost in accuracy, not in what they protect."
    )
