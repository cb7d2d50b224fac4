"""Which tests need what: slow ones on request, Stan ones where their tools are installed."""

import atexit
import hashlib
import itertools
import os
import shutil
import tempfile
import time
from collections.abc import Callable, Generator, Iterator
from importlib.util import find_spec
from types import SimpleNamespace
from typing import Any

import hypothesis
import pytest

# Before NumPy is imported: workers with several BLAS threads each would fight for the processors.
for _variable in ("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS", "MKL_NUM_THREADS"):
    os.environ.setdefault(_variable, "1")

REQUIRE_PYSTAN = "SURVEYSYNTH_REQUIRE_PYSTAN"

CPU_SECONDS = "cpu_seconds"
#: CPU seconds of a test's call: more than these are reported, and more than those fail. Those of
#: one test differ by a factor of three where others use the machine.
MANY_CPU_SECONDS, MOST_CPU_SECONDS = 2, 20
#: Tests that may take longer.
_LONG = ("slow", "pages", "pystan", "cmdstan")

# Ledgers of the tests are not those of whoever runs them; what tests start inherits this.
os.environ["XDG_STATE_HOME"] = tempfile.mkdtemp(prefix="surveysynth-test-state-")
atexit.register(shutil.rmtree, os.environ["XDG_STATE_HOME"], ignore_errors=True)

# How long an example takes says more about the machine's other work than about the code.
hypothesis.settings.register_profile("surveysynth", hypothesis.settings(), deadline=None)
hypothesis.settings.load_profile("surveysynth")


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add ``--run-slow``, for the tests that take minutes, and ``--run-pages``."""
    parser.addoption("--run-slow", action="store_true", help="also run tests marked slow")
    parser.addoption("--run-pages", action="store_true", help="also run the documentation pages")


class _Bytes:
    """In place of the operating system's random bytes: those of whatever asks for them.

    A release's randomness is fresh, and a test that judges what was drawn would fail once in a
    while, on a machine where nobody can look. Each test and each shared fixture has its own bytes,
    whichever worker runs it and whatever ran before; processes that a test starts have fresh ones.
    """

    def __init__(self) -> None:
        self._name, self._calls = b"", itertools.count()

    def __call__(self, size: int) -> bytes:
        return hashlib.shake_256(b"%s %d" % (self._name, next(self._calls))).digest(size)

    def start(self, name: str) -> tuple[bytes, Iterator[int]]:
        """Begin with the first bytes of ``name``; what was before is returned."""
        before = self._name, self._calls
        self._name, self._calls = name.encode(), itertools.count()
        return before

    def go_on(self, before: tuple[bytes, Iterator[int]]) -> None:
        """Go on where ``start`` left off."""
        self._name, self._calls = before


_BYTES = _Bytes()


@pytest.fixture(scope="session", autouse=True)
def _bytes_of_the_system() -> Iterator[None]:
    from surveysynth.mechanisms.noisy_statistics.release import noise
    from surveysynth.sampling import randomness

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(noise, "os", SimpleNamespace(urandom=_BYTES))
        patch.setattr(randomness, "secrets", SimpleNamespace(token_bytes=_BYTES))
        yield


@pytest.hookimpl(wrapper=True)
def pytest_fixture_setup(
    fixturedef: pytest.FixtureDef[Any], request: pytest.FixtureRequest
) -> Generator[None, object, object]:
    """Give a fixture that tests share the same bytes, whichever of them is the first."""
    if fixturedef.scope == "function":
        return (yield)
    before = _BYTES.start(f"{fixturedef.baseid}::{fixturedef.argname} {request.param_index}")
    try:
        return (yield)
    finally:
        _BYTES.go_on(before)


@pytest.hookimpl(tryfirst=True)
def pytest_runtest_setup(item: pytest.Item) -> None:
    """Skip, with the reason, what cannot run here; fail where a skip is forbidden."""
    # Not the node's identity, to which xdist adds the group.
    _BYTES.start(f"{item.location[0]}::{item.location[2]}")
    if item.get_closest_marker("slow") and not item.config.getoption("--run-slow"):
        pytest.skip("slow: minutes long; run with --run-slow")
    if item.get_closest_marker("pages") and not item.config.getoption("--run-pages"):
        pytest.skip("pages: runs a whole page of the documentation; run with --run-pages")
    for marker, reason_of in _TOOLS.items():
        reason = reason_of() if item.get_closest_marker(marker) else None
        if reason and marker == "pystan" and os.environ.get(REQUIRE_PYSTAN) == "1":
            pytest.fail(f"{reason}; {REQUIRE_PYSTAN}=1 forbids the skip", pytrace=False)
        if reason:
            pytest.skip(reason)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_call(item: pytest.Item) -> Generator[None, object, object]:
    """Keep the CPU seconds of a test; fail one that takes far too many without saying so."""
    before = time.process_time()
    result = yield
    seconds = time.process_time() - before
    item.user_properties.append((CPU_SECONDS, seconds))
    if seconds > MOST_CPU_SECONDS and not any(map(item.get_closest_marker, _LONG)):
        pytest.fail(
            f"the test took {seconds:.1f} CPU seconds, more than {MOST_CPU_SECONDS}: mark it slow, "
            "or share what it makes",
            pytrace=False,
        )
    return result


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Name the tests that took more CPU seconds than a test should."""
    found = [
        (seconds, report.nodeid)
        for report in terminalreporter.stats.get("passed", [])
        for name, seconds in report.user_properties
        if name == CPU_SECONDS and report.when == "call" and seconds > MANY_CPU_SECONDS
    ]
    if found:
        terminalreporter.section(f"{len(found)} tests of more than {MANY_CPU_SECONDS} CPU seconds")
        for seconds, name in sorted(found, reverse=True):
            terminalreporter.write_line(f"{seconds:6.1f} {name}")


def _without_pystan() -> str | None:
    # Not "stan": the folder of that name in a checkout looks like a package too.
    if find_spec("httpstan") is None:
        return 'pystan: PyStan is not installed; pip install -e ".[stan]"'
    if shutil.which("g++") is None:
        return "pystan: there is no C++ compiler (g++)"
    return None


def _without_cmdstan() -> str | None:
    import cmdstanpy

    try:
        cmdstanpy.cmdstan_path()
    except ValueError:
        return "cmdstan: CmdStan is not installed; python -m cmdstanpy.install_cmdstan"
    return None


_TOOLS: dict[str, Callable[[], str | None]] = {
    "pystan": _without_pystan,
    "cmdstan": _without_cmdstan,
}
