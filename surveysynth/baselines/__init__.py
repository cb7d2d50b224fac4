"""Other ways to protect a table or a file, to compare with: they may see confidential data."""
