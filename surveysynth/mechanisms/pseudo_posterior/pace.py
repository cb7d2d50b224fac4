"""How a search for risk weights goes about it, by how draws move with the weights (methods 2.6).

With common random numbers draws may move smoothly with the weights, so that each record's weight
answers to its own extremes over draws. Where they do not, extremes are drawn afresh in every fit.
"""

import math
from dataclasses import dataclass, replace

from surveysynth.mechanisms.pseudo_posterior.settings import LEAST_SHARE
from surveysynth.models.weighted import WeightedModel

#: The search aims at the middle of [0.97, 1] x target.
AIM = 0.5 * (LEAST_SHARE + 1.0)
MAX_FITS = 60
#: NUTS moves risks by a tenth and more from fit to fit, whatever the weights. After the first
#: number of fits the cap therefore begins to fall, and linear weights accept a bound somewhat below
#: the window, the safe side. After the second number the search stops: weights run away, and one
#: record could decide how far the cap has fallen.
NOISY_FITS, NOISY_MOST_FITS = 10, 24
NOISY_LEAST_SHARE = 0.8
#: Simulated databases protect nobody: weights need not be close to the fixed point, nor all bounds
#: below the target. A full step leaves about half of the distance to the fixed point, and longer
#: ones less; they amplify noise in single records, which matters where one is to be protected. The
#: bias of a scale is 0.3% off that of exact weights, with steps of 1.5 or 1 it is 5% off (counts).
#: Where few records lose weight the mean over records is small from the start, so what is left of
#: the way must be small beside the way too: a bias of 0.0275 in the log of a scale was found as
#: 0.0223 without (10,000 records).
SIMULATED_TOLERANCE = 0.02
SIMULATED_SHARE = 0.1
SIMULATED_WINDOW = (0.9, 1.1)
SIMULATED_STRIDE = 1.25


@dataclass(frozen=True)
class Pace:
    """The steps of one search.

    Attributes
    ----------
    smooth
        The bound moves smoothly with the weights.
    tolerances
        Fixed-point weights stop when they are this close, on the log scale in root mean square, to
        what their own fit asks for: in full steps, and once they follow a running mean. What is
        left of the way is a difference in the weights of all that one record can make, and counts
        beside the bound.
    share
        Largest such distance as a share of that of the weights from one.
    aim
        Cap of the fixed point, as a share of the target.
    limit
        Share of the target that a record's bound may reach in the fit that is released.
    full_steps
        Fits after which weights follow a running mean.
    patience
        Fits after which the cap falls.
    most_fits
        Fits after which the search gives up.
    stride
        Steps towards the fixed point in multiples of a full step, on the log scale.
    windows
        Shares of the target that linear weights may reach, at first and after ``NOISY_FITS`` fits.
    """

    smooth: bool = True
    tolerances: tuple[float, float] = (0.005, 0.02)
    share: float = math.inf
    aim: float = AIM
    limit: float = 1.0
    full_steps: int = 8
    patience: int = 16
    most_fits: int = MAX_FITS
    stride: float = 1.0
    windows: tuple[tuple[float, float], tuple[float, float]] = (
        (LEAST_SHARE, 1.0),
        (LEAST_SHARE, 1.0),
    )

    def near(self, left: float, way: float, *, averaging: bool) -> bool:
        """Return whether weights are close enough to what their own fit asks for.

        left: root mean square of the logs that are missing; way: of those of the weights
        themselves.
        """
        beside = math.isinf(self.share) or left <= self.share * way
        return beside and left <= self.tolerances[averaging]

    def window(self, fits: int) -> tuple[float, float]:
        """Return the shares of the target that linear weights may reach after ``fits``."""
        return self.windows[fits >= NOISY_FITS]


SMOOTH = Pace()
#: Draws jump from fit to fit, as those of NUTS.
JUMPING = Pace(
    smooth=False,
    tolerances=(0.3, 0.3),
    patience=NOISY_FITS,
    most_fits=NOISY_MOST_FITS,
    windows=((LEAST_SHARE, 1.0), (NOISY_LEAST_SHARE, 1.0)),
)


def pace_of(model: WeightedModel, *, protects: bool) -> Pace:
    """Return the pace of the search for weights; ``protects``: False for simulated databases."""
    pace = SMOOTH if model.common_random_numbers else JUMPING
    if protects:
        return pace
    return replace(
        pace,
        tolerances=(SIMULATED_TOLERANCE, SIMULATED_TOLERANCE),
        share=SIMULATED_SHARE if pace.smooth else math.inf,
        limit=math.inf,
        patience=MAX_FITS,
        most_fits=MAX_FITS,
        stride=SIMULATED_STRIDE,
        windows=(SIMULATED_WINDOW, SIMULATED_WINDOW),
    )
