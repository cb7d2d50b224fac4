"""
The cost of noise, before anything is spent
===========================================

For noisy statistics, expected standard errors follow from public inputs. ``surveysynth check``
computes them without an outcome or a weight. The figure shows them over those of the sample.
"""

import tempfile
from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

import surveysynth as ss

with tempfile.TemporaryDirectory() as folder:
    _, spec = ss.example(folder, n=1000)
    ss.check(spec, out=Path(folder) / "expected")
    rows = pd.read_csv(Path(folder) / "expected" / "expected_se.csv")

figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for statistic, found in rows.groupby("statistic"):
    line = found.groupby("epsilon").se_over_sample.median()
    axes.plot(line.index, line, marker="o", label=f"{statistic}, median row")
axes.axhline(1, color="grey", linestyle=":")
axes.set(xscale="log", xlabel="epsilon at delta = 1e-6", ylabel="standard error over the sample's")
axes.legend()
