"""Daily partitions of all assets; the open day is one of them."""

from __future__ import annotations

from datetime import date

import dagster as dg

from cdc_assets.cdc.config import Config


def daily(config: Config) -> dg.DailyPartitionsDefinition:
    """Days from the project's `start_date` up to and including today, in its time zone."""
    return dg.DailyPartitionsDefinition(
        start_date=config.start_date.isoformat(), timezone=config.timezone, end_offset=1
    )


def partition_days(context: dg.AssetExecutionContext) -> list[date]:
    """The days of a run, in order.

    Raises:
        dagster.Failure: the run has no day, such as a run of checks only.
    """
    if not (context.has_partition_key or context.has_partition_key_range):
        raise dg.Failure(
            "the run has no day. A check is evaluated as its day is made: materialize the day; "
            "where it is up to date, it is left as it is and checked",
            allow_retries=False,
        )
    return sorted(date.fromisoformat(key) for key in context.partition_keys)
