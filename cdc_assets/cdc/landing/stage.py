"""The landing stage: the records of some days become rows of ``lake.<source>.landing``."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date

from pyspark.sql import DataFrame

from cdc_assets.cdc.errors import LandingError
from cdc_assets.cdc.java_errors import JAVA_ERRORS, causes, root_cause
from cdc_assets.cdc.lake import schemas as columns
from cdc_assets.cdc.lake.catalog import Lake, landed_on
from cdc_assets.cdc.lake.commits import DayCommits
from cdc_assets.cdc.lake.errors import is_landing_read
from cdc_assets.cdc.landing.files import (
    LandedDay,
    day_of,
    list_day,
    list_names,
    no_day,
    read_days,
    unreadable,
)
from cdc_assets.cdc.landing.kafka import land_offsets
from cdc_assets.cdc.landing.kafka_plan import KafkaDay
from cdc_assets.cdc.landing.long_lines import as_rows, without_long_lines
from cdc_assets.cdc.made_of import LOST, not_landed

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
        LandingError: a file or an offset can't be read, the folder holds no day but something
            else, or less is left of a landed day and `allow_loss` does not say otherwise; then no
            day of this call is landed.
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
    landed = lake.day_commits(name, "landing")
    if of_kafka := [str(day) for day in days if day in landed and "kafka" in landed[day].inputs]:
        raise LandingError(
            name,
            f"{', '.join(of_kafka)} landed from Kafka before, and is not replaced by files. "
            "Give the source of the files another name",
        )
    _refuse_other_layout(lake, name, folder, found)
    stale = not_landed(landed, {day.day: day.fingerprint for day in found})
    new = [day for day in found if force or day.day in stale]
    if new:
        lake = lake.sized(sum(day.bytes for day in new) // _RECORD_BYTES)
        again = [day.day for day in new if day.day in landed]
        # Of files that are as they landed nothing is missing but what was given up then.
        known = {d: landed[d].inputs[LOST] for d in again if LOST in landed[d].inputs}
        changed = [day for day in again if day in stale]
        try:
            most = lake.config.source(name).max_record_mb << 20
            with without_long_lines(lake.spark, name, new, most) as (to_read, long_lines):
                rows = read_days(lake.spark, name, to_read)
                if long_lines:
                    rows = rows.unionByName(as_rows(lake.spark, long_lines))
                lost, fresh = _lost(lake, identifier, landed, rows, changed)
                lost |= {day: of for day, of in known.items() if day not in changed}
                if fresh and not allow_loss:
                    raise _less(name, folder, fresh)
                if fresh:
                    lost = _without_moved(lake, identifier, landed, rows, lost, fresh)
                inputs = {
                    day.day: {
                        "files": day.fingerprint,
                        **({LOST: lost[day.day]} if day.day in lost else {}),
                    }
                    for day in new
                }
                lake.overwrite_days(identifier, rows, inputs, landed.head)
        except JAVA_ERRORS as error:
            if any(map(is_landing_read, causes(error))):
                shows = lake.config.source(name).shows_values
                raise unreadable(name, error, with_values=shows) from error
            raise
    return found


def _refuse_other_layout(lake: Lake, name: str, folder: str, found: Sequence[LandedDay]) -> None:
    """A folder that has entries, but none of a day, would land days that are empty and good."""
    if any(day.files for day in found):
        return
    entries = list_names(lake.spark, folder)
    if entries and not any(map(day_of, entries)):
        raise no_day(name, folder, entries)


Lost = dict[date, dict[str, list[int]]]  # file → records that landed before, records now


def _lost(
    lake: Lake, identifier: str, landed: DayCommits, rows: DataFrame, days: Sequence[date]
) -> tuple[Lost, Lost]:
    """The files of landed days that are gone, or have fewer records than when they landed.

    First all of them: what an earlier run gave up with `--allow-loss` is given up until the file
    has it again. Then those that have fewer than stand in the lake. Of days whose landed records
    maintenance has removed nothing is known.
    """
    known = [day for day in days if landed[day].removed is None]
    if not known:
        return {}, {}
    assert landed.head is not None  # landed days have a commit
    had, has = (
        _by_file(frame.where(landed_on(known)))
        for frame in (lake.at(identifier, landed.head), rows)
    )
    lost: Lost = {}
    fresh: Lost = {}
    for day in known:
        stand, now = had.get(day, {}), has.get(day, {})
        before = {file: given_up[0] for file, given_up in landed[day].inputs.get(LOST, {}).items()}
        once = {file: max(stand.get(file, 0), before.get(file, 0)) for file in {**before, **stand}}
        for found, counts in ((lost, once), (fresh, stand)):
            less = {f: [n, now.get(f, 0)] for f, n in sorted(counts.items()) if now.get(f, 0) < n}
            if less:
                found[day] = less
    return lost, fresh


def _without_moved(
    lake: Lake, identifier: str, landed: DayCommits, rows: DataFrame, lost: Lost, fresh: Lost
) -> Lost:
    """Without the files whose records have all landed from other ones; a job.

    Bad records that were taken out of their file and delivered in another one are such.
    """
    assert landed.head is not None  # landed days have a commit
    place = ["landing_date", "topic", "partition", "offset"]
    of_days = landed_on(fresh)
    had = lake.at(identifier, landed.head).where(of_days).select(*place, "file")
    gone = had.join(rows.where(of_days).select(*place), place, "left_anti")
    missing = {
        (row.landing_date, row.file)
        for row in gone.select("landing_date", "file").distinct().collect()
    }
    kept = {
        day: {
            file: counts
            for file, counts in files.items()
            if file not in fresh.get(day, {})
            or (day, file) in missing
            or file in landed[day].inputs.get(LOST, {})
        }
        for day, files in lost.items()
    }
    return {day: files for day, files in kept.items() if files}


def _by_file(rows: DataFrame) -> dict[date, dict[str, int]]:
    """How many rows each day has of each file; a pass that reads no JSON, only where lines end."""
    counts: dict[date, dict[str, int]] = {}
    for row in rows.groupBy("landing_date", "file").count().collect():
        if row.file is not None:
            counts.setdefault(row.landing_date, {})[row.file] = row["count"]
    return counts


def _less(name: str, folder: str, lost: Lost) -> LandingError:
    texts = [
        f"{day}/{file}: {had} landed, {has or 'none'} left"
        for day, files in lost.items()
        for file, (had, has) in files.items()
    ]
    more = f" and {len(texts) - 5} files more" if texts[5:] else ""
    return LandingError(
        name,
        f"files in {folder} no longer exist or have fewer records than when they landed "
        f"({'; '.join(texts[:5])}{more}); the landed records are kept. Restore the files, leave "
        "these days out, or give the records up with --allow-loss",
        folder,
    )
