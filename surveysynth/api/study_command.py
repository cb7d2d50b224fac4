"""The command ``study``: of simulated or declared populations, and on a frame.

Imported at the start of every command: heavy modules are imported inside.
"""

from collections.abc import Sequence
from pathlib import Path
from typing import Annotated, Any

import typer

from surveysynth.errors import InputError

MethodsOption = Annotated[
    list[str] | None,
    typer.Option(metavar="A,B,..", help="Methods to compare with the sample. May be repeated."),
]


SpecOption = Annotated[
    Path | None,
    typer.Argument(
        metavar="[SPEC]",
        help="With --population: the specification of a release. Else one with [study], whose "
        "data are a population. Without it, the published simulation.",
    ),
]
FrameOption = Annotated[
    Path | None,
    typer.Option(
        metavar="FRAME", help="A public file of a whole population, to draw samples from."
    ),
]
SamplesOption = Annotated[
    int | None,
    typer.Option(
        "--samples", "--replicates", help="Number of samples. Default without SPEC: 100.", min=1
    ),
]
ResumeOption = Annotated[
    bool, typer.Option("--resume", help="Run the batches that are missing in DIR.")
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
TwoStageOption = Annotated[
    bool, typer.Option("--two-stage", help="Run a simulation of clusters instead of SPEC.")
]
EpsilonOption = Annotated[
    list[str] | None,
    typer.Option(metavar="E,..", help="Epsilons for every method. May be repeated."),
]
AlsoOption = Annotated[
    list[Path] | None,
    typer.Option(
        metavar="SPEC2",
        help="With --population: a further specification of the same tables. May be repeated.",
    ),
]
RecordsOption = Annotated[
    int | None, typer.Option("--n", help="With --population: records of a sample.", min=2)
]
DesignOption = Annotated[
    str | None,
    typer.Option(
        metavar="DESIGN",
        help="With --population: pps, pps_wr, srs or two_stage. Default: two_stage with "
        "survey.psu, else pps with --size-column, else srs.",
    ),
]
SizeOption = Annotated[
    str | None,
    typer.Option(metavar="COLUMN", help="With --population: the measure of size for PPS."),
]
AllocationOption = Annotated[
    str | None,
    typer.Option(
        metavar="RULE",
        help="With --population: proportional, equal, power, neyman, or a column with the "
        "sample size of each stratum. Default: proportional.",
    ),
]
PerClusterOption = Annotated[
    int | None, typer.Option(help="For two_stage: units of a cluster. Default: 5.", min=1)
]
ClustersOption = Annotated[
    str | None, typer.Option(metavar="RULE", help="For two_stage: units, size or srs.")
]
WithinOption = Annotated[
    str | None, typer.Option(metavar="RULE", help="For two_stage: srs or pps.")
]
LaplaceOption = Annotated[
    bool, typer.Option("--laplace", help="With --population: also noise on the tables.")
]


def study_command(
    out: Annotated[Path, typer.Option("--out", metavar="DIR", help="The folder to write.")],
    spec: SpecOption = None,
    population: FrameOption = None,
    samples: SamplesOption = None,
    seed: Annotated[int, typer.Option(help="The seed of the study.", min=0)] = 0,
    resume: ResumeOption = False,
    scheduler: SchedulerOption = None,
    workers: WorkersOption = None,
    two_stage: TwoStageOption = False,
    methods: MethodsOption = None,
    epsilon: EpsilonOption = None,
    also: AlsoOption = None,
    n: RecordsOption = None,
    design: DesignOption = None,
    size_column: SizeOption = None,
    allocation: AllocationOption = None,
    per_cluster: PerClusterOption = None,
    clusters: ClustersOption = None,
    within: WithinOption = None,
    laplace: LaplaceOption = False,
) -> None:
    """Measure coverage over repeated samples.

    With --population: samples are drawn from FRAME, a public file of a whole population such as a
    register or last year's file, and released as SPEC says; FRAME costs no budget. Without SPEC:
    the published simulation at epsilon 10.8, m = 3. With --two-stage: a simulated population of
    clusters, from which 50 clusters and then 20 units of each are drawn. Exit code 4: batches
    failed twice; the measures are those of the other batches.
    """
    run: dict[str, Any] = {
        "out": out, "seed": seed, "resume": resume, "scheduler": scheduler, "workers": workers,
    }  # fmt: skip
    drawn = {
        "n": n, "design": design, "size": size_column, "allocation": allocation,
        "per_cluster": per_cluster, "clusters": clusters, "within": within,
        "laplace": laplace or None, "also": also or None,
    }  # fmt: skip
    drawn = {name: value for name, value in drawn.items() if value is not None}
    if population is not None:
        if spec is None:
            raise InputError("--population: name the specification of a release as SPEC.")
        _refuse("without --population", {
            "--two-stage": two_stage, "--methods": methods, "--epsilon": epsilon,
        })  # fmt: skip
        _on_frame(population, spec, samples or 100, run, drawn)
        return
    _refuse("with --population", {f"--{_option(name)}": True for name in drawn})
    _of_population(spec, {
        **run, "replicates": samples, "two_stage": two_stage, "methods": words(methods),
        "epsilons": numbers("--epsilon", epsilon),
    })  # fmt: skip


def _on_frame(
    population: Path, spec: Path, samples: int, run: dict[str, Any], drawn: dict[str, Any]
) -> None:
    from surveysynth._support.progress import report_count
    from surveysynth.api.coverage import coverage
    from surveysynth.evaluation.studies.work import REPORT_NAME

    result = coverage(population, spec, samples=samples, progress=report_count, **run, **drawn)
    print(result)
    print("The study describes the frame. It costs none of the survey's privacy budget.")
    print(f"Report: {run['out'] / REPORT_NAME}")


def _of_population(spec: Path | None, given: dict[str, Any]) -> None:
    from surveysynth._support.progress import report_count
    from surveysynth.api.commands import study
    from surveysynth.evaluation.studies.work import REPORT_NAME

    result = study(spec, progress=report_count, **given)
    summary = result.summary
    # The sample's own epsilon is infinite.
    if summary["epsilon"].where(summary["epsilon"] < float("inf")).nunique() <= 1:
        summary = summary.drop(columns=["m", "epsilon"])
    print(summary.round(3).to_string(index=False))
    print(f"Cells, replicates, refusals, figures: {result.out}")
    print(f"Report: {result.out / REPORT_NAME}")


def _option(name: str) -> str:
    return "size-column" if name == "size" else name.replace("_", "-")


def _refuse(when: str, options: dict[str, Any]) -> None:
    """Raise ``InputError`` if any of these options is given."""
    given = [name for name, value in options.items() if value]
    if given:
        raise InputError(f"{', '.join(given)}: this works only {when}; leave it out.")


def words(given: Sequence[str] | None) -> tuple[str, ...]:
    """Return the words of options with comma-separated lists, each once."""
    found = (word.strip() for each in given or () for word in each.split(","))
    return tuple(dict.fromkeys(word for word in found if word))


def numbers(option: str, given: Sequence[str] | None) -> tuple[float, ...]:
    """Return the numbers of an option with comma-separated lists, each once."""
    try:
        return tuple(float(word) for word in words(given))
    except ValueError:
        raise InputError(
            f"{option}: expected numbers above zero with commas between, got "
            f"{', '.join(given or ())}."
        ) from None
