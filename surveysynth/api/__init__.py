"""The Python interface: what the commands do, and private tables of a survey in one call."""
