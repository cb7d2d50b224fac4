"""Private survey tables from synthetic microdata."""
