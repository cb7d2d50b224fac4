"""The general location model: outcomes with discrete parts, and residual spread by group."""
