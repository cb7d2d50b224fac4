"""A CmdStan that needs no compiler: the real CmdStanPy and make drive it, only the compiled
program is a stand-in, a script that draws from the closed posterior of ``means.stan``.

The script does what the data say in "act": "sample", "kill" (the chain dies), "fail" (an error
that quotes a value, as Stan's do), "diverge" (every draw diverged), "truncate" (output cut short),
"hang" (values written, then nothing more, deaf to Ctrl-C and termination).
"""

import sys
from pathlib import Path

import pytest

PROGRAMS = Path(__file__).parent / "programs"
MEANS = PROGRAMS / "means.stan"

SCRIPT = r"""#!{python}
import json, math, os, random, signal, sys, time
arguments = dict(a.split("=", 1) for a in sys.argv[1:] if "=" in a)
if "info" in sys.argv[1:]:
    print("stan_version_major = 2\nstan_version_minor = 38\nSTAN_THREADS = false")
    sys.exit(0)
files = [a.split("=", 1)[1] for a in sys.argv[1:] if a.startswith("file=")]
data, output = json.load(open(files[0])), files[1]
act, chain = data.get("act", "sample"), int(arguments["id"])
y, log_w, alpha = data["y"], data["log_w"], data["alpha"]
if act == "fail":
    print(f"Exception: means: y[3] is {{y[2]}}, but must be finite! "
          "(in 'means.stan', line 19, column 4 to column 50)")
    sys.exit(70)
if act == "kill" and chain == 2:
    os.kill(os.getpid(), signal.SIGKILL)
if act == "hang":
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    signal.signal(signal.SIGTERM, signal.SIG_IGN)
    with open(output, "w") as csv:
        csv.write(f"# started {{y}}\n")
    print(y, flush=True)
    time.sleep(600)
print("Informational Message: rejected because y is", y[0])
print("Exception: y is", y[0])
rng = random.Random(1000 * int(arguments["seed"]) + chain)
precision = data["prior_sd"] ** -2 + sum(alpha)
means = [sum(a * v for a, v in zip(alpha, z)) / precision for z in (y, log_w)]
names = ["lp__", "accept_stat__", "stepsize__", "treedepth__", "n_leapfrog__", "divergent__",
         "energy__", "mu.1", "mu.2"]
names += [f"layout.{{i}}.{{j}}" for j in (1, 2, 3) for i in (1, 2)]
names += [f"log_lik.{{i + 1}}" for i in range(len(y))]
draws = int(arguments["num_samples"])
with open(output, "w") as csv:
    csv.write("# stan_version_major = 2\n# stan_version_minor = 38\n# stan_version_patch = 0\n")
    csv.write(f"# model = means\n# method = sample (Default)\n#   num_samples = {{draws}}\n")
    csv.write(f"#   num_warmup = {{arguments['num_warmup']}}\n#   thin = 1 (Default)\n")
    csv.write("#   algorithm = hmc (Default)\n")
    csv.write("#   save_warmup = 0 (Default)\n#     metric = diag_e (Default)\n")
    csv.write("#     max_depth = 10 (Default)\n")
    csv.write(",".join(names) + "\n")
    csv.write("# Adaptation terminated\n# Step size = 0.9\n")
    csv.write("# Diagonal elements of inverse mass matrix:\n# 1\n")
    for s in range(draws // 2 if act == "truncate" else draws):
        mu = [rng.gauss(mean, precision ** -0.5) for mean in means]
        row = [0, 0.9, 0.9, 2, 3, int(act == "diverge"), 0, *mu]
        row += [mu[0] + 10 * i + j for j in (1, 2, 3) for i in (1, 2)]
        row += [-math.log(2 * math.pi) - 0.5 * ((v - mu[0]) ** 2 + (w - mu[1]) ** 2)
                for v, w in zip(y, log_w)]
        csv.write(",".join(map(repr, row)) + "\n")
    csv.write("# \n#  Elapsed Time: 0.1 seconds (Warm-up)\n")
    csv.write("#                0.1 seconds (Sampling)\n")
    csv.write("#                0.2 seconds (Total)\n# \n")
"""

MAKEFILE = """CMDSTAN_VERSION := 2.38.0
%: %.stan
\t@echo '--- Translating Stan model to C++ code ---'
\t@if grep -q 'syntax error here' $<; then \\
\t  echo "Syntax error in 'broken.stan', line 3, column 2 to column 8, parsing error:"; \\
\t  echo '     3:  syntax error here'; exit 1; fi
\t@echo $@ >> {folder}/compiled.txt
\t@cp {folder}/script $@
"""


def fake_program(path: Path) -> Path:
    """The script as an executable file."""
    path.write_text(SCRIPT.format(python=sys.executable), encoding="utf-8")
    path.chmod(0o755)
    return path


def install_fake_cmdstan(folder: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A CmdStan folder that CmdStanPy accepts, made the current one."""
    (folder / "bin").mkdir(parents=True)
    (folder / "bin" / "stanc").touch()  # older CmdStanPy looks for it
    fake_program(folder / "script")
    (folder / "makefile").write_text(MAKEFILE.format(folder=folder), encoding="utf-8")
    monkeypatch.setenv("CMDSTAN", str(folder))
    return folder


def compilations(cmdstan: Path) -> int:
    """How many programs it has compiled."""
    log = cmdstan / "compiled.txt"
    return len(log.read_text().splitlines()) if log.exists() else 0
