"""The numbers of published tables, and how readers see them."""
