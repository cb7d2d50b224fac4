"""Random numbers of releases. Truth: the test vector of ChaCha20 (RFC 8439, appendix A.1), and that
what may be foreseen is not used where records are protected."""

import pickle
from collections.abc import Callable
from pathlib import Path
from typing import Any, NoReturn

import numpy as np
import pytest
from randomgen import ChaCha
from scipy import stats

from surveysynth.release.pipeline import release
from surveysynth.sampling.plan import Streams as BatchStreams
from surveysynth.sampling.randomness import (
    SecretKey,
    Streams,
    is_secret,
    secret_generator,
    starts,
)
from tests.surveys import small_survey, spec_text, write_survey

#: RFC 8439, A.1, test vector 1: key and nonce 0, block counter 0.
BLOCK = bytes.fromhex(
    "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
    "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
)
KEY = bytes(range(32))


def test_the_cipher_is_chacha20() -> None:
    zero = ChaCha(key=0, rounds=20)
    assert np.asarray(zero.random_raw(8), dtype="<u8").tobytes() == BLOCK
    # And that of a release is the same one, with a key of its own.
    made = secret_generator(KEY).bit_generator.state["state"]
    assert made["rounds"] == 20
    key = np.asarray(made["keysetup"], dtype="<u4").tobytes()
    assert key == SecretKey(KEY).generate_state(4, np.uint64).tobytes()
    other = ChaCha(key=int.from_bytes(key, "little"), rounds=20)
    np.testing.assert_array_equal(
        secret_generator(KEY).bit_generator.random_raw(20), other.random_raw(20)
    )


def test_numbers_are_uniform_and_normal() -> None:
    rng = secret_generator(KEY)
    assert stats.kstest(rng.random(20_000), "uniform").pvalue > 1e-3
    assert stats.kstest(rng.standard_normal(20_000), "norm").pvalue > 1e-3


def test_keys_give_what_they_gave_and_differ_from_all_others() -> None:
    def drawn(rng: np.random.Generator) -> list[float]:
        return [rng.random(), *(child.random() for child in rng.spawn(3))]

    first, again, other = drawn(secret_generator(KEY)), drawn(secret_generator(KEY)), drawn(
        secret_generator(KEY[::-1])
    )
    assert first == again
    assert len({*first, *other}) == 8
    rng = secret_generator(KEY)
    assert rng.spawn(1)[0].random() != rng.spawn(1)[0].random()
    assert all(is_secret(child) for child in rng.spawn(2))
    assert secret_generator().random() != secret_generator().random()
    with pytest.raises(ValueError, match="32 bytes"):
        SecretKey(b"short")
    assert "0" not in repr(SecretKey(KEY))


@pytest.mark.parametrize("make", [secret_generator, lambda: np.random.default_rng(3)])
def test_streams_can_be_started_again(make: Callable[[], np.random.Generator]) -> None:
    rng = make()
    first, second = starts(rng, 2)
    assert is_secret(first.generator()) == is_secret(rng)
    assert first.generator().random() == first.generator().random()
    assert first.generator().random() != second.generator().random()
    # Children too: a batch of databases has its common random numbers.
    batches = [
        BatchStreams.of(second.generator(), 3, 2).standard_normal((4, 6), 1) for _ in range(2)
    ]
    np.testing.assert_array_equal(*batches)
    carried = pickle.loads(pickle.dumps(first.generator()))
    assert carried.random() == first.generator().random()


def test_seeds_are_those_that_they_were() -> None:
    """Seeded runs are as repeatable as before."""
    rng, same = np.random.default_rng(5), np.random.default_rng(5)
    for words in (1, 4):
        seeds = same.integers(0, 2**63, size=(3, words))
        for start, seed in zip(starts(rng, 3, words), seeds, strict=True):
            assert start.generator().random() == np.random.default_rng(seed).random()


def test_only_a_seed_or_what_is_published_can_be_made_again() -> None:
    private = Streams(None, published=False)
    assert private.entropy is None
    assert is_secret(private.mechanism)
    assert is_secret(private.synthesis)
    assert private.mechanism.random() != private.synthesis.random()
    for streams in (Streams(4, published=False), Streams(4, published=True)):
        assert streams.entropy == 4
        assert streams.mechanism.random() == Streams(4, published=False).mechanism.random()
    after_noise = Streams(None, published=True)
    assert after_noise.entropy is not None
    again = Streams(after_noise.entropy, published=True)
    assert after_noise.synthesis.random() == again.synthesis.random()
    assert after_noise.entropy != Streams(None, published=True).entropy


class Foreseen(Exception):
    """A generator that can be foreseen was made."""


def test_a_release_uses_no_generator_that_can_be_foreseen(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The whole path with the real mechanism, debiasing and synthesis included."""
    spec = write_survey(
        tmp_path / "in", small_survey(120),
        spec_text("survey.csv", synthesizer="predictors = 'field'", tables='by = ["field"]',
                  survey="population_size = 30000", privacy="m = 1\nreplicates_per_draw = 1"),
        "survey.csv",
    )  # fmt: skip

    def refuse(*_: Any, **__: Any) -> NoReturn:
        raise Foreseen

    for name in (
        "default_rng", "PCG64", "SeedSequence", "RandomState", "MT19937", "random", "normal",
        "standard_normal", "uniform", "seed",
    ):  # fmt: skip
        monkeypatch.setattr(np.random, name, refuse)
    made = [release(spec, tmp_path / name).tables["mean"][0].frame for name in ("one", "two")]
    assert (made[0]["estimate"] != made[1]["estimate"]).all()
    with pytest.raises(Foreseen):
        release(spec, tmp_path / "seeded", seed=1)
