"""Commands as functions: the ledger, adequacy, coverage on a frame, and calibration of a sample."""

from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from surveysynth._support.progress import shows_parts
from surveysynth._support.types import FloatArray
from surveysynth.config.build import mechanism_of, read_survey, with_file_labels
from surveysynth.config.spec import Spec, load_spec
from surveysynth.errors import InputError
from surveysynth.estimation.calibration import (
    UNBOUNDED,
    CalibratedWeights,
    Calibration,
    Margin,
    Method,
)
from surveysynth.evaluation.compare.adequacy import Adequacy, compare_with_sample, write_adequacy
from surveysynth.evaluation.studies.report import CoverageResult, run_frame_study
from surveysynth.evaluation.studies.study import chosen_frame_study
from surveysynth.mechanisms.base import PrivateDraws
from surveysynth.mechanisms.learned.histogram import histograms_in, learned_design
from surveysynth.mechanisms.noisy_statistics.mechanism import STATISTICS_NAME
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    LocationStatistics,
)
from surveysynth.mechanisms.pseudo_posterior.weighted_fits import run as run_mechanism
from surveysynth.release.files import read_compared
from surveysynth.release.folder import CONFIDENTIAL, RECORDS_STEM, RELEASE
from surveysynth.release.ledger import Ledger, LedgerSummary
from surveysynth.release.microdata import read_json
from surveysynth.release.run import facts_of, prepared
from surveysynth.survey.survey import PublicDesign

if TYPE_CHECKING:
    import pandas as pd


__all__ = ["adequacy", "calibrate", "coverage", "ledger", "run_mechanism"]


def ledger(survey_id: str, path: str | Path | None = None) -> LedgerSummary:
    """Return the total of all releases of a survey, by mechanism: confidential.

    Parameters
    ----------
    survey_id
        The id in [survey] of specifications; without one, releases are recorded under "file:" and
        the location of the data file.
    path
        The file of the ledger; by default that of the id in the user's state folder.

    Returns
    -------
    LedgerSummary
        ``epsilon`` and ``runs`` of the pseudo-posterior, ``rho``, ``strict_epsilon`` and
        ``strict_runs`` of noisy statistics; printed, its sentences.

    Raises
    ------
    InputError
        If the ledger cannot be read, or is damaged.

    Examples
    --------
    >>> import surveysynth as ss
    >>> print(ss.ledger("next year's survey"))
    Ledger: total epsilon spent on survey "next year's survey" so far: 0 in 0 runs.
    """
    return Ledger.of(survey_id, path).summary()


_KEYS = ("by", "amount", "totals")


def calibrate(
    frame: "pd.DataFrame",
    weight: str | FloatArray,
    margins: Sequence[Mapping[str, Any]],
    *,
    method: Method = "raking",
    bounds: tuple[float, float] | None = None,
    population_size: float | None = None,
) -> CalibratedWeights:
    """Calibrate the weights of a sample to known totals of the population.

    The calibrated weights are near the base weights, and their sums over each class are its total.
    ``estimate_domains(.., calibration=...)`` computes the standard errors of calibrated estimates.

    Parameters
    ----------
    frame
        The sample, n rows.
    weight
        The column of the base weights, or the weights (n,).
    margins
        One mapping for each margin: ``by``, a column or a list of columns; ``totals``, the number
        of units by level (nested for several columns), or one number without ``by``; ``amount``, a
        column whose totals they are instead.
    method
        "raking": the ratios of calibrated to base weights are above zero; "linear": the regression
        estimator, whose weights may be below zero without bounds.
    bounds
        The smallest and largest ratio, such as (0.3, 3).
    population_size
        The total of all weights, where no margin implies it.

    Returns
    -------
    CalibratedWeights
        ``weight`` (n,), ``ratio`` (n,), and what variance estimates need.

    Raises
    ------
    InputError
        For totals below zero, classes without a total or without records, totals that contradict
        each other, and bounds that no weights can satisfy. The message names the margin.

    References
    ----------
    Deville and Sarndal (1992), Calibration estimators in survey sampling.

    Examples
    --------
    >>> import pandas as pd
    >>> import surveysynth as ss
    >>> frame = pd.DataFrame(
    ...     {"sex": ["F", "M", "F", "M"], "farms": [1, 0, 2, 1], "w": [10.0, 20.0, 30.0, 20.0]}
    ... )
    >>> made = ss.calibrate(
    ...     frame, "w",
    ...     [{"by": "sex", "totals": {"F": 45, "M": 55}}, {"amount": "farms", "totals": 100}],
    ... )
    >>> made.weight.round(2)
    array([13.73, 31.27, 31.27, 23.73])
    """
    base = frame[weight].to_numpy(float) if isinstance(weight, str) else np.asarray(weight, float)
    wrong = int((~(np.isfinite(base) & (base > 0))).sum())
    if base.shape != (len(frame),) or wrong:
        raise InputError(
            f"weight: expected {len(frame)} numbers above zero, but got shape {base.shape} with "
            f"{wrong} others."
        )
    made = [_margin(each, f"margins[{i}]") for i, each in enumerate(margins, start=1)]
    calibration = Calibration(
        made, frame, population_size=population_size, method=method,
        bounds=UNBOUNDED if bounds is None else bounds,
    )  # fmt: skip
    return calibration.calibrate(base, np.zeros((len(frame), 0)))


def _margin(given: Mapping[str, Any], place: str) -> Margin:
    unknown = [key for key in given if key not in _KEYS]
    if unknown or "totals" not in given:
        raise InputError(
            f"{place}: expected totals, and by or amount; got {', '.join(map(str, given))}."
        )
    by = given.get("by", ())
    return Margin.of((by,) if isinstance(by, str) else by, given["totals"], given.get("amount"),
                     place)  # fmt: skip


def adequacy(
    out: str | Path,
    *,
    confidential: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> Adequacy:
    """Compare a release with its confidential sample, each row over its expected error.

    The result is confidential, and so is a decision that depends on it. It is written to
    ``adequacy.html`` and ``adequacy.csv`` of the confidential folder; nothing is released.

    Parameters
    ----------
    out
        The folder of a release. The specification and the survey must be where they were, and
        unchanged.
    confidential
        Its confidential folder; by default ``out``/confidential.
    progress
        Called with the name of each stage.

    Returns
    -------
    Adequacy
        ``page``, ``rows`` compared, ``beyond``: rows more than 2.6 expected errors from the sample,
        one in a hundred if the model is right, and ``p_value`` for all rows together.

    Raises
    ------
    InputError
        For a folder that no release wrote, a release of one draw, and a specification or survey
        that are not those of the release.

    Examples
    --------
    >>> import tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _, spec = ss.example(Path(folder) / "ex", n=200)
    ...     released = ss.release(spec, Path(folder) / "out", seed=1)
    ...     found = ss.adequacy(Path(folder) / "out")
    >>> found.rows > 0, 0 < found.p_value <= 1
    (True, True)
    """
    from surveysynth._support import progress as stages
    say = progress or (lambda stage: None)
    folder = Path(out) / CONFIDENTIAL if confidential is None else Path(confidential)
    kept = read_compared(folder)
    spec = with_file_labels(load_spec(kept.spec))
    if mechanism_of(spec).settings.m < 2:
        raise InputError("a release of one draw does not say how much its draws differ: set m = 2.")
    say(stages.READING)
    survey, model, mechanism = prepared(spec, read_survey(spec))
    design, statistics = _of_noise(Path(out) / RELEASE, survey.design)
    facts = facts_of(spec, survey.design, mechanism, model, test=False).with_design(design)
    draws = PrivateDraws(model.name, kept.theta, mechanism.settings)
    say(stages.SYNTHESIS)
    found = compare_with_sample(
        facts, model, survey, draws, kept.published,
        statistics=statistics, risk_weights=_risk_weights(folder),
    )  # fmt: skip
    return write_adequacy(found, folder)


def _of_noise(
    release: Path, design: PublicDesign
) -> tuple[PublicDesign, LocationStatistics | None]:
    path = release / STATISTICS_NAME
    if not path.is_file():
        return design, None
    content = read_json(path)
    statistics = LocationStatistics.from_dict(content["statistics"])
    return learned_design(design, histograms_in(content)), statistics


def _risk_weights(folder: Path) -> FloatArray | None:
    import pandas as pd

    for path in folder.glob(f"{RECORDS_STEM}.*"):
        read = pd.read_parquet if path.suffix == ".parquet" else pd.read_csv
        return read(path)["risk_weight"].to_numpy(float)
    return None


Count = Callable[[str, int, int], None]


@shows_parts
def coverage(
    frame: "pd.DataFrame | str | Path | None" = None,
    spec: str | Path | Spec | Mapping[str, Any] | None = None,
    *,
    also: Sequence[str | Path | Spec | Mapping[str, Any]] = (),
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
) -> CoverageResult:
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
        Other specifications of the same tables, such as another mechanism or epsilon.
    samples
        Number of samples.
    seed
        Another seed draws other samples and other noise.
    n
        Records per sample. Required for a frame unless ``allocation`` names a column.
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
        against the truth, next to those of the sample's own estimates.

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
