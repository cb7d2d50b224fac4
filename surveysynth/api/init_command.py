"""``surveysynth init``: flags, questions on a terminal for the rest, and what is told at the end.

Imported at the start of every command: what is heavy is imported inside.
"""

import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

if TYPE_CHECKING:
    from surveysynth.spec.draft.write import Drafted

ColumnOption = Annotated[str | None, typer.Option(metavar="COLUMN", help="A public column.")]


def init_command(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A data file: csv, parquet, dta, sav, xpt.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(metavar="SPEC", help="The file to write; spec.toml beside DATA unless given."),
    ] = None,
    outcome: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME[:KIND]",
            help="A confidential column: continuous, semicontinuous, binary, categorical or "
            "count; may be given several times.",
        ),
    ] = None,
    constant: Annotated[
        list[str] | None,
        typer.Option(
            metavar="NAME.KEY=VALUE",
            help="Of an outcome, from a public source: centre, range, spread, transform, scale, "
            "power, shift, spikes, lower, upper, levels; may be given several times.",
        ),
    ] = None,
    weight: Annotated[str | None, typer.Option(metavar="COLUMN", help="Sampling weights.")] = None,
    public_weights: Annotated[
        bool | None, typer.Option("--public-weights", help="They are constants of the design.")
    ] = None,
    strata: ColumnOption = None,
    psu: ColumnOption = None,
    design_effect: Annotated[
        float | None, typer.Option(help="Of the units, where models have no effects of them.")
    ] = None,
    by: Annotated[
        list[str] | None, typer.Option(metavar="A,B,..", help="Tables by these public columns.")
    ] = None,
    population_size: Annotated[float | None, typer.Option(help="From a public source.")] = None,
    mechanism: Annotated[
        str | None, typer.Option(help="pseudo_posterior or noisy_statistics.")
    ] = None,
    epsilon: Annotated[float | None, typer.Option(help="Of the whole release.")] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace SPEC if it is there.")
    ] = False,
) -> None:
    """Write a specification for DATA, every choice explained; asks on a terminal.

    Of the data, the names of all columns and the values of the --by columns are looked at, and no
    others.
    """
    _write(
        data, data.with_name("spec.toml") if out is None else out, outcome or (), constant or (),
        by, overwrite=overwrite, weight=weight, public_weights=public_weights, strata=strata,
        psu=psu, design_effect=design_effect, population_size=population_size,
        mechanism=mechanism, epsilon=epsilon,
    )  # fmt: skip


def _write(
    data: Path,
    out: Path,
    outcomes: Sequence[str],
    constants: Sequence[str],
    by: Sequence[str] | None,
    *,
    overwrite: bool,
    **said: Any,
) -> None:
    """Choices from flags and, on a terminal, from answers; ``said``: parts of ``Choices``."""
    from surveysynth.spec.draft.choices import Choices, check_choices
    from surveysynth.spec.draft.columns import open_data
    from surveysynth.spec.draft.flags import check_said, read_outcomes, split_columns
    from surveysynth.spec.draft.questions import ask_rest
    from surveysynth.spec.draft.write import check_free, write_draft

    check_free(out, overwrite=overwrite)  # before anything is asked
    file = open_data(data)
    choices = Choices(
        outcomes=read_outcomes(outcomes, constants, file.names),
        by=None if by is None else split_columns("--by", by, file.names),
        **said,
    )
    check_choices(choices, file.names)
    if sys.stdin.isatty():
        choices = ask_rest(choices, file, Prompt())
    check_said(choices)
    print("\n".join(_told(write_draft(file, choices, out, overwrite=overwrite))))


class Prompt:
    """Questions on the terminal that the command runs in."""

    def tell(self, text: str) -> None:
        """Shows lines."""
        print(text, flush=True)

    def ask(self, question: str) -> str:
        """The answer without its outer blanks."""
        return str(typer.prompt(question, default="", show_default=False)).strip()


def _told(made: "Drafted") -> list[str]:
    """What was written, looked at, and left open."""
    looked = f" and the values of {', '.join(made.read)}" if made.read else ""
    lines = [
        f"Wrote {made.path}, with every choice explained.",
        f"Looked at: the names of the columns{looked}; at no other value.",
    ]
    if made.open:
        lines += ["Still to be filled in, where it says \"?\":", *(f"  {key}" for key in made.open)]
    return [*lines, f"Next: surveysynth check {made.path}"]
