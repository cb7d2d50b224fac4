"""Coverage of a release on a whole public population, in one call."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from surveysynth._support.progress import shows_parts

if TYPE_CHECKING:
    import pandas as pd

    from surveysynth.config.spec import Spec
    from surveysynth.evaluation.studies.results import CoverageResult

Count = Callable[[str, int, int], None]


@shows_parts
def coverage(
    frame: "pd.DataFrame | str | Path | None" = None,
    spec: "str | Path | Spec | Mapping[str, Any] | None" = None,
    *,
    also: "Sequence[str | Path | Spec | Mapping[str, Any]]" = (),
    samples: int = 100,
    seed: int = 0,
    n: int | None = None,
    design: str | None = None,
    size: str | None = None,
    allocation: str = "proportional",
    per_cluster: int = 5,
    clusters: str = "units",
    within: str = "srs",
    laplace: bool = False,
    out: str | Path | None = None,
    resume: bool = False,
    scheduler: str | None = None,
    workers: int | None = 1,
    progress: Count | None = None,
) -> "CoverageResult":
    """Draw samples from a public population again and again, release each, and compare with truth.

    A frame is a file of a whole population: a register, the last census, last year's file. It must
    be public. The result describes the frame and costs none of the survey's budget: the survey's
    own data file is not read, and is refused as a frame.

    Parameters
    ----------
    frame
        One row per unit with all columns of the specification except the weight, complete: a data
        frame, or a file (csv, parquet, dta, sav, xpt). None for the simulated population of the
        papers, with samples of 1,000 in proportion to size, with replacement.
    spec
        The specification of the release: a file, a ``Spec``, or its sections as a mapping. A
        population size and sizes of strata are replaced by those of the frame. None, without a
        frame, for releases of the published simulation by both mechanisms at epsilon 10.8.
    also
        Further specifications of the same tables, such as another mechanism or epsilon.
    samples
        Number of samples.
    seed
        Another seed draws other samples and other noise.
    n
        Records of a sample. Required for a frame unless ``allocation`` names a column.
    design
        "pps" (systematic, in proportion to ``size``), "pps_wr" (with replacement), "srs", or
        "two_stage" for clusters; None for the one that the specification and ``size`` imply.
    size
        The column with the measure of size. Samples are informative if it is related to the
        outcomes.
    allocation
        How n is divided among the strata: "proportional", "equal", "power", or a
        column with the sample size of each stratum.
    per_cluster
        For "two_stage": units drawn in each cluster.
    clusters
        For "two_stage": clusters are drawn by their number of "units", by the sum of their "size",
        or at random ("srs").
    within
        For "two_stage": units of a cluster are drawn at random ("srs"), or "pps".
    laplace
        Also measure Laplace noise on the tables of each sample.
    out
        A folder for report.html, figures, rows.csv, summary.json and every estimate.
    resume
        Continue with the samples that ``out`` lacks; ``samples`` may be more than before.
    scheduler
        Address of a Dask scheduler.
    workers
        Number of processes, by Dask if there are several; None for one per processor. The result
        does not depend on it.
    progress
        Called with a line, the number of finished tasks and of all tasks.

    Returns
    -------
    CoverageResult
        ``summary``, ``by_size`` and ``rows``: coverage, bias, RMSE and length of every method
        against the truth, beside those of the sample's own estimates.

    Raises
    ------
    InputError
        For a frame or a design that does not fit the specification, for the survey's own file, and
        for a folder that exists.
    StoppedError
        If interrupted; ``resume`` continues.
    IncompleteError
        If tasks failed, or if no sample could be released.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _, spec = ss.example(Path(folder) / "ex", n=200, study=True)
    ...     found = ss.coverage(
    ...         Path(folder) / "ex" / "population.csv", spec, samples=1, n=200, size="size"
    ...     )
    >>> found.summary["method"].unique().tolist()
    ['sample', 'spec']
    """
    from surveysynth.evaluation.studies.report import run_frame_study
    from surveysynth.evaluation.studies.study import chosen_frame_study

    study = chosen_frame_study(
        Path(frame) if isinstance(frame, str) else frame,
        [*([] if spec is None else [spec]), *also], samples=samples,
        seed=seed, n=n, design=design, size=size, allocation=allocation, per_cluster=per_cluster,
        clusters=clusters, within=within, laplace=laplace,
    )  # fmt: skip
    return run_frame_study(
        study, None if out is None else Path(out), resume=resume, scheduler=scheduler,
        workers=workers, progress=progress,
    )  # fmt: skip
