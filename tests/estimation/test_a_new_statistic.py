"""CONTRIBUTING's recipe for a statistic, followed: a trimmed mean is one array function and one
row of the registry, and with that it is released, compared and recomputed.

Truth: the definition, record by record; the Monte Carlo variance over repeated samples, and the
jackknife; the programs of the README, which share no code with the estimate. No file of the
package names the statistic, and none is changed: all of it stands in this file."""

from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pandas as pd
import pytest

from surveysynth._support.types import FloatArray
from surveysynth.errors import InputError
from surveysynth.estimation.domains import Domains, build_domains
from surveysynth.estimation.replicate_weights import jackknife
from surveysynth.estimation.replication import estimate_domains_replicated
from surveysynth.estimation.sample_design import SampleDesign
from surveysynth.estimation.statistics import STATISTICS, Linearised, Program, Statistic
from surveysynth.estimation.taylor import estimate_domains
