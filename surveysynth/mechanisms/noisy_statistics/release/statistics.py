"""Exact sums with noise, and what is published of them, for blocks of any kind."""

from collections.abc import Mapping
from dataclasses import dataclass, fields
from types import UnionType
from typing import Any, Self

import numpy as np

from surveysynth._support.types import BoolArray, FloatArray, IntArray
from surveysynth.errors import InputError
from surveysynth.mechanisms.noisy_statistics.release.noise import NoiseSource, added
from surveysynth.mechanisms.noisy_statistics.release.noise_design import ROW_BITS, Clipping
from surveysynth.mechanisms.noisy_statistics.release.sensitivity import NoiseVariances

BLOCK = 2**18
#: Records whose sums stay inside 64-bit whole numbers.
MOST_RECORDS = 2**26
#: Numbers of arrays in published statistics.
ARRAYS: dict[Any, type] = {FloatArray: np.float64, IntArray: np.int64, BoolArray: np.bool_}


@dataclass(frozen=True)
class Published:
    """Released statistics as JSON, which come back to the last bit."""

    def to_dict(self) -> dict[str, Any]:
        """Return numbers, words and nested lists."""
        values = {item.name: _plain(getattr(self, item.name)) for item in fields(self)}
        return {name: value for name, value in values.items() if value is not None}

    @classmethod
    def from_dict(cls, given: Mapping[str, Any]) -> Self:
        """Return the inverse of ``to_dict``.

        Raise ``InputError`` where entries do not fit together."""
        names = [item.name for item in fields(cls)]
        given = {**{item.name: None for item in fields(cls) if item.default is None}, **given}
        wrong = sorted(set(names) ^ set(given))
        if wrong:
            raise InputError(
                f"Noisy statistics have the entries {', '.join(names)}; missing or unknown here: "
                f"{', '.join(wrong)}."
            )
        try:
            result = cls(**{item.name: _read(item.type, given[item.name]) for item in fields(cls)})
            result._check_shapes()
        except (TypeError, ValueError, IndexError) as error:
            raise InputError(f"Noisy statistics do not fit together: {error}.") from None
        return result

    def _check_shapes(self) -> None:
        """Raise ``ValueError`` unless arrays fit together and are finite."""


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


def _read(kind: Any, value: Any) -> Any:
    """Return the value of a field of a kind from lists of lists."""
    if isinstance(kind, UnionType):  # a stage that there may be
        return None if value is None else kind.__args__[0].from_dict(value)
    if kind == tuple[FloatArray, ...]:
        # A matrix without columns has lists without numbers, and one without rows is empty.
        return tuple(
            np.array(each, np.float64).reshape(len(each), len(each[0]) if each else 0)
            for each in value
        )
    if kind in ARRAYS:
        return np.array(value, ARRAYS[kind])
    return tuple(value) if isinstance(value, list) else value


def _plain(value: Any) -> Any:
    if isinstance(value, Published):
        return value.to_dict()
    if isinstance(value, np.ndarray):
        return value.tolist()
    return [_plain(each) for each in value] if isinstance(value, tuple) else value


def add_by_code(sums: IntArray, codes: IntArray, u: IntArray) -> None:
    """Add u (n, q) to the sums (G, q) by code (n,)."""
    # Doubles hold these whole numbers exactly: a block has 2^18 records of at most 2^21 steps.
    for j, column in enumerate(u.T):
        sums[:, j] += np.bincount(codes, weights=column, minlength=len(sums)).astype(np.int64)
