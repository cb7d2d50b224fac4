"""The mechanisms: what stands between confidential records and everything that is public."""
