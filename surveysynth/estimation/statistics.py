"""The statistics that tables can show, with all facts about each.

A row of ``STATISTICS`` has a statistic's words, requirements for an outcome, estimate and
linearized variable as an array function. The specification, estimation, tables, writers,
comparisons and noise all read this registry.

A statistic with arguments is a row of ``FAMILIES``. Its name is ``word(argument, argument)``. An
argument is plain text. Text needs double quotes (a double quote in it is doubled) where it has
, : ( ) or ", where it has " - " or " / " in it or spaces at its ends, and where it is one of the
words ``each`` and ``margin``.
"""

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from math import inf
from types import MappingProxyType
from typing import Literal, TypeAlias

import numpy as np

from surveysynth._support.messages import capitalized, listing
from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.linearised import (
    Contrast,
    ContrastKind,
    Linearise,
    Sensitivity,
    average,
    expansion,
    of_means,
    of_totals,
    of_weights,
    quantile,
    quotient,
)
from surveysynth.survey.outcome import AMOUNTS, Outcome, OutcomeKind, zero_one

Interval: TypeAlias = Literal["t", "logit", "positive"]
"""estimate ± t SE; the same on the logit scale, which stays between 0 and 1; or, where it would
reach below 0, on the log scale, which does not."""


@dataclass(frozen=True)
class Statistic:
    """Everything about one statistic."""

    name: str  # in specifications and files
    plural: str  # in words, lower case; with underscores the name of its files
    heading: str  # of its estimates in tables
    linearise: Linearise  # its array function
    #: False for a statistic of the weights alone, which has one table whatever the outcomes.
    needs_outcome: bool = True
    binary: bool = False  # true if the outcome must be 0 or 1 and is modeled untransformed
    #: Of the outcomes that it is of; a table of one leaves the others out.
    kinds: tuple[OutcomeKind, ...] = AMOUNTS
    instead: str = ""  # for outcomes of another kind, what is of them, for messages
    #: Whether each row has a line a level of the outcome's discrete part; the array function then
    #: takes the indicator of one level.
    by_level: bool = False
    interval: Interval = "t"  # how an interval is made of estimate and standard error
    percent: bool = False  # whether readers see it in percent
    #: What a margin is of its cells: their "sums", their "means" weighted by counts, or neither.
    margins: Literal["sums", "means", "neither"] = "neither"
    least_for_se: int = 2  # records without which a row has no standard error
    #: Between which every estimate must lie; None: it is not negative if no outcome is.
    limits: tuple[float, float] | None = None
    unit: str = ""  # of unrounded numbers; empty: that of the outcome
    #: Which published standards of reliability of the NCHS speak of it.
    standard: Literal["count", "proportion", "neither"] = "neither"
    #: How far one record moves it (for Laplace noise); None: not known, and no noise is made.
    sensitivity: Sensitivity | None = None
    #: For the README, where count, total and mean do not say it: how estimate and u are made.
    explanation: str = ""
    file: str = ""  # name of its files without the ending, where that is not the plural
    #: The outcomes, by name, of a statistic of several: its array function takes (n, k).
    of: tuple[str, ...] = ()
    #: The contrast of two rows; the array function and the requirements for an outcome are those of
    #: the statistic of one row.
    contrast: Contrast | None = None
    base: str = ""  # with a contrast, the name of that statistic
    #: Whether it may be zero by its nature, so that a relative error says nothing.
    signed: bool = False
    #: Of a quantile, or of a contrast of quantiles, the share p: several datasets are combined by
    #: their distribution functions, which are inverted there.
    share: float | None = None

    @property
    def share_below(self) -> float | None:
        """The share p of a quantile itself."""
        return self.share if self.contrast is None else None

    @property
    def stem(self) -> str:
        """Name of its files, without the ending."""
        return self.file or self.plural.replace(" ", "_")

    @property
    def title(self) -> str:
        """The title of sheets and sections."""
        return capitalized(self.plural)

    @property
    def additive(self) -> bool:
        """True if cells add up to their margins, as values proportional to the weights do."""
        return self.margins == "sums"

    @property
    def is_count(self) -> bool:
        """True for a number of units, whose total may be known."""
        return self.additive and not self.needs_outcome

    def columns_of(self, by: Sequence[str]) -> list[str]:
        """Return the by variables that its tables show; a contrast of two levels hides its own."""
        compared = self.contrast
        hidden = compared.column if compared is not None and compared.first is not None else None
        return [name for name in by if name != hidden]

    def columns(
        self, outcomes: Sequence[Outcome], rows_by: Sequence[str] = ()
    ) -> tuple[int | None, ...]:
        """Return the columns of the outcomes that it applies to, (None,) if it needs none.

        Empty if it applies to none. Outcomes that make the rows are left out: they do not vary in a
        row. Of several outcomes it is the first, where all are there and of kinds that suit.
        """
        if not self.needs_outcome:
            return (None,)
        if self.of:
            found = {o.name: j for j, o in enumerate(outcomes) if o.kind in self.kinds}
            known = all(name in found and name not in rows_by for name in self.of)
            return (found[self.of[0]],) if known else ()
        suited: Sequence[int] = zero_one(outcomes)
        if not self.binary:
            suited = [j for j, outcome in enumerate(outcomes) if outcome.kind in self.kinds]
        return tuple(j for j in suited if outcomes[j].name not in rows_by)

    def misfit(self, outcomes: Sequence[Outcome], rows_by: Sequence[str] = ()) -> str:
        """Return the reason why it applies to none of the outcomes, with the remedy."""
        if self.columns(outcomes):
            return (
                f"{self.name!r} has no outcome left: rows are by "
                f"{listing([each.name for each in outcomes if each.name in rows_by])}, which does "
                "not vary within a row. Leave one of both out."
            )
        got = ", ".join(f"{outcome.name} is {outcome.kind}" for outcome in outcomes)
        if self.of:
            return (
                f"{self.name!r} needs the outcomes {listing(self.of)} to be amounts of "
                f"synthesizer.outcome; {got}."
            )
        if self.binary:
            transforms = listing([o.transform.kind for o in outcomes if o.kind == "continuous"])
            also = f", transform {transforms}" if transforms else ""
            return (
                f"{self.name!r} needs an outcome of 0 and 1: of kind 'binary', or with "
                f"transform = 'identity' in [outcomes.NAME]; {got}{also}."
            )
        return (
            f"{self.name!r} needs an outcome that is {' or '.join(self.kinds)}; {got}."
            f"{self.instead}"
        )


EACH, MARGIN = "each", "margin"
_WORD = re.compile(r"\s*([A-Za-z_]\w*)\s*\((.*)\)\s*", re.DOTALL)
_SPECIAL = re.compile(r'[,:()"]|(?:^|\s)[-/](?:\s|$)|^\s|\s$|^$|^(?:each|margin)$')


def parse_call(name: str) -> tuple[str, tuple[str, ...]] | None:
    """Return the word of a name and its arguments as written; None for one without brackets.

    Raises ``InputError`` where brackets or quotes do not match.
    """
    if "(" not in name:
        return None
    found = _WORD.fullmatch(name)
    if found is None:
        raise _wrong(name, "expected a word and its arguments in brackets")
    return found[1], tuple(split(found[2], ",", name))


def split(text: str, mark: str, name: str) -> list[str]:
    """Split a text at a mark, a pattern, outside quotes and brackets.

    Raises ``InputError`` where brackets or quotes do not match; ``name`` is for the message.
    """
    parts, start, depth, quoted = [], 0, 0, False
    pattern = re.compile(mark)
    for place, character in enumerate(text):
        if character == '"':
            quoted = not quoted
        elif not quoted:
            depth += (character == "(") - (character == ")")
            if depth < 0:
                raise _wrong(name, "a bracket is closed that was not opened")
            found = pattern.match(text, place)
            if found and depth == 0 and place >= start:
                parts.append(text[start:place].strip())
                start = found.end()
    if depth or quoted:
        raise _wrong(name, "a quote is not closed" if quoted else "a bracket is not closed")
    return [*parts, text[start:].strip()]


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


def of_share(p: float) -> Statistic:
    """Return the quantile below which lies a share p of the weight."""
    percent = f"{100 * p:.10g}"
    median = p == 0.5
    # 1st, 22nd, but 11th and 12.5th.
    plain = "." not in percent and percent[-2:] not in ("11", "12", "13")
    ending = {"1": "st", "2": "nd", "3": "rd"}.get(percent[-1], "th") if plain else "th"
    plural = "medians" if median else f"{percent}{ending} percentiles"
    return Statistic(
        name="median" if median else f"quantile({p!r})",
        plural=plural,
        heading=f"Estimated {plural.removesuffix('s')}",
        linearise=quantile(p),
        instead=" For outcomes with levels there is 'share'.",
        file=plural if median else file_name("percentiles", percent.replace(".", "_")),
        share=p,
        explanation=(
            f"{capitalized(plural)}: F(x) is the share of the weight of a cell with "
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


def _quantile(arguments: tuple[str, ...], name: str) -> Statistic:
    try:
        (written,) = arguments
        p = float(written)
    except ValueError:
        p = float("nan")
    if not 0.0 < p < 1.0:
        raise InputError(
            f"The statistic {name!r} needs one number between 0 and 1, the share of the population "
            'up to the quantile: for example "quantile(0.25)".'
        )
    return MEDIAN if p == 0.5 else of_share(p)


def _ratio(arguments: tuple[str, ...], name: str) -> Statistic:
    """Return the ratio of the totals of two outcomes, or of two rows."""
    if len(arguments) != 2 or _sides(arguments[1], name):
        return _contrast(arguments, name, "ratio")
    numerator, denominator = (unquote(each, name) for each in arguments)
    if numerator == denominator:
        return _contrast(arguments, name, "ratio")
    words = f"{numerator} to {denominator}"
    return Statistic(
        name=f"ratio({quote(numerator)}, {quote(denominator)})",
        plural=f"ratios of {words}",
        heading="Estimated ratio",
        linearise=quotient,
        unit="ratio",
        file=file_name("ratio", numerator, denominator),
        of=(numerator, denominator),
        explanation=(
            f"The ratio of {words} is that of their totals in a cell, R = t_y / t_x, with "
            "u = w d (y - R x) / t_x."
        ),
    )


_HOW = {
    "ratio": 'expected two outcomes, "ratio(income, tax)", or a statistic and two rows, '
    '"ratio(mean, sex: f / m)", or "ratio(count, sex: margin)"',
    "difference": 'expected a statistic and two rows, "difference(mean, sex: f - m)", '
    '"difference(mean, sex: each - m)" or "difference(mean, sex: margin)"',
}


def _sides(argument: str, name: str) -> tuple[str, str] | None:
    """Split at the colon; None without one."""
    parts = split(argument, ":", name)
    return (parts[0], parts[1]) if len(parts) == 2 else None


def _contrast(arguments: tuple[str, ...], name: str, kind: ContrastKind) -> Statistic:
    """Return the contrast of a statistic, the mean where none is named, between two rows."""
    *named, written = arguments
    sides = _sides(written, name)
    if len(named) > 1 or sides is None:
        raise InputError(f"The statistic {name!r} cannot be read: {_HOW[kind]}.")
    mark = "-" if kind == "difference" else "/"
    parts = split(sides[1], rf"\s{mark}\s", name)
    if parts == [MARGIN]:
        parts = [EACH, MARGIN]
    if len(parts) != 2 or parts[0] == MARGIN or parts[1] == EACH or parts[0] == parts[1]:
        raise InputError(f"The statistic {name!r} cannot be read: {_HOW[kind]}.")
    first = None if parts[0] == EACH else unquote(parts[0], name)
    second = None if parts[1] == MARGIN else unquote(parts[1], name)
    contrast = Contrast(kind, unquote(sides[0], name), first, second)
    base = statistic_of((named or ["mean"])[0])
    upper = EACH if first is None else quote(first)
    lower = MARGIN if second is None else quote(second)
    levels = MARGIN if first is None and second is None else f"{upper} {mark} {lower}"
    rows = f"{quote(contrast.column)}: {levels}"
    name = f"{kind}({base.name}, {rows})"
    if base.contrast is not None:
        raise InputError(f"The statistic {name!r} is a contrast of contrasts, which there is none.")
    ratio = kind == "ratio"
    share = ratio and second is None and base.is_count  # of a part in its whole
    formula = "(u_1 - R u_2) / t_2, R = t_1 / t_2" if ratio else "u_1 - u_2"
    noun = "ratio" if ratio else "difference"
    return replace(
        base,
        name=name,
        plural=f"{noun}s of {base.plural}, {rows}",
        heading=f"Percentage over {contrast.column}"
        if share
        else f"{noun.capitalize()} of {base.plural}",
        interval="logit" if share else "positive" if ratio and base.is_count else "t",
        percent=share or (base.percent and not ratio),
        margins="neither",
        limits=(0.0, 1.0) if share else None if ratio else (-inf, inf),
        unit="share, 0 to 1" if share else "ratio" if ratio else base.unit,
        standard="proportion" if share else "neither",
        sensitivity=None,
        file=file_name(kind, base.stem, contrast.column, first or EACH, second or MARGIN),
        contrast=contrast,
        base=base.name,
        signed=not ratio,
        explanation=(
            f"{noun.capitalize()}s ({rows}): each is of the estimates of two rows, "
            f"with u = {formula} in a dataset, from the linearized variables u_1 and u_2 of both, "
            "so that their covariance is in the variance. `n` is of the row with fewer records."
        ),
    )  # fmt: skip


def _share(arguments: tuple[str, ...], name: str) -> Statistic:
    """Return the statistic of shares: each row as a share of its level's records in a margin."""
    if len(arguments) != 1 or _sides(arguments[0], name):
        raise InputError(
            f"The statistic {name!r} needs one by variable, over whose levels shares add up to 1: "
            'for example "share(region)".'
        )
    column = unquote(arguments[0], name)
    return replace(
        SHARE,
        name=f"share({quote(column)})",
        plural=f"shares over {column}",
        heading=f"Percentage over {column}",
        linearise=expansion,
        margins="neither",
        file=file_name("shares_over", column),
        contrast=Contrast("ratio", column, None, None),
        base=TOTAL.name,
        explanation=(
            f"Shares over {column}: of the weight of a level in all of {column} the share that is "
            "in the row, t_1 / t_2 with t the sums of w over the records of the level in the row "
            "and in its margin, and u = (u_1 - share u_2) / t_2."
        ),
    )


FAMILIES: Mapping[str, Callable[[tuple[str, ...], str], Statistic]] = MappingProxyType({
    "quantile": _quantile,
    "ratio": _ratio,
    "difference": partial(_contrast, kind="difference"),
    "share": _share,
})  # fmt: skip
"""By the word before the brackets: from the arguments and the whole name to the statistic. Each
raises ``InputError`` for arguments that it cannot read."""

EXAMPLES = ("quantile(0.25)", "ratio(income, tax)", "difference(mean, sex: f - m)", "share(region)")
"""Of names with arguments, for messages."""


#: What tables say of outcomes that are no amounts.
_OF_LEVELS = (
    " Of a binary outcome 'proportion' is the share of its last level, 'share' those of both, as "
    "of all levels of a categorical one; what works for every outcome: 'count'."
)

COUNT = Statistic(
    name="count",
    plural="counts",
    heading="Estimated number",
    linearise=expansion,
    needs_outcome=False,
    interval="positive",
    margins="sums",
    least_for_se=1,
    unit="units of the population",
    standard="count",
    sensitivity=of_weights,
)

TOTAL = Statistic(
    name="total",
    plural="totals",
    heading="Estimated total",
    linearise=expansion,
    instead=_OF_LEVELS,
    margins="sums",
    least_for_se=1,
    sensitivity=of_totals,
)

MEAN = Statistic(
    name="mean",
    plural="means",
    heading="Estimated mean",
    linearise=average,
    instead=_OF_LEVELS,
    margins="means",
    sensitivity=of_means,
)

MEDIAN = of_share(0.5)

PROPORTION = Statistic(
    name="proportion",
    plural="proportions",
    heading="Estimated percentage",
    linearise=average,
    binary=True,
    kinds=("binary",),
    percent=True,
    interval="logit",
    margins="means",
    limits=(0.0, 1.0),
    unit="share, 0 to 1",
    standard="proportion",
    sensitivity=of_means,
)

SHARE = Statistic(
    name="share",
    plural="shares",
    heading="Estimated percentage",
    linearise=average,
    kinds=("semicontinuous", "binary", "categorical"),
    instead=" For amounts there are 'mean', 'median' and 'total'.",
    by_level=True,
    interval="logit",
    percent=True,
    margins="means",
    limits=(0.0, 1.0),
    unit="share, 0 to 1",
    standard="proportion",
    explanation=(
        "The share of a level in a cell is the mean of its indicator: y = 1 for the records of the "
        "level and 0 for others. The shares of a cell add up to 1."
    ),
)

LEVEL = "level"
"""Column of the levels, in tables of a statistic by level."""

TABLE = "table"
"""Column of the names of tables, where there are several."""

TABLE_COLUMNS = (
    "statistic", "outcome", "is_margin", "estimate", "se", "df", "df_design", "ci_lower",
    "ci_upper", "n", "flag",
)  # fmt: skip
"""Columns that tables have besides those that they are by, below each other or alone."""

REPORT_COLUMNS = (
    "method", "rmse", "published", "published_se", "sample", "sample_se", "difference", "beyond",
)  # fmt: skip
"""Those of comparisons with the confidential sample besides."""

STUDY_COLUMNS = (
    "m", "epsilon", "row", "truth", "bias", "sd", "rmse_ratio", "coverage", "coverage_mcse",
    "ci_length", "cv", "replicates", "bias_mcse", "rmse_ratio_mcse", "ci_length_mcse",
    "units", "records", "size", "has_error", "bias_ratio", "length_ratio",
)  # fmt: skip
"""Those of coverage studies besides."""

STATISTICS: dict[str, Statistic] = {
    each.name: each for each in (COUNT, TOTAL, MEAN, MEDIAN, PROPORTION, SHARE)
}
"""By name, in the order in which messages list them."""


def statistic_of(name: str) -> Statistic:
    """Return the statistic of a name; raise ``InputError`` for an unknown name."""
    return STATISTICS[name] if name in STATISTICS else _with_arguments(name)


@lru_cache(maxsize=256)
def _with_arguments(name: str) -> Statistic:
    call = parse_call(name)
    if call is None or call[0] not in FAMILIES:
        known, examples = ", ".join(STATISTICS), ", ".join(EXAMPLES)
        raise InputError(
            f"The statistic must be one of {known}, or one with arguments, as {examples}, but got "
            f"'{name}'."
        )
    word, arguments = call
    return FAMILIES[word](arguments, name)


def values_of(statistic: Statistic, outcome: FloatArray | None, n: int) -> FloatArray:
    """Return the outcome, (n,) or (n, k), that an array function takes."""
    return np.ones(n) if outcome is None or not statistic.needs_outcome else outcome


def table_keys(
    statistics: Sequence[str], outcomes: Sequence[Outcome], rows_by: Sequence[str] = ()
) -> tuple[tuple[str, int | None], ...]:
    """Return every table: a statistic and the column of an outcome that it applies to.

    The column is None for a statistic without outcome; rows_by: the by variables.
    """
    return tuple(
        (name, column)
        for name in statistics
        for column in statistic_of(name).columns(outcomes, rows_by)
    )
