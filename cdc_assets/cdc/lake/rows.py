"""Rows of the lake's tables as Arrow, read with PyIceberg."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from datetime import date
from typing import TYPE_CHECKING, Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import CdcError, MissingDayError
from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.lake.metadata import table_state
from cdc_assets.cdc.lake.pyiceberg_catalog import missing_table, open_table, readable_files
from cdc_assets.cdc.lake.tables import LakeTable, find_table

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.table import Table

# Tables up to this size are sorted before their first rows are returned.
SORTED_ROWS = 200_000


def read_table(
    config: Config,
    source: str,
    table: str,
    as_of: date | None = None,
    limit: int | None = None,
) -> pa.Table:
    """Rows of a table as Arrow.

    Args:
        config: cdc.yaml.
        source: the source's name.
        table: `public.customers`, or one of the source's own tables.
        as_of: a state table at the end of this day; rows of one of the source's own tables that
            landed on it (`schemas`: known by then) [default: the newest day, or all rows].
        limit: at most so many rows; the lowest keys or offsets if the table is at most
            `SORTED_ROWS` long.

    Raises:
        UnknownTableError: there is no such table.
        MissingTableError: nothing of it was made yet.
        LakeError: the catalog or a file can't be read.
        MissingDayError: that day was not made.
    """
    return read_rows(config, find_table(config, table, source), as_of, limit)


def read_rows(
    config: Config,
    table: LakeTable,
    as_of: date | None = None,
    limit: int | None = None,
) -> pa.Table:
    """As :func:`read_table`, of a table already found."""
    opened, state, scan = scan_of(config, table, as_of)
    order = _order(config, table, state)
    with readable_files(table):
        if limit is not None and _total(opened, scan.get("snapshot_id")) > SORTED_ROWS:
            return opened.scan(limit=limit, **scan).to_arrow()
        found = opened.scan(**scan).to_arrow()
    found = sorted_rows(found, [name for name in order if name in found.column_names])
    return found if limit is None else found.slice(0, limit)


def read_all_rows(
    config: Config, table: LakeTable, as_of: date | None = None
) -> Iterator[pa.Table]:
    """All rows of a table in parts; the first part may be empty, and has the columns.

    Sorted as :func:`read_rows`, except that a table above `SORTED_ROWS` is read batch by batch.
    """
    import pyarrow as pa

    opened, _, scan = scan_of(config, table, as_of)
    if _total(opened, scan.get("snapshot_id")) <= SORTED_ROWS:
        yield read_rows(config, table, as_of)
        return
    with readable_files(table):
        reader = opened.scan(**scan).to_arrow_batch_reader()
        yield pa.Table.from_batches([], reader.schema)
        for batch in reader:
            yield pa.Table.from_batches([batch])


def scan_of(
    config: Config, table: LakeTable, as_of: date | None
) -> tuple[Table, TableState, dict[str, Any]]:
    """A table, its state, and the arguments of a scan of the requested rows."""
    opened, kind = open_table(config, table), table.kind
    state = table_state(opened)
    if as_of is None:
        if "main" not in state.refs:
            raise missing_table(table)
        return opened, state, {}
    if kind.row_filter is None:
        return opened, state, {"snapshot_id": snapshot_at(config, table, state, as_of)}
    days = kind.days(state)
    if as_of not in days and not kind.has_each_day:
        raise _missing_day(config, table, as_of, days)
    return opened, state, {"row_filter": kind.row_filter.format(day=as_of)}


def snapshot_at(config: Config, table: LakeTable, state: TableState, day: date) -> int:
    """The snapshot of a state table at the end of a day.

    Raises:
        MissingDayError: the day was not made, or has expired.
    """
    if day not in state.tags:
        raise _missing_day(config, table, day, table.kind.days(state))
    return state.tags[day]


def _missing_day(config: Config, table: LakeTable, day: date, days: Sequence[date]) -> CdcError:
    remedy = f"It has {days[0]} to {days[-1]}" if days else "It has no day yet"
    if config.start_date <= day <= config.today():
        remedy += (
            f". Make the day first: cdc-assets run --source {table.source} --from {day} --to {day}"
        )
    return MissingDayError(str(table), day, remedy)


def _total(opened: Table, snapshot_id: int | None) -> int:
    snapshot = (
        opened.snapshot_by_id(snapshot_id) if snapshot_id is not None else opened.current_snapshot()
    )
    if snapshot is None or snapshot.summary is None:
        return 0
    return int(snapshot.summary.additional_properties.get("total-records", 0))


def _order(config: Config, table: LakeTable, state: TableState) -> Sequence[str]:
    if table.kind.sorted_by is not None:
        return table.kind.sorted_by
    return [*key_columns(config, table, state), *table.kind.behind_key]


def key_columns(config: Config, table: LakeTable, state: TableState) -> list[str]:
    """The key of a state table, by its names in the lake; empty for one without."""
    return list(map(config.source(table.source).tables[table.of].lake_name, state.key_columns))


def sorted_rows(rows: pa.Table, order: Sequence[str]) -> pa.Table:
    """Rows sorted by these columns; unchanged if a column's type has no order."""
    import pyarrow as pa

    if not order:
        return rows
    try:
        return rows.sort_by([(name, "ascending") for name in order])
    except (pa.ArrowNotImplementedError, pa.ArrowInvalid):  # a type without an order
        return rows
