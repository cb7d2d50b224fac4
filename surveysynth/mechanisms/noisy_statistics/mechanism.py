"""Noisy statistics as one of the mechanisms, and its guarantee in words (strict 1)."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np

from surveysynth._support import progress as stages
from surveysynth._support.resources import render
from surveysynth.errors import InputError
from surveysynth.mechanisms.base import (
    SEEDED,
    Combining,
    NoiseKeeper,
    PrivateDraws,
    Progress,
    Released,
    Statement,
    confidential_part,
    not_units,
    public_assumptions,
    uncovered_weights,
)
from surveysynth.mechanisms.learned.histogram import (
    LEARNED,
    first_stage,
    learned_facts,
    learned_outcomes,
    learned_words,
    range_facts,
    spread_counts,
)
from surveysynth.mechanisms.noisy_statistics.posterior import draws as posterior
from surveysynth.mechanisms.noisy_statistics.release import survey_statistics
from surveysynth.mechanisms.noisy_statistics.release.level_squares import RADIUS
from surveysynth.mechanisms.noisy_statistics.release.location_statistics import (
    FIRST_SHARE,
    LocationStatistics,
)
from surveysynth.mechanisms.noisy_statistics.release.noise import (
    NoiseSource,
    SeededNoise,
    SystemNoise,
)
from surveysynth.mechanisms.noisy_statistics.settings import RECORD, NoisySettings
from surveysynth.models.base import Model, psu_codes
from surveysynth.survey.survey import Confidential, PublicDesign
from surveysynth.survey.transforms import OF_MEAN_WEIGHT, LearnedTransform

GUARANTEE = "zero-concentrated differential privacy"


def column_names(design: PublicDesign) -> list[str]:
    """Return the columns with a center and a spread: amounts, and the transformed weight."""
    amounts = [
        f"{outcome.name} {outcome.side_name(side)}".strip()
        for outcome in design.outcomes
        for side in outcome.sides
    ]
    return [*amounts, *([design.weight_words] if design.weight_name else [])]


def _weight_defaults(design: PublicDesign, settings: NoisySettings) -> str:
    """Return the constants of the log weight that were not declared, with their defaults."""
    if design.weight_name is None or design.learns_weight:
        return ""
    defaults = (
        (settings.weight.center, "the center is log(N/n) with the public population size N"),
        (settings.weight.spread, "the spread is a default of the package"),
    )
    return " and ".join(words for declared, words in defaults if declared is None)


def _weight_range(design: PublicDesign) -> str:
    """Return the range of a learned weight, and what it is by default; empty for others."""
    given, size = design.weight_transform, design.population_size
    if not (design.learns_weight and isinstance(given, LearnedTransform)):
        return ""
    low, high = OF_MEAN_WEIGHT
    mean = None if size is None else size / design.n
    default = mean is not None and (given.low, given.high) == (low * mean, high * mean)
    words = f"{given.low:.6g} to {given.high:.6g}"
    return f"{words}, {low:g} to {high:g} times N/n by default" if default else words


def published_draws(
    content: Mapping[str, Any], model: Model, settings: NoisySettings
) -> PrivateDraws:
    """Return the draws of a published file.

    Raises ``InputError`` for a file of another format.
    """
    if content.get(FORMAT_NAME) != FORMAT:
        raise InputError(
            f"{STATISTICS_NAME} has format {content.get(FORMAT_NAME, 1)!r}, and this version of "
            f"surveysynth reads format {FORMAT}: rebuild the release with the version that made it."
        )
    theta = {name: np.array(values) for name, values in content[DRAWS_NAME].items()}
    return PrivateDraws(model.name, theta, settings)


STATISTICS_NAME = "statistics.json"
#: Keys of that file: the version of its format, and the draws that datasets are made from.
FORMAT_NAME, DRAWS_NAME = "format", "draws"
#: Releases of format 1 had no draws, and those of 2 a curve in every cell of a count.
FORMAT = 3


@dataclass(frozen=True)
class NoisyStatisticsMechanism:
    """Exact noise on sufficient statistics; all else is post-processing."""

    settings: NoisySettings
    name: str = "noisy_statistics"
    combining: Combining = "total_variance"
    down_weights: bool = False
    risk: str | None = None

    @property
    def note(self) -> str:
        """One sentence below every table."""
        budget = self.settings.budget
        return (
            f"Privacy: {GUARANTEE}, rho = {budget.rho:.4g} (epsilon = {budget.epsilon:.4g} at "
            f"delta = 1 in {1 / budget.delta:,.0f}), for the whole release; the privacy statement "
            "has assumptions and limits."
        )

    def prepared(self, design: PublicDesign) -> PublicDesign:
        """Return the design itself: the noise suits every design."""
        return design

    def run(
        self,
        model: Model,
        design: PublicDesign,
        confidential: Confidential,
        rng: np.random.Generator,
        progress: Progress | None = None,
        *,
        seeded: bool = False,
        keeper: NoiseKeeper | None = None,
    ) -> Released:
        """Return statistics with noise of the operating system, and draws.

        ``rng`` serves the draws, and in a test the noise as well. ``keeper`` has the
        statistics before draws begin."""
        say = progress or (lambda stage: None)
        source: NoiseSource = SeededNoise(rng.spawn(1)[0]) if seeded else SystemNoise()
        say(stages.NOISE)
        survey_statistics.check_public(model, design, self.settings)
        first = first_stage(
            design, confidential, budget=self.settings.budget.rho, source=source,
            records=self.settings.unit_size(design), keeper=keeper,
        )  # fmt: skip
        design = first.design
        spread = spread_counts(design, confidential, rng if seeded else None)
        earlier = {key: each for key, each in (first.earlier or {}).items() if key != LEARNED}
        if earlier:
            statistics = LocationStatistics.from_dict(earlier)
        else:
            statistics = survey_statistics.release_statistics(
                model, design, spread, self.settings, source
            )
            if keeper is not None:
                keeper.keep({**first.kept(), **statistics.to_dict()})
        say(stages.POSTERIOR)
        draws, record = posterior.posterior_draws(
            model, design, statistics, self.settings, rng, progress=progress
        )
        published = {
            FORMAT_NAME: FORMAT,
            **first.kept(),
            "statistics": statistics.to_dict(),
            "posterior": {
                "r_hat": dict(record.r_hat), "ess": dict(record.ess), "rounds": record.rounds,
                "chains": record.chains,
            },
            DRAWS_NAME: {name: values.tolist() for name, values in draws.theta.items()},
        }  # fmt: skip
        realised = {
            "records": design.n,
            "clipped_records": survey_statistics.clipped(
                model, design, spread, self.settings
            ),
            **range_facts(design, confidential),
        }
        return Released(draws, {STATISTICS_NAME: published}, realised, design=design)

    def statement(self, model: Model, design: PublicDesign, *, test: bool = False) -> Statement:
        """Return the guarantee of a release in words; ``test``: its noise came from a seed."""
        settings, budget = self.settings, self.settings.budget
        clipping = settings.clipping(design)
        costs = survey_statistics.costs_of(model, design, settings)
        general = survey_statistics.require_general(model)
        centring = survey_statistics.location_design(general, design, settings).centring
        public, by_unit = design.public_weight is not None, settings.protect != RECORD
        scales = zip(
            column_names(design), clipping.centre.tolist(), clipping.spread.tolist(), strict=True
        )
        text = render(
            "surveysynth.mechanisms.noisy_statistics",
            "words/statement.md.j2",
            test=test,
            seeded=SEEDED,
            guarantee=GUARANTEE,
            rho=f"{budget.rho:.6g}",
            epsilon=f"{budget.epsilon:.6g}",
            delta=f"{budget.delta:.3g}",
            values=confidential_part(design, several=by_unit),
            unit=repr(settings.protect) if by_unit else None,
            unit_size=f"{settings.unit_size(design):,}",
            public_weight=public,
            modelled=design.missing == "model",
            logs="" if public else f" and {design.weight_words}s",
            psu=None if psu_codes(model, design) is None else design.psu_name,
            title=model.title,
            m=settings.m,
            public=public_assumptions(design, by_unit=by_unit),
            uncovered_weights=uncovered_weights(design, proved=True),
            scales="; ".join(f"{name}: {mid:.6g} and {spread:.6g}" for name, mid, spread in scales),
            weight_defaults=_weight_defaults(design, settings),
            weight_range=_weight_range(design),
            radius=f"{clipping.radius:.6g}",
            not_units=not_units(design),
            learned=learned_words(design.modelled),
            first_share=f"{FIRST_SHARE:g}",
            about_groups="" if centring is None else f"{centring.radius:.6g}",
            of_sums=f"{settings.of_sums(design.modelled).rho:.6g}",
            of_units=f"{float(costs.units):.6g}",
            of_levels=f"{float(costs.levels):.6g}",
            levels=bool(costs.levels),
            level_radius=f"{RADIUS:g}",
            weight=design.weight_words,
            declared=len(learned_outcomes(design.modelled)) < len(column_names(design)),
        )
        return Statement.read(text)

    def guarantee(self) -> dict[str, Any]:
        """Return the guarantee at any n, in rho and as (epsilon, delta)."""
        return {"guarantee": GUARANTEE, **asdict(self.settings.budget)}

    def described(self, design: PublicDesign) -> dict[str, Any]:
        """Return the declared constants, on the scale of the model."""
        clipping = self.settings.clipping(design)
        names = column_names(design)
        discrete = any(outcome.is_discrete for outcome in design.outcomes)
        return {
            "protect": self.settings.protect,
            "unit_size": self.settings.unit_size(design),
            "radius": clipping.radius,
            "centres": dict(zip(names, clipping.centre.tolist(), strict=True)),
            "spreads": dict(zip(names, clipping.spread.tolist(), strict=True)),
            **({"count_share": self.settings.count_share} if discrete else {}),
            **learned_facts(design.modelled, self.settings.budget.rho),
        }
