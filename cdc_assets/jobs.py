"""The job that makes a day of everything."""

from __future__ import annotations

import dagster as dg

daily = dg.define_asset_job(
    "daily",
    selection=dg.AssetSelection.all(),
    description="A day of every source: landing, changes, tables and lag.",
    executor_def=dg.in_process_executor,
)
