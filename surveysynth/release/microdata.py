"""Synthetic microdata: unchanged public columns, synthetic outcomes and smoothed weights.

Values have as many digits as are published before anything is computed from them. All digits of a
double would give the parameters of a draw away to the last of theirs: smoothed weights are a smooth
function of outcome and parameters, and as many records as there are parameters solve for these.
What is proved of draws is proved of real numbers; how floating-point numbers fall between them is
not covered, and a public number of digits hides it.

In Stata and SPSS labels of values belong to numbers. A column of levels is written as its codes
where these are whole numbers, and as positions starting at 1 where they are not; ``codebook.json``
has both.
"""

import json
import math
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from decimal import Decimal
from functools import cached_property
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.messages import listing
from surveysynth._support.numeric import blocks
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.config.spec import Spec
from surveysynth.errors import InputError, RefusedError, SurveySynthError
from surveysynth.inference.synthesis import SyntheticDataset
from surveysynth.release.tables.layout import Labels
from surveysynth.release.writers.csv import MicrodataFormat, plain_text, write_records
from surveysynth.survey.columns import natural_order, text_column
from surveysynth.survey.files import read_with
from surveysynth.survey.outcome import Outcome
from surveysynth.survey.survey import PublicDesign

if TYPE_CHECKING:
    import pandas as pd

PROGRAMS: dict[str, str] = {"dta": "Stata", "sav": "SPSS"}

#: Bytes that a file has room for. Of Stata 80 characters, which may take four bytes each.
_TITLE_BYTES = {"dta": 80, "sav": 255}
_LABEL_BYTES = {"dta": 32_000, "sav": 120}
_FILE_LABEL_BYTES = 64
_NAME_BYTES = {"dta": 32, "sav": 64}
_RESERVED = {
    "dta": frozenset({
        "_all", "_b", "byte", "_coef", "_cons", "double", "float", "if", "in", "int", "long", "_n",
        "_N", "_pi", "_pred", "_rc", "_skip", "strL", "using", "with",
    }),
    "sav": frozenset({
        "all", "and", "by", "eq", "ge", "gt", "le", "lt", "ne", "not", "or", "to", "with",
    }),
}  # fmt: skip
_STRING_TYPE = re.compile(r"str\d+")
#: Stata keeps the highest ones for missing values.
_LARGEST = 2_147_483_620


@dataclass(frozen=True)
class LabelledColumn:
    """A column in a file of Stata or SPSS.

    values: the number of each code, empty for columns of numbers and for texts that stay; labels:
    of these numbers; nominal: whether the column classifies.
    """

    title: str
    values: Mapping[str, int] = field(default_factory=dict)
    labels: Mapping[int, str] = field(default_factory=dict)
    nominal: bool = False


def values_of(codes: Sequence[str], *, positions: bool) -> dict[str, int]:
    """Return the number of each code: the code itself where all are whole numbers.

    Otherwise its place, starting at 1, with ``positions``, and nothing without.
    """
    # As programs write them: "01" and "+1" are none.
    if all(re.fullmatch(r"0|-?[1-9]\d{0,9}", code) for code in codes) and all(
        abs(int(code)) <= _LARGEST for code in codes
    ):
        return {code: int(code) for code in codes}
    return {code: place for place, code in enumerate(codes, start=1)} if positions else {}


def check_names(names: Sequence[str], file_format: str) -> None:
    """Raise ``InputError`` for names of columns that the program does not take; names are public.

    ``file_format``: any of the microdata; csv and parquet take every name.
    """
    if file_format not in PROGRAMS:
        return
    program = PROGRAMS[file_format]
    refused = [name for name in names if not _is_name(name, file_format)]
    if refused:
        first = "a letter or _" if file_format == "dta" else "a letter"
        raise InputError(
            f'tables.microdata = "{file_format}": {listing(refused)} cannot be the name of a '
            f"column of {program}: expected {first}, then letters, digits and _, at most "
            f"{_NAME_BYTES[file_format]}, and no word of its language. Rename the column, or take "
            "csv or parquet."
        )
    folded = [name.casefold() for name in names]
    same = [name for name in names if folded.count(name.casefold()) > 1]
    if same and file_format == "sav":
        raise InputError(
            f'tables.microdata = "sav": {listing(same)} are one name to SPSS, which does not tell '
            "capital letters from small ones. Rename a column, or take another format."
        )


def _is_name(name: str, file_format: str) -> bool:
    if len(name.encode()) > _NAME_BYTES[file_format] or not name.isidentifier():
        return False
    if file_format == "sav":
        return name.casefold() not in _RESERVED["sav"] and not name.startswith("_")
    return name not in _RESERVED["dta"] and not _STRING_TYPE.fullmatch(name)


def write_labelled(
    frame: "pd.DataFrame",
    path: Path,
    file_format: str,
    columns: Mapping[str, LabelledColumn],
    title: str,
) -> None:
    """Write a frame without its index; ``columns`` has every one of it, ``title`` is the file's.

    Labels that a file has no room for are cut.
    """
    import pyreadstat

    numbers = {
        name: frame[name].map(dict(each.values)) for name, each in columns.items() if each.values
    }
    coded = frame.assign(**{  # blank cells are missing
        name: column.astype("float64" if column.isna().any() else "int32")
        for name, column in numbers.items()
    })  # fmt: skip
    shared: dict[str, Any] = {
        "file_label": cut(title, _FILE_LABEL_BYTES),
        "column_labels": {
            name: cut(each.title, _TITLE_BYTES[file_format]) for name, each in columns.items()
        },
        "variable_value_labels": {
            name: {
                value: cut(label, _LABEL_BYTES[file_format]) for value, label in each.labels.items()
            }
            for name, each in columns.items()
            if each.labels
        },
    }
    if file_format == "dta":
        pyreadstat.write_dta(coded, str(path), **shared)
        return
    measures = {name: "nominal" if each.nominal else "scale" for name, each in columns.items()}
    pyreadstat.write_sav(coded, str(path), variable_measure=measures, row_compress=True, **shared)


def cut(text: str, size: int) -> str:
    """Cut the text to one line of at most ``size`` bytes of UTF-8, without half a character."""
    return " ".join(text.split()).encode()[:size].decode(errors="ignore")


DEFAULT_WEIGHT_NAME = "weight"
VARIANCE_SUFFIX = "_for_variance"
CALIBRATED_SUFFIX = "_calibrated"


def format_of(spec: Spec) -> MicrodataFormat:
    """Return the format of the microdata: as asked for, or parquet as the survey is, else csv."""
    if spec.all_tables.microdata is not None:
        return spec.all_tables.microdata
    return "parquet" if spec.survey.data.lower().endswith(".parquet") else "csv"


def public_column_names(design: PublicDesign) -> tuple[str, ...]:
    """Return the columns of the survey that are published unchanged, and the sampling fraction.

    With them and the synthetic columns every published estimate and SE can be recomputed.
    """
    by_role: Sequence[str | None] = (
        *design.by,
        design.strata_name,
        design.psu_name,
        *design.predictors,
        design.public_weight_name,
        *design.public_columns,
        fraction_name(design),
    )
    return tuple(dict.fromkeys(name for name in by_role if name is not None))


def fraction_name(design: PublicDesign) -> str | None:
    """Return the column of sampling fractions: the fpc column's name where it is free."""
    if design.fpc is None or design.fpc_name is None:
        return None
    return f"{design.fpc_name}_fraction" if design.fpc_name in design.frame else design.fpc_name


def public_frame(design: PublicDesign) -> "pd.DataFrame":
    """Return the public columns (n rows, file order)."""
    names, fraction = public_column_names(design), fraction_name(design)
    frame = design.frame[[name for name in names if name != fraction]].copy()
    if fraction is not None and design.fpc is not None:
        strata = np.zeros(design.n, dtype=np.int64) if design.strata is None else design.strata
        frame[fraction] = design.fpc[strata]
    return frame


def synthetic_column_names(design: PublicDesign, *, separate_pair: bool) -> tuple[str, ...]:
    """Return the outcomes, the weight unless it is public, and the pair for variances.

    The pair is there only where it differs from outcomes and weight. A calibrated weight comes
    after its base weight.
    """
    weight = () if design.public_weight is not None else (base_weight_column(design),)
    calibrated = () if design.calibrated_by is None else (weight_column(design),)
    names = (*design.outcome_names, *weight, *calibrated)
    if separate_pair:
        return (*names, *(f"{name}{VARIANCE_SUFFIX}" for name in names))
    return names


def weight_column(design: PublicDesign) -> str:
    """Return the column of the weight for estimates: synthetic, public, or calibrated."""
    base = base_weight_column(design)
    return base if design.calibrated_by is None else f"{base}{CALIBRATED_SUFFIX}"


def base_weight_column(design: PublicDesign) -> str:
    """Return the column of the weight before calibration, synthetic or public."""
    return design.public_weight_name or design.weight_name or DEFAULT_WEIGHT_NAME


def _as_known(outcome: Outcome, values: FloatArray) -> "np.ndarray[Any, np.dtype[Any]]":
    """Return values (n,) as people write them: labels, whole numbers, and zero without a sign."""
    if outcome.is_labelled:
        return outcome.labels(values)
    if outcome.kind == "count" and not outcome.missing:
        return values.astype(np.int64)
    return values + 0.0 if outcome.is_amount else values.astype(np.int64)


def labelled_columns(
    design: PublicDesign, labels: Labels, *, separate_pair: bool
) -> dict[str, LabelledColumn]:
    """Describe every column for files of Stata and SPSS, by name and in order."""
    synthetic = synthetic_column_names(design, separate_pair=separate_pair)
    return {
        **{name: _public_labelled(design, labels, name) for name in public_column_names(design)},
        **{name: _synthetic_labelled(design, labels, name) for name in synthetic},
    }


def _public_labelled(design: PublicDesign, labels: Labels, name: str) -> LabelledColumn:
    title = labels.titled_with_unit(name)
    if name == fraction_name(design) or design.frame[name].dtype.kind in "iufb":
        return LabelledColumn(title)
    if name in design.levels:
        return _of_levels(labels, name, title, design.levels[name], positions=True)
    found = natural_order({text for text in design.frame[name].astype("str") if text})
    return _of_levels(labels, name, title, found, positions=False)


def _synthetic_labelled(design: PublicDesign, labels: Labels, name: str) -> LabelledColumn:
    base = name.removesuffix(VARIANCE_SUFFIX)
    title = labels.titled_with_unit(base) + (", for variances" if name != base else "")
    declared = {outcome.name: outcome for outcome in design.outcomes}.get(base)
    if declared is None or declared.is_amount:
        return LabelledColumn(title)
    if not declared.is_labelled:
        return LabelledColumn(title, nominal=True)
    return _of_levels(labels, base, title, declared.levels, positions=True)


def _of_levels(
    labels: Labels, name: str, title: str, codes: Sequence[str], *, positions: bool
) -> LabelledColumn:
    """Describe a column of codes; labels equal to the number are omitted."""
    values = values_of(codes, positions=positions)
    shown = {value: labels.level(name, code) for code, value in values.items()}
    shown = {value: label for value, label in shown.items() if label != str(value)}
    return LabelledColumn(title, values, shown, nominal=True)


def file_name(draw: int, replicate: int, file_format: MicrodataFormat) -> str:
    """Return a name such as ``draw_01_rep_01.csv``; both numbers count from 1."""
    return f"draw_{draw:02d}_rep_{replicate:02d}.{file_format}"


class MicrodataWriter:
    """Writes one file per dataset.

    Rows are sorted by the public columns. The order of a survey file may depend on confidential
    values (sorted by income, say), and the sequence of public values would reveal it.
    """

    def __init__(
        self,
        design: PublicDesign,
        folder: Path,
        file_format: MicrodataFormat,
        labels: Labels,
        title: str,
    ) -> None:
        self._design, self._folder, self._format = design, folder, file_format
        self._labels, self._title = labels, title
        self._order = public_order(design)
        self._public = public_frame(design).iloc[self._order].reset_index(drop=True)
        folder.mkdir(exist_ok=True)

    def write(self, dataset: SyntheticDataset) -> None:
        """Write a dataset."""
        separate = dataset.separate_pair
        columns = self._columns(dataset.outcome, dataset.weight, dataset.base_weight)
        if separate:
            columns += self._columns(
                dataset.variance_outcome, dataset.variance_weight, dataset.variance_base_weight
            )
        frame = self._public.copy()
        names = synthetic_column_names(self._design, separate_pair=separate)
        for name, column in zip(names, columns, strict=True):
            frame[name] = column
        path = self._folder / file_name(dataset.draw, dataset.replicate, self._format)
        if self._format in PROGRAMS:
            described = labelled_columns(self._design, self._labels, separate_pair=separate)
            write_labelled(frame, path, self._format, described, self._title)
        else:
            write_records(frame, path, "parquet" if self._format == "parquet" else "csv")

    def _columns(
        self, outcome: FloatArray, weight: FloatArray, base: FloatArray | None
    ) -> "list[np.ndarray[Any, np.dtype[Any]]]":
        """Return outcomes and weights as written: the base weight first, no public ones."""
        pairs = zip(self._design.outcomes, outcome[self._order].T, strict=True)
        public = self._design.public_weight is not None
        given = [weight] if base is None else [base, weight]
        weights = [each[self._order] for each in given[public:]]
        return [*(_as_known(declared, values) for declared, values in pairs), *weights]


def public_order(design: PublicDesign) -> IntArray:
    """Return the order (n,) in which the microdata show the records of a design.

    By the public columns, the first column first. Ties cannot be distinguished.
    """
    public = public_frame(design)
    if public.shape[1] == 0:
        return np.arange(len(public), dtype=np.int64)
    keys = [public[name].factorize(sort=True)[0] for name in reversed(public.columns)]
    return np.lexsort(keys).astype(np.int64)


#: Powers of ten up to this one are doubles.
_EXACT_POWER = 22
#: Further decimals that a population size may ask of the weights that add up to it.
_MOST_FURTHER = 6
#: Rounding may move amounts by this share of their standard deviation, as a root mean square.
MOST_MOVED = 0.01


@dataclass(frozen=True)
class Digits:
    """Amounts with ``significant`` digits, weights with as many on average (``weight_step``)."""

    design: PublicDesign
    significant: int

    @property
    def weight_step(self) -> Decimal | None:
        """The step of weights that add up to a public population size.

        It follows from that size, the number of records and the digits. None for other weights,
        which have as many significant digits as amounts.
        """
        if self._decimals is None or self.design.public_weight is not None:
            return None
        return Decimal(1).scaleb(-self._decimals)

    def rounded(self, dataset: SyntheticDataset) -> SyntheticDataset:
        """Round a dataset as it is published.

        Raises ``RefusedError`` where an outcome varies by too little for its digits.
        """
        outcome, weight = self.outcomes(dataset.outcome), self.weights(dataset.weight)
        pair = outcome, weight
        if dataset.separate_pair:
            same = dataset.variance_outcome is dataset.outcome
            pair = (
                outcome if same else self.outcomes(dataset.variance_outcome),
                self.weights(dataset.variance_weight),
            )
        return replace(
            dataset, outcome=outcome, weight=weight, variance_outcome=pair[0],
            variance_weight=pair[1],
        )  # fmt: skip

    def outcomes(self, values: FloatArray) -> FloatArray:
        """Round outcomes (n, p)."""
        return np.stack([
            self._amounts(outcome, column)
            if outcome.is_amount and outcome.kind != "count"
            else column
            for outcome, column in zip(self.design.outcomes, values.T, strict=True)
        ], axis=1)  # fmt: skip

    def weights(self, weight: FloatArray) -> FloatArray:
        """Round weights (n,); public weights stay as they are."""
        if self.design.public_weight is not None:
            return weight
        if self._decimals is None:
            return to_significant(weight, self.significant)
        assert self.design.population_size is not None  # there are decimals
        steps = _steps(weight, self.design.population_size, self._decimals, self._order)
        power = 10.0 ** abs(self._decimals)
        return steps / power if self._decimals >= 0 else steps * power

    def _amounts(self, outcome: Outcome, values: FloatArray) -> FloatArray:
        """Round amounts (n,) but spikes; keep them within bounds and the transform's domain."""
        regular = outcome.regular(values)
        given = values[regular]
        made = to_significant(given, self.significant)
        low, high = outcome.limits
        made = np.clip(made, -np.inf if low is None else low, np.inf if high is None else high)
        if outcome.transform.violations(made):
            # Next to the end of the domain, which is no valid value.
            made = np.where(made + outcome.transform.shift > 0, made, given)
        spread = float(given.std()) if given.size else 0.0
        if spread > 0 and math.sqrt(np.mean((made - given) ** 2)) > MOST_MOVED * spread:
            raise RefusedError(
                f"Synthetic values of {outcome.name!r} vary by too little for the "
                f"{self.significant} digits that they are published with: rounding would add to "
                "their spread. Set microdata_digits in [tables] to more digits, or count the "
                "outcome from another origin."
            )
        result = values.copy()
        result[regular] = made
        return result

    @property
    def amount_words(self) -> str:
        """The rounding of outcomes, in words."""
        return f"{self.significant} significant digits"

    @property
    def weight_words(self) -> str:
        """The rounding of synthetic weights, in words."""
        step = self.weight_step
        return self.amount_words if step is None else f"multiples of {step:f}"

    @cached_property
    def _decimals(self) -> int | None:
        """The decimals of weights that add up to a population size."""
        size = self.design.population_size
        if size is None:
            return None
        of_mean = self.significant - 1 - math.floor(math.log10(size / self.design.n))
        exponent = Decimal(repr(float(size))).normalize().as_tuple().exponent
        assert isinstance(exponent, int)  # the size is finite
        return max(of_mean, min(-exponent, of_mean + _MOST_FURTHER))

    @cached_property
    def _order(self) -> IntArray:
        return public_order(self.design)


def to_significant(values: FloatArray, digits: int) -> FloatArray:
    """Round values (n,) to the doubles nearest to decimal numbers of so many significant digits."""
    result = np.array(values, dtype=np.float64)
    for block in blocks(result.size):
        _round(result[block], digits)
    return result


def _round(values: FloatArray, digits: int) -> None:
    """Round values (n,) in place."""
    rest = np.flatnonzero(values)
    decimals = digits - 1 - np.floor(np.log10(np.abs(values[rest]))).astype(np.int64)
    exact = np.abs(decimals) <= _EXACT_POWER
    for places in np.unique(decimals[exact]).tolist():
        inside, power = rest[decimals == places], 10.0 ** abs(places)
        if places >= 0:
            values[inside] = np.rint(values[inside] * power) / power
        else:
            values[inside] = np.rint(values[inside] / power) * power
    for position in rest[~exact]:
        values[position] = float(f"{values[position]:.{digits - 1}e}")


def _steps(weight: FloatArray, size: float, decimals: int, order: IntArray) -> FloatArray:
    """Return whole numbers (n,) of steps of 10^-decimals, at least 1, that add up to ``size``.

    What remains after rounding goes to the largest weights, one step each; the ``order`` of public
    columns decides between equal weights.
    """
    exact = Decimal(repr(float(size))).scaleb(decimals)
    steps = np.maximum(np.rint(weight * float(Decimal(1).scaleb(decimals))), 1.0)
    missing = int(exact.to_integral_value()) - int(steps.sum())
    while missing:
        able = order[steps[order] > 1.0] if missing < 0 else order
        if abs(missing) < able.size:  # few are sorted
            least = np.partition(steps[able], able.size - abs(missing))[able.size - abs(missing)]
            able = able[steps[able] >= least]
        chosen = able[np.argsort(-steps[able], kind="stable")][: abs(missing)]
        steps[chosen] += math.copysign(1.0, missing)
        missing -= int(math.copysign(chosen.size, missing))
    return steps


CODEBOOK_NAME = "codebook.json"


def damaged(path: Path) -> InputError:
    """Return the error of a published file that is not as it was written."""
    return InputError(f"{path} is not what a release writes; it is damaged or has been changed.")


def read_json(path: Path) -> dict[str, Any]:
    """Return a published JSON file; raise ``InputError`` if it is missing or damaged."""
    try:
        content = json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise InputError(f"{path} is missing from the release.") from None
    except (OSError, ValueError):
        raise damaged(path) from None
    if not isinstance(content, dict):
        raise damaged(path)
    return content


def read_records(path: Path, codebook: Mapping[str, Any]) -> "pd.DataFrame":
    """Return the records of a file of microdata with the columns of the codebook; codes are text.

    Raises ``InputError`` if the file is missing or damaged.
    """
    import pandas as pd

    text = [c["name"] for c in codebook["columns"] if "levels" in c or c["type"] == "text"]
    if path.suffix[1:] in PROGRAMS:
        if not path.is_file():
            raise InputError(f"{path} is missing from the release.")
        try:
            frame = read_with(f"read_{path.suffix[1:]}", path.read_bytes())[0]
        except SurveySynthError:
            raise
        except Exception:  # of pyreadstat, which has several
            raise damaged(path) from None
        return _with_codes(frame, codebook, path)
    if path.suffix == ".parquet":
        try:
            frame = pd.read_parquet(path)
        except (OSError, ValueError):
            raise damaged(path) from None
        return frame.astype({name: str for name in text if name in frame})
    frame = read_csv(path)
    try:
        numbers = {name: pd.to_numeric(frame[name]) for name in frame if name not in text}
    except ValueError:
        raise damaged(path) from None
    return frame.assign(**{str(name): values for name, values in numbers.items()})


def read_csv(path: Path) -> "pd.DataFrame":
    """Read every field as the text that was written."""
    import pandas as pd

    try:
        frame = pd.read_csv(path, dtype=str, keep_default_na=False, encoding="utf-8")
    except FileNotFoundError:
        raise InputError(f"{path} is missing from the release.") from None
    except (OSError, ValueError):
        raise damaged(path) from None
    return frame.rename(columns=plain_text).map(plain_text)


def _with_codes(
    frame: "pd.DataFrame", codebook: Mapping[str, Any], path: Path
) -> "pd.DataFrame":
    """Replace the numbers of a dataset of Stata or SPSS by the codes of the codebook."""
    for column in codebook["columns"]:
        name = column["name"]
        if name not in frame:
            raise damaged(path)
        code_of = {
            str(level["value"]): level["code"] for level in column.get("levels", ())
            if "value" in level
        }  # fmt: skip
        codes = [level["code"] for level in column.get("levels", ())]
        if code_of or column["type"] == "text":
            text = text_column(frame[name], name, codes).values()
            frame[name] = text.map(lambda value, codes=code_of: codes.get(value, value))
    return frame
