"""The folder of a release: written whole or not at all, recorded, read back."""
