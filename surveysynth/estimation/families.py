"""Statistics with arguments: how their names are read, and the row of each.

A name is ``word(argument, argument)``. An argument is plain text. Text needs double quotes (a
double quote in it is doubled) where it has , : ( ) or ", where it has " - " or " / " in it or
spaces at its ends, and where it is one of the words ``each`` and ``margin``.
"""

import re
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from math import inf
from types import MappingProxyType
from typing import TypeAlias

from surveysynth._support.messages import capitalised
from surveysynth.errors import InputError
from surveysynth.estimation.contrasts import Contrast, ContrastKind
from surveysynth.estimation.linearised import quotient
from surveysynth.estimation.quantiles import quantile
from surveysynth.estimation.statistic import Program, Statistic, mean_of_sums

EACH, MARGIN = "each", "margin"
_WORD = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.DOTALL)
_SPECIAL = re.compile(r'[,:()"]|\s[-/]\s|^\s|\s$|^$|^(?:each|margin)$')


@dataclass(frozen=True)
class Call:
    """A word and its arguments, each as it was written."""

    word: str
    arguments: tuple[str, ...]


def parse_call(name: str) -> Call | None:
    """Return the parts of a name with arguments; None for a name without brackets.

    Raises ``InputError`` where brackets or quotes do not match.
    """
    if "(" not in name:
        return None
    found = _WORD.fullmatch(name)
    if found is None:
        raise _wrong(name, "expected a word and its arguments in brackets")
    return Call(found[1], tuple(split(found[2], ",", name)))


def split(text: str, mark: str, name: str) -> list[str]:
    """Split a text at a mark, a pattern, outside quotes and brackets.

    Raises ``InputError`` where brackets or quotes do not match; ``name`` is for the message.
    """
    parts, start = [], 0
    pattern = re.compile(mark)
    for place in _outside(text, name):
        found = pattern.match(text, place)
        if found and place >= start:
            parts.append(text[start:place].strip())
            start = found.end()
    return [*parts, text[start:].strip()]


def _outside(text: str, name: str) -> Iterator[int]:
    """Yield places outside quotes and brackets."""
    depth, quoted = 0, False
    for place, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif not quoted:
            depth += (character == "(") - (character == ")")
            if depth < 0:
                raise _wrong(name, "a bracket is closed that was not opened")
            if depth == 0:
                yield place
    if depth or quoted:
        raise _wrong(name, "a quote is not closed" if quoted else "a bracket is not closed")


def unquote(written: str, name: str) -> str:
    """Return the text that was written; raise ``InputError`` for text that needs quotes."""
    inner = written[1:-1].replace('""', "")
    if len(written) > 1 and written[0] == written[-1] == '"' and '"' not in inner:
        return written[1:-1].replace('""', '"')
    if _SPECIAL.search(written):
        raise _wrong(name, f"{written!r} is not a name here; text with special signs needs quotes")
    return written


def quote(text: str) -> str:
    """Write text so that ``unquote`` reads it."""
    doubled = text.replace('"', '""')
    return f'"{doubled}"' if _SPECIAL.search(text) else text


def file_name(*words: str) -> str:
    """Join words to the name of a file: letters, digits and underscores."""
    return "_".join(re.findall(r"\w+", " ".join(words)))


def _wrong(name: str, why: str) -> InputError:
    return InputError(f"The statistic {name!r} cannot be read: {why}.")


Lookup: TypeAlias = Callable[[str], Statistic]
"""From a name to its statistic."""

_PYTHON_SHARE = Program(
    ("total, size = w[inside & (y <= Q)].sum(), w[inside].sum()",),
    ("u = w * inside * ((y <= Q) - value) / size",),
)
_R_SHARE = Program(
    ("total <- sum(w[inside & y <= Q])", "size <- sum(w[inside])"),
    ("u <- w * inside * ((y <= Q) - value) / size",),
)


def of_share(p: float) -> Statistic:
    """Return the quantile below which lies a share p of the weight."""
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
            f"{capitalised(plural)}: F(x) is the share of the weight of a cell with "
            "values up to x, "
            f"over all datasets in one file, and the estimate Q is the smallest value with F(Q) at "
            f"least {p:g}. With q_l the shares up to that one Q in the datasets, their standard "
            "error and degrees of freedom follow as below, from u = w d (1(y <= Q) - q) / N_d; the "
            "ends of the interval are the smallest values with F at least q - t · se and q + t · se"
            ", and where such a share is outside 0 to 1 there is no such end. `se` is the width of "
            "the 95% interval over 2 t (Woodruff 1952), or where it lacks an end the distance of "
            "the other from Q over t."
        ),
    )


#: Of a contrast of quantiles: those Q of two rows of all datasets, linear in F there.
_PYTHON_LINEAR = Program(
    ("z = Q + slope * ((y <= Q) - F)", "total, size = (w * z)[inside].sum(), w[inside].sum()"),
    ("u = w * inside * (z - value) / size",),
)
_R_LINEAR = Program(
    (
        "z <- Q + slope * ((y <= Q) - F)",
        "total <- sum((w * z)[inside])",
        "size <- sum(w[inside])",
    ),
    ("u <- w * inside * (z - value) / size",),
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


_PYTHON_RATIO = Program(
    ("total, size = (w * y)[inside].sum(), (w * x)[inside].sum()",),
    ("u = w * inside * (y - value * x) / size",),
)
_R_RATIO = Program(
    ("total <- sum((w * y)[inside])", "size <- sum((w * x)[inside])"),
    ("u <- w * inside * (y - value * x) / size",),
)


def of_two(numerator: str, denominator: str) -> Statistic:
    """Return the ratio of the totals of two outcomes."""
    words = f"{numerator} to {denominator}"
    return Statistic(
        name=f"ratio({quote(numerator)}, {quote(denominator)})",
        plural=f"ratios of {words}",
        heading="Estimated ratio",
        linearise=quotient,
        python=_PYTHON_RATIO,
        r=_R_RATIO,
        rounding="warranted",
        unit="ratio",
        file=file_name("ratio", numerator, denominator),
        of=(numerator, denominator),
        of_sums=mean_of_sums,
        explanation=(
            f"The ratio of {words} is that of their totals in a cell, R = t_y / t_x, with "
            "u = w d (y - R x) / t_x."
        ),
    )


def _ratio(call: Call, name: str, lookup: Lookup) -> Statistic:
    if len(call.arguments) == 2 and not _sides(call.arguments[1], name):
        numerator, denominator = (unquote(each, name) for each in call.arguments)
        if numerator != denominator:
            return of_two(numerator, denominator)
    return of_rows(*_contrast(call, name, "ratio"), lookup)


def _difference(call: Call, name: str, lookup: Lookup) -> Statistic:
    return of_rows(*_contrast(call, name, "difference"), lookup)


_HOW = {
    "ratio": 'expected two outcomes, "ratio(income, tax)", or a statistic and two rows, '
    '"ratio(mean, sex: f / m)", or "ratio(count, sex: margin)"',
    "difference": 'expected a statistic and two rows, "difference(mean, sex: f - m)", '
    '"difference(mean, sex: each - m)" or "difference(mean, sex: margin)"',
}


def _contrast(call: Call, name: str, kind: ContrastKind) -> tuple[str, Contrast]:
    """Return the statistic of each row (the mean where none is named) and the contrast."""
    *base, rows = call.arguments
    sides = _sides(rows, name)
    if len(base) > 1 or sides is None:
        raise InputError(f"The statistic {name!r} cannot be read: {_HOW[kind]}.")
    column, levels = sides
    parts = split(levels, r"\s-\s" if kind == "difference" else r"\s/\s", name)
    if parts == [MARGIN]:
        parts = [EACH, MARGIN]
    if len(parts) != 2 or parts[0] == MARGIN or parts[1] == EACH or parts[0] == parts[1]:
        raise InputError(f"The statistic {name!r} cannot be read: {_HOW[kind]}.")
    first = None if parts[0] == EACH else unquote(parts[0], name)
    second = None if parts[1] == MARGIN else unquote(parts[1], name)
    return (base or ["mean"])[0], Contrast(kind, unquote(column, name), first, second)


def _sides(argument: str, name: str) -> tuple[str, str] | None:
    """Split at the colon; empty without one."""
    parts = split(argument, ":", name)
    return (parts[0], parts[1]) if len(parts) == 2 else None


def of_rows(base_name: str, contrast: Contrast, lookup: Lookup) -> Statistic:
    """Return the contrast of a statistic between two rows."""
    base = lookup(base_name)
    mark = "-" if contrast.kind == "difference" else "/"
    first = EACH if contrast.first is None else quote(contrast.first)
    second = MARGIN if contrast.second is None else quote(contrast.second)
    rows = f"{quote(contrast.column)}: {first} {mark} {second}".replace(f"{EACH} {mark} {MARGIN}",
                                                                       MARGIN)  # fmt: skip
    name = f"{contrast.kind}({base.name}, {rows})"
    if base.contrast is not None:
        raise InputError(f"The statistic {name!r} is a contrast of contrasts, which there is none.")
    return _described(base, contrast, name, rows)


def _described(base: Statistic, contrast: Contrast, name: str, rows: str) -> Statistic:
    ratio = contrast.kind == "ratio"
    share = ratio and contrast.second is None and base.is_count  # of a part in its whole
    formula = "(u_1 - R u_2) / t_2, R = t_1 / t_2" if ratio else "u_1 - u_2"
    noun = "ratio" if ratio else "difference"
    return replace(
        base,
        name=name,
        plural=f"{noun}s of {base.plural}, {rows}",
        heading=f"Percentage over {contrast.column}"
        if share
        else f"{noun.capitalize()} of {base.plural}",
        python=_PYTHON_LINEAR if base.share_below else base.python,
        r=_R_LINEAR if base.share_below else base.r,
        interval="logit" if share else "positive" if ratio and base.is_count else "t",
        rounding="percent" if share else "warranted" if ratio else base.rounding,
        margins="neither",
        limits=(0.0, 1.0) if share else None if ratio else (-inf, inf),
        unit="share, 0 to 1" if share else "ratio" if ratio else base.unit,
        standard="proportion" if share else "neither",
        of_sums=None,
        sensitivity=None,
        file=file_name(contrast.kind, base.stem, contrast.column, contrast.first or EACH,
                       contrast.second or MARGIN),
        contrast=contrast,
        base=base.name,
        signed=not ratio,
        share_below=None,
        compared_share=base.share_below,
        explanation=(
            f"{noun.capitalize()}s ({rows}): each is of the estimates of two rows, "
            f"with u = {formula} in a dataset, from the linearised variables u_1 and u_2 of both, "
            "so that their covariance is in the variance. `n` is of the row with fewer records."
        ),
    )  # fmt: skip


def _share(call: Call, name: str, lookup: Lookup) -> Statistic:
    """Return the statistic of shares: each row as a share of its level's records in a margin."""
    if len(call.arguments) != 1 or _sides(call.arguments[0], name):
        raise InputError(
            f"The statistic {name!r} needs one by variable, over whose levels shares add up to 1: "
            'for example "share(region)".'
        )
    column, total = unquote(call.arguments[0], name), lookup("total")
    return replace(
        lookup("share"),
        name=f"share({quote(column)})",
        plural=f"shares over {column}",
        heading=f"Percentage over {column}",
        linearise=total.linearise,
        python=total.python,
        r=total.r,
        margins="neither",
        of_sums=None,
        file=file_name("shares_over", column),
        contrast=Contrast("ratio", column, None, None),
        base=total.name,
        explanation=(
            f"Shares over {column}: of the weight of a level in all of {column} the share that is "
            "in the row, t_1 / t_2 with t the sums of w over the records of the level in the row "
            "and in its margin, and u = (u_1 - share u_2) / t_2."
        ),
    )


Family: TypeAlias = Callable[[Call, str, Lookup], Statistic]

FAMILIES: Mapping[str, Family] = MappingProxyType(
    {"quantile": _quantile, "ratio": _ratio, "difference": _difference, "share": _share}
)
"""By the word before the brackets: from the arguments, the whole name and the other statistics to
the statistic. Each raises ``InputError`` for arguments that it cannot read."""

EXAMPLES = (
    "quantile(0.25)",
    "ratio(income, tax)",
    "difference(mean, sex: f - m)",
    "share(region)",
)
"""Of names with arguments, for messages."""
