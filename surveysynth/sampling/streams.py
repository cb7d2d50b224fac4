"""Random numbers of several databases side by side, each from a generator of its own.

A database then has the same random numbers whatever else is in the batch: its draws move with its
own statistics alone (common random numbers), also when other databases leave the batch.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from surveysynth._support.types import FloatArray

#: Sweeps whose random numbers are drawn together, a multiple of 4: fewer, larger calls. Fixed,
#: since the order of the numbers depends on it.
SWEEPS_AT_ONCE = 16


@dataclass(frozen=True)
class Streams:
    """``generators``: one a database; ``chains`` of each stand next to each other in the batch."""

    generators: tuple[np.random.Generator, ...]
    chains: int

    @classmethod
    def of(
        cls, rng: np.random.Generator | Sequence[np.random.Generator], databases: int, chains: int
    ) -> "Streams":
        """One generator for all is spawned into one a database, but for a single one."""
        if isinstance(rng, np.random.Generator):
            return cls((rng,) if databases == 1 else tuple(rng.spawn(databases)), chains)
        return cls(tuple(rng), chains)

    def standard_normal(self, shape: tuple[int, ...], axis: int) -> FloatArray:
        """Standard normals of ``shape``, its ``axis`` the batch of databases x chains."""
        result = np.empty(shape)
        for generator, block in zip(self.generators, self._blocks(result, axis), strict=True):
            block[...] = generator.standard_normal(block.shape)
        return result

    def random(self, shape: tuple[int, ...], axis: int) -> FloatArray:
        """The same of uniforms on (0, 1)."""
        result = np.empty(shape)
        for generator, block in zip(self.generators, self._blocks(result, axis), strict=True):
            block[...] = generator.random(block.shape)
        return result

    def _blocks(self, values: FloatArray, axis: int) -> list[FloatArray]:
        return np.split(values, len(self.generators), axis)
