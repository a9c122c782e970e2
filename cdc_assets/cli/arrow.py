"""pyarrow without pandas, for commands that only read."""

from __future__ import annotations

import importlib
import sys
from typing import Any

is_own_process = False  # set by the entry point of `cdc-assets`


class _NoPandas:
    """Stands before the import system and says that there is no pandas."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Refuse pandas, leave the rest to others."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def import_quickly() -> None:
    """Import what reads Parquet without pandas, which pyarrow would look for.

    pandas takes as long to import as everything else that `show` does, and nothing of it is
    used. Only in a process of our own: pyarrow remembers the answer.
    """
    if not is_own_process or "pandas" in sys.modules:
        return
    refusal: Any = _NoPandas()
    sys.meta_path.insert(0, refusal)
    try:
        importlib.import_module("pyarrow.dataset")
    finally:
        sys.meta_path.remove(refusal)
