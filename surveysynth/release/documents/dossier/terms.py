"""What the parts of the dossier say in the same words: who is protected, what limits what."""

import math
from dataclasses import dataclass

from surveysynth.mechanisms import adversary_odds
from surveysynth.mechanisms.noisy_statistics.settings import RECORD
from surveysynth.release.documents.readme_words import round_factor
from surveysynth.release.facts import ReleaseFacts
from surveysynth.release.tables.labels import listed

#: An adversary's belief whose limit is told to respondents.
TOLD_PRIOR = 0.1


@dataclass(frozen=True)
class Terms:
    """The settings of a release, as sentences take them."""

    facts: ReleaseFacts

    @property
    def strict(self) -> bool:
        """Whether the guarantee is proved at every number of records."""
        return self.facts.spec.privacy.currency == "rho"

    @property
    def private(self) -> bool:
        """Whether any guarantee is claimed."""
        return self.facts.settings.private

    @property
    def epsilon(self) -> float:
        """Of the release; its meaning is the mechanism's."""
        return self.facts.settings.epsilon

    @property
    def rho(self) -> float:
        """Of noisy statistics."""
        return self.facts.spec.privacy.as_noisy_statistics().cost.rho

    @property
    def delta(self) -> float:
        """Of noisy statistics."""
        return self.facts.spec.privacy.as_noisy_statistics().delta

    @property
    def protected(self) -> str | None:
        """The public column whose units are protected as a whole; None for single records."""
        column = self.facts.spec.privacy.protect
        return None if column == RECORD else column

    @property
    def unit(self) -> str:
        """What neighbouring databases differ in."""
        if self.protected is None:
            return "one record"
        return f"all records of one unit of {self.protected!r}"

    @property
    def values(self) -> str:
        """What is confidential of a record."""
        design = self.facts.design
        names = list(design.outcome_names)
        if design.weight_name is not None:
            names.append(f"the sampling weight ({design.weight_name})")
        return listed(names)

    @property
    def budget(self) -> str:
        """The guarantee in one clause."""
        if self.strict:
            return (
                f"zero-concentrated differential privacy with rho = {self.rho:.4g}, and hence "
                f"differential privacy with epsilon = {self.epsilon:.4g} at delta = "
                f"{self.delta:.3g}"
            )
        outside = self.facts.statement.outside
        said = f"asymptotic differential privacy with epsilon at most {self.epsilon:.4g}"
        return f"{said}, {outside}" if outside else said

    @property
    def outside(self) -> str:
        """A sentence, after a space, where the settings take the release out of what is stated."""
        outside = self.facts.statement.outside
        return f" This release is {outside}; the limit does not hold for it." if outside else ""

    @property
    def factor(self) -> str:
        """exp(epsilon) for readers."""
        if self.epsilon < 100:
            return f"exp(epsilon) = about {round_factor(self.epsilon)}"
        return f"exp(epsilon) = e to the power {self.epsilon:g}"

    @property
    def log_factor(self) -> float:
        """Log of what the odds of a suspicion are multiplied by at most: under noisy statistics
        but for a probability delta, else as far as the guarantee holds."""
        return adversary_odds.zcdp_log_factor(self.rho, self.delta) if self.strict else self.epsilon

    def of_several(self, records: int) -> float:
        """The same for a person with so many records (or units), all of them unknown."""
        if self.strict:
            return adversary_odds.zcdp_log_factor(self.rho * records**2, self.delta)
        return self.epsilon * records


def percent(probability: float) -> str:
    """A limit on a probability in percent, rounded up to two digits of it or of what is left."""
    value = 100.0 * probability
    if value <= 50.0:
        places = max(0, 1 - math.floor(math.log10(value)))
        return f"{math.ceil(value * 10**places - 1e-9) / 10**places:.{places}f}%"
    rest = 100.0 * (1.0 - probability)
    if rest < 1e-4:
        return "nearly 100%"
    places = 1 - math.floor(math.log10(rest))
    return f"{100.0 - math.floor(rest * 10**places + 1e-9) / 10**places:.{max(places, 0)}f}%"
