"""The lag of changes: measured, kept by day, judged and shown."""

from cdc_assets.cdc.lag.measurement import KINDS, measure
from cdc_assets.cdc.lag.stage import Rows, make_lag, of_days, worst_by_hour

__all__ = ["KINDS", "Rows", "make_lag", "measure", "of_days", "worst_by_hour"]
