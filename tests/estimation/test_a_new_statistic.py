"""CONTRIBUTING's recipe for a statistic, followed: a trimmed mean is one array function and one
row of the registry, and with that it is released, compared and recomputed.

Truth: the definition, record by record; the Monte Carlo variance over repeated samples, and the
jackknife; the programs of the README, which share no code with the estimate. No file of the
package names the statistic, and none is changed: all of it stands in this file."""



