"""The TOML file that declares a user's Stan program (``own_stan``)."""

import importlib.util
import re
import tomllib
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Annotated, Any

from pydantic import (
    AfterValidator,
    BaseModel,
    BeforeValidator,
    ConfigDict,
    Field,
    ValidationError,
    model_validator,
)
from pydantic_core import ErrorDetails

from surveysynth._support.messages import listing, nearest, raise_problems
from surveysynth.errors import InputError
from surveysynth.sampling.stan.source import StanSource, declared_names

#: Sources of the program's data variables, with shapes.
SOURCES: Mapping[str, str] = {
    "records": "n, the number of records",
    "columns": "K, the number of columns of X",
    "matrix": "X (n, K), the model matrix of the predictors",
    "outcome": "(n), the outcome after its transform",
    "integer_outcome": "(n), an outcome of whole numbers, as integers",
    "outcomes": "(n, p), several outcomes after their transforms",
    "n_outcomes": "p, the number of outcomes",
    "log_weight": "(n), log of the sampling weight, public or not",
    "risk_weights": "(n), the risk weights alpha in [0, 1]",
    "population_size": "the public number of units",
}
#: Sources that name one public column, written ``"column age"``.
COLUMN_SOURCES: Mapping[str, str] = {
    "column": "(n), a public column of numbers",
    "codes": "(n), levels of a public column as 1, 2, ..",
    "levels": "the number of levels of a public column",
}
OUTCOME_SOURCES = ("outcome", "integer_outcome", "outcomes")
FUNCTION = re.compile(r"^(?P<file>[^:]+\.py):(?P<function>[A-Za-z_]\w*)$")

_TYPE_WORDS = {
    "string_type": "a text in quotes",
    "float_type": "a number",
    "finite_number": "a finite number",
    "tuple_type": "a list",
    "dict_type": "a table of keys",
    "model_type": "a section of keys",
    "too_short": "at least one entry",
    "string_too_short": "a text that is not empty",
    "greater_than": "a number above 0 and below 1",
    "less_than": "a number above 0 and below 1",
}


def _variable(name: str) -> str:
    if not re.fullmatch(r"[A-Za-z]\w*", name) or name.endswith("__"):
        raise ValueError(f"expected the name of a Stan variable, got {name!r}.")
    return name


def _function(value: str) -> str:
    if not FUNCTION.match(value):
        raise ValueError(f"expected 'file.py:function', got {value!r}.")
    return value


def _source(value: str) -> str:
    kind, _, column = value.partition(" ")
    if (value in SOURCES and not column) or (kind in COLUMN_SOURCES and column.strip()):
        return value
    known = [*SOURCES, *(f"{kind} NAME" for kind in COLUMN_SOURCES)]
    raise ValueError(f"unknown source {value!r}.{nearest(value, SOURCES)} Known: {_all(known)}.")


def _all(names: list[str]) -> str:
    return listing(names, limit=40)


Text = Annotated[str, Field(min_length=1)]
Variable = Annotated[str, AfterValidator(_variable)]


Variables = Annotated[
    tuple[Variable, ...],
    BeforeValidator(lambda value: tuple(value) if isinstance(value, list) else value),
]


class _Section(BaseModel):
    model_config = ConfigDict(frozen=True, extra="forbid", strict=True, allow_inf_nan=False)


class ProgramSection(_Section):
    """Section ``[program]``: the files and the sampler; paths are relative to the TOML file."""

    file: Text
    title: Text
    executable: Text | None = None
    adapt_delta: Annotated[float, Field(gt=0, lt=1)] = 0.9


class OutputSection(_Section):
    """Section ``[output]``: variables read from a fit, and how a draw generates data."""

    parameters: Annotated[Variables, Field(min_length=1)]
    log_lik: Variable = "log_lik"
    outcome: Variable | None = None
    log_weight: Variable | None = None
    simulate: Annotated[str, AfterValidator(_function)] | None = None
    smooth_weight: Text | None = None
    scales: Variables = ()

    @model_validator(mode="after")
    def _one_way(self) -> "OutputSection":
        if self.simulate is None:
            if self.outcome is None or self.log_weight is None:
                raise ValueError(
                    "give outcome and log_weight, generated quantities that simulate a dataset, "
                    "or simulate = 'file.py:function'."
                )
        elif self.outcome is not None or self.log_weight is not None:
            raise ValueError(
                "give either simulate, or outcome and log_weight, not both."
            )
        for name in self.scales:
            if name not in self.parameters:
                raise ValueError(f"scales: {name!r} must be one of the parameters.")
        if self.scales and self.generated:
            raise ValueError(
                "scales needs simulate = 'file.py:function': generated quantities were drawn "
                "before debiasing and cannot follow it."
            )
        if self.smooth_weight is not None:
            (_variable if self.generated else _function)(self.smooth_weight)
        return self

    @property
    def generated(self) -> bool:
        """True if the program's generated quantities are the synthetic data."""
        return self.simulate is None

    @property
    def released(self) -> tuple[str, ...]:
        """Variables of a draw that may leave the mechanism."""
        given = (self.outcome, self.log_weight, self.smooth_weight) if self.generated else ()
        return tuple(dict.fromkeys([*self.parameters, *(name for name in given if name)]))


class ProgramFile(_Section):
    """A whole declaration; ``path`` is its file."""

    program: ProgramSection
    data: dict[Variable, Annotated[str, AfterValidator(_source)]]
    priors: dict[Variable, float] = {}
    output: OutputSection
    path: Path

    @model_validator(mode="after")
    def _agree(self) -> "ProgramFile":
        given = list(self.data.values())
        problems = []
        for needed in ("risk_weights", "log_weight"):
            if given.count(needed) != 1:
                problems.append(
                    f"data: one variable must be {needed!r}, {SOURCES[needed]}; "
                    f"got {given.count(needed)}."
                )
        if sum(given.count(kind) for kind in OUTCOME_SOURCES) != 1:
            problems.append(f"data: one variable must be one of {_all(list(OUTCOME_SOURCES))}.")
        both = sorted(set(self.data) & set(self.priors))
        if both:
            problems.append(f"{_all(both)} is both in data and in priors.")
        if problems:
            raise ValueError("\n".join(problems))
        return self

    @property
    def name(self) -> str:
        """File name without its suffix."""
        return self.path.stem

    def beside(self, name: str) -> Path:
        """Return a path relative to the file."""
        return self.path.parent / name


def load_program_file(path: str | Path) -> ProgramFile:
    """Read and validate a declaration; raise ``InputError`` that lists every mistake."""
    path = Path(path)
    try:
        text = path.read_bytes().decode("utf-8-sig")
    except UnicodeDecodeError:
        raise InputError(f"{path} is not UTF-8 text.") from None
    except (OSError, ValueError) as error:
        reason = getattr(error, "strerror", None) or "not a usable path"
        raise InputError(f"The model file {path} cannot be read: {reason}.") from None
    return parse_program_file(text, path)


def parse_program_file(text: str, path: Path) -> ProgramFile:
    """Do as ``load_program_file`` for text; ``path`` roots the paths in it."""
    try:
        content = tomllib.loads(text)
    except (ValueError, RecursionError) as error:
        raise InputError(f"{path} is not valid TOML: {str(error) or 'too deep'}.") from None
    if "path" in content:
        raise InputError(f"{path}: path: unknown key.")
    try:
        return ProgramFile.model_validate({**content, "path": path})
    except ValidationError as error:
        details = error.errors(include_url=False)
    raise_problems(str(path), [line for each in details for line in _describe(each)])
    raise InputError(f"{path} is not valid.")


def _describe(details: ErrorDetails) -> list[str]:
    kind, location = details["type"], details["loc"]
    where = ".".join(str(part) for part in location if part != "[key]")
    context: Mapping[str, Any] = details.get("ctx", {})
    if kind == "value_error":
        lines = str(context["error"]).split("\n")
        return [f"{where}: {line}" if where else line for line in lines]
    if kind == "extra_forbidden":
        known = list(_KEYS.get(str(location[0]), ProgramFile).model_fields)
        known = [key for key in (known if len(location) > 1 else _SECTIONS) if key != "path"]
        return [f"{where}: unknown key.{nearest(str(location[-1]), known)} Known: {_all(known)}."]
    if kind == "missing":
        return [f"{where}: missing; this {'key' if len(location) > 1 else 'section'} is required."]
    return [f"{where}: expected {_TYPE_WORDS.get(kind, 'another value')}."]


_KEYS: dict[str, type[BaseModel]] = {"program": ProgramSection, "output": OutputSection}
_SECTIONS = [name for name in ProgramFile.model_fields if name != "path"]


def check_declared(given: ProgramFile, source: StanSource) -> None:
    """Raise ``InputError`` where the declaration and the program's text disagree."""
    declared = declared_names(source)
    data = declared.get("data", ())
    passed = [*given.data, *given.priors]
    output, generated = given.output, declared.get("generated quantities", ())
    blocks = [*declared.get("parameters", ()), *declared.get("transformed parameters", ())]
    problems = [
        f"data: the program's data block declares {name!r}, which neither [data] nor [priors] "
        f"gives.{nearest(name, [p for p in passed if p not in data])}"
        for name in data
        if name not in passed
    ]
    problems += [
        f"{'data' if name in given.data else 'priors'}.{name}: the program's data block has no "
        f"such variable.{nearest(name, data)}"
        for name in passed
        if name not in data
    ]
    quantities = {"log_lik": output.log_lik}
    if output.generated:
        quantities |= {"outcome": str(output.outcome), "log_weight": str(output.log_weight)}
    problems += [
        f"output.{key}: the program has no generated quantity {name!r}."
        f"{nearest(name, generated)}" + (_LOG_LIK if key == "log_lik" else "")
        for key, name in quantities.items()
        if name not in generated
    ]
    known = [*blocks, *generated]
    rest = [*output.parameters, *([output.smooth_weight] if output.generated else [])]
    problems += [
        f"output: the program has no variable {name!r}.{nearest(name, known)}"
        for name in rest
        if name is not None and name not in known
    ]
    raise_problems(f"{given.path} and {given.program.file}", problems)


_LOG_LIK = (
    " It must hold the log-likelihood of each record, outcome and weight together, unweighted: "
    "'vector[n] log_lik;' in generated quantities."
)


Function = Callable[..., Any]


def load_function(declared: ProgramFile, reference: str) -> Function:
    """Return the function of ``file.py:function``; this runs the file's code."""
    found = FUNCTION.match(reference)
    assert found is not None  # checked when the declaration was read
    path = declared.beside(found["file"])
    spec = importlib.util.spec_from_file_location(f"surveysynth_program_{path.stem}", path)
    if not path.is_file() or spec is None or spec.loader is None:
        raise InputError(f"{declared.path}: there is no file {path}.")
    module = importlib.util.module_from_spec(spec)
    try:
        spec.loader.exec_module(module)
        function = getattr(module, found["function"])
    except AttributeError:
        raise InputError(f"{path} has no function {found['function']!r}.") from None
    except Exception as error:
        raise InputError(f"{path} cannot be run: {type(error).__name__}: {error}.") from None
    if not callable(function):
        raise InputError(f"{found['function']!r} in {path} is not a function.")
    return function  # type: ignore[no-any-return]
