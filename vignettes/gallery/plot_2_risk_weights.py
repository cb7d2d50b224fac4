"""
Which records lose weight
=========================

The pseudo-posterior weighs down records whose log-likelihood gets large: those with an extreme
outcome or weight. The risk weights are **confidential**; here the survey is simulated, so they can
be shown.
"""

import matplotlib.pyplot as plt
import numpy as np

import surveysynth as ss

survey = ss.datasets.example(n=300).survey
settings = ss.MechanismSettings(epsilon=10.8, m=3)
design = settings.prepared(survey.design)
_, fit = ss.run_mechanism(
    ss.get_model("fbs"), design, survey.confidential, settings, np.random.default_rng(1)
)

figure, axes = plt.subplots(figsize=(7, 4), layout="constrained")
points = axes.scatter(
    survey.confidential.outcome[:, 0], survey.confidential.sampling_weight,
    c=fit.risk_weights, s=14, cmap="viridis",
)
axes.set(xscale="log", yscale="log", xlabel="salary", ylabel="sampling weight")
figure.colorbar(points, label="risk weight: power of the likelihood")
