"""What the noise-aware posterior is given: noisy moments, and sums over public variables.

    u_i = (z_i - centre) / spread;  A = X basis, or (X basis, weight times indicators of PSUs)
    cross = A'U + noise,  squares = U'U + noise

All public once the noise is in: nothing here is confidential.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import Protocol

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError

#: An axis of A'A that holds a smaller share of the largest holds no record at all.
NO_SHARE = 1e-10


class NoisySums(Protocol):
    """What the posterior reads of noisy statistics: the fields of ``NoisyMoments``."""

    @property
    def cross(self) -> FloatArray:
        """(B, r, q)."""

    @property
    def squares(self) -> FloatArray:
        """(B, q, q)."""

    @property
    def sigma(self) -> float:
        """SD of the noise of an entry of cross."""

    @property
    def squares_sd(self) -> FloatArray:
        """(q, q)."""

    @property
    def centre(self) -> FloatArray:
        """(q,)."""

    @property
    def spread(self) -> FloatArray:
        """(q,)."""


@dataclass(frozen=True, repr=False)
class NoisyMoments:
    """Noisy moments of B databases with q columns of z.

    cross (B, r, q); squares (B, q, q), symmetric; sigma: SD of the noise of an entry of cross;
    squares_sd (q, q): of an entry of squares; centre and spread (q,), in units of z.
    """

    cross: FloatArray
    squares: FloatArray
    sigma: float
    squares_sd: FloatArray
    centre: FloatArray
    spread: FloatArray

    @classmethod
    def stacked(cls, parts: Sequence["NoisyMoments"]) -> "NoisyMoments":
        """Several databases under one noise, centre and spread; raises ``ValueError`` for
        others."""
        first = parts[0]
        for each in parts[1:]:
            for name in ("sigma", "squares_sd", "centre", "spread"):
                if not np.array_equal(getattr(each, name), getattr(first, name)):
                    raise ValueError(f"databases of one batch have one {name}")
        cross, squares = (
            np.concatenate([getattr(each, name) for each in parts]) for name in ("cross", "squares")
        )
        return cls(cross, squares, first.sigma, first.squares_sd, first.centre, first.spread)


@dataclass(frozen=True, repr=False)
class PublicSums:
    """Sums over the public variables of B databases.

    total (B,) records; gram (B, K, K) X'X; x_sum (B, K) X'1; white_gram (B, r, r) A'A;
    white_cross (B, r, K) A'X. Where PSUs have effects, of C PSUs each: psu_total (B, C),
    psu_x_sum (B, C, K) and white_psu (B, r, C), the sums of A; else C = 0.
    """

    total: FloatArray
    gram: FloatArray
    x_sum: FloatArray
    white_gram: FloatArray
    white_cross: FloatArray
    psu_total: FloatArray
    psu_x_sum: FloatArray
    white_psu: FloatArray

    @classmethod
    def of(
        cls,
        x_cells: FloatArray,
        cell: IntArray,
        basis: FloatArray,
        psu: IntArray | None = None,
        psu_weight: float = 0.0,
    ) -> "PublicSums":
        """Of one database: x_cells (G, K), cell (n,), basis (K, r) and, where PSUs have effects,
        their codes psu (n,) from 0 on and the length of their columns in A (n, r + C)."""
        size = 0 if psu is None else int(psu.max()) + 1
        codes = np.zeros_like(cell) if psu is None else psu
        found, counts = np.unique(cell * max(size, 1) + codes, return_counts=True)
        x, of = x_cells[found // max(size, 1)], found % max(size, 1)
        member = (of[:, None] == np.arange(size)).astype(np.float64)
        white = np.hstack([x @ basis, psu_weight * member])
        weighted, members = counts[:, None] * x, counts[:, None] * member
        return cls(
            total=np.array([float(cell.size)]),
            gram=(weighted.T @ x)[None],
            x_sum=weighted.sum(0)[None],
            white_gram=((counts[:, None] * white).T @ white)[None],
            white_cross=(white.T @ weighted)[None],
            psu_total=members.sum(0)[None],
            psu_x_sum=(members.T @ x)[None],
            white_psu=(white.T @ members)[None],
        )

    @classmethod
    def stacked(cls, parts: Sequence["PublicSums"]) -> "PublicSums":
        """Several databases with as many columns and PSUs each."""
        names = [each.name for each in fields(cls)]
        return cls(*(np.concatenate([getattr(each, name) for each in parts]) for name in names))


def check(noisy: NoisySums, public: PublicSums) -> None:
    """Raises ``ValueError`` for shapes that do not belong together, or for no noise at all."""
    b, r, q = noisy.cross.shape
    if public.white_gram.shape != (b, r, r) or noisy.squares.shape != (b, q, q):
        raise ValueError(
            f"moments of {b} databases, {r} rows and {q} columns met public sums of shape "
            f"{public.white_gram.shape} and squares of shape {noisy.squares.shape}"
        )
    if not (noisy.sigma > 0 and np.all(noisy.squares_sd > 0) and np.all(noisy.spread > 0)):
        raise ValueError("the noise and the spreads must be positive")


def rank(gram: FloatArray) -> int:
    """The rank that Gram matrices (B, r, r) share; raises ``ValueError`` for several."""
    values = np.linalg.eigvalsh(gram)
    ranks = set((values > NO_SHARE * values[:, -1:]).sum(-1).tolist())
    if len(ranks) > 1:
        raise ValueError(f"databases of one batch have design matrices of one rank, got {ranks}")
    return int(ranks.pop())


def check_freedom(total: FloatArray, columns: int, q: int) -> None:
    """Raises ``InputError`` where ``total`` (B,) records leave the scatter of q columns about a
    model matrix of rank ``columns`` without a proper posterior."""
    free = float(total.min()) - columns
    if free <= q + 1:
        raise InputError(
            f"The noisy statistics leave {free:.0f} degrees of freedom for the residuals of {q} "
            f"columns ({total.min():.0f} records less {columns} columns of the model matrix), and "
            f"their posterior needs more than {q + 1}: leave out interactions or factors, or join "
            "categories."
        )
