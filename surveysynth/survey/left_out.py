"""What leaving out records with missing cells does to a sample.

A record without one answer is left out whole, so that counts, and means of its other answers, are
those of the records that remain. Where answers are missing more often at some levels than at
others, this moves all of them, and no standard error shows it. Which records are left out is
public, so the shares of levels before and after are too.
"""

from collections.abc import Mapping, Sequence

import numpy as np

from surveysynth._support.types import BoolArray
from surveysynth.survey.columns import TextColumn

#: A level of fewer records may be a value of another column, and is not shown.
_LEAST = 3


def shift_words(
    columns: Mapping[str, TextColumn], names: Sequence[str], kept: BoolArray
) -> str:
    """Return the largest change of a level's share by leaving out records, in a sentence.

    ``kept``: (n,) the records that stay. Empty if no share moves by more than its own sampling
    error, which tables show.
    """
    largest, words = 1.0, ""
    for name in names:
        column = columns[name]
        there = ~column.missing
        before = np.bincount(column.codes[there], minlength=len(column.levels))
        after = np.bincount(column.codes[there & kept], minlength=len(column.levels))
        if not after.any():
            continue
        share, now = before / before.sum(), after / after.sum()
        error = np.sqrt(share * (1.0 - share) / before.sum())
        moved = np.divide(np.abs(now - share), error, out=np.zeros_like(error), where=error > 0)
        moved[before < _LEAST] = 0.0
        level = int(np.argmax(moved))
        if moved[level] > largest:
            largest = float(moved[level])
            words = (
                f"This moves counts, and means of every outcome: {name!r} is "
                f"{column.levels[level]!r} in {now[level]:.1%} of the records, and was in "
                f"{share[level]:.1%} before."
            )
    return words
