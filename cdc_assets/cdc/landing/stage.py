"""The landing stage: the records of some days become rows of ``lake.<source>.landing``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from py4j.protocol import Py4JJavaError
from pyspark.errors import PySparkException

from cdc_assets.cdc.envelopes import columns
from cdc_assets.cdc.lake import DayCommit, Lake, is_contention
from cdc_assets.cdc.landing.files import LandedDay, list_day, read_days, unreadable


def land(lake: Lake, name: str, days: Sequence[date], force: bool = False) -> list[LandedDay]:
    """Land some days in one commit; bytes as they came.

    A day whose files are the same as when it was landed is left as it is.

    Returns:
        The files of every day asked for.

    Raises:
        LandingError: a file can't be read whole; then no day of this call is landed.
    """
    folder = lake.config.source(name).landing.files
    found = [list_day(lake.spark, name, folder, day) for day in days]
    identifier = lake.create_stage(
        name, "landing", columns.LANDING, "Kafka records, bytes as they came, by landing day"
    )
    landed = lake.day_commits(identifier)
    new = [
        day
        for day in found
        if force or landed.get(day.day, DayCommit(0)).inputs.get("files") != day.fingerprint
    ]
    if new:
        rows = read_days(lake.spark, name, new)
        inputs = {day.day: {"files": day.fingerprint} for day in new}
        try:
            lake.overwrite_days(identifier, rows, inputs)
        except (PySparkException, Py4JJavaError) as error:
            if is_contention(error):
                raise
            raise unreadable(name, error) from error
    return found
