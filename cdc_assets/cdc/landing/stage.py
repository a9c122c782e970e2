"""The landing stage: the records of some days become rows of ``lake.<source>.landing``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.java_errors import JAVA_ERRORS, causes, root_cause
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import DayCommit
from cdc_assets.cdc.lake.errors import is_landing_read
from cdc_assets.cdc.landing.files import NONE, LandedDay, list_day, read_days, unreadable
from cdc_assets.cdc.landing.kafka import land_offsets
from cdc_assets.cdc.landing.kafka_plan import KafkaDay

_RECORD_BYTES = 500  # of a landed record, about: to tell small days from large ones


def land(
    lake: Lake,
    name: str,
    days: Sequence[date],
    force: bool = False,
    allow_loss: bool = False,
) -> list[LandedDay] | list[KafkaDay]:
    """Land some days in one commit; bytes as they came.

    A day whose files are the same as when it was landed is left as it is, and so is a day of
    Kafka that was landed after its end.

    Args:
        lake: where to.
        name: the source.
        days: the days, landed together or not at all.
        force: land days again that are landed.
        allow_loss: go on where Kafka, or the folder, no longer has what a day should hold.

    Returns:
        What every day asked for was made of: files, or offsets.

    Raises:
        LandingError: a file or an offset can't be read; then no day of this call is landed.
    """
    identifier = lake.create_stage(
        name, "landing", columns.LANDING, "Kafka records, bytes as they came, by landing day"
    )
    folder = lake.config.source(name).landing.files
    if folder is None:
        return land_offsets(lake, name, identifier, days, force, allow_loss)
    return _land_files(lake, name, identifier, folder, days, force, allow_loss)


def _land_files(
    lake: Lake,
    name: str,
    identifier: str,
    folder: str,
    days: Sequence[date],
    force: bool,
    allow_loss: bool,
) -> list[LandedDay]:
    try:
        found = [list_day(lake.spark, name, folder, day) for day in days]
    except JAVA_ERRORS as error:
        raise LandingError(
            name,
            f"the landing folder {folder} can't be listed ({root_cause(error)}). See that it is "
            "there and that this user may read it",
            folder,
        ) from error
    landed = lake.day_commits(identifier)
    if of_kafka := [str(day) for day in days if day in landed and "kafka" in landed[day].inputs]:
        raise LandingError(
            name,
            f"{', '.join(of_kafka)} landed from Kafka before, and is not replaced by files. "
            "Give the source of the files another name",
        )
    new = [
        day
        for day in found
        if force or landed.get(day.day, DayCommit(0)).inputs.get("files") != day.fingerprint
    ]
    gone = [
        str(day.day)
        for day in new
        if not day.files and landed.get(day.day, DayCommit(0)).inputs.get("files", NONE) != NONE
    ]
    if gone and not allow_loss:
        raise LandingError(
            name,
            f"the files of {', '.join(gone)} no longer exist in {folder}; the records that landed "
            "from them are kept. Restore the files, leave these days out, or empty the days with "
            "--allow-loss",
            folder,
        )
    if new:
        lake = lake.sized(sum(day.bytes for day in new) // _RECORD_BYTES)
        rows = read_days(lake.spark, name, new)
        inputs = {day.day: {"files": day.fingerprint} for day in new}
        try:
            lake.overwrite_days(identifier, rows, inputs, landed.head)
        except JAVA_ERRORS as error:
            if any(map(is_landing_read, causes(error))):
                raise unreadable(name, error) from error
            raise
    return found
