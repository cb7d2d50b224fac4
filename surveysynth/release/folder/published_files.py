"""Published files read back: records of every format of microdata, and JSON.

What cannot be read as it was written is an error that names the file.
"""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surveysynth.errors import InputError, SurveySynthError
from surveysynth.release.writers.csv import plain_text
from surveysynth.release.writers.stata_spss import PROGRAMS, read_labelled
from surveysynth.survey.columns import text_column

if TYPE_CHECKING:
    import pandas as pd

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
            frame = read_labelled(path, path.suffix[1:])
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
