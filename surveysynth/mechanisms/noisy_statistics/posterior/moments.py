"""The data of the noise-aware posterior: noisy moments, and sums over public variables.

    u_i = (z_i - centre) / spread;  A = X basis, or (X basis, weight times indicators of PSUs)
    cross = A'U + noise,  squares = U'U + noise

All public once the noise is in: nothing here is confidential.
"""

from collections.abc import Sequence
from dataclasses import dataclass, fields
from typing import TypeAlias

import numpy as np

from surveysynth._support.types import FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.release.statistics import NoisyStatistics
from surveysynth.models.parts.gaussian import GaussianStats, PsuStats

#: An axis of A'A that holds a smaller share of the largest holds no record at all.
NO_SHARE = 1e-10
#: Least share of a column's declared variance that chains start from as its residual variance, if
#: noise does not leave even less open.
LEAST_START = 0.05


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
        """Return several databases under one noise, centre and spread.

        Raise ``ValueError`` for others."""
        first = parts[0]
        for each in parts[1:]:
            for name in ("sigma", "squares_sd", "centre", "spread"):
                if not np.array_equal(getattr(each, name), getattr(first, name)):
                    raise ValueError(f"databases of one batch have one {name}")
        cross, squares = (
            np.concatenate([getattr(each, name) for each in parts]) for name in ("cross", "squares")
        )
        return cls(cross, squares, first.sigma, first.squares_sd, first.centre, first.spread)


#: What the posterior reads; both have the fields of ``NoisyMoments``.
NoisySums: TypeAlias = NoisyMoments | NoisyStatistics


@dataclass(frozen=True, repr=False)
class PublicSums:
    """Sums over the public variables of B databases.

    total (B,) records; gram (B, K, K) X'X; x_sum (B, K) X'1; white_gram (B, r, r) A'A;
    white_cross (B, r, K) A'X. Where PSUs have effects, of C PSUs each: psu_total (B, C),
    psu_x_sum (B, C, K) and white_psu (B, r, C), the sums of A; else C = 0. shrunken (B,): the
    number of last columns of X that are shrunken.
    """

    total: FloatArray
    gram: FloatArray
    x_sum: FloatArray
    white_gram: FloatArray
    white_cross: FloatArray
    psu_total: FloatArray
    psu_x_sum: FloatArray
    white_psu: FloatArray
    shrunken: IntArray

    @classmethod
    def of(
        cls,
        x_cells: FloatArray,
        cell: IntArray,
        basis: FloatArray,
        psu: IntArray | None = None,
        psu_weight: float = 0.0,
        shrunken: int = 0,
    ) -> "PublicSums":
        """Return the sums of one database.

        x_cells (G, K), cell (n,), basis (K, r) and, where PSUs have effects, their codes
        psu (n,) from 0 on and the length of their columns in A (n, r + C)."""
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
            shrunken=np.array([shrunken]),
        )

    @classmethod
    def stacked(cls, parts: Sequence["PublicSums"]) -> "PublicSums":
        """Return several databases with as many columns and PSUs each."""
        names = [each.name for each in fields(cls)]
        return cls(*(np.concatenate([getattr(each, name) for each in parts]) for name in names))


def check(noisy: NoisySums, public: PublicSums) -> None:
    """Raise ``ValueError`` for shapes that do not belong together, or for no noise at all."""
    b, r, q = noisy.cross.shape
    if public.white_gram.shape != (b, r, r) or noisy.squares.shape != (b, q, q):
        raise ValueError(
            f"moments of {b} databases, {r} rows and {q} columns met public sums of shape "
            f"{public.white_gram.shape} and squares of shape {noisy.squares.shape}"
        )
    if not (noisy.sigma > 0 and np.all(noisy.squares_sd > 0) and np.all(noisy.spread > 0)):
        raise ValueError("the noise and the spreads must be positive")


def rank(gram: FloatArray) -> int:
    """Return the rank that Gram matrices (B, r, r) share; raise ``ValueError`` for several."""
    values = np.linalg.eigvalsh(gram)
    ranks = set((values > NO_SHARE * values[:, -1:]).sum(-1).tolist())
    if len(ranks) > 1:
        raise ValueError(f"databases of one batch have design matrices of one rank, got {ranks}")
    return int(ranks.pop())


def check_freedom(total: FloatArray, columns: int, q: int) -> None:
    """Raise ``InputError`` where too few records leave the posterior improper.

    ``total`` (B,) records, the scatter of q columns about a model matrix of rank ``columns``."""
    free = float(total.min()) - columns
    if free <= q + 1:
        raise InputError(
            f"The noisy statistics leave {free:.0f} degrees of freedom for the residuals of {q} "
            f"columns ({total.min():.0f} records less {columns} columns of the model matrix), and "
            f"their posterior needs more than {q + 1}: leave out interactions or factors, or join "
            "categories."
        )


@dataclass(frozen=True, repr=False)
class NoisyTarget:
    """Noisy moments of B chains in units of z about the centres, in the axes of G.

    lam (B, r) eigenvalues of G; link (B, r, p): T has mean lam * (link @ B), where the p rows of
    B are the coefficients of X and the effects of PSUs; cross (B, r, q) and squares (B, q, q) with
    the SDs (q,) and (q, q) of their noise; df (B,) = n - r; ones (B, K): X ones = 1.
    """

    public: PublicSums
    lam: FloatArray
    link: FloatArray
    cross: FloatArray
    cross_sd: FloatArray
    squares: FloatArray
    squares_sd: FloatArray
    df: FloatArray
    ones: FloatArray
    centre: FloatArray
    to_fit: FloatArray

    @classmethod
    def of(cls, noisy: NoisySums, public: PublicSums, chains: int) -> "NoisyTarget":
        """Return the target of the databases, ``chains`` chains each.

        Where columns of A depend on each other so do the rows of T, exactly: axes without any
        record carry noise alone, and are left out.
        """
        columns, q = rank(public.white_gram), noisy.cross.shape[2]
        check_freedom(public.total, columns, q)
        lam, vectors = np.linalg.eigh(public.white_gram)
        lam, vectors = lam[:, -columns:], vectors[:, :, -columns:]
        sums = np.concatenate([public.white_cross, public.white_psu], axis=2)
        link = (vectors.swapaxes(-1, -2) @ sums) / lam[:, :, None]
        inverse = _pseudo_inverse(public.gram)
        k = public.gram.shape[-1]
        scale = noisy.spread
        parts = {
            "lam": lam,
            "link": link,
            "cross": (vectors.swapaxes(-1, -2) @ noisy.cross) * scale,
            "squares": noisy.squares * scale[:, None] * scale,
            "df": public.total - lam.shape[1],
            "ones": _constant(public, inverse),
            "to_fit": inverse @ link[:, :, :k].swapaxes(-1, -2),
        }
        return cls(
            public=_repeated_sums(public, chains),
            cross_sd=noisy.sigma * scale,
            squares_sd=noisy.squares_sd * scale[:, None] * scale,
            centre=noisy.centre,
            **{name: np.repeat(part, chains, axis=0) for name, part in parts.items()},
        )

    def start(self, spread: FloatArray) -> tuple[FloatArray, FloatArray]:
        """Return T (B, r, q) and W (B, q, q) to start from.

        T~ shrunk as for coefficients of the size of the ``spread`` (q,), W with no
        eigenvalue too small."""
        sd = self.cross_sd / spread
        signal = (self.lam**2 + self.lam)[:, :, None]
        cross = self.cross * signal / (signal + sd * sd)
        scatter = (self.squares - self.explained(cross)) / (spread[:, None] * spread)
        values, vectors = np.linalg.eigh(scatter)
        noise = float((self.squares_sd / (spread[:, None] * spread)).max())
        least = np.minimum(LEAST_START * self.df, noise)
        values = np.maximum(values, least[:, None])
        scatter = (vectors * values[:, None]) @ vectors.swapaxes(-1, -2)
        return cross, scatter * spread[:, None] * spread

    def explained(self, cross: FloatArray) -> FloatArray:
        """Return T'G^-1 T (B, q, q)."""
        return np.asarray((cross / self.lam[:, :, None]).swapaxes(-1, -2) @ cross)

    def statistics(self, cross: FloatArray, scatter: FloatArray) -> GaussianStats:
        """Return what the models' samplers read, for T (B, r, q) and W (B, q, q)."""
        public, k = self.public, self.public.gram.shape[-1]
        fit = self.to_fit @ cross
        residual = scatter
        psu = None
        if public.psu_total.shape[1]:
            fitted = fit.swapaxes(-1, -2) @ public.gram @ fit
            residual = scatter + self.explained(cross) - fitted
            sums = self.link[:, :, k:].swapaxes(-1, -2) @ cross - public.psu_x_sum @ fit
            psu = PsuStats(public.psu_total, public.psu_x_sum, sums)
        fit = fit + self.ones[:, :, None] * self.centre
        shrunken = int(public.shrunken[0])
        return GaussianStats(
            public.total, public.x_sum, public.gram, fit, residual, psu, shrunken
        )

    def about_centre(self, coefficients: FloatArray) -> FloatArray:
        """Return coefficients (B, p, q) of z as coefficients of z - centre."""
        return self._shifted(coefficients, -self.centre)

    def about_zero(self, coefficients: FloatArray) -> FloatArray:
        """Return coefficients of z - centre as coefficients of z."""
        return self._shifted(coefficients, self.centre)

    def _shifted(self, coefficients: FloatArray, by: FloatArray) -> FloatArray:
        result = coefficients.copy()
        k = self.ones.shape[1]
        result[:, :k] += self.ones[:, :, None] * by
        return result


def _pseudo_inverse(gram: FloatArray) -> FloatArray:
    """Return pseudo-inverses of Gram matrices (B, K, K), in columns of one length."""
    length = np.sqrt(np.einsum("bkk->bk", gram))
    inverse = np.divide(1.0, length, out=np.zeros_like(length), where=length > 0)
    outer = inverse[:, :, None] * inverse[:, None, :]
    return np.asarray(
        np.linalg.pinv(gram * outer, rcond=1e-12, hermitian=True) * outer, dtype=np.float64
    )


def _constant(public: PublicSums, inverse: FloatArray) -> FloatArray:
    """Return e (B, K) with X e = 1; raise ``ValueError`` without one."""
    ones = np.einsum("bij,bj->bi", inverse, public.x_sum)
    left = public.total - np.einsum("bk,bk->b", public.x_sum, ones)
    if np.any(np.abs(left) > 1e-8 * public.total):
        raise ValueError("noisy statistics about a centre need an intercept in the span of X")
    return np.asarray(ones, dtype=np.float64)


def _repeated_sums(public: PublicSums, chains: int) -> PublicSums:
    values = vars(public).items()
    return PublicSums(**{name: np.repeat(value, chains, axis=0) for name, value in values})
