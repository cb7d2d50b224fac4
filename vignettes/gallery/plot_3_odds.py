"""
What an epsilon means
=====================

The largest probability that someone can assign to a statement about one respondent after a
release, by the probability before it: the odds rise by a factor of at most exp(epsilon).
"""

import matplotlib.pyplot as plt
import numpy as np

before = np.linspace(0.001, 0.999, 400)
figure, axes = plt.subplots(figsize=(6, 4), layout="constrained")
for epsilon in (0.5, 1, 2, 3.6, 10.8):
    odds = np.exp(epsilon) * before / (1 - before)
    axes.plot(before, odds / (1 + odds), label=f"epsilon {epsilon:g}")
axes.plot(before, before, color="gray", linestyle=":", label="nothing learned")
axes.set(xlabel="probability before", ylabel="largest probability after")
axes.legend()
