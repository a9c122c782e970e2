"""Where the tests find the repository, and events from outside with their expected outcomes."""

from __future__ import annotations

import os
from pathlib import Path

REPOSITORY = Path(__file__).parents[1]
CASES = Path(os.environ.get("CDC_CASES") or REPOSITORY.parent / "shared" / "cases")
