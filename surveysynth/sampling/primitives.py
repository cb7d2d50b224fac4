"""Batched building blocks of the Gibbs samplers.

Every function works on a leading batch axis B (chains, simulated databases, samples of a study) and
takes its random numbers as arrays. A sweep therefore uses a fixed count of random numbers, whatever
is accepted: two runs on slightly different data with the same seed stay in step (common random
numbers), which makes the search for a target bound smooth.
"""

from collections.abc import Callable

import numpy as np
from scipy.special import chdtri, ndtri

from surveysynth._support.types import BoolArray, FloatArray, IntArray

#: Shrink steps of a slice before the current point is kept. A bracket shrinks on average by a third
#: in each step, so 48 steps reach the rounding error of the current point.
MAX_SHRINKS = 48
#: Points of the grid of ``grid_independence_step``.
GRID = 64
#: Equal shares of a standard normal distribution: what stands for it in means over all of it.
NORMAL_NODES = ndtri((np.arange(400) + 0.5) / 400)
#: Matrices of size d are many from so many times d^2 on.
MANY = 16


def half_t_log_density(
    scale: FloatArray, df: float, prior_scale: FloatArray | float
) -> FloatArray:
    """Return the log density, up to a constant, of half-t(df, 0, prior_scale) at ``scale``."""
    standardized = scale / prior_scale
    return np.asarray(-0.5 * (df + 1.0) * np.log1p(standardized * standardized / df))


def log_half_t(
    log_value: FloatArray, df: float, scale: FloatArray | float
) -> tuple[FloatArray, FloatArray]:
    """Return the log density of the log of a half-t variable, up to a constant, and its slope."""
    value = np.exp(np.clip(log_value, -150.0, 150.0))
    square = (value / scale) ** 2 / df
    density = half_t_log_density(value, df, scale) + log_value
    return density, 1.0 - (df + 1.0) * square / (1.0 + square)


def inverse_wishart_root(df: FloatArray, normals: FloatArray, uniforms: FloatArray) -> FloatArray:
    """Return R (..., B, q, q) with (C R)(C R)' ~ IW(df, C C').

    Its density is ∝ |Σ|^-(df+q+1)/2 exp(-tr(C C' Σ^-1)/2); Bartlett's decomposition, inverted. df
    (B,); normals (..., B, q, q), of which the strictly lower part is used; uniforms (..., B, q)
    give the chi-squares by inversion, smooth in df.
    """
    q = normals.shape[-1]
    bartlett = np.tril(normals, -1)
    index = np.arange(q)
    bartlett[..., index, index] = np.sqrt(chdtri(df[:, None] - index, uniforms))
    return np.asarray(np.linalg.inv(bartlett).swapaxes(-1, -2), dtype=np.float64)


def slice_sample(
    log_density: Callable[[FloatArray], FloatArray],
    current: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    level: FloatArray,
    uniforms: FloatArray,
) -> FloatArray:
    """Take one slice-sampling step per coordinate (Neal 2003), shrinking from the bracket given.

    All arrays but ``uniforms`` share one shape; ``lower`` and ``upper`` must enclose all the mass
    (to rounding), ``level`` is uniform on (0, 1), ``uniforms`` has a leading axis of tries.
    """
    threshold = log_density(current) + np.log(level)
    low, high = lower.copy(), upper.copy()
    result = current.copy()
    pending: BoolArray = np.ones(current.shape, dtype=bool)
    for uniform in uniforms:
        proposal = low + (high - low) * uniform
        inside = log_density(proposal) >= threshold
        result = np.where(pending & inside, proposal, result)
        pending &= ~inside
        if not pending.any():
            break
        below = proposal < current
        low = np.where(below, proposal, low)
        high = np.where(below, high, proposal)
    return result


def update_scales(
    scales: FloatArray,
    power: FloatArray | float,
    quadratic: FloatArray,
    linear: FloatArray,
    prior: tuple[float, float],
    uniforms: FloatArray,
) -> FloatArray:
    """Update scales s > 0 of density ∝ half-t(s) s^-power exp(-quadratic/(2 s²) + linear/s).

    ``prior`` is (df, scale) of the half-t; uniforms (2, ...) and all others share one shape. On t =
    log s a draw comes by inversion from the density's log-linear interpolation on a grid, and
    Metropolis-Hastings nearly always accepts it: exact, and smooth in the data where a slice would
    jump. The grid runs from where the exponential has fallen below exp(-40) to where the half-t
    tail has fallen below exp(-30).
    """
    (df, prior_scale), current = prior, np.log(scales)
    unit = 1.0 / (df * prior_scale * prior_scale)
    lower, upper = _scale_grid(current, power, quadratic, linear, prior)

    def log_density(t: FloatArray) -> FloatArray:
        inverse = np.exp(-t)
        result: FloatArray = (linear - 0.5 * quadratic * inverse) * inverse
        result += (1.0 - power) * t
        # log1p would be many times slower; an absolute error of 1e-16 does not matter.
        inverse *= inverse
        result -= 0.5 * (df + 1.0) * np.log(1.0 + unit / inverse)
        return result

    return np.exp(grid_independence_step(log_density, current, lower, upper, uniforms))


#: Powers up to this leave the end of the exponential as the end of the density.
LARGE_POWER = 20.0


def _scale_grid(
    current: FloatArray,
    power: FloatArray | float,
    quadratic: FloatArray,
    linear: FloatArray,
    prior: tuple[float, float],
) -> tuple[FloatArray, FloatArray]:
    """Return the ends of the grid of ``update_scales`` on t = log s, ``current`` between them.

    In x = root/s, root^2 = quadratic, the exponential is a normal kernel about ``peak``. It is
    negligible 9 SDs away, to the right (no smaller scale) and, for a far peak, to the left (no
    larger one). For a peak below zero the rest of the kernel falls from x = 0 on, the faster the
    farther the peak: x(x - 2 peak)/2 reaches 40.
    """
    df, log_prior_scale = prior[0], np.log(prior[1])
    root = np.sqrt(np.maximum(quadratic, 1e-300))
    peak = linear / root
    below = np.maximum(-peak, 0.0)
    last = np.where(peak > 0, 9.0 + peak, 80.0 / (np.sqrt(below * below + 80.0) + below))
    # A large power moves the mode of x^power exp(peak x - x^2/2) beyond that; its SD is below 1.
    mode = 0.5 * (peak + np.sqrt(peak * peak + 4.0 * power))
    last = np.where(np.asarray(power) > LARGE_POWER, np.maximum(last, mode + 9.0), last)
    lower = np.log(root) - np.log(last)
    lower = np.minimum(np.maximum(lower, log_prior_scale - 60.0), current - 0.01)
    reach = 30.0 / (df + np.min(power)) + 1.0
    upper = np.maximum(log_prior_scale, lower) + reach
    upper = np.minimum(upper, np.log(root) - np.log(np.maximum(peak - 9.0, 1e-300)))
    return lower, np.maximum(upper, current + 0.01)


def grid_independence_step(
    log_density: Callable[[FloatArray], FloatArray],
    current: FloatArray,
    lower: FloatArray,
    upper: FloatArray,
    uniforms: FloatArray,
) -> FloatArray:
    """Take a Metropolis-Hastings step that proposes from a log-linear interpolation.

    ``current``, ``lower``, ``upper`` share one shape, ``current`` lies inside the bracket; uniforms
    (2, ...): for the inversion and for the acceptance. The log density broadcasts over a leading
    grid axis.
    """
    fraction = (np.arange(GRID) / (GRID - 1.0)).reshape(-1, *(1,) * current.ndim)
    step = (upper - lower) / (GRID - 1.0)
    values = log_density(lower + (upper - lower) * fraction)
    values = np.maximum(values - values.max(axis=0), -700.0)
    # The tiny ramp keeps equal neighbors (a clipped tail) from dividing zero by zero.
    values += 1e-9 * fraction
    rise = np.diff(values, axis=0)
    mass = np.cumsum(np.diff(np.exp(values), axis=0) / rise, axis=0)
    wanted = uniforms[0] * mass[-1]
    segment = np.minimum((mass < wanted).sum(axis=0), GRID - 2)[None]
    left = np.take_along_axis(values, segment, 0)[0]
    slope = np.take_along_axis(rise, segment, 0)[0]
    before = np.where(segment[0] > 0, np.take_along_axis(mass, np.maximum(segment - 1, 0), 0)[0], 0)
    inner = np.log1p(np.clip((wanted - before) * slope * np.exp(-left), -1 + 1e-15, None)) / slope
    inner = np.clip(inner, 0.0, 1.0)
    proposal = lower + (segment[0] + inner) * step
    position = np.clip((current - lower) / step, 0.0, GRID - 1.000001)
    cell = position.astype(np.intp)[None]
    here = np.take_along_axis(values, cell, 0)[0]
    here = here + (position - cell[0]) * np.take_along_axis(rise, cell, 0)[0]
    there = left + inner * slope
    ratio = log_density(proposal) - log_density(current) - there + here
    return np.where(np.log(uniforms[1]) < ratio, proposal, current)


def slice_variances(
    variance: FloatArray,
    total: FloatArray,
    tilt: FloatArray,
    sum_squares: FloatArray,
    prior_scale: float,
    level: FloatArray,
    uniforms: FloatArray,
    df: float = 1.0,
) -> FloatArray:
    """Update v = s² with density GIG((1-A)/2, a = tilt, b = sum_squares) × half-t prior of s.

    The conditional of methods 4, ∝ v^((1-A)/2 - 1) exp(-(tilt v + sum_squares/v)/2) times (1 +
    v/(df c²))^(-(df+1)/2), is log-concave in log v. The bracket about its mode has a width that
    depends on A; outside, the density has fallen below exp(-40) of its maximum. All arrays (B,); df
    and prior_scale c of the half-t, by default a half-Cauchy.
    """
    p = 0.5 * (1.0 - total)
    unit = df * prior_scale * prior_scale
    tail = 0.5 * (df + 1.0)

    def log_density(t: FloatArray) -> FloatArray:
        v = np.exp(t)
        return np.asarray(p * t - 0.5 * (tilt * v + sum_squares / v) - tail * np.log1p(v / unit))

    mode = np.log(variance_mode(p, tilt, sum_squares, unit))
    rate = 0.5 * (total + 1.0)
    width = np.where(total >= 1.0, np.maximum(np.sqrt(160.0 / rate), 80.0 / rate + 1.0), 200.0)
    current = np.log(variance)
    # Only a start value can lie outside the bracket, and it must be included.
    lower, upper = np.minimum(mode - width, current - 1.0), np.maximum(mode + width, current + 1.0)
    return np.exp(slice_sample(log_density, current, lower, upper, level, uniforms))


def slice_shifted_variances(
    variance: FloatArray,
    total: FloatArray,
    sum_squares: FloatArray,
    quadratic: FloatArray,
    linear: FloatArray,
    prior_scale: float,
    level: FloatArray,
    uniforms: FloatArray,
) -> FloatArray:
    """Update v = s², half-Cauchy(0, c) prior of s, when a normal prior's mean moves with v.

    Density ∝ v^((1-A)/2 - 1) exp(-sum_squares/(2v)) / (1 + v/c²) exp(linear v - quadratic v²/2);
    total A > 1, quadratic > 0. All arrays (B,). The bracket of the slice holds all the mass: to the
    right up to where both the inverse gamma and the normal factor have fallen below exp(-40); to
    the left, to where exp(-sum_squares/(2v)) has fallen as far below what the rest can compensate.
    """
    p = 0.5 * (1.0 - total)
    unit = prior_scale * prior_scale
    squares = np.maximum(sum_squares, 1e-300)

    def log_density(t: FloatArray) -> FloatArray:
        v = np.exp(t)
        result: FloatArray = p * t - 0.5 * squares / v - np.log1p(v / unit)
        return result + v * (linear - 0.5 * quadratic * v)

    mode = np.log(squares / total)
    width = 80.0 / (total - 1.0) + np.sqrt(160.0 / (total - 1.0)) + 1.0
    lowest = squares / (total + 200.0 + 2.0 * np.sqrt(2.0 * squares * np.maximum(-linear, 0.0)))
    farthest = (np.maximum(linear, 0.0) / np.sqrt(quadratic) + 9.0) / np.sqrt(quadratic)
    current = np.log(variance)
    lower = np.minimum(np.minimum(mode - width, np.log(lowest) - 1.0), current - 1.0)
    # Beyond ``farthest`` the normal factor is negligible, but not to the left of the mode.
    upper = np.where(linear > 0, np.maximum(mode + width, np.log(farthest)), mode + width)
    upper = np.maximum(upper, current + 1.0)
    return np.exp(slice_sample(log_density, current, lower, upper, level, uniforms))


def variance_mode(p: FloatArray, a: FloatArray, b: FloatArray, unit: float) -> FloatArray:
    """Return a point near the mode in log v of GIG(p, a, b) / (1 + v/unit); positive, any shape.

    The mode of the GIG part is in closed form; where it does not exist (b = 0 and p >= 0, no data)
    the half-Cauchy scale is returned.
    """
    root = np.sqrt(p * p + a * b)
    with np.errstate(divide="ignore", invalid="ignore"):
        below = b / (root - p)
        above = (p + root) / a
    mode = np.where(p < 0, below, above)
    return np.where(np.isfinite(mode) & (mode > 0), mode, unit)


def wishart_correlation(root: FloatArray) -> FloatArray:
    """Return the correlation matrix of G G' for standard normals G (B, K, v): LKJ((v - K + 1)/2).

    If W ~ Wishart(v, I) the density of its correlation matrix is ∝ |R|^((v-K-1)/2), free of the
    scales. Writing LKJ(6) as K + 11 columns of normals makes its update an elliptical slice.
    """
    cross = root @ root.swapaxes(-1, -2)
    scale = np.sqrt(np.einsum("bkk->bk", cross))
    return np.asarray(cross / (scale[:, :, None] * scale[:, None, :]))


def slice_angle(
    log_density: Callable[[IntArray, FloatArray], FloatArray],
    level: FloatArray,
    uniforms: FloatArray,
) -> FloatArray:
    """Return angles (B,) of elliptical slices (Murray et al. 2010), 0 where all tries fail.

    log_density(which (b,), angle (b,)): (b,), of these at cos(angle) current + sin(angle) direction
    but for the normal that both are draws of; level (B,), uniforms (tries, B).
    """
    pending = np.arange(level.size)
    result = np.zeros(level.size)
    threshold = log_density(pending, result) + np.log(level)
    angle = 2.0 * np.pi * uniforms[0]
    low, high = angle - 2.0 * np.pi, angle.copy()
    for uniform in uniforms[1:]:
        now = angle[pending]
        inside = log_density(pending, now) >= threshold[pending]
        result[pending[inside]] = now[inside]
        pending, now = pending[~inside], now[~inside]
        if not pending.size:
            break
        low[pending] = np.where(now < 0, now, low[pending])
        high[pending] = np.where(now < 0, high[pending], now)
        angle[pending] = low[pending] + (high[pending] - low[pending]) * uniform[pending]
    return result


def elliptical_correlation(
    root: FloatArray,
    direction: FloatArray,
    total: FloatArray,
    factor: FloatArray,
    level: FloatArray,
    uniforms: FloatArray,
) -> FloatArray:
    """Update G by an elliptical slice (Murray et al. 2010), corr(G G') = Omega ~ LKJ a priori.

    Likelihood: |Omega|^(-total/2) exp(-tr(Omega^-1 F F')/2). root G and direction (B, K, v), total
    (B,), factor F (B, K, r), level (B,), uniforms (tries, B). Returns the new G.
    """
    transposed = direction.swapaxes(-1, -2)
    own = root @ root.swapaxes(-1, -2)
    other = direction @ transposed
    mixed = root @ transposed
    mixed = mixed + mixed.swapaxes(-1, -2)

    def log_likelihood(which: IntArray, cos: FloatArray, sin: FloatArray) -> FloatArray:
        c, s = cos[:, None, None], sin[:, None, None]
        cross = c * c * own[which] + s * s * other[which] + c * s * mixed[which]
        squares = np.einsum("bkk->bk", cross)
        cholesky = np.linalg.cholesky(cross)
        log_root = np.log(np.einsum("bkk->bk", cholesky)).sum(1) - 0.5 * np.log(squares).sum(1)
        whitened = np.linalg.solve(cholesky, np.sqrt(squares)[:, :, None] * factor[which])
        return np.asarray(-total[which] * log_root - 0.5 * (whitened * whitened).sum((1, 2)))

    def at(which: IntArray, angle: FloatArray) -> FloatArray:
        return log_likelihood(which, np.cos(angle), np.sin(angle))

    accepted = slice_angle(at, level, uniforms)
    cos, sin = np.cos(accepted)[:, None, None], np.sin(accepted)[:, None, None]
    return cos * root + sin * direction


def normal_from_precision(
    precision: FloatArray, linear: FloatArray, normals: FloatArray
) -> FloatArray:
    """Draw from N(Q^-1 b, Q^-1): precision Q (B, d, d), linear b (B, d), normals (B, d)."""
    size, d = linear.shape
    if 0 < MANY * d * d <= size:
        return _many_from_precision(precision, linear, normals)
    cholesky = np.linalg.cholesky(precision)
    shifted = linear + np.einsum("bij,bj->bi", cholesky, normals)
    return np.asarray(np.linalg.solve(precision, shifted[..., None])[..., 0])


def _many_from_precision(
    precision: FloatArray, linear: FloatArray, normals: FloatArray
) -> FloatArray:
    """Return the same by a Cholesky decomposition entry by entry, of all matrices at once.

    LAPACK takes longer to begin with a small matrix than to decompose it."""
    d = linear.shape[1]
    entry = {(i, j): precision[:, i, j] for i in range(d) for j in range(i + 1)}
    values = list(linear.T)
    for j in range(d):
        for k in range(j):
            for i in range(j, d):
                entry[i, j] = entry[i, j] - entry[i, k] * entry[j, k]
            values[j] = values[j] - entry[j, k] * values[k]
        if not np.all(entry[j, j] > 0):
            raise np.linalg.LinAlgError("Matrix is not positive definite")
        entry[j, j] = np.sqrt(entry[j, j])
        for i in range(j + 1, d):
            entry[i, j] = entry[i, j] / entry[j, j]
        values[j] = values[j] / entry[j, j]
    for j in reversed(range(d)):
        values[j] = values[j] + normals[:, j]
        for k in range(j + 1, d):
            values[j] = values[j] - entry[k, j] * values[k]
        values[j] = values[j] / entry[j, j]
    return np.stack(values, axis=1)


def inverse_unit_lower(lower: FloatArray) -> FloatArray:
    """Return (I - L)^-1 (..., q, q) of strictly lower triangular L."""
    q = lower.shape[-1]
    result, power = np.eye(q) + lower, lower
    for _ in range(q - 2):
        power = power @ lower
        result = result + power
    return np.asarray(result)
