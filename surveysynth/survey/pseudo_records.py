"""Pseudo-records: a public prior where one record could be all that the data say (methods 2.10).

How rare an answer is, is confidential: no rule on public columns can see it. So what rests on the
records of an answer alone has a prior that is worth a public number of records.
"""

from dataclasses import dataclass


@dataclass(frozen=True)
class PseudoRecords:
    """The prior of a design: a number of records, and typical values of amounts.

    typical: of each amount, in the order of the outcomes and above a split first, its centre and
    spread on the scale of its transform; None where every record has all amounts.
    """

    records: float
    typical: tuple[tuple[float, float] | None, ...]
