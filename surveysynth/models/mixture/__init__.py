"""A finite mixture of normal regressions."""
