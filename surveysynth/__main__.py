"""``python -m surveysynth``."""

import sys

from surveysynth.cli import main

if __name__ == "__main__":
    sys.exit(main())
