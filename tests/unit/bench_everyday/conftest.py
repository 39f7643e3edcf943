"""The bench is no package of the installation: it is found from here as its own runner finds it."""

from __future__ import annotations

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "bench"))
