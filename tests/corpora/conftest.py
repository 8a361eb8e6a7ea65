"""The corpus scripts are programs in a folder, not a package: the tests import them from there."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2] / "scripts" / "corpora"))
