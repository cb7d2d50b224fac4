"""How a README's programs read microdata that are no csv files.

Files of Stata and SPSS have numbers in the place of codes. What is read is given its codes back, so
that the rest of a program is the same for every format.
"""

import json
from collections.abc import Mapping
from dataclasses import replace
from typing import TYPE_CHECKING

from surveysynth.release.writers.labelled import LabelledColumn

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
    setting: "ExampleSetting", columns: Mapping[str, LabelledColumn]
) -> "ExampleSetting":
    """The setting for files of Stata or SPSS, in which ``columns`` are what they say."""
    values = {name: columns[name].values for name in setting.codes if columns[name].values}
    whole = tuple(
        name for name, numbers in values.items()
        if all(code == str(number) for code, number in numbers.items())
    )  # fmt: skip
    places = {
        name: {number: code for code, number in numbers.items()}
        for name, numbers in values.items()
        if name not in whole
    }
    return replace(setting, whole=whole, places=places)


def python_reading(setting: "ExampleSetting") -> list[str]:
    """The body of ``read`` in Python."""
    lines = [f"    data = {_PYTHON[setting.file_format]}"]
    if setting.whole:
        named = repr(list(setting.whole)).replace("`", "\\x60")
        lines += [
            f"    for column in {named}:",
            "        data[column] = data[column].astype(int).astype(str)",
        ]
    for name, codes in setting.places.items():
        column, of = (repr(each).replace("`", "\\x60") for each in (name, dict(codes)))
        lines.append(f"    data[{column}] = data[{column}].map({of})")
    return [*lines, "    return data"]


def r_reading(setting: "ExampleSetting") -> list[str]:
    """The function ``read`` in R."""

    def text(value: str) -> str:
        return json.dumps(value, ensure_ascii=False).replace("`", "\\x60")

    lines = [
        "read <- function(path) {", f"  data <- as.data.frame({_R[setting.file_format]})",
        # In its own digits: as.character would write 1e+05.
        *(
            f"  data[[{text(name)}]] <- "
            f"format(data[[{text(name)}]], scientific = FALSE, trim = TRUE)"
            for name in setting.whole
        ),
    ]  # fmt: skip
    for name, codes in setting.places.items():
        of = ", ".join(text(code) for code in codes.values())
        lines.append(f"  data[[{text(name)}]] <- c({of})[data[[{text(name)}]]]")
    return [*lines, "  data", "}", ""]
