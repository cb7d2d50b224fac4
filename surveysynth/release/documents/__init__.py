"""The documents of a release: for readers, for programs, for checking."""
