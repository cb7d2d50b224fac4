"""Tables of several methods compared with the confidential sample, and their reports."""
