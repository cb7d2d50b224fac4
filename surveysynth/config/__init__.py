"""The specification file as typed settings, and the parts of a run that are built from them."""
