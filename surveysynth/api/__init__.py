"""The Python interface: the commands as functions, and private tables in one call."""
