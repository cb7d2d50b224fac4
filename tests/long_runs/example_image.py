"""The picture of the README: ``python -m tests.long_runs.example_image``.

The table of means of ``surveysynth example`` and ``surveysynth release``, as its web page shows it.
A release has noise of its own, so every picture is another. Needs chromium.
"""

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from PIL import Image, ImageChops

IMAGE = Path(__file__).parents[2] / "vignettes" / "images" / "means.png"
#: Wider and higher than the table, in pixels of the page; the rest is cut off.
WINDOW = (1000, 1600)
SCALE, MARGIN = 1.33, 12


def made(folder: Path) -> Path:
    """Return the page with the table of means of a new release."""
    run = [sys.executable, "-m", "surveysynth"]
    state = {**os.environ, "XDG_STATE_HOME": str(folder / "state")}
    for arguments in (["example", "ex"], ["release", "ex/spec.toml", "--out", "out"]):
        subprocess.run([*run, *arguments], cwd=folder, env=state, check=True, capture_output=True)
    return folder / "out" / "release" / "tables" / "means.html"


def pictured(page: Path, target: Path) -> None:
    """Write a picture of the page, cut to what it shows."""
    browser = shutil.which("chromium") or shutil.which("google-chrome")
    assert browser is not None, "the picture is taken by chromium, which is not installed"
    shot = page.with_suffix(".png")
    subprocess.run(
        [browser, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         f"--force-device-scale-factor={SCALE}", f"--window-size={WINDOW[0]},{WINDOW[1]}",
         f"--screenshot={shot}", page.as_uri()],
        check=True, capture_output=True, timeout=120,
    )  # fmt: skip
    image = Image.open(shot).convert("RGB")
    shown = ImageChops.difference(image, Image.new("RGB", image.size, "white")).getbbox()
    assert shown is not None
    left, top, right, bottom = shown
    box = (max(left - MARGIN, 0), max(top - MARGIN, 0), right + MARGIN, bottom + MARGIN)
    image.crop(box).quantize(32).save(target, optimize=True)


def main() -> None:
    """Replace the picture."""
    with tempfile.TemporaryDirectory() as name:
        pictured(made(Path(name)), IMAGE)


if __name__ == "__main__":
    main()
