"""Errors that surveysynth raises on purpose.

Every message states what is wrong, where, and what to do. It counts confidential records and never
shows their values.
"""


class SurveySynthError(Exception):
    """Base of every deliberate error; ``exit_code`` is what the command line returns for it."""

    exit_code = 1


class InputError(SurveySynthError):
    """The data, the specification or an argument is not usable as given."""

    exit_code = 2


class RefusedError(SurveySynthError):
    """The input is valid, but a release would not satisfy its statement, so none is made."""

    exit_code = 3


class IncompleteError(SurveySynthError):
    """A study in which batches failed; the others were written."""

    exit_code = 4


class StoppedError(SurveySynthError):
    """Long work that was interrupted and can be resumed."""

    exit_code = 130


class SurveySynthWarning(UserWarning):
    """Base of every deliberate warning."""


class PublicWarning(SurveySynthWarning):
    """A warning that public columns and declared constants alone decide."""


class FormulaCutWarning(PublicWarning):
    """Levels, cells, or interactions have too few records for coefficients of their own."""


class FewRecordsWarning(PublicWarning):
    """A spike or a pattern of outcomes has few records, even if all are equally common."""


class DroppedRecordsWarning(PublicWarning):
    """Dropping records with missing cells, which are public, changes counts and means."""


class ConfidentialWarning(SurveySynthWarning):
    """Confidential values suggest a mistake: CONFIDENTIAL, only for the person who runs it."""
