"""Replicate weights that an agency has published with its survey."""

import numpy as np

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.replicate_weights import Centre, ReplicateWeights, require_finite


def agency_replicates(
    columns: FloatArray,
    weight: FloatArray,
    *,
    scale: float,
    rscales: FloatArray | None = None,
    df: float | None = None,
    combined: bool = True,
    centre: Centre = "estimate",
) -> ReplicateWeights:
    """Replicate weights as an agency publishes them.

    Parameters
    ----------
    columns
        Shape (n, R): complete weights, or with ``combined = False`` multipliers of ``weight``.
    weight
        Survey weights, shape (n,).
    scale, rscales
        As the agency states them: 4/R for successive differences, 1/(R (1 - rho)^2) for Fay's,
        1 with rscales (n_h - 1)/n_h for a stratified jackknife. rscales are ones by default.
    df
        As stated; by default the rank of the replicate weights less one, as in R's survey.
    combined
        Whether the columns are complete weights.
    centre
        What squares are taken around: the full sample's "estimate" or the replicates' "mean".

    Returns
    -------
    ReplicateWeights
        For ``estimate_domains_replicated``.

    Raises
    ------
    InputError
        If shapes disagree, or for values that are not finite.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> columns = np.array([[0.0, 20.0], [20.0, 0.0]])
    >>> ss.agency_replicates(columns, np.array([10.0, 10.0]), scale=0.5).df
    1.0
    """
    if columns.ndim != 2 or columns.shape[0] != weight.size:
        raise InputError(
            f"Replicate columns must be of shape ({weight.size}, R), a row a record, but came with "
            f"shape {columns.shape}."
        )
    multipliers = columns / weight[:, None] if combined else columns.astype(np.float64)
    replicates = columns.shape[1]
    if df is None:
        require_finite(multipliers)
        df = max(float(np.linalg.matrix_rank(multipliers * weight[:, None], rtol=1e-7)) - 1.0, 1.0)
    rscales = np.ones(replicates) if rscales is None else np.asarray(rscales, dtype=np.float64)
    return ReplicateWeights(multipliers, np.arange(weight.size), scale, rscales, df, centre)
