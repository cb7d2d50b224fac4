"""Statistics with arguments: what their names mean, and the row that each of them is."""

from collections.abc import Callable, Mapping
from types import MappingProxyType
from typing import TypeAlias

from surveysynth.errors import InputError
from surveysynth.estimation.naming import Call, file_name
from surveysynth.estimation.quantiles import quantile
from surveysynth.estimation.statistic import Program, Statistic

Lookup: TypeAlias = Callable[[str], Statistic]
"""From a name to its statistic."""

_PYTHON_SHARE = Program(
    ("value = w[inside & (y <= Q)].sum() / w[inside].sum()",),
    ("u = w * inside * ((y <= Q) - value) / w[inside].sum()",),
)
_R_SHARE = Program(
    ("value <- sum(w[inside & y <= Q]) / sum(w[inside])",),
    ("u <- w * inside * ((y <= Q) - value) / sum(w[inside])",),
)


def of_share(p: float) -> Statistic:
    """The quantile with a share p of the weight up to it."""
    percent = f"{100 * p:.10g}"
    median = p == 0.5
    plural = "medians" if median else f"{percent}{_ordinal(percent)} percentiles"
    return Statistic(
        name="median" if median else f"quantile({p!r})",
        plural=plural,
        heading=f"Estimated {plural.removesuffix('s')}",
        linearise=quantile(p),
        python=_PYTHON_SHARE,
        r=_R_SHARE,
        instead=" Of outcomes with levels there is 'share'.",
        file=plural if median else file_name("percentiles", percent.replace(".", "_")),
        share_below=p,
        explanation=(
            f"{plural[0].upper()}{plural[1:]}: F(x) is the share of the weight of a cell with "
            "values up to x, "
            f"averaged over all datasets, and the estimate Q is the smallest value with F(Q) at "
            f"least {p:g}. With q_l the shares up to that one Q in the datasets, their standard "
            "error and degrees of freedom follow as below, from u = w d (1(y <= Q) - q) / N_d; the "
            "ends of the interval are the smallest values with F at least q - t · se and q + t · se"
            ". `se` is the width of the 95% interval over 2 t (Woodruff 1952)."
        ),
    )


def _ordinal(number: str) -> str:
    last = number[-1]
    teens = "." not in number and number[-2:] in ("11", "12", "13")
    return "th" if teens or "." in number else {"1": "st", "2": "nd", "3": "rd"}.get(last, "th")


def _quantile(call: Call, name: str, lookup: Lookup) -> Statistic:
    try:
        (written,) = call.arguments
        p = float(written)
    except ValueError:
        p = float("nan")
    if not 0.0 < p < 1.0:
        raise InputError(
            f"The statistic {name!r} needs one number between 0 and 1, the share of the population "
            'up to the quantile: for example "quantile(0.25)".'
        )
    return lookup("median") if p == 0.5 else of_share(p)


Family: TypeAlias = Callable[[Call, str, Lookup], Statistic]

FAMILIES: Mapping[str, Family] = MappingProxyType({"quantile": _quantile})
"""By the word before the brackets: from the arguments, the whole name and the other statistics to
the statistic. Each raises ``InputError`` for arguments that it cannot read."""

EXAMPLES = ("quantile(0.25)",)
"""Of names with arguments, for messages."""
