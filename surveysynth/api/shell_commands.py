"""The commands init and study, which have many flags; init has prompts too.

Imported at the start of every command: heavy modules are imported inside.
"""

import sys
from collections.abc import Callable, Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from surveysynth.errors import InputError

if TYPE_CHECKING:
    from surveysynth.config.draft import Choices, Drafted


OutcomeOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME[:KIND]",
        help="A confidential column and its kind: continuous, semicontinuous, count, "
        "binary or categorical. May be repeated.",
    ),
]
ConstantOption = Annotated[
    list[str] | None,
    typer.Option(
        metavar="NAME.KEY=VALUE",
        help="A constant of an outcome, from a public source. KEY is center, range, spread, "
        "transform, scale, power, shift, spikes, bounds or levels. May be repeated.",
    ),
]
ColumnOption = Annotated[str | None, typer.Option(metavar="COLUMN", help="A public column.")]


def read_guesses(given: Sequence[str]) -> dict[str, tuple[float, float]]:
    """Read NAME=LOW,HIGH; raises ``InputError`` for anything else."""
    found = {}
    for text in given:
        name, _, values = text.rpartition("=")
        try:
            low, high = map(float, values.split(","))
        except ValueError:
            raise InputError(
                f"--guess: expected NAME=LOW,HIGH, such as income=15000,50000, got {text!r}."
            ) from None
        found[name] = (low, high)
    return found


def init_command(
    data: Annotated[
        Path, typer.Argument(metavar="DATA", help="A data file: csv, parquet, dta, sav or xpt.")
    ],
    out: Annotated[
        Path | None,
        typer.Option(
            metavar="SPEC", help="The file to write. Default: spec.toml in the folder of DATA."
        ),
    ] = None,
    outcome: OutcomeOption = None,
    constant: ConstantOption = None,
    weight: Annotated[
        str | None, typer.Option(metavar="COLUMN", help="The column of sampling weights.")
    ] = None,
    public_weights: Annotated[
        bool | None,
        typer.Option("--public-weights", help="The weights are constants of the design."),
    ] = None,
    weights_from: Annotated[
        str | None,
        typer.Option(
            metavar="A,B,..",
            help="Columns that the weights were computed from besides the design; design for "
            "design weights, or unknown.",
        ),
    ] = None,
    strata: ColumnOption = None,
    psu: ColumnOption = None,
    design_effect: Annotated[
        float | None, typer.Option(help="For models without effects of PSUs.")
    ] = None,
    by: Annotated[
        list[str] | None,
        typer.Option(metavar="A,B,..", help="Public columns that define the rows of tables."),
    ] = None,
    population_size: Annotated[
        float | None, typer.Option(help="The population size, from a public source.")
    ] = None,
    mechanism: Annotated[
        str | None, typer.Option(help="noisy_statistics or pseudo_posterior.")
    ] = None,
    epsilon: Annotated[
        float | None, typer.Option(help="The privacy cost of the whole release.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace SPEC if it exists.")
    ] = False,
) -> None:
    """Write a specification for your data file.

    The file explains every choice. On a terminal, init prompts for missing flags. It reads the
    names of all columns and the values of the --by columns, and no other data.
    """
    _write(
        data, data.with_name("spec.toml") if out is None else out, outcome or (), constant or (),
        by, overwrite=overwrite, weight=weight, public_weights=public_weights,
        weights_from=weights_from, strata=strata, psu=psu, design_effect=design_effect,
        population_size=population_size, mechanism=mechanism, epsilon=epsilon,
    )  # fmt: skip


def _write(
    data: Path,
    out: Path,
    outcomes: Sequence[str],
    constants: Sequence[str],
    by: Sequence[str] | None,
    *,
    overwrite: bool,
    weights_from: str | None,
    **given: Any,
) -> None:
    """Write the choices of flags and, on a terminal, answers; ``given``: parts of ``Choices``."""
    from surveysynth.config import draft

    draft.check_free(out, overwrite=overwrite)  # before any question
    file = draft.open_data(data)
    columns = file.table.columns
    choices = draft.Choices(
        outcomes=draft.read_outcomes(outcomes, constants, columns),
        by=None if by is None else draft.split_columns("--by", by, columns),
        weights_from=draft.read_sources(weights_from or "", columns),
        **given,
    )
    choices.check(columns)
    if sys.stdin.isatty():
        choices = _prompted(choices, columns)
    choices.check_said()
    print("\n".join(_summary(draft.write_draft(file, choices, out, overwrite=overwrite))))


#: What a terminal is asked for where a flag is missing, and whether Enter leaves it out.
_PROMPTS = {
    "outcomes": ("Outcomes, confidential, as NAME:KIND, separated by commas; KIND is continuous, "
                 "semicontinuous, count, binary or categorical", False),
    "mechanism": ("Mechanism, noisy_statistics or pseudo_posterior", False),
    "epsilon": ("Epsilon, the privacy cost of the whole release", False),
    "weight": ("Column of sampling weights", False),
    "weights_from": ("Columns that the weights were computed from; design, unknown, or Enter",
                     True),
    "strata": ("Column of strata, or Enter", True),
    "psu": ("Column of primary sampling units, or Enter", True),
    "population_size": ("Population size, from a public source, or Enter", True),
    "by": ("Public columns that define the rows of tables, separated by commas, or Enter", True),
}  # fmt: skip


def _prompted(choices: "Choices", columns: Sequence[str]) -> "Choices":
    from surveysynth.config import draft

    read: dict[str, Callable[[str], Any]] = {
        "outcomes": lambda text: draft.read_outcomes(
            [text] if text in columns else [each.strip() for each in text.split(",")], (), columns
        ),
        "weights_from": lambda text: draft.read_sources(text, columns),
        "by": lambda text: draft.split_columns("by", [text], columns),
        "epsilon": lambda text: draft.read_number("epsilon", text),
        "population_size": lambda text: draft.read_number("population size", text),
    }

    def settled(part: str, text: str) -> "Choices":
        try:
            value = read.get(part, str)(text.strip()) if text.strip() else None
            made = replace(choices, **{part: value})  # type: ignore[arg-type]
            made.check(columns)
        except InputError as error:
            raise typer.BadParameter(str(error)) from None
        return made

    for part, (question, optional) in _PROMPTS.items():
        if getattr(choices, part) is None or (part == "outcomes" and not choices.outcomes):
            choices = typer.prompt(
                question, default="" if optional else None, show_default=False,
                value_proc=partial(settled, part),
            )  # fmt: skip
    return choices


def _summary(made: "Drafted") -> list[str]:
    looked = f" and the values of {', '.join(made.read)}" if made.read else ""
    lines = [
        f"Wrote {made.path}, with every choice explained.",
        f"Read: the names of the columns{looked}; no other value.",
    ]
    if made.open:
        lines += ['Still to be filled in, marked "?":', *(f"  {key}" for key in made.open)]
    return [*lines, f"Next: surveysynth check {made.path}"]


SpecOption = Annotated[
    Path | None,
    typer.Argument(
        metavar="[SPEC]",
        help="The specification of a release. Without it, releases of the published simulation.",
    ),
]
FrameOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FRAME",
        help="A public file of a whole population, to draw samples from. Without it, the "
        "simulated population of the papers.",
    ),
]
SamplesOption = Annotated[int, typer.Option(help="Number of samples.", min=1)]
ResumeOption = Annotated[
    bool,
    typer.Option(
        "--resume", help="Run the tasks that DIR lacks; --samples may be larger than before."
    ),
]
SchedulerOption = Annotated[
    str | None,
    typer.Option(
        metavar="ADDRESS",
        help="The address of a Dask scheduler. Default: one process per processor here.",
    ),
]
WorkersOption = Annotated[
    int | None, typer.Option(help="Number of processes. Default: one per processor.", min=1)
]
AlsoOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="SPEC2",
        help="Another specification of the same tables. May be repeated.",
    ),
]
RecordsOption = Annotated[
    int | None, typer.Option("--n", help="Records per sample.", min=2)
]
DesignOption = Annotated[
    str | None,
    typer.Option(
        metavar="DESIGN",
        help="How samples are drawn: pps, pps_wr, srs or two_stage. Default: two_stage with "
        "survey.psu, else pps with --size-column, else srs.",
    ),
]
SizeOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="The measure of size for PPS."),
]
AllocationOption = Annotated[
    str,
    typer.Option(
        metavar="RULE",
        help="How to divide n among strata: proportional, equal, power, or a column with the "
        "sample size of each stratum.",
    ),
]
PerClusterOption = Annotated[
    int, typer.Option(help="For two_stage: units per cluster.", min=1)
]
ClustersOption = Annotated[
    str, typer.Option(metavar="RULE", help="For two_stage: units, size or srs.")
]
WithinOption = Annotated[
    str, typer.Option(metavar="RULE", help="For two_stage: srs or pps.")
]
LaplaceOption = Annotated[
    bool,
    typer.Option("--laplace", help="Also release the tables with Laplace noise, as a comparator."),
]


def study_command(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")],
    spec: SpecOption = None,
    population: FrameOption = None,
    samples: SamplesOption = 100,
    seed: Annotated[int, typer.Option(help="The seed of the study.", min=0)] = 0,
    resume: ResumeOption = False,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    also: AlsoOption = None,
    n: RecordsOption = None,
    design: DesignOption = None,
    size_column: SizeOption = None,
    allocation: AllocationOption = "proportional",
    per_cluster: PerClusterOption = 5,
    clusters: ClustersOption = "units",
    within: WithinOption = "srs",
    laplace: LaplaceOption = False,
) -> None:
    """Measure coverage over repeated samples.

    Samples are drawn from FRAME, a public file of a whole population such as a register or last
    year's file, and released as SPEC says. FRAME costs no budget. Without FRAME, samples of 1,000
    records come from the papers' simulated population; without SPEC too, both mechanisms release
    them at epsilon 10.8. Exit code 4: some tasks failed, and the results come from the others.
    """
    from surveysynth._support.progress import report_count
    from surveysynth.api.commands import coverage
    from surveysynth.evaluation.studies.tasks import REPORT_NAME

    result = coverage(
        population, spec, also=also or (), samples=samples, seed=seed, n=n, design=design,
        size=size_column, allocation=allocation, per_cluster=per_cluster, clusters=clusters,
        within=within, laplace=laplace, out=out, resume=resume, scheduler=scheduler,
        workers=workers, progress=report_count,
    )  # fmt: skip
    print(result)
    print("The study describes the frame. It costs none of the survey's privacy budget.")
    print(f"Report: {out / REPORT_NAME}")
