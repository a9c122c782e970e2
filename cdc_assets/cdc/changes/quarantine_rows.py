"""The records in quarantine with their bytes, read with PyIceberg."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterator, Mapping, Set
from dataclasses import dataclass
from datetime import date
from typing import TYPE_CHECKING, Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.lake.metadata import day_commits
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table, readable_files
from cdc_assets.cdc.lake.rows import SORTED_ROWS, sorted_rows
from cdc_assets.cdc.lake.tables import own_table
from cdc_assets.cdc.landing.lines import LandedRecord

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression
    from pyiceberg.table import Table

# PyIceberg compares up to so many values with the bounds of a file.
_FEW_OFFSETS = 200


@dataclass(frozen=True)
class Quarantined:
    """A record in quarantine, and why it is there.

    `is_gone`: neither the row nor the landing has its bytes, or the landing has several records
    at its place.
    """

    source: str
    record: LandedRecord
    reason: str
    detail: str | None
    table_name: str | None
    is_gone: bool = False


def quarantine_by_day(
    config: Config, source: str, first: date | None = None, last: date | None = None
) -> dict[tuple[date, str], int]:
    """How many records of a source are in quarantine, by landing day and reason.

    Raises:
        MissingTableError: no day of the source was made.
        LakeError: the catalog or a file can't be read.
    """
    quarantine = own_table(source, "quarantine")
    opened = open_table(config, quarantine)
    span = {"landing_date >= ": first, "landing_date <= ": last}
    wanted = [f"{compared}'{day}'" for compared, day in span.items() if day]
    with readable_files(quarantine):
        rows = opened.scan(
            row_filter=" AND ".join(wanted) or "landing_date IS NOT NULL",
            selected_fields=("landing_date", "reason"),
        ).to_arrow()
    by = ["landing_date", "reason"]
    counts = rows.group_by(by).aggregate([([], "count_all")]).to_pylist()
    return {(row["landing_date"], row["reason"]): row["count_all"] for row in counts}


def quarantine_counts(config: Config, source: str) -> Counter[str]:
    """How many records of a source are in quarantine, by reason.

    Raises:
        MissingTableError: no day of the source was made.
        LakeError: the catalog or a file can't be read.
    """
    counts: Counter[str] = Counter()
    for (_, reason), count in quarantine_by_day(config, source).items():
        counts[reason] += count
    return counts


def quarantined(
    config: Config, source: str, counts: Mapping[tuple[date, str], int]
) -> Iterator[Quarantined]:
    """The records in quarantine of some days and reasons, the newest day first.

    The bytes of a record whose key and value are both null are looked up in `landing`. A day
    that is small enough is sorted by topic, partition and offset.

    Args:
        config: cdc.yaml.
        source: the source.
        counts: days and reasons with their records (:func:`quarantine_by_day`).

    Raises:
        LakeError: a file can't be read.
    """
    from pyiceberg import expressions

    e: Any = expressions  # mypy does not know their positional arguments
    quarantine = own_table(source, "quarantine")
    opened = open_table(config, quarantine)
    landed_as = {day: made.inputs.get("landing") for day, made in day_commits(opened).items()}
    for day in sorted({day for day, _ in counts}, reverse=True):
        reasons = {reason for counted, reason in counts if counted == day}
        total = sum(counts[day, reason] for reason in reasons)
        chosen = e.And(e.EqualTo("landing_date", str(day)), e.In("reason", reasons))
        with readable_files(quarantine):
            for rows in _batches(opened, chosen, total <= SORTED_ROWS):
                landed = _landed_bytes(config, source, day, landed_as.get(day), rows)
                for row in _rows(rows):
                    yield _quarantined(source, row, landed)


def _batches(opened: Table, chosen: BooleanExpression, is_sorted: bool) -> Iterator[pa.Table]:
    """The rows of a scan in batches, or all at once to sort them."""
    import pyarrow as pa

    scan = opened.scan(row_filter=chosen)
    if is_sorted:
        yield sorted_rows(scan.to_arrow(), ["topic", "partition", "offset", "file", "detail"])
        return
    for batch in scan.to_arrow_batch_reader():
        yield pa.Table.from_batches([batch])


def _rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows as dictionaries; `timestamp` in µs, as it may be beyond Python's years."""
    import pyarrow as pa

    place = rows.column_names.index("timestamp")
    rows = rows.set_column(place, "timestamp", rows["timestamp"].cast(pa.int64()))
    for batch in rows.to_batches(max_chunksize=1_000):
        yield from batch.to_pylist()


def _quarantined(source: str, row: Mapping[str, Any], landed: _LandedRows) -> Quarantined:
    about = (row["reason"], row["detail"], row["table_name"])
    if row["key"] is not None or row["value"] is not None:
        return Quarantined(source, _landed_record(row), *about)
    at_place = landed.get(_place(row), [])
    if not at_place:
        return Quarantined(source, _landed_record(row), *about, is_gone=True)
    # Several rows at one place differ only if as many landed as are in quarantine: yield them all.
    return Quarantined(source, _landed_record(at_place.pop()), *about)


def _landed_record(row: Mapping[str, Any]) -> LandedRecord:
    names = ("landing_date", "topic", "partition", "offset", "timestamp_type", "key", "value")
    return LandedRecord(
        **{name: row[name] for name in names},
        timestamp_us=row["timestamp"],
        headers=[(header["key"], header["value"]) for header in row["headers"] or ()],
        file=row["file"],
    )


_Place = tuple[str | None, int | None, int | None, str | None]
_LandedRows = dict[_Place, list[dict[str, Any]]]


def _place(row: Mapping[str, Any]) -> _Place:
    return row["topic"], row["partition"], row["offset"], row["file"]


def _landed_bytes(
    config: Config, source: str, day: date, snapshot: int | None, rows: pa.Table
) -> _LandedRows:
    """The landing rows of quarantined rows that have neither key nor value.

    Left out are places where other records landed too, and days that landed again since: nothing
    says which record is meant.
    """
    import pyarrow as pa
    import pyarrow.compute as pc

    is_bare = pc.and_(pc.is_null(rows["key"]), pc.is_null(rows["value"]))
    bare = rows.select(["topic", "partition", "offset", "file"]).filter(is_bare)
    wanted = Counter(_place(row) for row in bare.to_pylist())
    if not wanted:
        return {}
    opened = open_table(config, own_table(source, "landing"))
    landed = day_commits(opened).get(day)
    if landed is None or landed.snapshot_id != snapshot:
        return {}
    found: _LandedRows = {}
    scan = opened.scan(row_filter=_at_offsets(day, {offset for _, _, offset, _ in wanted}))
    for batch in scan.to_arrow_batch_reader():
        places = batch.select(["topic", "partition", "offset", "file"]).to_pylist()
        at = [n for n, place in enumerate(places) if _place(place) in wanted]
        for row in _rows(pa.Table.from_batches([batch]).take(pa.array(at, pa.int64()))):
            found.setdefault(_place(row), []).append(row)
    return {
        place: at_place
        for place, at_place in found.items()
        if len(at_place) == wanted[place] or all(row == at_place[0] for row in at_place)
    }


def _at_offsets(day: date, offsets: Set[int | None]) -> BooleanExpression:
    """Landing rows of a day at some offsets, or at all offsets between many."""
    from pyiceberg import expressions

    e: Any = expressions
    known = {offset for offset in offsets if offset is not None}
    at = e.In("offset", known)
    if len(known) > _FEW_OFFSETS:
        at = e.And(
            e.GreaterThanOrEqual("offset", min(known)), e.LessThanOrEqual("offset", max(known))
        )
    if None in offsets:
        at = e.Or(at, e.IsNull("offset"))
    chosen: BooleanExpression = e.And(e.EqualTo("landing_date", str(day)), at)
    return chosen
