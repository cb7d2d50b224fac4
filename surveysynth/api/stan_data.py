"""Write the data of a specification's Stan program, for use in R: confidential."""

from pathlib import Path
from typing import Any

import numpy as np

from surveysynth.errors import InputError


def export_stan(spec: str | Path, out: str | Path) -> Path:
    """Write the data of a specification's Stan program as JSON that Stan's interfaces read.

    A fit of these data has whole records and no risk weights, so it is not private.

    Parameters
    ----------
    spec
        The specification file.
    out
        The file to write, which must not exist. It has the confidential records, or sums of them,
        and only this user can read it.

    Returns
    -------
    Path
        The Stan program of the data.

    Raises
    ------
    InputError
        For unusable input, a model without a Stan program, a file that exists, and a folder that
        is published.

    Examples
    --------
    >>> import json, tempfile
    >>> from pathlib import Path
    >>> import surveysynth as ss
    >>> with tempfile.TemporaryDirectory() as folder:
    ...     _, spec = ss.example(Path(folder) / "ex", n=200)
    ...     program = ss.export_stan(spec, Path(folder) / "data.json")
    ...     data = json.loads((Path(folder) / "data.json").read_text())
    >>> program.name, data["J"], sum(data["total"][0])
    ('general_location.stan', 2, 200.0)
    """
    from surveysynth.sampling.stan.backends import write_data
    from surveysynth.spec.build import model_of, read_survey
    from surveysynth.spec.spec import load_spec

    target = _target(Path(out))
    loaded = load_spec(spec)
    chosen = model_of(loaded)
    survey = read_survey(loaded)
    model = chosen.of(survey.design)
    records = model.records(survey.design, survey.confidential)
    program, data = _program_and_data(model, model.compress(records, np.ones(survey.design.n)))
    write_data(data, target)
    return program


def _target(out: Path) -> Path:
    """Return the file to write; raises ``InputError`` if it exists or would be published."""
    target = out.expanduser().resolve()
    if target.exists():
        raise InputError(f"the file {target} exists; name another file.")
    if not target.parent.is_dir():
        raise InputError(f"the folder {target.parent} does not exist; make it or name another.")
    for folder in target.parents:
        if any((folder / name).is_file() for name in ("privacy.json", "release/privacy.json")):
            raise InputError(
                f"{target} would be in the folder of a release, {folder}, and its data are "
                "confidential; name a file elsewhere."
            )
    return target


def _program_and_data(model: Any, stats: Any) -> tuple[Path, dict[str, Any]]:
    """Return the Stan program of a model, and its data for statistics of whole records."""
    from surveysynth._support.resources import stan_directory
    from surveysynth.models.own_stan.model import StanProgram

    if isinstance(model, StanProgram):
        return model.declared.beside(model.declared.program.file), model.data(stats)
    if model.stan is None:
        raise InputError(f"the model {model.name!r} has no Stan program; choose another model.")
    return stan_directory() / model.stan.program, model.stan.data(stats, model.priors)
