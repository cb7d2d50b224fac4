"""
A published table as a figure
=============================

Estimates with their intervals, from a private release of a simulated survey. The figure shows only
published numbers.
"""

import surveysynth as ss

survey = ss.datasets.example(n=300).survey
tables = ss.tables(
    survey, mechanism="pseudo_posterior", epsilon=10.8, m=2, inference="paper"
)
figure = tables["mean"].plot()
