"""The mechanism on arrays: exact sums of clipped records, with noise, and what is published.

Total on every finite z: no refusal, no warning and nothing else that depends on a record but the
noisy numbers. Sums are exact whole numbers, so that neither the order of the records nor the blocks
they come in can show in them.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any, Self

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.accounting import Budget
from surveysynth.mechanisms.noisy_statistics.release.noise import NoiseSource, SystemNoise, added
from surveysynth.mechanisms.noisy_statistics.release.noise_design import (
    ROW_BITS,
    Clipping,
    NoiseDesign,
)
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import (
    NoiseVariances,
    noise_variances,
)

BLOCK = 2**18
#: Records whose sums stay inside 64-bit whole numbers.
MOST_RECORDS = 2**26
#: Sums by cell are multiplied by rows of A in two parts, the lower one of so many bits.
LOW_BITS = 16


@dataclass(frozen=True)
class Published:
    """Released statistics as JSON, which come back to the last bit."""

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, words and nested lists."""
        return {item.name: _plain(getattr(self, item.name)) for item in fields(self)}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Return the inverse of ``to_dict``.

        Raise ``InputError`` where entries do not fit together."""
        names = [item.name for item in fields(cls)]
        wrong = sorted(set(names) ^ set(given))
        if wrong:
            raise InputError(
                f"Noisy statistics have the entries {', '.join(names)}; missing or unknown here: "
                f"{', '.join(wrong)}."
            )
        try:
            result = cls._read(given)
            result._check_shapes()
        except (TypeError, ValueError) as error:
            raise InputError(f"Noisy statistics do not fit together: {error}.") from None
        return result

    @classmethod
    def _read(cls, given: Mapping[str, Any]) -> Self:
        """Return the statistics from lists of lists."""
        return cls(**given)

    def _check_shapes(self) -> None:
        """Raise ``ValueError`` unless arrays fit together and are finite."""


@dataclass(frozen=True)
class NoisyStatistics(Published):
    """The statistics released of B databases, with all public constants: any use of them is free.

    Attributes
    ----------
    n
        Records of each database.
    cross
        A'U with noise, (B, r + C, q): r sums by cell of X, then one a PSU if they have effects.
    squares
        U'U with noise, symmetric (B, q, q).
    sigma, squares_sd
        SD of the noise: of every entry of ``cross``, and (q, q) of the entries of ``squares``.
    basis, psu_weight
        A = (X basis, psu_weight times indicators of PSUs), basis (K, r); psu_weight 0 without.
    centre, spread, radius
        u = (z - centre)/spread by column (q,), clipped to |u| <= radius.
    rho, epsilon, delta, records
        The guarantee, for neighbours that differ in one unit of up to ``records`` records.
    noise
        "system"; "seeded" or "approximate" statistics are not private.
    """

    n: int
    cross: FloatArray
    squares: FloatArray
    sigma: float
    squares_sd: FloatArray
    basis: FloatArray
    psu_weight: float
    centre: FloatArray
    spread: FloatArray
    radius: float
    rho: float
    epsilon: float
    delta: float
    records: int
    noise: str

    @property
    def is_private(self) -> bool:
        """True if the noise came from the operating system, exactly."""
        return self.noise == "system"

    def design(self, cells: FloatArray) -> NoiseDesign:
        """Return the design of the sums, to the last bit, for the same cells (G, K)."""
        clipping = Clipping(self.centre, self.spread, self.radius)
        n_psu = self.cross.shape[1] - self.basis.shape[1]
        return NoiseDesign(clipping, cells, self.basis, n_psu, round(self.psu_weight * 2**ROW_BITS))

    @classmethod
    def _read(cls, given: Mapping[str, Any]) -> Self:
        arrays = ("cross", "squares", "squares_sd", "basis", "centre", "spread")
        values: dict[str, Any] = {
            k: np.array(v, np.float64) if k in arrays else v for k, v in given.items()
        }
        return cls(**values)

    def _check_shapes(self) -> None:
        b, r, q = self.cross.shape
        shapes = {"squares": (b, q, q), "squares_sd": (q, q), "centre": (q,), "spread": (q,)}
        for name, shape in shapes.items():
            if getattr(self, name).shape != shape:
                raise ValueError(f"{name} has shape {getattr(self, name).shape}, expected {shape}")
        if self.basis.ndim != 2 or self.basis.shape[1] > r:
            raise ValueError(f"basis has shape {self.basis.shape}, cross {self.cross.shape}")
        if not (np.isfinite(self.cross).all() and np.isfinite(self.squares).all()):
            raise ValueError("cross and squares are finite numbers")

    @classmethod
    def stacked(cls, parts: Sequence["NoisyStatistics"]) -> "NoisyStatistics":
        """Return databases with equal public constants as one batch; raise ``ValueError``."""
        first = parts[0].to_dict()
        for part in parts[1:]:
            other = part.to_dict()
            if any(first[k] != other[k] for k in first if k not in ("cross", "squares")):
                raise ValueError("databases of one batch have the same public constants")
        cross, squares = (
            np.concatenate([getattr(part, name) for part in parts]) for name in ("cross", "squares")
        )
        return replace(parts[0], cross=cross, squares=squares)


class ExactSums:
    """Sums of one database, record block after record block, in whole numbers.

    design: public; ``add`` may be called with any blocks of records in any order.
    """

    def __init__(self, design: NoiseDesign) -> None:
        q, n_cells = design.clipping.q, design.cells.shape[0]
        self._design, self.n = design, 0
        self.by_cell = np.zeros((n_cells, q), dtype=np.int64)  # sums of u, in steps
        self.by_psu = np.zeros((design.n_psu, q), dtype=np.int64)
        # Sums of products outgrow 64 bits: blocks are summed in them, the whole as objects.
        self.squares = np.zeros((q, q), dtype=object)

    def add(self, codes: IntArray, z: FloatArray, psu: IntArray | None = None) -> None:
        """Add records (n, q) with the codes (n,) of their cells and PSUs; every z is finite."""
        for start in range(0, len(codes), BLOCK):
            part = slice(start, start + BLOCK)
            u = self._design.clipping.on_grid(z[part])
            add_by_code(self.by_cell, codes[part], u)
            if psu is not None and self._design.n_psu:
                add_by_code(self.by_psu, psu[part], u)
            self.squares += (u.T @ u).astype(object)
            self.n += len(u)
        if self.n > MOST_RECORDS:
            raise ValueError(f"sums of more than {MOST_RECORDS} records need longer numbers")

    def cross(self) -> IntArray:
        """Return A'U in 2^-30 steps, (r + C, q) whole numbers as objects."""
        low = self.by_cell & (2**LOW_BITS - 1)
        high = self.by_cell >> LOW_BITS
        result = (self._product(high) << LOW_BITS) + self._product(low)
        by_psu = self.by_psu.astype(object) * self._design.psu_steps
        return np.concatenate([result, by_psu])

    def _product(self, sums: IntArray) -> IntArray:
        """Return rows' sums as objects; blocks of cells keep partial sums inside 64 bits."""
        rows, size = self._design.rows, 2 ** (62 - ROW_BITS - LOW_BITS)
        total = np.zeros((rows.shape[1], sums.shape[1]), dtype=object)
        for start in range(0, len(rows), size):
            part = slice(start, start + size)
            total += (rows[part].T @ sums[part]).astype(object)
        return total


def noisy_statistics(
    design: NoiseDesign,
    codes: IntArray,
    z: FloatArray,
    *,
    budget: Budget,
    psu: IntArray | None = None,
    records: int = 1,
    source: NoiseSource | None = None,
) -> NoisyStatistics:
    """Release the statistics of one database, or of B independent ones, within ``budget`` each.

    Parameters
    ----------
    design
        Public: clipping, cells and the shape of the noise.
    codes
        Cell of each record, (n,) or (B, n).
    z
        Finite transformed outcomes and log weight, (n, q) or (B, n, q).
    budget
        Of one database, see ``Budget.of_epsilon``.
    psu
        PSU of each record, (n,) or (B, n), where the design has PSUs.
    records
        The largest number of records of a unit of protection.
    source
        Of the noise; the operating system's unless given.

    Raises
    ------
    InputError
        If shapes disagree or codes are not the design's: all of it public.
    """
    batch = z[None] if z.ndim == 2 else z
    _check_records(design, codes, batch, psu)
    n = batch.shape[1]
    sums = []
    for index, each in enumerate(batch):
        exact = ExactSums(design)
        cell = codes if codes.ndim == 1 else codes[index]
        unit = psu if psu is None or psu.ndim == 1 else psu[index]
        exact.add(cell, each, unit)
        sums.append(exact)
    return released(design, n, sums, budget=budget, records=records, source=source)


def released(
    design: NoiseDesign,
    n: int,
    sums: Sequence[ExactSums],
    *,
    budget: Budget,
    records: int = 1,
    source: NoiseSource | None = None,
) -> NoisyStatistics:
    """Return the statistics of B databases of n records from their exact sums, see above."""
    source = SystemNoise() if source is None else source
    clipping = design.clipping
    variances = noise_variances(clipping, budget.rho, records)
    moments = [
        noisy_moments(each.cross(), each.squares, variances, clipping, source) for each in sums
    ]
    return NoisyStatistics(
        n=n,
        cross=np.array([cross for cross, _ in moments]),
        squares=np.array([squares for _, squares in moments]),
        sigma=variances.cross_sd(clipping),
        squares_sd=variances.squares_sd(clipping),
        basis=design.basis,
        psu_weight=design.psu_weight,
        centre=clipping.centre,
        spread=clipping.spread,
        radius=clipping.radius,
        rho=budget.rho,
        epsilon=budget.epsilon,
        delta=budget.delta,
        records=records,
        noise=source.kind,
    )


def noisy_moments(
    cross: IntArray,
    squares: IntArray,
    variances: NoiseVariances,
    clipping: Clipping,
    source: NoiseSource,
) -> tuple[FloatArray, FloatArray]:
    """Return exact sums (r, q) and squares (q, q) of a block with noise, u in spreads.

    Every sum, and every entry on and above the diagonal of the squares, has noise of its own."""
    sums = noisy_sums(cross, variances, clipping, source)
    upper = np.triu_indices(len(squares))
    entries, on_diagonal = squares[upper], upper[0] == upper[1]
    entries[on_diagonal] = added(entries[on_diagonal], variances.diagonal, source)
    entries[~on_diagonal] = added(entries[~on_diagonal], variances.off_diagonal, source)
    whole = np.zeros(squares.shape)
    whole[upper] = whole.T[upper] = entries.astype(np.float64)
    return sums, whole * clipping.step**2


def noisy_sums(
    cross: IntArray, variances: NoiseVariances, clipping: Clipping, source: NoiseSource
) -> FloatArray:
    """Return exact sums (r, q) with noise, u in spreads."""
    noisy = added(cross, variances.cross, source)
    return np.asarray(noisy.astype(np.float64) * (2.0**-ROW_BITS * clipping.step))


def _plain(value: Any) -> Any:
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def add_by_code(sums: IntArray, codes: IntArray, u: IntArray) -> None:
    """Add u (n, q) to the sums (G, q) by code (n,)."""
    # Doubles hold these whole numbers exactly: a block has 2^18 records of at most 2^21 steps.
    for j, column in enumerate(u.T):
        sums[:, j] += np.bincount(codes, weights=column, minlength=len(sums)).astype(np.int64)


def _check_records(
    design: NoiseDesign, codes: IntArray, z: FloatArray, psu: IntArray | None
) -> None:
    shape, q = z.shape[:-1], design.clipping.q
    if z.ndim != 3 or z.shape[-1] != q:
        raise InputError(
            f"z must have {q} columns, as many as centres, but its shape is {z.shape}."
        )
    if (psu is None) != (design.n_psu == 0):
        raise InputError(
            "Records need PSUs where the design of the noise has them, and only there."
        )
    for name, given, size in (
        ("cells", codes, design.cells.shape[0]),
        ("PSUs", psu, design.n_psu),
    ):
        if given is None:
            continue
        if given.shape not in (shape, shape[1:]):
            raise InputError(
                f"Each record needs one of the {name}, but z has shape {z.shape} and these "
                f"{given.shape}."
            )
        if given.size and not (given.min() >= 0 and given.max() < size):
            raise InputError(f"Codes of {name} must run from 0 to {size - 1}.")
