"""Hadamard matrices for balanced half-samples."""

import numpy as np

from surveysynth._support.types import FloatArray


def hadamard_matrix(least: int) -> FloatArray:
    """The smallest Hadamard matrix (R, R) with R >= ``least`` that Paley's constructions, doubled
    as often as need be, reach; entries 1 and -1, the first row all ones.

    For balanced half-samples of fewer than a thousand strata R exceeds ``least`` by a few.
    """
    size = least
    while (matrix := _of_size(size)) is None:
        size += 1
    signs: FloatArray = matrix[0]  # those of columns are free: the first row becomes ones
    return matrix * signs


def _of_size(size: int) -> FloatArray | None:
    if size in (1, 2):
        return np.array([[1.0, 1.0], [1.0, -1.0]])[:size, :size]
    if size % 4:
        return None
    if _is_prime(size - 1):
        return _paley_first(size - 1)
    if _is_prime(size // 2 - 1) and (size // 2 - 1) % 4 == 1:
        return _paley_second(size // 2 - 1)
    half = _of_size(size // 2)
    return None if half is None else np.kron(np.array([[1.0, 1.0], [1.0, -1.0]]), half)


def _is_prime(number: int) -> bool:
    return number > 1 and all(number % d for d in range(2, int(number**0.5) + 1))


def _jacobsthal(prime: int) -> FloatArray:
    """Legendre symbols of differences modulo a prime, shape (prime, prime)."""
    symbol = np.full(prime, -1.0)
    symbol[(np.arange(1, prime, dtype=np.int64) ** 2) % prime] = 1.0
    symbol[0] = 0.0
    index = np.arange(prime)
    matrix: FloatArray = symbol[(index[:, None] - index) % prime]
    return matrix


def _paley_first(prime: int) -> FloatArray:
    """Size prime + 1, for primes of the form 4 k + 3."""
    matrix = np.ones((prime + 1, prime + 1))
    matrix[1:, 0] = -1.0
    matrix[1:, 1:] = _jacobsthal(prime) + np.eye(prime)
    return matrix


def _paley_second(prime: int) -> FloatArray:
    """Size 2 (prime + 1), for primes of the form 4 k + 1."""
    core = np.ones((prime + 1, prime + 1))
    core[0, 0] = 0.0
    core[1:, 1:] = _jacobsthal(prime)
    return np.kron(core, [[1.0, 1.0], [1.0, -1.0]]) + np.kron(
        np.eye(prime + 1), [[1.0, -1.0], [-1.0, -1.0]]
    )
