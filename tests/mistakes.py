"""Common mistakes, made one at a time, and the error message of each.

    python -m tests.mistakes

writes golden/messages.md, which lists all messages. Read a changed message there: it should say
what is wrong, where, and what to do.
"""

import contextlib
import io
import shutil
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any
from unittest import mock

import pandas as pd

from surveysynth import cli
from tests.surveys import good, spec_text, write_survey

GOLDEN = Path(__file__).parent / "golden" / "messages.md"

PREAMBLE = """\
# Error messages for common mistakes

Made by `python -m tests.mistakes`. Each survey has 240 records. Messages count confidential
cells and show none. Specifications are public, so messages quote them.
"""

Change = Callable[[pd.DataFrame], pd.DataFrame]


@dataclass(frozen=True)
class Mistake:
    """``title`` says what went wrong. The rest is how: lines for sections of a sound specification,
    or all of its ``text``; ``change`` of a sound survey, or the ``content`` of its file."""

    title: str
    sections: dict[str, str] = field(default_factory=dict)
    change: Change | None = None
    content: bytes | None = None
    text: str | None = None
    data: str = "survey.csv"
    arguments: tuple[str, ...] = ("check", "spec.toml")
    code: int = 2  # bad input; 3 for a release that is refused


def cells(column: str, *values: Any) -> Change:
    """The first records have these values in a column."""

    def change(frame: pd.DataFrame) -> pd.DataFrame:
        changed = frame.astype({column: object})
        changed.loc[range(len(values)), column] = list(values)
        return changed

    return change


def _csv(change: Callable[[str], str | bytes]) -> bytes:
    made = change(good().drop(columns="note").to_csv(index=False))
    return made if isinstance(made, bytes) else made.encode()


def _without_a_cell(text: str) -> str:
    lines = text.splitlines()
    lines[5] = lines[5].rpartition(",")[0]
    return "\n".join(lines) + "\n"


KINDS = '[outcomes.salary]\nkind = "{}"'
STRICT = 'mechanism = "noisy_statistics"\nepsilon = 3.6'
INSURED = (
    '[outcomes.insured]\nkind = "binary"\nlevels = ["no", "yes"]\n'
    "[outcomes.salary]\nrange = [0, 1e6]\n"
    "[outcomes.weight]\nrange = [0.01, 1e6]\n"
)  # fmt: skip

CALIBRATED = (
    '[[calibration]]\nby = ["gender"]\ntotals = {{ M = {}, F = {} }}\n'
    '[[calibration]]\nby = ["field"]\ntotals = {{ {} }}\n'
)  # fmt: skip
FIELDS = '"01" = 2500, "02" = 2500, "03" = 2500, "04" = 2500'

MISTAKES = (
    # The command
    Mistake("A command is misspelled", arguments=("chekc", "spec.toml")),
    Mistake("An option that is required is left out", arguments=("release", "spec.toml")),
    Mistake("There is no such specification", arguments=("check", "specs.toml")),
    Mistake("The data file is given instead of the specification",
            arguments=("check", "survey.csv")),
    Mistake("A first specification without a terminal and without choices",
            arguments=("init", "survey.csv", "--out", "first.toml")),
    Mistake("The first specification already exists",
            arguments=("init", "survey.csv", "--epsilon", "3")),
    Mistake("The output folder is not empty",
            arguments=("release", "spec.toml", "--out", "full")),
    # The specification
    Mistake("A quote is not closed", text='[survey]\ndata = "survey.csv\n'),
    Mistake("A key is misspelled", {"survey": 'weigth = "weight"'}),
    Mistake("A key is in the wrong section", {"survey": "epsilon = 10.8"}),
    Mistake("A section is misspelled",
            text=spec_text(privacy="epsilon = 10.8").replace("[tables]", "[table]")),
    Mistake("Keys are still open, as surveysynth init left them",
            {"labels": KINDS.format("?"), "survey": 'psu = "school"\ndesign_effect = "?"'}),
    Mistake("No outcome is named",
            text=spec_text(privacy="epsilon = 10.8").replace('outcome = "salary"', "")),
    Mistake("No mechanism is chosen",
            text=spec_text(privacy="epsilon = 10.8").replace('mechanism = "pseudo_posterior"', "")),
    Mistake("A number is in quotes", {"privacy": 'epsilon = "10.8"'}),
    Mistake("A number has a thousands separator in quotes",
            {"survey": 'population_size = "100,000"'}),
    Mistake("Epsilon is negative", {"privacy": "epsilon = -1"}),
    Mistake("A model is misspelled", {"synthesizer": 'model = "fsb"'}),
    Mistake("A kind of outcome is misspelled", {"labels": KINDS.format("semicontinous")}),
    Mistake("A semicontinuous outcome has no spikes",
            {"labels": KINDS.format("semicontinuous"), "privacy": STRICT}),
    Mistake("A statistic is misspelled", {"tables": 'statistics = ["count", "means"]'}),
    Mistake("A statistic is for another kind of outcome", {"tables": 'statistics = ["share"]'}),
    Mistake("Noisy statistics without center and spread", {"privacy": STRICT}),
    Mistake("Totals of a calibration contradict each other",
            {"labels": CALIBRATED.format(4_000, 5_000, FIELDS)}),
    Mistake("A total of a calibration is below zero",
            {"labels": CALIBRATED.format(-4_000, 14_000, FIELDS)}),
    Mistake("A class of a calibration has no record",
            {"labels": CALIBRATED.format(4_001, 6_000, FIELDS + ', "05" = 1')}),
    Mistake("A calibration is by a column that is not public",
            {"labels": CALIBRATED.replace("field", "school").format(5_000, 5_000, "a = 1")}),
    Mistake("The method of a calibration is misspelled",
            {"labels": CALIBRATED.format(5_000, 5_000, FIELDS) + 'method = "rakin"'}),
    Mistake("A model needs the size of the population", {"synthesizer": 'model = "fbp"'}),
    # The specification and the data
    Mistake("There is no such data file", data="surveys.csv"),
    Mistake("The data are a workbook", {"survey": 'data = "survey.xlsx"'}),
    Mistake("A column is written in other letters", {"synthesizer": 'outcome = "Salary"'}),
    Mistake("There is no such column", {"tables": 'by = ["region"]'}),
    Mistake("Tables are made by the outcome", {"tables": 'by = ["field", "salary"]'}),
    Mistake("Tables are made by an identifier", {"tables": 'by = ["note"]'}),
    Mistake("Tables are made by the weight", {"tables": 'by = ["field", "weight"]'}),
    Mistake("A level of a by column is not listed",
            {"labels": '[labels.gender]\nlevels = { M = "Men", W = "Women" }'}),
    Mistake("The size of the population is that of the sample",
            {"survey": "population_size = 200"}),
    Mistake("Weights were computed from an outcome", {"survey": 'weights_from = ["salary"]'},
            code=3),
    Mistake("Weights were computed from a column that does not exist",
            {"survey": 'weights_from = ["region"]'}),
    Mistake("A formula uses a confidential column",
            {"synthesizer": 'predictors = "field + log(weight)"'}),
    # The file
    Mistake("Cells are separated by semicolons", content=_csv(lambda t: t.replace(",", ";"))),
    Mistake("Two columns have one name", content=_csv(lambda t: t.replace("school", "gender", 1))),
    Mistake("The file is not UTF-8",
            content=_csv(lambda t: t.replace(",M,", ",Männer,").encode("latin-1"))),
    Mistake("A record lacks a cell", content=_csv(_without_a_cell)),
    # Cells
    Mistake("Thousands separators", change=cells("salary", "98,765", "43,210", "98,765.50")),
    Mistake("Decimal commas", change=cells("weight", "98,7", "43,25")),
    Mistake("Currencies", change=cells("salary", "$98765", "98765 USD")),
    Mistake("Percent signs", change=cells("salary", "98.7%")),
    Mistake("Dates", change=cells("salary", "2019-07-31", "31.07.2019")),
    Mistake("Dates by their type", data="survey.parquet",
            change=lambda f: f.assign(salary=pd.Timestamp("2019-07-31"))),
    Mistake("Words", change=cells("salary", "canary", "canaries", "98765 canaries")),
    Mistake("Several kinds of text in several columns",
            change=lambda f: cells("weight", "9,5")(cells("salary", "9,876", "canary", "-")(f))),
    Mistake("Blank cells", change=cells("salary", None, "", "NA")),
    Mistake("Negative weights", change=cells("weight", -31415.9265, -1.0)),
    Mistake("Weights of zero", change=cells("weight", 0, 0, 0)),
    Mistake("Zeros under a logarithm", change=cells("salary", 0, 0, -987654)),
    Mistake("Levels in other letters", {"labels": INSURED, "privacy": STRICT},
            arguments=("release", "spec.toml", "--out", "out"),
            change=lambda f: cells("insured", "Yes", "YES", "canary")(f.assign(insured="yes"))),
    Mistake("An outcome that does not vary", change=lambda f: f.assign(salary=987654)),
    Mistake("Weights that are a function of the strata",
            change=lambda f: f.assign(weight=f["field"].astype(float) + 9)),
    Mistake("A stratum of one record", change=cells("field", "05")),
)  # fmt: skip


def said(mistake: Mistake, folder: Path) -> tuple[int, str]:
    """Exit code and message of a command in ``folder``, which is new; its path is left out."""
    _prepare(mistake, folder)
    told = io.StringIO()
    with (
        contextlib.chdir(folder),
        contextlib.redirect_stderr(told),
        mock.patch.object(sys, "stdin", io.StringIO()),  # no terminal
    ):
        code = cli.main(mistake.arguments)
    return code, told.getvalue().replace(f"{folder}/", "")


def _prepare(mistake: Mistake, folder: Path) -> None:
    sections = {"privacy": "epsilon = 10.8", **mistake.sections}
    labels = sections.get("labels", "")
    if INSURED in labels:
        sections["synthesizer"] = 'outcome = ["insured", "salary"]'
    text = spec_text(mistake.data, **sections) if mistake.text is None else mistake.text
    frame = good() if mistake.change is None else mistake.change(good())
    made = mistake.data if mistake.data.endswith(".parquet") else "survey.csv"
    write_survey(folder, frame, text, made)
    if mistake.content is not None:
        (folder / "survey.csv").write_bytes(mistake.content)
    (folder / "full").mkdir()
    (folder / "full" / "letter.txt").write_text("mine")


def as_page(folder: Path) -> str:
    """All messages, each under its title."""
    parts = [PREAMBLE]
    for number, mistake in enumerate(MISTAKES, start=1):
        code, message = said(mistake, folder / f"{number}")
        parts.append(f"## {number}. {mistake.title}\n\n```text\n{message}```\n")
        parts.append(f"Exit code {code}.\n")
    return "\n".join(parts)


def main() -> None:
    """Write golden/messages.md."""
    folder = Path(tempfile.mkdtemp())
    try:
        GOLDEN.write_text(as_page(folder.resolve()), encoding="utf-8")
    finally:
        shutil.rmtree(folder)


if __name__ == "__main__":
    main()
