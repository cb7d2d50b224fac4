"""A synthesizer of the caller's own: a Stan program and a small toml file that declares it.

    [program]
    file = "student_t.stan"            # relative to this file
    title = "Student-t regression"     # for the privacy statement
    executable = "student_t"           # optional: compiled beforehand; CmdStan is then not needed
    adapt_delta = 0.9                  # optional

    [data]                             # what each variable of the data block is
    n = "records"
    X = "matrix"
    y = "outcome"
    log_w = "log_weight"
    alpha = "risk_weights"             # all sources: ``SOURCES`` and ``COLUMN_SOURCES``

    [priors]                           # numbers passed as data; the specification may override
    coefficient_scale = 10.0

    [output]
    parameters = ["beta", "sigma"]     # watched for convergence, and what simulate is given
    log_lik = "log_lik"                # (n), each record's log-likelihood, unweighted
    outcome = "y_rep"                  # generated quantities: one synthetic dataset a draw,
    log_weight = "log_w_rep"           # on the scale of the data: transformed outcome, log weight
    smooth_weight = "w_smooth"         # optional (n), in the units of the weight
    # instead of these three:
    simulate = "student_t.py:simulate"            # f(theta, design, rng) -> z (n, p + 1)
    scales = ["sigma"]                            # optional: positive parameters, debiased by
                                                  # about a hundred fits more
    smooth_weight = "student_t.py:smooth_weight"  # optional: f(theta, design, z) -> weight (n,)

The program must raise each record's likelihood to its risk weight, ``target += alpha[i] * ..``, for
outcome and weight together, have proper priors that do not use outcomes or weights, and generate
data from parameters and public data alone. Before the first fit, whatever can be checked is checked
on the records themselves (``check_contract``).
"""

from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import MappingProxyType
from typing import Any

import numpy as np

from surveysynth._support.confidential import Unpickled
from surveysynth._support.messages import listing, nearest
from surveysynth._support.types import DIVERGENT, INTERNAL_SUFFIX, FloatArray, IntArray, Theta
from surveysynth.errors import InputError
from surveysynth.models.base import Simulated, SimulationKind
from surveysynth.models.own_stan_file import (
    Function,
    ProgramFile,
    check_declared,
    load_function,
    load_program_file,
)
from surveysynth.models.weighted import WeightedModel
from surveysynth.sampling.plan import SamplingPlan
from surveysynth.sampling.stan.backends import (
    MIN_WARMUP,
    CmdStanBackend,
    StanBackend,
    default_backend,
    seed_from,
)
from surveysynth.sampling.stan.source import StanSource
from surveysynth.survey.columns import encode
from surveysynth.survey.survey import Confidential, PublicDesign

#: Log-likelihoods of the records among the draws: they never leave the mechanism.
LOG_LIK = "log_lik" + INTERNAL_SUFFIX
#: Sources of data that are confidential.
CONFIDENTIAL = ("outcome", "integer_outcome", "outcomes", "log_weight", "risk_weights")
#: Records in one block of streamed log-likelihoods.
BLOCK_RECORDS = 1024
#: Of the trial fits of ``check_contract``.
_PLAN = SamplingPlan(chains=1, warmup=MIN_WARMUP, draws=8)
_SEED = 1


@dataclass(frozen=True, repr=False)
class ProgramRecords(Unpickled):
    """Records on the program's scale: z (n, p + 1), the log weight last; and the public data."""

    z: FloatArray
    public: Mapping[str, Any]


@dataclass(frozen=True, repr=False)
class ProgramStats(Unpickled):
    """Records and their risk weights alpha (n,): a user's program sees every record."""

    records: ProgramRecords
    risk_weights: FloatArray


@dataclass(frozen=True, eq=False)
class StanProgram(WeightedModel):
    """A user's Stan program as a model, made by ``StanProgram.load``."""

    declared: ProgramFile
    source: StanSource
    backend: StanBackend
    functions: Mapping[str, Function] = field(default_factory=dict)

    compiled = True

    def __post_init__(self) -> None:
        """Take the priors of the declaration, whatever numbers they are."""
        priors = MappingProxyType(self.declared.priors)
        object.__setattr__(self, "priors", priors)  # the dataclass is frozen

    @classmethod
    def load(
        cls,
        path: str | Path,
        *,
        priors: Mapping[str, float] | None = None,
        backend: StanBackend | None = None,
    ) -> "StanProgram":
        """Read a declaration and its program and check that they agree.

        ``priors`` overrides [priors] by name; ``backend`` is CmdStan unless given. Raises
        ``InputError`` for everything that does not fit.
        """
        declared = load_program_file(path)
        for name in priors or {}:
            if name not in declared.priors:
                raise InputError(
                    f"priors: unknown name {name!r} for the model {declared.name!r}."
                    f"{nearest(name, declared.priors)} Known: {listing(tuple(declared.priors))}."
                )
        declared = declared.model_copy(update={"priors": {**declared.priors, **(priors or {})}})
        source = StanSource.read(declared.beside(declared.program.file))
        check_declared(declared, source)
        executable = declared.program.executable
        if backend is None:
            backend = default_backend()
            if executable is not None:
                backend = CmdStanBackend(declared.beside(executable))
        output = declared.output
        given = {"simulate": output.simulate}
        if not output.generated:
            given["smooth_weight"] = output.smooth_weight
        functions = {k: load_function(declared, v) for k, v in given.items() if v is not None}
        return cls(declared, source, backend, functions)

    @property
    def name(self) -> str:
        """Name of the TOML file, without its suffix."""
        return self.declared.name

    @property
    def title(self) -> str:
        """Title that the file gives."""
        return self.declared.program.title

    @property
    def requires(self) -> frozenset[str]:
        """A weight; one outcome and a population size where the program uses them."""
        sources = set(self.declared.data.values())
        single = {"one_outcome"} if "outcomes" not in sources else set()
        return frozenset({"weight", *single, *(sources & {"population_size"})})

    @property
    def datasets_per_draw(self) -> int | None:
        """1 if generated quantities are the data, otherwise any number."""
        return 1 if self.declared.output.generated else None

    def prepare(self) -> None:
        """Compile the program, unless that is done; raise ``InputError`` where that fails."""
        self.backend.prepare(self.source)

    def versions(self) -> dict[str, str]:
        """Return names and versions of what runs the program."""
        return self.backend.versions(self.source)

    def records(self, design: PublicDesign, confidential: Confidential) -> ProgramRecords:
        """Check the contract on the confidential records and return them.

        A public weight is included like a confidential one: programs are written for both.
        """
        if design.public_weight is not None:
            confidential = Confidential(confidential.outcome, design.public_weight)
        records: ProgramRecords = super().records(design, confidential)
        check_contract(self, records)
        return records

    def records_from_simulated(self, design: PublicDesign, simulated: Simulated) -> ProgramRecords:
        """Return the records of a dataset on the program's scale."""
        public = {
            name: public_data(source, design)
            for name, source in self.declared.data.items()
            if source not in CONFIDENTIAL
        }
        return ProgramRecords(simulated.z, public)

    def compress(self, records: ProgramRecords, risk_weights: FloatArray) -> ProgramStats:
        """Return records and weights unchanged."""
        return ProgramStats(records, risk_weights)

    def data(self, stats: ProgramStats) -> dict[str, Any]:
        """Return the program's data."""
        z, alpha = stats.records.z, stats.risk_weights
        confidential = {
            name: confidential_data(source, z, alpha)
            for name, source in self.declared.data.items()
            if source in CONFIDENTIAL
        }
        return {**self.priors, **stats.records.public, **confidential}

    def sample(self, stats: ProgramStats, plan: SamplingPlan, rng: np.random.Generator) -> Theta:
        """Draw by NUTS, leading axes (1, chains, draws).

        The result holds what may be released of a draw and, with names that end in two underscores,
        log-likelihoods (.., n) and divergences. Raises ``InputError`` where the fit lacks what the
        declaration names.
        """
        run = self.backend.run(
            self.source, self.data(stats), plan, seed=seed_from(rng),
            adapt_delta=self.declared.program.adapt_delta,
        )  # fmt: skip
        output, n = self.declared.output, stats.records.z.shape[0]
        shapes: dict[str, tuple[int, ...]] = {output.log_lik: (n,)}
        if output.generated:
            p = stats.records.z.shape[1] - 1
            shapes |= {str(output.outcome): (n, p), str(output.log_weight): (n,)}
            if output.smooth_weight:
                shapes[output.smooth_weight] = (n,)
        found: Theta = {}
        for name in (*output.released, output.log_lik):
            values = run.draws.get(name)
            if values is None:
                raise InputError(f"{self.name}: the fit has no variable {name!r}.")
            expected = shapes.get(name)
            if expected is not None:
                values = _shaped(values, expected, f"{self.name}: {name!r}", lead=2)
            found[name] = values[None]
        log_lik = found.pop(output.log_lik)
        return {**found, LOG_LIK: log_lik, DIVERGENT: run.divergent[None].astype(np.float64)}

    def monitored(self, theta: Theta) -> dict[str, FloatArray]:
        """Return the declared parameters without constant elements.

        A correlation of 1 with itself is constant in all draws of all chains.
        """
        lead = theta[LOG_LIK].shape[:-1]
        result = {}
        for name in self.declared.output.parameters:
            values = theta[name].reshape(*lead, -1)
            flat = values.reshape(-1, values.shape[-1])
            moving = np.any(flat != flat[:1], axis=0)
            result[name] = values[..., moving] if moving.any() else values
        return result

    def log_lik_blocks(
        self, theta: Theta, records: ProgramRecords
    ) -> Iterator[tuple[IntArray, FloatArray]]:
        """Stream the log-likelihoods that the program computed."""
        log_lik = theta[LOG_LIK]
        for begin in range(0, log_lik.shape[1], BLOCK_RECORDS):
            rows = np.arange(begin, min(begin + BLOCK_RECORDS, log_lik.shape[1]), dtype=np.int64)
            yield rows, log_lik[:, rows]

    def simulate(
        self,
        theta: Theta,
        design: PublicDesign,
        rng: np.random.Generator,
        kind: SimulationKind = "release",
    ) -> Simulated:
        """Return the draw's generated quantities, or what the user's function simulates.

        Generated quantities are one dataset, whatever ``rng``.
        """
        output, shape = self.declared.output, (design.n, len(design.outcome_names) + 1)
        if output.generated:
            outcome = theta[str(output.outcome)].reshape(design.n, -1)
            z = np.concatenate([outcome, theta[str(output.log_weight)][:, None]], axis=1)
        else:
            z = self._call("simulate", theta, design, rng)
        z = _shaped(z, shape, f"{self.name}: the simulated data")
        if design.public_weight is not None:
            z = np.concatenate([z[:, :-1], np.log(design.public_weight)[:, None]], axis=1)
        return Simulated(z)

    def smooth_weight(self, theta: Theta, design: PublicDesign, simulated: Simulated) -> FloatArray:
        """Return smoothed weights (n,) of the program or the user, else the simulated ones."""
        name = self.declared.output.smooth_weight
        if name is None or design.public_weight is not None:
            return self.drawn_weight(design, simulated)
        if self.declared.output.generated:
            return theta[name]
        weight = self._call("smooth_weight", theta, design, simulated.z)
        return _shaped(weight, (design.n,), f"{self.name}: the smoothed weights")

    def _call(self, name: str, theta: Theta, design: PublicDesign, last: Any) -> FloatArray:
        parameters = {key: theta[key] for key in self.declared.output.parameters}
        try:
            return np.asarray(self.functions[name](parameters, design, last), dtype=np.float64)
        except Exception as error:
            raise InputError(
                f"{self.name}: the function {name} raised {type(error).__name__}: {error}"
            ) from None

    def log_scales(self, theta: Theta) -> FloatArray:
        """Return the logs of the declared ``scales``, (S, d); d = 0 if none are declared.

        Raises ``InputError`` for a scale that is not positive.
        """
        lead = next(iter(theta.values())).shape[0]
        columns = [np.empty((lead, 0))]
        for name in self.declared.output.scales:
            if not np.all(theta[name] > 0):
                raise InputError(f"{self.name}: scales: {name!r} is not always positive.")
            columns.append(np.log(theta[name]).reshape(lead, -1))
        return np.concatenate(columns, axis=1)

    def with_log_scales(self, theta: Theta, log_scales: FloatArray) -> Theta:
        """Return the draws with other values of the declared ``scales``."""
        result, first = dict(theta), 0
        for name in self.declared.output.scales:
            shape = theta[name].shape
            last = first + int(np.prod(shape[1:]))
            result[name] = np.exp(log_scales[:, first:last]).reshape(shape)
            first = last
        return result


def _shaped(values: FloatArray, expected: tuple[int, ...], what: str, lead: int = 0) -> FloatArray:
    """Check the shape after ``lead`` axes; a vector is accepted for one column."""
    shape = values.shape[lead:]
    if shape == expected:
        return values
    if len(expected) == 2 and expected[1] == 1 and shape == expected[:1]:
        return values[..., None]
    raise InputError(f"{what} must have the shape {expected} (records first), got {shape}.")


def confidential_data(source: str, z: FloatArray, risk_weights: FloatArray) -> Any:
    """Return the data of a confidential source from z (n, p + 1) and alpha (n,)."""
    if source == "risk_weights":
        return risk_weights
    if source == "log_weight":
        return z[:, -1]
    if source == "outcomes":
        return z[:, :-1]
    if source == "outcome":
        return z[:, 0]
    whole = np.rint(z[:, 0])
    different = int(np.count_nonzero(whole != z[:, 0]))
    if different:
        raise InputError(
            f"integer_outcome: {different:,} records have an outcome that is not a whole number; "
            "use transform = 'identity' and an outcome of whole numbers, or the source 'outcome'."
        )
    return whole.astype(np.int64)


def public_data(source: str, design: PublicDesign) -> Any:
    """Return the data of a public source from a design."""
    matrix = design.matrix
    kind, _, column = source.partition(" ")
    if column:
        return _column_data(kind, column.strip(), design)
    made: dict[str, Callable[[], Any]] = {
        "records": lambda: design.n,
        "columns": lambda: matrix.n_columns,
        "matrix": lambda: matrix.x_cells[matrix.cell],
        "n_outcomes": lambda: len(design.outcome_names),
        "population_size": lambda: design.population_size,
    }
    return made[kind]()


def _column_data(kind: str, column: str, design: PublicDesign) -> Any:
    if column not in design.frame:
        known = [str(name) for name in design.frame.columns]
        raise InputError(
            f"data: there is no public column {column!r} in the design.{nearest(column, known)} "
            "Name it in by, predictors or public_columns."
        )
    values = design.frame[column]
    if kind == "column":
        try:
            return np.asarray(values, dtype=np.float64)
        except ValueError:
            raise InputError(
                f"data: the column {column!r} does not hold numbers; use 'codes'."
            ) from None
    codes, levels = encode(values.astype("str"))
    return len(levels) if kind == "levels" else codes + 1


def check_contract(program: "StanProgram", records: ProgramRecords) -> None:
    """Raise ``InputError`` where the program breaks the contract on these records.

    Four short fits from one seed decide exactly, without statistics, because a sampler repeats
    itself where its density is the same:

    - alpha = 1 and alpha = 1/2 must give different draws, or the risk weights are not used;
    - at alpha = 0 the density is the prior, so two different databases must give the same draws of
      everything that may be released. If not, outcomes or weights bypass the risk weights: in an
      unweighted term, a prior that uses the data, or generated quantities that copy records;
    - log_lik must exist at alpha = 0 (it is unweighted) and differ between the two databases.

    Messages name variables and show no value.
    """
    full = _fit(program, records, 1.0)
    # An infinite log_lik takes its record out later.
    bad = [name for name in program.declared.output.released if not np.isfinite(full[name]).all()]
    if np.isnan(full[LOG_LIK]).any():
        bad.append(program.declared.output.log_lik)
    if bad:
        raise InputError(
            f"{program.name}: {listing(bad)} holds values that are not finite numbers. A "
            "variable that is declared but not filled is one reason."
        )
    half = _fit(program, records, 0.5)
    parameters = program.declared.output.parameters
    if not _differing(full, half, parameters):
        raise InputError(
            f"{program.name}: the risk weights are not used: weights of 1 and of 0.5 give the same "
            "draws. Multiply each record's log-likelihood by its weight: 'target += alpha[i] * ..'."
        )
    prior = _fit(program, records, 0.0)
    # Another database with other means, whose values fit the program's constraints: the records of
    # the lower half of the first outcome, each twice.
    order = np.argsort(records.z[:, 0], kind="stable")
    halved = replace(records, z=records.z[order[np.arange(order.size) // 2]])
    other = _fit(program, halved, 0.0)
    if not np.any(prior[LOG_LIK]):
        raise InputError(
            f"{program.name}: {program.declared.output.log_lik!r} is zero for every record when "
            "the risk weights are. It must be the unweighted log-likelihood: leave the weights out."
        )
    dependent = _differing(prior, other, program.declared.output.released)
    if dependent:
        raise InputError(
            f"{program.name}: with every risk weight at 0 the draws of {listing(dependent)} still "
            "depend on outcomes or sampling weights. Every term with them must be multiplied by "
            "the record's risk weight, priors must be proper and not look at them, and generated "
            "quantities other than log_lik must use parameters and public data alone."
        )
    if np.array_equal(prior[LOG_LIK], other[LOG_LIK]):
        raise InputError(
            f"{program.name}: {program.declared.output.log_lik!r} does not depend on outcomes and "
            "sampling weights. It must be the log-likelihood of each record."
        )


def _fit(program: "StanProgram", records: ProgramRecords, risk_weight: float) -> Theta:
    weights = np.full(records.z.shape[0], risk_weight)
    stats = program.compress(records, weights)
    try:
        return program.sample(stats, _PLAN, np.random.default_rng(_SEED))
    except InputError as error:
        raise InputError(f"{error} (A trial with every risk weight at {risk_weight:g}.)") from None


def _differing(one: Theta, two: Theta, names: tuple[str, ...]) -> list[str]:
    return [name for name in names if not np.array_equal(one[name], two[name], equal_nan=True)]
