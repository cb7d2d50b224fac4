"""Build the documentation, without a network; a warning is an error.

    python -m vignettes.build [--open] [--out DIR]

needs the extra docs. Unchanged pages are not built again.
"""

import argparse
import subprocess
import sys
import webbrowser
from pathlib import Path

PAGES = Path(__file__).parent


def main() -> int:
    """Run Sphinx and return its exit code."""
    parser = argparse.ArgumentParser(prog="python -m vignettes.build", description=__doc__)
    parser.add_argument("--out", type=Path, default=PAGES.parent / "build" / "site")
    parser.add_argument("--open", action="store_true", help="show it in a browser")
    given = parser.parse_args()
    target = given.out.resolve()
    done = subprocess.run(
        [sys.executable, "-m", "sphinx", "--fail-on-warning", "--keep-going", "--quiet",
         "-b", "html", "-d", str(target.with_name(f"{target.name}-doctrees")),
         str(PAGES), str(target)],
        check=False,
    )  # fmt: skip
    if done.returncode == 0:
        print(f"Documentation: {target / 'index.html'}")
        if given.open:
            webbrowser.open((target / "index.html").as_uri())
    return done.returncode


if __name__ == "__main__":
    sys.exit(main())
