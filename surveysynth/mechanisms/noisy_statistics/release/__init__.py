"""Public design and noise of the statistics that a release spends its budget on."""
