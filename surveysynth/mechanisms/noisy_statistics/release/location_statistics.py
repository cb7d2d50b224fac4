"""Exact counts and moments by block, with noise: the release for several kinds of outcome.

Total on every valid survey: sums are whole numbers, and nothing but the noisy numbers depends on a
record.

**Where groups lie: the first stage of statistics by group, and its proof (strict 7).** Groups lie
apart, so a ball about the declared centers that holds all of them is wide, and the noise of squares
grows with the square of its radius. Squares about a distant center also depend on the location of a
group: a spread guessed too large or too small biases its mean. So a small share of the budget is
spent on sums alone, about the declared centers; each group gets a center from them, and its records
are clipped about that, to a smaller ball.

**Cost.** Neighbors change T_1 = A'U by a (v - u)', whose squared length |a|^2 |u - v|^2 is at most
4 R^2, R the radius of the first ball: the line ``ONE_BLOCK`` of ``sensitivity``, which holds
without squares as well. Centers are functions of noisy numbers. Whatever they are, the proof of the
second stage holds, with centers as its public constants. Costs add up under adaptive composition
(Bun and Steinke 2016, Lemma 2.3): rho_1 is a share of the budget and rho_2 the rest, rounded down.

**Centers.** Means of groups in spreads, m_b with known variances (noise, and 1/n of sampling), are
smoothed by the posterior mean of a regression on X whose effects have SD one, or that of shrunken
interactions: near the common center where noise is large, and those of the groups where it is not.

**Nothing is lost.** Both stages are noisy sums of the same records but for what balls cut, T_1 =
T_2 + G 1 c' with public G: their mean by precision is one noisy sum.

Only where numbers of records by row of X are public: with categories they are not.
"""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from fractions import Fraction

import numpy as np

from surveysynth._support.numeric import rounded_down
from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.level_squares import LevelSquares
from surveysynth.mechanisms.noisy_statistics.release.location_table import LocationShape
from surveysynth.mechanisms.noisy_statistics.release.noise import (
    BLOCK,
    MOST_RECORDS,
    NoiseSource,
    Published,
    SystemNoise,
    add_by_code,
    added,
    noisy_moments,
    noisy_sums,
)
from surveysynth.mechanisms.noisy_statistics.release.noise_design import (
    Clipping,
    NoiseDesign,
)
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import (
    SQUARES,
    NoiseVariances,
    group_variances,
    largest_product,
    noise_variances,
    squared_sensitivity,
)
from surveysynth.mechanisms.noisy_statistics.release.unit_products import UnitProducts

#: Share of the budget of a group's statistics that goes to the first sums.
FIRST_SHARE = 0.15


@dataclass(frozen=True)
class GroupSums(Published):
    """Noisy first sums A'U of blocks about the common center, and centers: nothing confidential.

    cross: of each block (r, q), in spreads; centers (blocks, q): what became the center of each, in
    spreads from the common one; sigma: SD of the noise; radius: of the first ball; rho: their cost.
    """

    cross: tuple[FloatArray, ...]
    centres: FloatArray
    sigma: float
    radius: float
    rho: float

    def _check_shapes(self) -> None:
        if self.centres.ndim != 2 or len(self.cross) != len(self.centres):
            raise ValueError("every block has first sums and a center")
        for each in self.cross:
            if each.shape[1:] != self.centres.shape[1:] or not np.isfinite(each).all():
                raise ValueError(f"a block has first sums {each.shape}")
        if not np.isfinite(self.centres).all():
            raise ValueError("centers are finite numbers")


def two_stages(rho: float) -> tuple[float, float]:
    """Return rho of the first sums and of what follows, rounded down."""
    cost = Fraction(rho) * Fraction(FIRST_SHARE)
    return rounded_down(cost), rounded_down(Fraction(rho) - cost)


def smoothed_means(
    means: FloatArray, variance: FloatArray, rows: FloatArray, precision: FloatArray
) -> FloatArray:
    """Return centers (b, q): posterior means of rows (b, K) times coefficients.

    means (b, q) with variances (b,), infinite where there are no records; precision (K,) of the
    prior of coefficients, all about zero.
    """
    weighted = rows / variance[:, None]
    solution = np.linalg.solve(weighted.T @ rows + np.diag(precision), weighted.T @ means)
    return np.asarray(rows @ solution, dtype=np.float64)


def within(centres: FloatArray, radius: float) -> FloatArray:
    """Return centers (b, q) projected onto the first ball."""
    length = np.sqrt((centres * centres).sum(1, keepdims=True))
    return np.asarray(centres * np.minimum(1.0, radius / np.maximum(length, radius)))


def pooled_sd(first: float, second: float) -> float:
    """Return the SD of the mean by precision of numbers with these SDs."""
    return float((first**-2.0 + second**-2.0) ** -0.5)


def group_noise(
    clipping: Clipping, rho: float, second: float, records: int = 1
) -> tuple[float, FloatArray]:
    """Return SDs of the noise of a group's sums and squares (q, q), u in spreads, by two stages.

    second: radius of the ball about centers.
    """
    cost, left = two_stages(rho)
    ball = Clipping(clipping.centre, clipping.spread, second)
    noise = group_variances(ball, left, records)
    first = noise_variances(clipping, cost, records).cross_sd(clipping)
    return pooled_sd(first, noise.cross_sd(ball)), noise.squares_sd(ball)


@dataclass(frozen=True, eq=False)
class BlockDesign:
    """Public: the rows of one block, and the shape of its noise.

    row (rows,) of the whole table, c D + d; noise: A has one row for each of them.
    """

    pattern: int
    group: int
    row: IntArray
    cell: IntArray
    noise: NoiseDesign


@dataclass(frozen=True, eq=False)
class Centring:
    """Public: the rule that gives groups centers from first sums.

    radius: of the ball about it; sizes (cells,): records of each row of X; precision (K,): of the
    prior of effects, in spreads.
    """

    radius: float
    sizes: IntArray
    precision: FloatArray


@dataclass(frozen=True, eq=False)
class LocationDesign:
    """Public: the table, clipping, and the blocks that have rows, pattern after pattern.

    centring: None if there is one stage.
    """

    shape: LocationShape
    clipping: Clipping
    blocks: tuple[BlockDesign, ...]
    centring: "Centring | None" = None

    @classmethod
    def optimal(
        cls, shape: LocationShape, clipping: Clipping, centring: Centring | None = None
    ) -> "LocationDesign":
        """Return D-optimal noise in each block."""
        blocks = []
        for pattern in range(len(shape.patterns)):
            cell, combination, x = shape.rows(pattern)
            row = cell * len(shape.combinations) + combination
            for group in range(shape.groups):
                own = shape.group[cell] == group
                noise = NoiseDesign.optimal(x[own], clipping)
                blocks.append(BlockDesign(pattern, group, row[own], cell[own], noise))
        return cls(shape, clipping, tuple(blocks), centring)

    def variances(self, rho: float, share: float, records: int) -> NoiseVariances:
        """Return the noise of a budget."""
        products = [largest_product(each.noise.rows, each.cell) for each in self.blocks]
        product = max(products, default=Fraction(0))
        distance = squared_sensitivity(product, share, discrete=bool(self.shape.discrete))
        return noise_variances(
            self.clipping, rho, records, distance=distance, share=share, squares=SQUARES
        )

    def about_groups(self) -> "LocationDesign":
        """Return the second stage: one, in the smaller ball."""
        assert self.centring is not None
        ball = Clipping(self.clipping.centre, self.clipping.spread, self.centring.radius)
        return replace(self, clipping=ball, centring=None)

    def centres(self, first: Sequence[FloatArray], sigma: float) -> FloatArray:
        """Return the centers (blocks, q), in spreads, that noisy first sums (r, q) give."""
        assert self.centring is not None
        means, variances, rows = [], [], []
        for block, sums in zip(self.blocks, first, strict=True):
            sizes, x = self.centring.sizes[block.cell], self.shape.x_cells[block.cell]
            # Rows of A times this are one: sums of u by group.
            one = np.linalg.pinv(block.noise.exact_rows).sum(1)
            n = float(sizes.sum())
            means.append(one @ sums / max(n, 1.0))
            variances.append((sigma**2 * (one @ one) / n + 1.0) / n if n else np.inf)
            rows.append(sizes @ x / n if n else x.mean(0))
        found = smoothed_means(
            np.array(means), np.array(variances), np.array(rows), self.centring.precision
        )
        return within(found, self.clipping.radius)


class LocationSums:
    """Exact sums of one database, in whole numbers; blocks of records in any order."""

    def __init__(self, design: LocationDesign, off: FloatArray | None = None) -> None:
        """Begin; off (groups, q): centers of groups less the common one, in z."""
        shape, q = design.shape, design.clipping.q
        self.off = np.zeros((shape.groups, q)) if off is None else off
        rows = shape.x_cells.shape[0] * len(shape.combinations)
        self.design, self.n = design, 0
        self.count = np.zeros(rows, dtype=np.int64)
        self.by_row = np.zeros((rows, q), dtype=np.int64)
        blocks = len(shape.patterns) * shape.groups
        self.squares = np.zeros((blocks, q, q), dtype=object)

    def add(self, cell: IntArray, combination: IntArray, z: FloatArray) -> None:
        """Add records: cells (n,), combinations (n,) and z (n, q), finite where it is present."""
        shape, clipping = self.design.shape, self.design.clipping
        for start in range(0, len(cell), BLOCK):
            part = slice(start, start + BLOCK)
            there = shape.present_in[combination[part]]
            with np.errstate(over="ignore"):  # what overflows is clipped to the ball
                about = z[part] - self.off[shape.group[cell[part]]]
            u = clipping.on_grid(np.where(there, about, clipping.centre))
            u[~there] = 0  # what is not there is exactly nothing
            row = cell[part] * len(shape.combinations) + combination[part]
            self.count += np.bincount(row, minlength=self.count.size)
            add_by_code(self.by_row, row, u)
            block = shape.pattern[combination[part]] * shape.groups + shape.group[cell[part]]
            for each in np.unique(block):
                own = u[block == each]
                self.squares[each] += (own.T @ own).astype(object)
            self.n += len(u)
        if self.n > MOST_RECORDS:
            raise ValueError(f"sums of more than {MOST_RECORDS} records need longer numbers")

    def cross(self, block: BlockDesign) -> IntArray:
        """Return A'U of a block in 2^-30 steps, (r, q) whole numbers as objects."""
        rows = block.noise.rows.T.astype(object)
        return np.asarray(rows @ self.by_row[block.row].astype(object))

    def squares_of(self, block: BlockDesign) -> IntArray:
        """Return U'U of a block (q, q), as objects."""
        return np.asarray(self.squares[block.pattern * self.design.shape.groups + block.group])


@dataclass(frozen=True)
class LocationStatistics(Published):
    """The statistics released of one survey, with all public constants: any use of them is free."""

    n: int  # records
    #: Of the rows (c, d), cell after cell, with noise; of a cell they need not add up to the public
    #: number of its records.
    counts: FloatArray
    #: cross, squares: Of each block, (r, q_p) and (q_p, q_p), of the columns that its pattern has.
    cross: tuple[FloatArray, ...]
    squares: tuple[FloatArray, ...]
    basis: tuple[FloatArray, ...]  # of each block (width, r): A = rows of (x, e(d)) times it
    present: BoolArray  # columns of z (P, q) of each pattern
    #: block_pattern, block_group: Of each block.
    block_pattern: IntArray
    block_group: IntArray
    #: sigma, squares_sd, count_sd: SD of the noise: of entries of cross, of the diagonal and the
    #: rest of squares, of counts.
    sigma: float
    squares_sd: tuple[float, float]
    count_sd: float
    #: centre, spread, radius: u = (z - centre)/spread by column (q,), clipped to |u| <= radius.
    centre: FloatArray
    spread: FloatArray
    radius: float
    share: float  # (k / radius)^2, how precise counts are beside moments
    #: rho, epsilon, delta, records: The guarantee, for neighbors that differ in one unit of up to
    #: ``records`` records.
    rho: float
    epsilon: float
    delta: float
    records: int
    noise: str  # "system"; "seeded" statistics are not private
    #: Products between primary sampling units (PSUs), with a cost of their own, where PSUs have
    #: effects.
    units: UnitProducts | None = None
    #: Squares of the weight by level, with a cost of their own, where outcomes have categories.
    levels: LevelSquares | None = None
    #: First sums, from which groups have centers of their own; part of rho is theirs. ``cross``,
    #: ``squares`` and ``radius`` are then about those.
    first: GroupSums | None = None

    @property
    def centres(self) -> FloatArray:
        """Centers (blocks, q) that the sums of each block are about."""
        off = 0.0 if self.first is None else self.first.centres * self.spread
        return np.asarray(np.tile(self.centre, (len(self.cross), 1)) + off)

    @property
    def pooled_sigma(self) -> float:
        """SD of the noise of the sums by all stages."""
        return self.sigma if self.first is None else pooled_sd(self.first.sigma, self.sigma)

    @property
    def is_private(self) -> bool:
        """True if the noise came from the operating system, exactly."""
        return self.noise == "system"

    def _check_shapes(self) -> None:
        blocks = self.block_pattern.tolist()
        if not len(self.cross) == len(self.squares) == len(self.basis) == len(blocks):
            raise ValueError("every block has cross, squares and basis")
        for pattern, cross, squares, basis in zip(
            blocks, self.cross, self.squares, self.basis, strict=True
        ):
            q = int(self.present[pattern].sum())
            if cross.shape != (basis.shape[1], q) or squares.shape != (q, q):
                raise ValueError(f"a block has cross {cross.shape} and squares {squares.shape}")
            if not (np.isfinite(cross).all() and np.isfinite(squares).all()):
                raise ValueError("cross and squares are finite numbers")
        if not np.isfinite(self.counts).all():
            raise ValueError("counts are finite numbers")
        if self.first is not None and [each.shape for each in self.first.cross] != [
            each.shape for each in self.cross
        ]:
            raise ValueError("first sums and sums of blocks have the same shapes")


def location_statistics(
    design: LocationDesign,
    cell: IntArray,
    category: IntArray,
    z: FloatArray,
    *,
    budget: Budget,
    share: float = 1.0,
    records: int = 1,
    source: NoiseSource | None = None,
    centres: FloatArray | None = None,
) -> LocationStatistics:
    """Release the statistics of one survey within ``budget``, in two stages if the design has them.

    cell (n,), category (n, outcomes), z (n, q); records: of the largest unit of protection; centers
    (blocks, q): instead of those that first sums give, for audits. Raises ``InputError`` for a
    budget or share that is no number above zero."""
    source, combination = source or SystemNoise(), design.shape.combination_of(category)
    sums = LocationSums(design)
    sums.add(cell, combination, z)
    if design.centring is None:
        return released(design, sums, budget=budget, share=share, records=records, source=source)
    cost, left = two_stages(budget.rho)
    clipping = design.clipping
    variance = noise_variances(clipping, cost, records)
    sigma = variance.cross_sd(clipping)
    exact = map(sums.cross, design.blocks)
    cross = tuple(noisy_sums(each, variance, clipping, source) for each in exact)
    found = design.centres(cross, sigma) if centres is None else centres
    first = GroupSums(cross, found, sigma, clipping.radius, cost)
    second, off = design.about_groups(), np.zeros((design.shape.groups, design.clipping.q))
    for block, centre in zip(design.blocks, first.centres, strict=True):
        off[block.group] = centre * design.clipping.spread
    sums = LocationSums(second, off)
    sums.add(cell, combination, z)
    made = released(
        second, sums, budget=replace(budget, rho=left), share=share, records=records, source=source
    )
    return replace(made, rho=budget.rho, first=first)


def released(
    design: LocationDesign,
    sums: LocationSums,
    *,
    budget: Budget,
    share: float = 1.0,
    records: int = 1,
    source: NoiseSource | None = None,
) -> LocationStatistics:
    """Return the statistics from exact sums."""
    source = SystemNoise() if source is None else source
    clipping, shape = design.clipping, design.shape
    variances = design.variances(budget.rho, share, records)
    counts = added(sums.count.astype(object), variances.count, source)
    moments = []
    for block in design.blocks:
        there = np.flatnonzero(shape.patterns[block.pattern])
        exact = sums.cross(block)[:, there], sums.squares_of(block)[np.ix_(there, there)]
        moments.append(noisy_moments(*exact, variances, clipping, source))
    sd = variances.squares_sd(clipping)
    return LocationStatistics(
        n=sums.n,
        counts=counts.astype(np.float64),
        cross=tuple(cross for cross, _ in moments),
        squares=tuple(squares for _, squares in moments),
        basis=tuple(block.noise.basis for block in design.blocks),
        present=shape.patterns,
        block_pattern=np.array([block.pattern for block in design.blocks]),
        block_group=np.array([block.group for block in design.blocks]),
        sigma=variances.cross_sd(clipping),
        squares_sd=(float(sd[0, 0]), float(sd[0, -1] if clipping.q > 1 else sd[0, 0] / 2**0.5)),
        count_sd=float(variances.count) ** 0.5,
        centre=clipping.centre,
        spread=clipping.spread,
        radius=clipping.radius,
        share=share,
        rho=budget.rho,
        epsilon=budget.epsilon,
        delta=budget.delta,
        records=records,
        noise=source.kind,
    )
