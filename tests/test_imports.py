"""The package's order: who may import whom, read from the sources, and that importing is quiet."""

import ast
import subprocess
import sys
from collections.abc import Iterator
from dataclasses import dataclass
from functools import cache
from graphlib import CycleError, TopologicalSorter
from importlib import import_module
from pathlib import Path

import pytest

import surveysynth

PACKAGE = Path(surveysynth.__file__).parent

#: From the first to the last, each with a rank of its own: a module imports from its own package
#: and those before it, so that no two packages import each other.
RANKS = (
    "errors", "_support", "survey", "sampling", "models", "mechanisms", "inference", "estimation",
    "config", "release", "evaluation", "api", "datasets", "cli", "__main__",
)  # fmt: skip
#: Allowed to see confidential data: no release may rest on them.
BESIDE_RELEASE = ("evaluation",)

#: What these import comes from private draws and public inputs alone.
PUBLIC_SIDE = ("inference", "estimation", "release")
CONFIDENTIAL_NAMES = {"Confidential", "ConfidentialFit", "Survey", "read_survey"}
#: The path that runs the mechanism, and the one file that fills ``confidential/``.
MAY_SEE_CONFIDENTIAL = {"release.pipeline", "release.run", "release.files"}

MOST_LINES_OF_A_MODULE, MOST_LINES_OF_A_FUNCTION = 700, 60


@dataclass(frozen=True)
class Import:
    """``importer`` (dotted, without the package) imports ``name`` from ``module`` in a line."""

    importer: str
    module: str
    name: str
    line: int

    def __str__(self) -> str:
        return f"{self.importer}:{self.line} imports {self.module} ({self.name})"


def modules_of(package: Path) -> dict[str, Path]:
    """Dotted names, without the package's own, of all modules but the package's __init__."""
    names = {}
    for path in sorted(package.rglob("*.py")):
        parts = path.relative_to(package).with_suffix("").parts
        name = ".".join(parts[:-1] if parts[-1] == "__init__" else parts)
        if name:
            names[name] = path
    return names


@cache
def nodes_of(text: str) -> tuple[ast.AST, ...]:
    """Of a module, of whose text the checks ask again and again."""
    return tuple(ast.walk(ast.parse(text)))


def imports_of(package: Path) -> Iterator[Import]:
    """Every import of one module of the package by another, inside functions too."""
    modules = modules_of(package)
    for importer, path in modules.items():
        for node in nodes_of(path.read_text(encoding="utf-8")):
            if isinstance(node, ast.Import):
                for alias in node.names:
                    top, _, module = alias.name.partition(".")
                    if top == package.name:
                        yield Import(importer, module, "*", node.lineno)
            elif isinstance(node, ast.ImportFrom):
                assert node.level == 0, f"{importer}:{node.lineno} has a relative import"
                top, _, module = (node.module or "").partition(".")
                if top != package.name:
                    continue
                for alias in node.names:
                    inner = f"{module}.{alias.name}".strip(".")
                    target = inner if inner in modules else module
                    yield Import(importer, target, alias.name, node.lineno)


def rank(module: str) -> int:
    name = module.partition(".")[0]
    assert name in RANKS, f"give {name!r} a rank of its own in this test"
    return RANKS.index(name)


def upward_imports(package: Path) -> list[str]:
    return [str(each) for each in imports_of(package) if rank(each.module) > rank(each.importer)]


def circle_of_files(package: Path) -> list[str]:
    """Files that import each other, at whatever distance: one such circle, or none.

    An import of a package stands for its __init__ alone."""
    needs: dict[str, set[str]] = {}
    for each in imports_of(package):
        needs.setdefault(each.importer, set()).add(each.module)
    try:
        TopologicalSorter(needs).prepare()
    except CycleError as error:
        return list(error.args[1])
    return []


def lines_of_code(function: ast.FunctionDef) -> int:
    """Lines of a function but those of its docstring, which is read by itself: an argument that is
    explained makes no function longer."""
    first, *_ = function.body
    documented = isinstance(first, ast.Expr) and isinstance(first.value, ast.Constant)
    assert function.end_lineno is not None
    assert first.end_lineno is not None
    docstring = first.end_lineno - first.lineno + 1 if documented else 0
    return function.end_lineno - function.lineno + 1 - docstring


def large_pieces(package: Path) -> list[str]:
    """Modules and functions with too many lines."""
    found = []
    for name, path in modules_of(package).items():
        text = path.read_text(encoding="utf-8")
        if text.count("\n") > MOST_LINES_OF_A_MODULE:
            found.append(name)
        found += [
            f"{name}.{node.name}" for node in nodes_of(text)
            if isinstance(node, ast.FunctionDef)
            and lines_of_code(node) > MOST_LINES_OF_A_FUNCTION
        ]  # fmt: skip
    return found


def private_modules(package: Path) -> list[str]:
    """Files with a private name: who may use what is in a file, its folder says."""
    return [
        name
        for name, path in modules_of(package).items()
        if path.name.startswith("_") and path.name not in ("__init__.py", "__main__.py")
    ]


def confidential_imports(package: Path) -> list[str]:
    return [
        str(each)
        for each in imports_of(package)
        if each.importer.partition(".")[0] in PUBLIC_SIDE
        and each.importer not in MAY_SEE_CONFIDENTIAL
        and (each.name in CONFIDENTIAL_NAMES or each.name == "*")
    ]


def within(module: str, packages: tuple[str, ...]) -> bool:
    return any(f"{module}.".startswith(f"{package}.") for package in packages)


def imports_beside_the_release(package: Path) -> list[str]:
    """What ends in a release may not rest on what sees confidential data, at any distance."""
    return [
        str(each)
        for each in imports_of(package)
        if within(each.importer, PUBLIC_SIDE) and within(each.module, BESIDE_RELEASE)
    ]


def test_imports_go_one_way() -> None:
    assert upward_imports(PACKAGE) == []


def test_every_package_has_a_rank() -> None:
    assert min(rank(module) for module in modules_of(PACKAGE)) == 0


def test_no_files_import_each_other() -> None:
    assert circle_of_files(PACKAGE) == []


def test_modules_and_functions_can_be_read_at_a_sitting() -> None:
    assert large_pieces(PACKAGE) == []


def test_no_module_has_a_private_name() -> None:
    assert private_modules(PACKAGE) == []


def test_only_the_front_imports_the_public_names() -> None:
    # `from surveysynth import Survey` inside the package would hide which layer it reaches into.
    assert [str(each) for each in imports_of(PACKAGE) if not each.module] == []


def test_the_public_side_never_sees_confidential_types() -> None:
    assert confidential_imports(PACKAGE) == []


def test_no_release_rests_on_what_sees_confidential_data() -> None:
    assert imports_beside_the_release(PACKAGE) == []


@pytest.mark.parametrize(
    ("file", "line", "finds"),
    [
        ("estimation/taylor.py", "from surveysynth.release.tables.table import make_table", "up"),
        ("models/base.py", "def fit():\n    from surveysynth.mechanisms import base", "up"),
        ("survey/survey.py", "import surveysynth.cli", "up"),
        ("sampling/plan.py", "from surveysynth.models.base import Model", "up"),
        ("config/spec.py", "from surveysynth.release.pipeline import release", "up"),
        ("survey/files.py", "from surveysynth.survey.survey import Survey", "circle"),
        ("release/pipeline.py", "from surveysynth.survey.survey import Confidential", ""),
        ("release/readme.py", "from surveysynth.survey.survey import Confidential", "confidential"),
        ("inference/debias.py", "from surveysynth.survey.survey import Survey", "confidential"),
        ("estimation/domains.py", "import surveysynth.survey.survey", "confidential"),
        ("release/pipeline.py", "def f():\n    import surveysynth.evaluation.methods", "up beside"),
        ("estimation/taylor.py", "from surveysynth.evaluation import methods", "up beside"),
        ("release/pipeline.py", "from surveysynth.evaluation import microdata", "up beside"),
        ("evaluation/methods.py", "from surveysynth.survey.survey import Confidential", ""),
        ("release/readme.py", "from surveysynth.survey.survey import PublicDesign", ""),
        ("release/_words.py", "", "private"),
        ("release/long.py", "\n" * 701, "large"),
        ("release/long.py", "def f():\n" + "    pass\n" * 60, "large"),
        ("release/long.py", "def f():\n" + "    pass\n" * 59, ""),
        ("release/long.py", 'def f():\n    """A.\n\n    B.\n    """\n' + "    pass\n" * 59, ""),
        ("release/long.py", 'def f():\n    """A."""\n' + "    pass\n" * 60, "large"),
        ("cli.py", "from surveysynth.release import run", ""),
    ],
)
def test_the_checks_find_what_they_look_for(
    tmp_path: Path, file: str, line: str, finds: str
) -> None:
    package = tmp_path / "surveysynth"
    sources = {
        "survey/survey.py": "from surveysynth.survey import files",
        **dict.fromkeys(["survey/files.py", "mechanisms/base.py", "cli.py", "models/base.py"], ""),
        **dict.fromkeys(["evaluation/microdata.py", "release/pipeline.py"], ""),
        "evaluation/methods.py": "",
        **dict.fromkeys(["release/tables/table.py", "__init__.py"], ""),
    }
    for name, text in {**sources, file: line}.items():
        path = package / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
    checks = {
        "up": upward_imports, "circle": circle_of_files, "confidential": confidential_imports,
        "beside": imports_beside_the_release, "private": private_modules, "large": large_pieces,
    }  # fmt: skip
    assert {name for name, check in checks.items() if check(package)} == set(finds.split())


def _acts_on_import(statement: ast.stmt) -> bool:
    """Whether a statement at the top of a module does more than define and import."""
    if isinstance(statement, ast.If):
        # Type checkers' imports, and what `python module.py` runs.
        test = ast.unparse(statement.test)
        return test not in ("TYPE_CHECKING", "__name__ == '__main__'")
    definitions = (ast.Import, ast.ImportFrom, ast.FunctionDef, ast.ClassDef, ast.Assign,
                   ast.AnnAssign)  # fmt: skip
    docstring = isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Constant)
    return not (docstring or isinstance(statement, definitions))


def test_modules_only_define() -> None:
    found = [
        f"{module}:{statement.lineno}"
        for module, path in modules_of(PACKAGE).items()
        for statement in nodes_of(path.read_text(encoding="utf-8"))[0].body
        if _acts_on_import(statement)
    ]
    assert found == []


def test_importing_everything_changes_nothing(tmp_path: Path) -> None:
    modules = [f"surveysynth.{name}" for name in modules_of(PACKAGE) if name != "__main__"]
    program = f"""
import logging, os, signal, sys
import numpy, scipy.stats, pandas, formulaic, pydantic, typer, great_tables, pyarrow.parquet
from importlib import import_module
def state():
    handlers = [signal.getsignal(each) for each in (signal.SIGINT, signal.SIGTERM)]
    seed = numpy.random.get_state()[1].tobytes()
    return dict(os.environ), os.getcwd(), handlers, logging.root.handlers[:], seed, sys.excepthook
before = state()
for module in {modules!r}:
    import_module(module)
assert state() == before
"""
    done = subprocess.run(
        [sys.executable, "-c", program], capture_output=True, text=True, check=False, cwd=tmp_path
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert list(tmp_path.iterdir()) == []


def _loaded_by(program: str, *, whole: bool = False) -> set[str]:
    done = subprocess.run(
        [sys.executable, "-c", f"import sys\n{program}\nprint(*sys.modules)"],
        capture_output=True,
        text=True,
        check=True,
    )
    return {name if whole else name.partition(".")[0] for name in done.stdout.split()}


def test_import_surveysynth_is_light() -> None:
    loaded = _loaded_by("import surveysynth; surveysynth.__version__; surveysynth.errors")
    assert "surveysynth" in loaded
    assert not loaded & {"numpy", "pandas", "scipy", "pydantic", "typer", "rich"}


#: Each takes a tenth of a second or more to import, and tables need none of them.
HEAVY = {
    "scipy.stats", "scipy.optimize", "formulaic", "matplotlib", "statsmodels", "great_tables",
    "xlsxwriter", "odf", "pyreadstat", "jinja2", "rich", "typer", "pyarrow.parquet", "samplics",
    "cmdstanpy",
}  # fmt: skip


def test_tables_are_imported_without_heavy_modules() -> None:
    loaded = _loaded_by("import surveysynth; surveysynth.tables", whole=True)
    assert "pandas" in loaded
    assert not loaded & HEAVY


def test_public_names_are_imported_without_what_few_of_them_need() -> None:
    # All commands are among them; samplics warns when it is imported, CmdStanPy is for engines not
    # asked for.
    loaded = _loaded_by("from surveysynth import *", whole=True)
    assert not loaded & (HEAVY - {"pyarrow.parquet"})


def test_public_names_are_what_the_stub_names() -> None:
    tree = ast.parse((PACKAGE / "__init__.pyi").read_text(encoding="utf-8"))
    named = {
        alias.name: f"surveysynth.{node.module}" if node.module else "surveysynth"
        for node in tree.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    assert sorted(named) == sorted(surveysynth.__all__)
    assert set(surveysynth.__all__) < set(dir(surveysynth))
    for name, module in named.items():
        public = getattr(surveysynth, name)
        assert public is not None
        # The function or class itself, under its own name.
        assert public is getattr(import_module(module), name)


def test_an_unknown_name_is_an_attribute_error() -> None:
    with pytest.raises(AttributeError, match="no attribute 'Surevy'"):
        surveysynth.Surevy  # noqa: B018
