"""Other ways to protect a table or a file, to compare with."""
