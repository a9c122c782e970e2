"""The age of a source's newest data from metadata, without Spark and mostly without data files."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from typing import TYPE_CHECKING

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import LakeError, MissingTableError, first_line
from cdc_assets.cdc.lake.metadata import day_commits
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.tables import own_table

if TYPE_CHECKING:
    from pyiceberg.manifest import DataFile, ManifestFile
    from pyiceberg.table import Table

# The time of an event is the first of these columns that is not null, ms UTC.
TIMES = ("kafka_ts_ms", "processed_ts_ms", "source_ts_ms")

_EPOCH = date(1970, 1, 1)


@dataclass(frozen=True)
class NewestData:
    """The newest data of a source; instants are UTC.

    `record` is the time of its newest event or heartbeat (None where no record has a time), `day`
    the landing day that holds it. `landed_day` is the newest day that has landed, even without
    records, and `landed_at` the time of the last landing (None where its snapshot has expired).
    """

    record: datetime | None
    day: date | None
    landed_day: date | None
    landed_at: datetime | None


def newest_data(config: Config, source: str) -> NewestData:
    """Find the newest data of a source.

    Events and heartbeats count, quarantined records do not. A time later than the commit that wrote
    it lies in the future and is ignored.

    Raises:
        MissingTableError: no day of the source is made yet.
        LakeError: the catalog or a file can't be read.
    """
    own = own_table(source, "landing")
    landing = open_table(config, own)
    commits = day_commits(landing)
    ended = [committed_ms(landing, made.snapshot_id) for made in commits.values()]
    try:
        found = [_newest_of(config, source, table) for table in ("changes", "control")]
    except OSError as error:
        raise LakeError(
            f"{source}: a file of changes or control in the lake can't be read: "
            f"{first_line(error)}. See that the warehouse is there and that this user may read it"
        ) from error
    newest = max((f for f in found if f is not None), default=None)
    landed = max((ms for ms in ended if ms is not None), default=None)
    return NewestData(
        record=_instant(newest[0]) if newest else None,
        day=newest[1] if newest else None,
        landed_day=max(commits, default=None),
        landed_at=_instant(landed) if landed is not None else None,
    )


def _instant(ms: int) -> datetime:
    return datetime.fromtimestamp(ms / 1000, timezone.utc)


# Table uuid → the snapshot searched last, and its result; snapshots are immutable.
_CACHE: dict[str, tuple[int, tuple[int, date] | None]] = {}


def _newest_of(config: Config, source: str, name: str) -> tuple[int, date] | None:
    """The newest time in a table in ms, and its day; None where no row has a time."""
    try:
        table = open_table(config, own_table(source, name))
    except MissingTableError:
        return None
    snapshot = table.current_snapshot()
    if snapshot is None:
        return None
    uuid = str(table.metadata.table_uuid)
    known = _CACHE.get(uuid)
    if known is None or known[0] != snapshot.snapshot_id:
        known = _CACHE[uuid] = (snapshot.snapshot_id, _search(table))
    return known[1]


def _search(table: Table) -> tuple[int, date] | None:
    commits = day_commits(table)
    newest = table.current_snapshot()
    assert newest is not None
    for day, files in _days_of_files(table):
        made = commits.get(day)
        written = committed_ms(table, made.snapshot_id) if made else None
        found = _newest_of_day(
            table, day, files, newest.timestamp_ms if written is None else written
        )
        if found is not None:
            return found, day
    return None


def committed_ms(table: Table, snapshot_id: int) -> int | None:
    """When a snapshot was committed; None where it has expired."""
    snapshot = table.snapshot_by_id(snapshot_id)
    return snapshot.timestamp_ms if snapshot else None


def _days_of_files(table: Table) -> Iterator[tuple[date, list[DataFile]]]:
    """The days that have rows, newest first, each with its files; reads few manifests."""
    from pyiceberg.manifest import ManifestContent

    snapshot = table.current_snapshot()
    assert snapshot is not None
    waiting = sorted(
        (
            (_last_day(m), m.manifest_path, m)
            for m in snapshot.manifests(table.io)
            if m.content == ManifestContent.DATA and (m.has_added_files() or m.has_existing_files())
        ),
        reverse=True,
    )
    held: defaultdict[date, list[DataFile]] = defaultdict(list)
    while waiting or held:
        while waiting and (not held or waiting[0][0] >= max(held)):
            for entry in waiting.pop(0)[2].fetch_manifest_entry(table.io, discard_deleted=True):
                held[_day(entry.data_file.partition[0])].append(entry.data_file)
        if held:
            day = max(held)
            yield day, held.pop(day)


def _last_day(manifest: ManifestFile) -> date:
    """The newest day in a manifest; stage tables are partitioned by `landing_date` only."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import DateType

    summary = manifest.partitions[0] if manifest.partitions else None
    bound = summary.upper_bound if summary else None
    return _day(from_bytes(DateType(), bound)) if bound is not None else date.max


def _day(value: object) -> date:
    return (
        _EPOCH + timedelta(days=value) if isinstance(value, int) else date.fromisoformat(str(value))
    )


def _newest_of_day(table: Table, day: date, files: Sequence[DataFile], until_ms: int) -> int | None:
    """The newest time of a day's rows up to an instant, in ms.

    Taken from the column bounds of the files, unless a bound is later than the instant or only some
    rows have a time; then the rows are read.
    """
    bounds = [_bound(table, file) for file in files]
    known = [bound for bound in bounds if bound is not None]
    if len(known) == len(bounds) and max(known, default=-1) <= until_ms:
        newest = max(known, default=-1)
        return newest if newest >= 0 else None
    import pyarrow.compute as pc

    rows = table.scan(f"landing_date = '{day}'", selected_fields=TIMES).to_arrow()
    times = pc.coalesce(*(rows[name] for name in TIMES))
    is_time = pc.and_(pc.greater_equal(times, 0), pc.less_equal(times, until_ms))
    newest_ms: int | None = pc.max(times.filter(is_time)).as_py()
    return newest_ms


def _bound(table: Table, file: DataFile) -> int | None:
    """The newest time in a file, -1 where no row has one; None where its metadata lacks it."""
    from pyiceberg.conversions import from_bytes
    from pyiceberg.types import LongType

    for name in TIMES:
        field = table.schema().find_field(name).field_id
        nulls = (file.null_value_counts or {}).get(field)
        if nulls is None:
            return None
        if nulls == file.record_count:
            continue
        bound = (file.upper_bounds or {}).get(field)
        return int(from_bytes(LongType(), bound)) if nulls == 0 and bound is not None else None
    return -1
