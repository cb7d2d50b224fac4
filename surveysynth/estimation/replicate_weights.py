"""Schemes of replicate weights: bootstrap, jackknife, balanced half-samples (methods 6).

The jackknife and balanced half-samples are those of samplics, which draws its bootstrap from
NumPy's global state: the bootstrap is made here.

Every scheme is a table of multipliers of the survey weights, one row a PSU and one column a
replicate. Their deviations from one give the variance of a linear estimate, in expectation or
exactly: scale * sum_r rscales_r (estimate_r - estimate)^2. A finite population correction shrinks
the deviations of a stratum (in the jackknife: its rscales). Lonely PSUs follow the rules of Taylor
linearisation: "remove" and "certainty" leave their weight alone, "adjust" replicates the square of
their value around zero, "average" raises the scale by H / H_ok of the whole sample. (Taylor
estimates without calibration count the strata of each row instead, which weights cannot do.)
"""

import math
import warnings
from typing import Literal

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.estimation.replication import ReplicateWeights
from surveysynth.estimation.sample_design import SampleDesign

#: Largest number of multipliers that a jackknife may hold (1.6 GB).
MAX_ENTRIES = 200_000_000


def preston_bootstrap(
    design: SampleDesign, replicates: int, rng: np.random.Generator
) -> ReplicateWeights:
    """Half of each stratum's PSUs, without replacement (methods 6).

    n* = floor(n_h / 2) PSUs are kept; the multiplier is 1 - lambda + lambda (n_h / n*) kept with
    lambda = sqrt((1 - f_h) n* / (n_h - n*)). Never negative; they sum to n_h in each stratum.

    Parameters
    ----------
    design
        Strata, PSUs and sampling fractions.
    replicates
        R.
    rng
        For the halves.

    Returns
    -------
    ReplicateWeights
        With squares around the full sample's estimate.

    Raises
    ------
    InputError
        For fewer than two replicates.

    References
    ----------
    Preston (2009), Rescaled bootstrap for stratified multistage sampling.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> design = ss.SampleDesign(np.repeat([0, 1], 4))
    >>> ss.preston_bootstrap(design, 50, np.random.default_rng(1)).multipliers.sum(axis=0)[:2]
    array([8., 8.])
    """
    if replicates < 2:
        raise InputError(f"A bootstrap needs at least two replicates, but got {replicates}.")
    n_h, n_psus = design.psus_in_stratum, design.psu_strata.size
    kept_number = n_h // 2
    # Stratum by stratum, the first n* of its PSUs in random order are a half-sample.
    place = np.arange(n_psus) - np.repeat(np.cumsum(n_h) - n_h, n_h)
    is_first = place < np.repeat(kept_number, n_h)
    kept = np.zeros((replicates, n_psus), dtype=bool)
    for half_sample in kept:
        order = np.argsort(design.psu_strata + rng.random(n_psus))
        half_sample[order[is_first]] = True
    kept = kept.T
    single = n_h == 1
    ratio = n_h / np.where(single, 1, kept_number)
    root = np.sqrt(kept_number / np.where(single, 1, n_h - kept_number))
    deviation = root[design.psu_strata][:, None] * (ratio[design.psu_strata][:, None] * kept - 1.0)
    # A lonely PSU stays as it is, or has a random sign: the mean square is its value's.
    strata = design.psu_strata
    signs = rng.choice([-1.0, 1.0], size=(design.n_strata, replicates))
    lonely = signs * float(design.lonely_psu == "adjust")
    deviation = np.where(single[strata][:, None], lonely[strata], deviation)
    multipliers = 1.0 + np.sqrt(design.share_not_sampled)[strata][:, None] * deviation
    return ReplicateWeights(
        multipliers,
        _unit(design),
        scale=_average_factor(design) / replicates,
        rscales=np.ones(replicates),
        df=float(min(design.degrees_of_freedom, replicates)),
    )


def jackknife(design: SampleDesign) -> ReplicateWeights:
    """Delete one PSU at a time, its stratum's others weighted up: JKn (JK1 with one stratum).

    rscales are (1 - f_h)(n_h - 1) / n_h. Strata that contribute nothing (completely sampled, or
    lonely under "remove", "certainty" or "average") have no replicate.

    Parameters
    ----------
    design
        Strata, PSUs and sampling fractions.

    Returns
    -------
    ReplicateWeights
        One replicate a PSU.

    Raises
    ------
    InputError
        If no stratum contributes, or with far too many PSUs.

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> ss.jackknife(ss.SampleDesign(np.repeat([0, 1], 3))).n_replicates
    6
    """
    n_h, strata = design.psus_in_stratum, design.psu_strata
    single = n_h == 1
    share = design.share_not_sampled
    rscale = np.where(single, float(design.lonely_psu == "adjust"), (n_h - 1) / n_h) * share
    deleted = np.flatnonzero(rscale[strata] > 0)
    if deleted.size == 0:
        raise InputError(
            "A jackknife needs at least one stratum with a variance, but every stratum is "
            "completely sampled or has a single PSU that is left out; combine strata."
        )
    if strata.size * deleted.size > MAX_ENTRIES:
        raise InputError(
            f"A jackknife of {deleted.size:,} PSUs needs as many replicates, too many to hold; use "
            "a bootstrap."
        )
    # Stratum by stratum; a lonely PSU that is adjusted has a replicate without it.
    deleted = deleted[np.lexsort((strata[deleted], single[strata[deleted]]))]
    several = deleted[~single[strata[deleted]]]
    multipliers = np.ones((strata.size, deleted.size))
    multipliers[deleted, np.arange(deleted.size)] = 0.0
    if several.size:
        multipliers[several, : several.size] = _by_samplics("jackknife", strata[several])
    return ReplicateWeights(
        multipliers,
        _unit(design),
        scale=_average_factor(design),
        rscales=rscale[strata[deleted]],
        df=float(design.degrees_of_freedom),
    )


def balanced_half_samples(design: SampleDesign, fay: float = 0.0) -> ReplicateWeights:
    """Balanced repeated replication of two PSUs a stratum.

    A column of a Hadamard matrix takes one PSU of every stratum up to 2 - rho and the other down
    to rho; over all columns the products of different strata cancel, so the variance of a linear
    estimate is Taylor's exactly.

    Parameters
    ----------
    design
        Strata and PSUs.
    fay
        Fay's rho in [0, 1).

    Returns
    -------
    ReplicateWeights
        As many replicates as a Hadamard matrix of samplics has columns: a multiple of four up to
        24, beyond it a power of two.

    Raises
    ------
    InputError
        Unless every stratum has two PSUs (or one, under a lonely rule).

    Examples
    --------
    >>> import numpy as np
    >>> import surveysynth as ss
    >>> halves = ss.balanced_half_samples(ss.SampleDesign(np.repeat([0, 1, 2], 2)), fay=0.5)
    >>> np.unique(halves.multipliers)
    array([0.5, 1.5])
    """
    if not 0.0 <= fay < 1.0:
        raise InputError(f"Fay's rho must be at least 0 and below 1, but got {fay}.")
    n_h, strata = design.psus_in_stratum, design.psu_strata
    more = int((n_h > 2).sum())
    if more:
        raise InputError(
            f"Balanced half-samples need two PSUs in each stratum, but {more} of {design.n_strata} "
            "strata have more; split them into strata of two, or use the jackknife or a bootstrap."
        )
    # The order of a Hadamard matrix of samplics with a column for each stratum. Its first column is
    # all ones, which takes one more; its matrix of order 28 has no such column.
    order = design.n_strata + 1
    replicates = 4 * math.ceil(order / 4) if order <= 24 else 1 << (order - 1).bit_length()
    pairs = np.repeat(np.arange(design.n_strata), 2)
    place = 2 * strata + 1
    place[np.unique(strata, return_index=True)[1]] -= 1  # the first PSU of each stratum
    deviation = _by_samplics("brr", pairs, replicates, fay)[place] - 1.0
    size = np.where(n_h == 1, float(design.lonely_psu == "adjust"), 1.0)
    size = size * np.sqrt(design.share_not_sampled)
    multipliers = 1.0 + size[strata][:, None] * deviation
    return ReplicateWeights(
        multipliers,
        _unit(design),
        scale=_average_factor(design) / (replicates * (1.0 - fay) ** 2),
        rscales=np.ones(replicates),
        df=float(design.degrees_of_freedom),
    )


def _unit(design: SampleDesign) -> IntArray:
    return np.arange(design.n, dtype=np.int64) if design.psu is None else design.psu


def _average_factor(design: SampleDesign) -> float:
    """H / H_ok of lonely "average", 1 under the other rules; raises when no stratum is left."""
    lonely = int(design.lonely.sum())
    if design.lonely_psu != "average" or lonely == 0:
        return 1.0
    if lonely == design.n_strata:
        raise InputError(
            "lonely_psu = average needs a stratum with two PSUs, but every stratum has one; "
            "combine strata, or use adjust."
        )
    return design.n_strata / (design.n_strata - lonely)


def _by_samplics(
    method: Literal["jackknife", "brr"], strata: IntArray, replicates: int = 0, fay: float = 0.0
) -> FloatArray:
    """Return the multipliers (C, R) that samplics gives the PSUs of ``strata`` (C,), in order.

    Without ``replicates``, too few for some numbers of strata, its half-samples fail.
    """
    psus = np.arange(strata.size)
    with warnings.catch_warnings():
        # It announces its successor on import, and sorts in a way that pandas gives up.
        warnings.simplefilter("ignore")
        from samplics.utils.types import RepMethod
        from samplics.weighting import ReplicateWeight

        made = ReplicateWeight(RepMethod[method], fay_coef=fay)
        made.nb_reps = replicates
        frame = made.replicate(np.ones(strata.size), psus, strata, rep_coefs=True, rep_prefix="r")
    frame = frame.set_index("_psu").loc[psus]
    return frame.drop(columns=["_stratum", "_samp_weight"]).to_numpy(dtype=np.float64)
