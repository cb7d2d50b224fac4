"""Normal distributions that, cut at the bounds of an outcome, have given moments.

A fitted regression ignores bounds: its mean m and variance s^2 are those of the records, which lie
inside the bounds. Cutting N(m, s^2) itself would move the mean away from a near bound. Amounts are
drawn from the cut normal with mean m and variance s^2, the likeliest of all cut normals given those
moments (Cohen 1950). Its uncut form N(mu, sigma^2) is called the parent.
"""

import numpy as np

from surveysynth._support.types import FloatArray

#: Bounds so many SDs away change no digit of a double.
FAR = 9.0
#: Largest SD of a parent in units of s. The larger it is, the closer is the law near a bound to an
#: exponential one, whose tail is longer than any normal's.
WIDEST = 3.0
#: Distance of means from the bounds, in SDs (and as a share of the interval).
MARGIN = 0.02
#: Gauss-Legendre nodes over the interval that holds the mass.
_NODES, _WEIGHTS = np.polynomial.legendre.leggauss(64)
_STEPS, _HALVINGS = 50, 40
_TOLERANCE = 1e-10


def parent_normal(
    mean: FloatArray, sd: FloatArray, ends: tuple[float, float]
) -> tuple[FloatArray, FloatArray]:
    """Return mu and sigma (n,) of normals that, cut at the ends, have mean (n,) and SD (n,).

    Where none has them, return the likeliest with sigma <= ``WIDEST`` sd: it keeps the mean and has
    a smaller SD, continuously. A mean outside the bounds, or closer to one than ``MARGIN`` SDs, is
    moved to ``MARGIN`` SDs inside.
    """
    if ends == (-np.inf, np.inf):
        return mean, sd
    low, high = ends
    pairs, place = np.unique(mean + 1j * sd, return_inverse=True)
    m, s = pairs.real, pairs.imag
    margin = MARGIN * np.minimum(s, high - low)
    centre = np.clip(m, low + margin, high - margin)
    below, above = (low - centre) / s, (high - centre) / s
    mu, sigma = m.copy(), s.copy()
    near = np.flatnonzero(np.minimum(-below, above) < FAR)
    if near.size:
        location, width = _standard(below[near], above[near])
        mu[near] = centre[near] + s[near] * location
        sigma[near] = s[near] * width
    return mu[place], sigma[place]


def _standard(low: FloatArray, high: FloatArray) -> tuple[FloatArray, FloatArray]:
    """Return the parent (mu, sigma) with mean 0 and variance 1 between low < 0 and high > 0, (r,).

    For densities exp(a t - b t^2 / 2) the log of the integral plus b / 2 is convex in (a, b), and
    least where the moments are 0 and 1. Newton steps are halved until it falls. b stays at or above
    1 / WIDEST^2; at this limit only a moves.
    """
    # In units of the distance to a bound that is closer than an SD, where the law is exponential.
    unit = np.minimum(1.0, np.minimum(-low, high))
    low, high, variance, least = low / unit, high / unit, unit**-2, (unit / WIDEST) ** 2
    start, stop = np.maximum(low, -_reach(high)), np.minimum(high, _reach(-low))
    half = 0.5 * (stop - start)
    t = start[:, None] + half[:, None] * (1.0 + _NODES)
    tight = unit < 1.0
    a, b = np.where(tight, 1.0 / low + 1.0 / high, 0.0), np.where(tight, least, 1.0)
    active = np.arange(low.size)
    value, slope, hessian = _potential(a, b, variance, t, half)
    for _ in range(_STEPS):
        kept = [each[active] for each in (a, b, variance, least, half)]
        from_a, from_b, *others, bound, width = kept
        step_a, step_b = _step(from_b, slope, hessian, bound)
        size, nodes = np.ones(active.size), t[active]
        for _ in range(_HALVINGS):
            new_a = from_a + size * step_a
            new_b = np.maximum(from_b + size * step_b, bound)
            found = _potential(new_a, new_b, others[0], nodes, width)
            worse = found[0] > value + 1e-12 * (1.0 + np.abs(value))
            if not worse.any():
                break
            size = np.where(worse, 0.5 * size, size)
        a[active], b[active] = new_a, new_b
        value, slope, hessian = found
        # Remaining slopes in SDs of t and t^2; for b at its least, only one that would raise it.
        of_b = np.where((new_b > bound) | (slope[1] < 0.0), slope[1] / np.sqrt(hessian[2]), 0.0)
        going = np.maximum(np.abs(slope[0]) / np.sqrt(hessian[0]), np.abs(of_b)) > _TOLERANCE
        if not going.any():
            break
        active, value = active[going], value[going]
        slope, hessian = slope[:, going], hessian[:, going]
    return unit * a / b, unit / np.sqrt(b)


def _reach(distance: FloatArray) -> FloatArray:
    """Return how far a density extends from its mean, opposite of a bound at a distance >= 1.

    It leaves out less than 1e-16. Near 1 the density is nearly exponential, from about 3 on normal.
    """
    return np.asarray(9.0 + 29.0 / (distance * distance), dtype=np.float64)


def _potential(
    a: FloatArray, b: FloatArray, variance: FloatArray, t: FloatArray, half: FloatArray
) -> tuple[FloatArray, FloatArray, FloatArray]:
    """Return value (r,), slope (2, r) and second derivatives aa, ab, bb (3, r) to minimize."""
    square = -0.5 * t * t
    log = a[:, None] * t + b[:, None] * square
    top = log.max(1)
    mass = np.exp(log - top[:, None]) * _WEIGHTS
    total = mass.sum(1)
    mass /= total[:, None]
    mean, mean_square = (mass * t).sum(1), (mass * square).sum(1)
    from_mean, from_square = t - mean[:, None], square - mean_square[:, None]
    weighted = mass * from_mean
    second = [(weighted * from_mean).sum(1), (weighted * from_square).sum(1)]
    second.append((mass * from_square * from_square).sum(1))
    value = top + np.log(total * half) + 0.5 * b * variance
    return value, np.stack([mean, mean_square + 0.5 * variance]), np.stack(second)


def _step(
    b: FloatArray, slope: FloatArray, hessian: FloatArray, least: FloatArray
) -> tuple[FloatArray, FloatArray]:
    """Return Newton steps (r,) of a and b; of a alone where b is at its least and would fall."""
    aa, ab, bb = hessian
    determinant = np.maximum(aa * bb - ab * ab, 1e-300)
    step_a = (ab * slope[1] - bb * slope[0]) / determinant
    step_b = (ab * slope[0] - aa * slope[1]) / determinant
    held = (b <= least) & (step_b <= 0.0)
    # A step that would leave the range ends at its edge; a is chosen for the b reached.
    step_b = np.where(held, 0.0, np.maximum(step_b, least - b))
    edge = held | (b + step_b <= least)
    step_a = np.where(edge, -(slope[0] + ab * step_b) / aa, step_a)
    return step_a, step_b
