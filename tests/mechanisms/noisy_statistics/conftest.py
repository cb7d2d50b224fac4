"""Helpers of this folder's tests live in tests/, next to it and in it."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))
