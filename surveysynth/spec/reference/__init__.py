"""The reference of a specification: every key, from the typed settings and words beside them."""
