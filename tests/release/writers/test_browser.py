"""Pages of a release in Chromium, on a screen of 390 px. Truth: the browser's own boxes, colors and
console; WCAG's formula of contrast, in the page; planted pages that must be found."""

import html
import json
import re
import shutil
import subprocess
from collections.abc import Sequence
from pathlib import Path

import pytest

from surveysynth.api.start import write_example
from surveysynth.release.pipeline import release

CHROMIUM = next(filter(None, map(shutil.which, ("chromium", "chromium-browser"))), None)
pytestmark = pytest.mark.skipif(CHROMIUM is None, reason="Chromium is not installed")
WIDTH = 390
#: The number of Chromium's setting for what a reader prefers.
SCHEMES = {"light": 1, "dark": 0}
#: A page with all others in frames, and for each what is wrong with it.
PROBE = """<!DOCTYPE html><meta charset="utf-8"><body>
%(frames)s<pre id="found"></pre>
<script>
const shown = (e) => e.checkVisibility() && !getComputedStyle(e).clipPath.startsWith("inset(50%%");
const colors = (w, e) => {
  const all = [];
  for (let at = e; at; at = at.parentElement) all.push(w.getComputedStyle(at));
  return all;
};
const numbers = (text) => {
  if (!/^rgba?[(]/.test(text)) throw new Error("a color that this probe does not know: " + text);
  const [r, g, b, a = 1] = text.match(/[\\d.]+/g).map(Number);
  return [r, g, b, a];
};
const over = ([r, g, b, a], below) =>
  [r, g, b].map((each, i) => a * each + (1 - a) * below[i]);
const luminance = (rgb) => rgb.map((each) => each / 255)
  .map((c) => c <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4)
  .reduce((sum, c, i) => sum + [0.2126, 0.7152, 0.0722][i] * c, 0);
const contrast = (w, e) => {
  const styles = colors(w, e), canvas = w.document.createElement("i");
  canvas.style.backgroundColor = "Canvas";
  w.document.body.append(canvas);
  let below = numbers(w.getComputedStyle(canvas).backgroundColor).slice(0, 3);
  canvas.remove();
  for (const each of styles.toReversed()) below = over(numbers(each.backgroundColor), below);
  const [r, g, b, a] = numbers(e instanceof w.SVGElement ? styles[0].fill : styles[0].color);
  const opacity = styles.reduce((product, each) => product * each.opacity, a);
  const two = [over([r, g, b, opacity], below), below].map(luminance).sort((x, y) => y - x);
  return (two[0] + 0.05) / (two[1] + 0.05);
};
const scrolls = (w, e) => {
  for (let at = e; at; at = at.parentElement)
    if (/auto|scroll/.test(w.getComputedStyle(at).overflowX) && at.tabIndex >= 0) return true;
  return false;
};
const problems = (w) => {
  const found = [], root = w.document.documentElement;
  if (root.scrollWidth > w.innerWidth) found.push("overflow: " + root.scrollWidth + " px");
  const texts = w.document.createTreeWalker(w.document.body, NodeFilter.SHOW_TEXT);
  while (texts.nextNode()) {
    const e = texts.currentNode.parentElement, text = texts.currentNode.data.trim().slice(0, 40);
    if (!text || !shown(e) || /^(STYLE|SCRIPT)$/.test(e.tagName)) continue;
    if (contrast(w, e) < 4.5) found.push("contrast " + contrast(w, e).toFixed(2) + ": " + text);
    const range = w.document.createRange();
    range.selectNodeContents(texts.currentNode);
    const box = range.getBoundingClientRect();
    const inside = box.left >= -0.5 && box.right <= w.innerWidth + 0.5;
    if (!inside && !scrolls(w, e)) found.push("out of reach: " + text);
    if (!inside && e.matches("td[headers$='-flag']")) found.push("flag out of sight: " + text);
    if (e.clientWidth && e.scrollWidth > e.clientWidth + 1 &&
        /hidden|clip/.test(w.getComputedStyle(e).overflowX)) found.push("cut off: " + text);
  }
  return found;
};
addEventListener("load", () => {
  const all = [...document.querySelectorAll("iframe")].map((frame) => {
    try {
      const w = frame.contentWindow;
      return {dark: w.matchMedia("(prefers-color-scheme: dark)").matches, width: w.innerWidth,
              texts: w.document.body.innerText.length,
              links: [...w.document.links].map((each) => each.href), problems: problems(w)};
    } catch (error) { return {problems: [String(error)]}; }
  });
  document.getElementById("found").textContent = JSON.stringify(all);
});
</script>"""


def looked_at(pages: Sequence[Path], scheme: str, folder: Path) -> tuple[list[dict], list[str]]:
    """What the probe finds in each page, and the errors in the browser's console."""
    probe = folder / "probe.html"
    style = f"width: {WIDTH}px; height: 844px; border: 0"
    frames = "".join(f'<iframe src="{page.as_uri()}" style="{style}"></iframe>' for page in pages)
    probe.write_text(PROBE % {"frames": frames}, encoding="utf-8")
    done = subprocess.run(
        [str(CHROMIUM), "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars",
         "--disable-dev-shm-usage",
         "--allow-file-access-from-files", f"--user-data-dir={folder}/profile-{scheme}",
         f"--blink-settings=preferredColorScheme={SCHEMES[scheme]}", "--enable-logging=stderr",
         "--virtual-time-budget=10000", "--dump-dom", probe.as_uri()],
        capture_output=True, text=True, timeout=100, check=True,
    )  # fmt: skip
    found = re.search(r'<pre id="found">(.+?)</pre>', done.stdout, re.DOTALL)
    assert found, done.stderr[-2000:]
    console = [line for line in done.stderr.splitlines() if "CONSOLE" in line]
    return json.loads(html.unescape(found[1])), console


def test_every_page_of_a_release(tmp_path: Path, stand_in_posterior: None) -> None:
    _, spec = write_example(tmp_path / "in", 1000)
    release(spec, tmp_path / "out", ledger=tmp_path / "ledger.jsonl", seed=1)
    pages = sorted((tmp_path / "out").rglob("*.html"))
    assert {page.name for page in pages} >= {"counts.html", "means.html", "dossier.html"}
    for scheme in SCHEMES:
        found, console = looked_at(pages, scheme, tmp_path)
        assert console == []
        for page, each in zip(pages, found, strict=True):
            assert each["problems"] == [], page.name
            assert (each["width"], each["dark"]) == (WIDTH, scheme == "dark")
            assert each["texts"] > 300
            links = [link.partition("#")[0].removeprefix("file://") for link in each["links"]]
            assert all(Path(link).exists() for link in links if link.startswith("/")), page.name


def test_the_probe_finds_what_is_wrong(tmp_path: Path) -> None:
    bodies = {
        "overflow: 600 px": '<p style="width: 600px">wide</p>',
        "out of reach: far": '<p style="overflow: hidden"><i style="margin-left: 500px">far</i>',
        "flag out of sight: E": '<div tabindex="0" style="overflow-x: auto"><table><tr><td><div '
        'style="width: 500px">1</div><td headers="x-flag">E</table></div>',
        "contrast 2.32: faint": '<p style="color: #aaa">faint</p>',
        "contrast 3.98: thin": '<p style="opacity: .5">thin</p>',
        "cut off: long word": '<p style="width: 20px; overflow: hidden; white-space: nowrap">'
        "long word</p>",
    }  # fmt: skip
    pages = []
    for number, body in enumerate(bodies.values()):
        pages.append(tmp_path / f"{number}.html")
        pages[-1].write_text(f"<!DOCTYPE html><style>body {{ margin: 0 }}</style>{body}")
    pages.append(tmp_path / "last.html")
    pages[-1].write_text('<img src="none.png"><script>console.error("told"); y</script>')
    found, console = looked_at(pages, "light", tmp_path)
    for wrong, each in zip(bodies, found, strict=False):
        assert wrong in each["problems"], (wrong, each["problems"])
    assert found[-1]["problems"] == []
    assert all(any(word in line for line in console) for word in ("told", "is not defined"))
