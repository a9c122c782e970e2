"""Imports without pandas, for commands that do not use it."""

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


def import_without_pandas(module: str) -> None:
    """Import a module that looks for pandas, which takes as long as all else that `show` does.

    pyarrow.dataset does, and pyspark.testing.utils, which PySpark asks whether there is NumPy when
    it first passes a list to Java. Only in a process of our own: they remember the answer.
    """
    if not is_own_process or "pandas" in sys.modules:
        return
    refusal: Any = _NoPandas()
    sys.meta_path.insert(0, refusal)
    try:
        importlib.import_module(module)
    finally:
        sys.meta_path.remove(refusal)
