"""The specification file: typed settings, and what a run needs, built from them."""
