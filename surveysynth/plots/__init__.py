"""Figures. Matplotlib is imported when one is drawn."""
