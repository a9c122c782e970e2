"""Imports without pandas, for commands that do not use it."""

from __future__ import annotations

import importlib
import sys
from typing import Any

is_own_process = False  # set by the entry point of `cdc-assets`


class _NoPandas:
    """An import finder that refuses pandas."""

    @staticmethod
    def find_spec(name: str, *_: object) -> None:
        """Refuse pandas; other finders find the rest."""
        if name == "pandas":
            raise ModuleNotFoundError(name)


def import_without_pandas(module: str) -> None:
    """Import a module that looks for pandas, whose import takes as long as the rest of `show`.

    Such are pyarrow.dataset, and pyspark.testing.utils, which PySpark imports to look for NumPy.
    Only in a process of our own, as these modules remember that there is no pandas.
    """
    if not is_own_process or "pandas" in sys.modules:
        return
    refusal: Any = _NoPandas()
    sys.meta_path.insert(0, refusal)
    try:
        importlib.import_module(module)
    finally:
        sys.meta_path.remove(refusal)
