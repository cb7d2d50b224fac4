"""How a README's programs read microdata that are no csv files.

Files of Stata and SPSS have numbers in the place of codes. What is read is given its codes back, so
that the rest of a program is the same for every format: those of all columns in its CODES, to which
the reader may add some, and once where one is named twice.
"""

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from typing import TYPE_CHECKING, Any

from surveysynth.release.writers.stata_spss import LabelledColumn

if TYPE_CHECKING:
    from surveysynth.release.documents.recompute_setting import ExampleSetting

_PYTHON = {
    "parquet": "pd.read_parquet(path)",
    "dta": "pd.read_stata(path, convert_categoricals=False)",
    "sav": "pd.read_spss(path, convert_categoricals=False)",
}
_R = {
    "parquet": "arrow::read_parquet(path)",
    "dta": "haven::zap_labels(haven::read_dta(path))",
    "sav": "haven::zap_labels(haven::read_sav(path))",
}


def with_codes(
    setting: "ExampleSetting", columns: Mapping[str, LabelledColumn], others: Iterable[str]
) -> "ExampleSetting":
    """The setting for files of Stata or SPSS, in which ``columns`` are what they say; ``others``:
    names that the reader may add to the program's CODES."""
    named = dict.fromkeys([*setting.codes, *others])
    values = {name: columns[name].values for name in named if name in columns}
    whole = tuple(
        name for name, numbers in values.items()
        if numbers and all(code == str(number) for code, number in numbers.items())
    )  # fmt: skip
    places = {
        name: tuple(numbers) for name, numbers in values.items() if numbers and name not in whole
    }
    return replace(setting, whole=whole, places=places)


def python_reading(setting: "ExampleSetting") -> list[str]:
    """``read`` in Python, with what it knows of the columns in CODES."""

    def text(value: Any) -> str:
        return repr(value).replace("`", "\\x60")

    known, lines = [], []
    if setting.whole:
        known.append(f"WHOLE = {text(list(setting.whole))}  # codes that are numbers")
        lines += [
            "        if column in WHOLE:",
            "            data[column] = data[column].astype(int).astype(str)",
        ]
    if setting.places:
        places = {name: dict(enumerate(codes, start=1)) for name, codes in setting.places.items()}
        known.append(f"PLACES = {text(places)}  # codes by number")
        lines += [
            "        if column in PLACES:",
            "            data[column] = data[column].map(PLACES[column])",
        ]
    loop = ["    for column in dict.fromkeys(CODES):", *lines] if lines else []
    body = [f"    data = {_PYTHON[setting.file_format]}", *loop, "    return data"]
    return [*known, "", "", "def read(path):", *body]


def r_reading(setting: "ExampleSetting") -> list[str]:
    """The same in R."""

    def texts(values: Iterable[str]) -> str:
        listed = ", ".join(json.dumps(value, ensure_ascii=False) for value in values)
        return f"c({listed})".replace("`", "\\x60")

    known, lines = [], []
    if setting.whole:
        known.append(f"WHOLE <- {texts(setting.whole)}  # codes that are numbers")
        lines += [  # In its own digits: as.character would write 1e+05.
            "    if (column %in% WHOLE)",
            "      data[[column]] <- format(data[[column]], scientific = FALSE, trim = TRUE)",
        ]
    if setting.places:
        # Names by setNames: they may be words of R's language.
        places = ", ".join(texts(codes) for codes in setting.places.values())
        known.append(f"PLACES <- setNames(list({places}), {texts(setting.places)})")
        lines += [
            "    if (column %in% names(PLACES))",
            "      data[[column]] <- PLACES[[column]][data[[column]]]",
        ]
    loop = ["  for (column in unique(CODES)) {", *lines, "  }"] if lines else []
    body = [f"  data <- as.data.frame({_R[setting.file_format]})", *loop, "  data", "}", ""]
    return [*known, "read <- function(path) {", *body]
