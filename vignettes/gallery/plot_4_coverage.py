"""
Do intervals cover?
===================

The share of 100 simulated samples whose nominal 95% interval contains the truth, cell by cell: for
the confidential sample, and for FBS and FBP with the papers' inference and with the default. The
repository has the results of the study.
"""

from pathlib import Path

import matplotlib.pyplot as plt
import pandas as pd

golden = Path("../../tests/golden")  # from the folder of this file
cells = pd.read_csv(golden / "coverage_default_cells.csv")
means = cells[cells.statistic == "mean"]
names = {
    "sample": "sample", "fbs_paper": "FBS, as in\nthe papers", "fbs": "FBS",
    "fbp_paper": "FBP, as in\nthe papers", "fbp": "FBP",
}

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
axes.boxplot(
    [means[means.method == name].coverage.dropna() for name in names], tick_labels=names.values()
)
axes.axhline(0.95, color="gray", linestyle=":")
axes.set(ylabel="coverage of means, by cell")
