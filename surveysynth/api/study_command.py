"""The command ``study``: samples of a frame, released again and again.

Imported at the start of every command: heavy modules are imported inside.
"""

from pathlib import Path
from typing import Annotated

import typer

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
        "--resume", help="Continue with what is missing in DIR; --samples may be more than before."
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
        help="A further specification of the same tables. May be repeated.",
    ),
]
RecordsOption = Annotated[
    int | None, typer.Option("--n", help="Records of a sample.", min=2)
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
        help="Of n to strata: proportional, equal, power, or a column with the "
        "sample size of each stratum.",
    ),
]
PerClusterOption = Annotated[
    int, typer.Option(help="For two_stage: units of a cluster.", min=1)
]
ClustersOption = Annotated[
    str, typer.Option(metavar="RULE", help="For two_stage: units, size or srs.")
]
WithinOption = Annotated[
    str, typer.Option(metavar="RULE", help="For two_stage: srs or pps.")
]
LaplaceOption = Annotated[
    bool, typer.Option("--laplace", help="Also Laplace noise on the tables.")
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
    year's file, and released as SPEC says; FRAME costs no budget. Without FRAME they are 1,000
    records of the papers' simulated population, and without SPEC too its releases by both
    mechanisms at epsilon 10.8. Exit code 4: tasks failed; the measures are those of the others.
    """
    from surveysynth._support.progress import report_count
    from surveysynth.api.coverage import coverage
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
