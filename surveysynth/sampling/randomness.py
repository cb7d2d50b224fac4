"""Sources of random numbers: a seed, for results to be repeated, or the operating system.

The randomness that protects records must be unpredictable, and a generator like NumPy's PCG64 is
not: its state follows from a few outputs. Random numbers of a release are the key stream of
ChaCha20 (Bernstein 2008; RFC 8439) under 256 bits of the operating system's cryptographic
generator. Every further key, of a spawned generator or of a stream that is started more than once,
is derived from it.
"""

import hashlib
import secrets
from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
from numpy.random.bit_generator import ISpawnableSeedSequence
from randomgen import ChaCha

from surveysynth._support.types import IntArray
from surveysynth.errors import InputError

KEY_BYTES = 32
#: All of ChaCha's rounds; fewer would be faster and have a smaller margin.
ROUNDS = 20
#: Size of Stan's seeds in bits.
STAN_SEED_BITS = 31


class SecretKey(ISpawnableSeedSequence):
    """A secret of 256 bits instead of a seed: NumPy's protocol, by SHAKE256.

    Like a ``SeedSequence``, a key gives the same state and the same children in order whenever it
    is made again. Without the key, neither reveals the others.
    """

    def __init__(self, key: bytes) -> None:
        if len(key) != KEY_BYTES:
            raise ValueError(f"a key has {KEY_BYTES} bytes, got {len(key)}")
        self._key, self._children = key, 0

    def __repr__(self) -> str:
        return "SecretKey(..)"

    def generate_state(
        self, n_words: int, dtype: npt.DTypeLike = np.uint32
    ) -> "np.ndarray[tuple[int], np.dtype[np.uint32 | np.uint64]]":
        """Return words of a bit generator's state."""
        size = n_words * np.dtype(dtype).itemsize
        return np.frombuffer(self._derived(b"state", size), dtype=dtype)

    def spawn(self, n_children: int) -> "list[SecretKey]":
        """Return the next ``n_children`` keys."""
        numbers = range(self._children, self._children + n_children)
        self._children += n_children
        return [SecretKey(self._derived(b"child %d" % number, KEY_BYTES)) for number in numbers]

    def _derived(self, purpose: bytes, size: int) -> bytes:
        # The key has a fixed length, so that pairs of key and purpose are unambiguous.
        return hashlib.shake_256(self._key + purpose).digest(size)


def secret_generator(key: bytes | None = None) -> np.random.Generator:
    """Return the generator of a release: ChaCha20 under a key of the operating system.

    ``key``: used instead, and just as secret.
    """
    return np.random.Generator(
        ChaCha(SecretKey(secrets.token_bytes(KEY_BYTES) if key is None else key), rounds=ROUNDS)
    )


def is_secret(rng: np.random.Generator) -> bool:
    """Return True if nobody can foresee the generator's numbers."""
    return isinstance(rng.bit_generator, ChaCha)


@dataclass(frozen=True, repr=False)
class Start:
    """A stream of random numbers that can be restarted from its first number.

    Fits of one search share it, so that a bound changes with the weights alone. seed: a key of
    ``secret_generator``, or words for a seed of PCG64.
    """

    seed: bytes | IntArray

    def generator(self) -> np.random.Generator:
        """Return a generator at the first number."""
        if isinstance(self.seed, bytes):
            return secret_generator(self.seed)
        return np.random.default_rng(self.seed)


def starts(rng: np.random.Generator, count: int, words: int = 1) -> list[Start]:
    """Return ``count`` streams, as unpredictable as the numbers of ``rng``.

    words: number of 63-bit words in each seed, where ``rng`` is seeded itself.
    """
    if is_secret(rng):
        return [Start(rng.bytes(KEY_BYTES)) for _ in range(count)]
    return [Start(seed) for seed in rng.integers(0, 2**63, size=(count, words))]


class Streams:
    """Independent generators for the mechanism and the synthesis.

    Without a seed their numbers cannot be foreseen. For noisy statistics the steps after the noise
    are ``published`` instead: ``entropy``, a number of the operating system, repeats them.
    ``entropy`` is None for other releases. Raises ``InputError`` for a seed below zero.
    """

    def __init__(self, seed: int | None, *, published: bool) -> None:
        if seed is not None and seed < 0:
            raise InputError(f"the seed must be 0 or a positive whole number, got {seed}.")
        self.entropy: int | None = None
        if seed is None and not published:
            self.mechanism, self.synthesis = secret_generator(), secret_generator()
            return
        root = np.random.SeedSequence(seed)
        assert isinstance(root.entropy, int)  # one number, by the way it is made
        self.entropy = root.entropy
        self.mechanism, self.synthesis = map(np.random.default_rng, root.spawn(2))
