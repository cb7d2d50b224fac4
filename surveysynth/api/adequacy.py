"""The command ``adequacy`` as a function."""

from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING

from surveysynth.errors import InputError

if TYPE_CHECKING:
    from surveysynth._support.types import FloatArray
    from surveysynth.evaluation.compare.adequacy import Adequacy
    from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
        LocationStatistics,
    )
    from surveysynth.survey.survey import PublicDesign


def adequacy(
    out: str | Path,
    *,
    confidential: str | Path | None = None,
    progress: Callable[[str], None] | None = None,
) -> "Adequacy":
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
    >>> found.rows, 0 < found.p_value <= 1
    (20, True)
    """
    from surveysynth._support import progress as stages
    from surveysynth.config.build import mechanism_of, read_survey, with_file_labels
    from surveysynth.config.spec import load_spec
    from surveysynth.evaluation.compare.adequacy import compare_with_sample, write_adequacy
    from surveysynth.mechanisms.base import PrivateDraws
    from surveysynth.release.files import read_compared
    from surveysynth.release.folder import CONFIDENTIAL, RELEASE
    from surveysynth.release.run import facts_of, prepared

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
    release: Path, design: "PublicDesign"
) -> "tuple[PublicDesign, LocationStatistics | None]":
    from surveysynth.mechanisms.learned.histogram import learned_design
    from surveysynth.mechanisms.learned.stage import histograms_in
    from surveysynth.mechanisms.noisy_statistics.mechanism import STATISTICS_NAME
    from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
        LocationStatistics,
    )
    from surveysynth.release.microdata import read_json

    path = release / STATISTICS_NAME
    if not path.is_file():
        return design, None
    content = read_json(path)
    statistics = LocationStatistics.from_dict(content["statistics"])
    return learned_design(design, histograms_in(content)), statistics


def _risk_weights(folder: Path) -> "FloatArray | None":
    import pandas as pd

    from surveysynth.release.folder import RECORDS_STEM

    for path in folder.glob(f"{RECORDS_STEM}.*"):
        read = pd.read_parquet if path.suffix == ".parquet" else pd.read_csv
        return read(path)["risk_weight"].to_numpy(float)
    return None
