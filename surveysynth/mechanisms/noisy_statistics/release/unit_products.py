"""Products between primary sampling units (PSUs) of outcomes of every kind: release and proof.

**What is released.** Record i has u_i, its amounts and log weight on the grid of the ball, zero in
columns that it lacks, and one category of each of p discrete outcomes; h_i = (u_i, k (1[d_i1 = 0] -
1/L_1), .., k (1[d_ip = last] - 1/L_p)) with L_j categories and k = ``SCALE``, all in whole numbers
of steps. Columns of h are in blocks: all amounts, the log weight and the flags of outcomes that
have amounts are one, and the flags of each other outcome one of their own. With S_j the sum of h
over the n_j records of PSU j, entries inside blocks of

    B = sum_j S_j S_j' / n_j

are released, one matrix, however many PSUs there are: n_j m_j m_j' with the means m_j = S_j / n_j.
A standard error of a mean or a share needs no entry between blocks, and they would cost most: the
change of a matrix by one record grows with the number of its outcomes, that of p blocks with the
root of p. Sums are about the common center, never those of groups. Who is in which PSU is public. B
is added up in fractions, and each entry of it is rounded once.

**One record.** Neighbors differ in (u, d) of one record. Its PSU stays, so one m = m_j of n = n_j
records changes. In a block it changes by at most t = D/n: |u - v| <= 2R, and the flags of an
outcome by the distance of two categories, sqrt(2) k but for the grid, so D^2 = 4 R^2 + 2 p k^2 with
p outcomes in the block, without 4 R^2 if there is no column of u. And |m| <= H, H^2 = R^2 + k^2
sum_j (1 - 1/L_j). The block changes by n |a a' - b b'|_F for means a, b with |a|, |b| <= H and |a -
b| <= t, and the squared changes of blocks add up.

**Claim:** |a a' - b b'|_F <= max(t (2H - t), sqrt(2) H t' sqrt(1 - t'^2 / 4 H^2)), t' = min(t,
sqrt(2) H). With x = |a|^2, y = |b|^2 and e = |a - b|,

    |a a' - b b'|_F^2 = x^2 + y^2 - (x + y - e^2)^2 / 2 .

It grows with e until a'b = 0, and shrinks afterwards: e = t or a'b = 0, if t allows it. For e = t
it is convex in x and in y, so it is largest where x or y meets a limit: H^2, a and b in one line, x
= y, or a'b = 0. In one line it is |x - y| = e (|a| + |b|), at most t (2H - t). With x = y it is
2 x t^2 - t^4 / 2, which grows with x to 2 H^2 t^2 - t^4 / 2, the second term. With x = H^2 it is
convex in y, and largest at one of these two or at a'b = 0, y = t^2 - H^2, where t >= H, and with
T = t^2/H^2 <= 2 the second term's square less its own is H^4 (4T - 3 T^2/2 - 2) >= 0. With a'b = 0
it is x^2 + y^2 on x + y <= t^2: largest at x = H^2, or at x = t^2 and y = 0 where t <= H, t^4 <=
(t (2H - t))^2. ∎ The first term is larger for t <= 2H/3, three records or more without categories,
and is attained: u = -v on the sphere, and all others of the PSU at v.

With n records it is n times that; the largest PSU has the largest, 2 D H (1 - D / 2nH). It does not
depend on how many PSUs there are. Rounding moves an entry of B by at most 1/2 on either side, so
the difference in Frobenius' norm by at most the number of columns of h.

**Units of protection of up to K records.** Change one record after the other, in whichever PSUs
they lie: by the triangle inequality B changes by at most K times as much.

**Noise.** With s = K times the distance above, discrete Gaussian noise of variance tau^2 = s^2 /
(2 rho_0) on the diagonal of B, and of half that on each entry above it, independent; what is below
is a copy. sum_j D_jj^2 / (2 tau^2) + sum_{j<l} D_jl^2 / tau^2 = |D|_F^2 / (2 tau^2) <= rho_0.

**Composition.** B spends rho_0, a public share of what learned transforms leave (``best_share``),
and counts and moments by block spend the rest, rounded down. Costs add up (Bun and Steinke 2016).

**The share** weighs two errors that depend on sizes alone. With all C PSUs of m records each and
the share s for B, the RMSE of the mean of a cell of n records grows by

    R(s) = sqrt((f / n + v / (n^2 (1 - s))) / (f / n + v / n^2)) - 1,

v the variance of the noise of a sum and f the design effect of the cell at the intraclass
correlation c = ``USUAL_ICC``. This is estimated with the variance e^2 = 2 / C (c + (1 - c) / m)^2 +
tau_1^2 / (s (n_all - C)^2), tau_1 the noise of B if it had all of the budget, and E(s) is the SD
over the mean of sqrt(1 + (m - 1) min(max(c + e z, 0), 1)), z standard normal: how uncertain
standard errors of the mean of all records are. The best s has the least R + E.
"""

import math
from collections.abc import Sequence
from dataclasses import dataclass
from fractions import Fraction

import numpy as np

from surveysynth._support.numeric import rounded_down
from surveysynth._support.types import FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise import (
    BLOCK,
    NoiseSource,
    Published,
    SystemNoise,
    add_by_code,
    added_to_symmetric,
)
from surveysynth.mechanisms.noisy_statistics.release.noise_design import Clipping
from surveysynth.sampling.primitives import NORMAL_NODES

#: k, in spreads of amounts: a flag of a half has the SD of an amount.
SCALE = 2.0
#: An intraclass correlation that household surveys often have.
USUAL_ICC = 0.05
#: Shares of the budget among which the best one is searched.
SHARES = np.geomspace(1.0 / 64.0, 0.5, 201)


@dataclass(frozen=True)
class UnitProducts(Published):
    """The noisy B: nothing confidential.

    products (E, E), amounts and log weight in spreads, then k times flags, zero between blocks;
    block (E,): number of that of each column; sd: of the noise on the diagonal, 2^-1/2 of it
    elsewhere; rho: what it cost, for units of protection of up to ``records`` records.
    """

    products: FloatArray
    block: IntArray
    sd: float
    scale: float
    rho: float
    records: int
    noise: str

    def _check_shapes(self) -> None:
        size = len(self.block)
        if self.products.shape != (size, size) or not np.isfinite(self.products).all():
            raise ValueError("products between units are a square matrix of finite numbers")

    @property
    def entries(self) -> tuple[IntArray, IntArray]:
        """Rows and columns (k,) of what was released, on and above the diagonal."""
        return inside_blocks(self.block)


def flag_tables(shape: LocationShape, step: float) -> list[IntArray]:
    """Return k (1[d = b] - 1/L) in steps: whole numbers (L, L) of each discrete outcome."""
    return [
        np.rint((np.eye(size) - 1.0 / size) * (SCALE / step)).astype(np.int64)
        for size in (each.categories for each in shape.discrete)
    ]


def block_of_columns(shape: LocationShape) -> IntArray:
    """Return the number (E,) of the block of each column of h."""
    blocks, last = [np.zeros(shape.q, dtype=np.int64)], 0
    for outcome in shape.discrete:
        last += not outcome.is_amount
        blocks.append(np.full(outcome.categories, 0 if outcome.is_amount else last))
    return np.concatenate(blocks)


def inside_blocks(block: IntArray) -> tuple[IntArray, IntArray]:
    """Return rows and columns (k,) on and above the diagonal that are in one block each."""
    first, second = np.triu_indices(len(block))
    inside = block[first] == block[second]
    return first[inside], second[inside]


def squared_sensitivity(balls: Sequence[tuple[int, int]], sizes: IntArray) -> Fraction:
    """Return a bound of the squared change of B by one record, before any rounding, in steps.

    balls: H^2 and D^2 of each block in steps^2; sizes (C,): records of PSUs.
    """
    largest = Fraction(0)
    for n in np.unique(sizes).tolist():
        total = Fraction(0)
        for length, distance in balls:
            moved = Fraction(distance, n * n)
            # 4 t^2 H^2 - 4 t^3 H + t^4, with t H rounded down: never too small.
            along = Fraction(math.isqrt(length * distance), n)
            line = moved * (4 * length - 4 * along + moved) if moved <= 4 * length else Fraction(0)
            cut = min(moved, Fraction(2 * length))
            across = 2 * length * cut - cut * cut / 2
            total += n * n * max(line, across)
        largest = max(largest, total)
    return largest


def noise_variances(
    shape: LocationShape, clipping: Clipping, rho: Fraction, sizes: IntArray, records: int = 1
) -> tuple[int, int]:
    """Return the variances of noise on and above the diagonal of B, in steps^4, that cost rho."""
    block = block_of_columns(shape)
    balls = np.zeros((block.max() + 1, 2), dtype=object)  # H^2 and D^2
    balls[0] = clipping.steps**2, 4 * clipping.steps**2
    first = shape.q
    for table in flag_tables(shape, clipping.step):
        apart = table[:, None] - table  # of two records
        balls[block[first]] += [
            int((table * table).sum(1).max()), int((apart * apart).sum(-1).max())
        ]  # fmt: skip
        first += len(table)
    squared = squared_sensitivity(balls.tolist(), sizes)
    moved = math.isqrt(math.ceil(squared)) + 1 + len(block)
    off = math.ceil(Fraction((records * moved) ** 2) / (4 * rho))
    return 2 * off, off


def exact_sums(
    shape: LocationShape, clipping: Clipping, psu: IntArray, category: IntArray, z: FloatArray
) -> IntArray:
    """Return sums of h by PSU (C, E), in steps. Confidential.

    psu (n,), category (n, outcomes), z (n, q).
    """
    units = int(psu.max()) + 1
    amounts = np.zeros((units, clipping.q), dtype=np.int64)
    combination = shape.combination_of(category)
    for start in range(0, len(psu), BLOCK):
        part = slice(start, start + BLOCK)
        there = shape.present_in[combination[part]]
        u = clipping.on_grid(np.where(there, z[part], clipping.centre))
        u[~there] = 0
        add_by_code(amounts, psu[part], u)
    columns = [amounts]
    discrete = [j for j, outcome in enumerate(shape.outcomes) if outcome.is_discrete]
    for j, table in zip(discrete, flag_tables(shape, clipping.step), strict=True):
        size = len(table)
        counts = np.bincount(psu * size + category[:, j], minlength=units * size)
        columns.append(counts.reshape(units, size) @ table)
    return np.concatenate(columns, axis=1)


def exact_products(sums: IntArray, sizes: IntArray) -> IntArray:
    """Return B (E, E) in steps^2: sums (C, E) in whole numbers, each entry rounded once."""
    columns = sums.shape[1]
    total = np.full((columns, columns), Fraction(0), dtype=object)
    for n in np.unique(sizes).tolist():
        own = sums[sizes == n].astype(object)
        products = own.T @ own
        total = total + np.array(
            [[Fraction(int(each), n) for each in row] for row in products], dtype=object
        ).reshape(columns, columns)
    rounded = [round(each) for each in total.ravel()]
    return np.array(rounded, dtype=object).reshape(columns, columns)


def unit_products(
    shape: LocationShape,
    clipping: Clipping,
    psu: IntArray,
    category: IntArray,
    z: FloatArray,
    *,
    rho: Fraction,
    records: int = 1,
    source: NoiseSource | None = None,
) -> UnitProducts:
    """Release the products between PSUs within ``rho``; see ``exact_sums`` for the arrays."""
    source = SystemNoise() if source is None else source
    sizes = np.bincount(psu)
    diagonal, off = noise_variances(shape, clipping, rho, sizes, records)
    exact = exact_products(exact_sums(shape, clipping, psu, category, z), sizes)
    block = block_of_columns(shape)
    noisy = added_to_symmetric(exact, diagonal, off, source, inside_blocks(block))
    return UnitProducts(
        noisy * clipping.step**2, block, math.sqrt(diagonal) * clipping.step**2, SCALE, float(rho),
        records, source.kind,
    )  # fmt: skip


def divided(budget: Budget, share: float) -> tuple[Fraction, Budget]:
    """Return what products between PSUs cost of a budget, and what they leave, rounded down."""
    cost = Fraction(budget.rho) * Fraction(share)
    left = Fraction(budget.rho) - cost
    return cost, Budget.of_rho(rounded_down(left), budget.delta)


@dataclass(frozen=True)
class UnitSizes:
    """Sizes of a design in units, and the noise that all of its budget would buy.

    units: C; records: of all; cell: n, records of an average cell; of_sums: v; of_products: tau_1,
    both for amounts in spreads.
    """

    units: float
    records: float
    cell: float
    of_sums: float
    of_products: float

    @property
    def size(self) -> float:
        """m, records of an average unit."""
        return self.records / self.units

    def icc_error(self, share: FloatArray, icc: float = USUAL_ICC) -> FloatArray:
        """Return e(s), the standard error of the intraclass correlation, for shares (k,)."""
        sampling = 2.0 / self.units * (icc + (1.0 - icc) / self.size) ** 2
        pairs = max(self.records - self.units, 1.0)
        return np.asarray(np.sqrt(sampling + (self.of_products / pairs) ** 2 / share))

    def rmse_gain(self, share: FloatArray) -> FloatArray:
        """Return R(s) for shares (k,)."""
        of_unit = max(min(self.cell / self.units, self.size), 1.0)
        sampling = (1.0 + (of_unit - 1.0) * USUAL_ICC) / self.cell
        noise = self.of_sums / self.cell**2
        gain = np.sqrt((sampling + noise / (1.0 - share)) / (sampling + noise)) - 1.0
        return np.asarray(gain, dtype=np.float64)

    def se_error(self, share: FloatArray) -> FloatArray:
        """Return E(s) for shares (k,)."""
        estimates = np.clip(USUAL_ICC + self.icc_error(share)[:, None] * NORMAL_NODES, 0.0, 1.0)
        factor = np.sqrt(1.0 + max(self.size - 1.0, 0.0) * estimates)
        return np.asarray(factor.std(axis=1) / factor.mean(axis=1))

    def best_share(self) -> float:
        """Return the share of least R + E between 1/64 and 1/2, to two significant digits."""
        loss = self.rmse_gain(SHARES) + self.se_error(SHARES)
        return float(f"{SHARES[int(np.argmin(loss))]:.2g}")
