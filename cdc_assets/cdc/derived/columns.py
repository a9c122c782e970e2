"""The columns of a derived table: those of its table, and its own; all its DDL."""

from __future__ import annotations

from collections.abc import Mapping
from functools import partial

from pyspark.sql.types import StructField, StructType

from cdc_assets.cdc.config import is_reserved
from cdc_assets.cdc.lake.catalog import Lake, column_ddl
from cdc_assets.cdc.lake.commits import Retyped
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import TableName, ddl_of, quote
from cdc_assets.cdc.state.renaming import rename_columns
from cdc_assets.cdc.state.retyping import drop_left_over
from cdc_assets.cdc.values.spark_types import evolution


def own_columns(schema: StructType) -> list[StructField]:
    """The table's own columns, without those of cdc-assets."""
    return [field for field in schema.fields if not is_reserved(field.name)]


def prepare(
    lake: Lake,
    source: str,
    name: TableName,
    table: str,
    added: StructType,
    comment: str,
    day_column: str | None,
    is_first: bool,
    rename: Mapping[str, str],
) -> tuple[str, list[Retyped]]:
    """Create a derived table, or add and widen the columns that its table has by now.

    Args:
        lake: where both are.
        source: the source's name.
        name: that of the derived table.
        table: the identifier of its table.
        added: the columns behind those of the table.
        comment: of the derived table.
        day_column: the column of the day that its files are partitioned by; None: they are not.
        is_first: the day is its first one, so that no day before needs its columns.
        rename: columns that are to have another name.

    Returns:
        The identifier of the derived table, and the columns that are to get another type.
    """
    wanted = own_columns(lake.spark.table(table).schema)
    identifier = lake.state(source, name)
    if not lake.exists(identifier):
        schema = StructType([*wanted, *added.fields])
        return lake.create_state(source, name, schema, comment, None, day_column), []
    before = lake.spark.table(identifier).schema
    renamed = rename_columns(lake, identifier, before.names, rename)
    present = {renamed.get(f.name, f.name): ddl_of(f.dataType) for f in before.fields}
    last: str | None = None
    retyped = []
    for field in wanted:
        kind, own = ddl_of(field.dataType), field.name
        changes = evolution(present[own], kind) if own in present else None
        if own in present and changes is None and is_first:
            _alter(lake, identifier, f"DROP COLUMN {quote(own)}")
        elif own in present and changes is None:
            retyped.append(Retyped(own, present[own], kind, field.metadata.get("comment", "")))
        if changes is None and (is_first or own not in present):
            place = f"AFTER {quote(last)}" if last else "FIRST"
            column = column_ddl(own, kind, field.metadata.get("comment"))
            _alter(lake, identifier, f"ADD COLUMN {column} {place}")
        for path, to, is_new in changes or []:
            at = quote(own, *path)
            _alter(
                lake,
                identifier,
                f"ADD COLUMN {at} {to}" if is_new else f"ALTER COLUMN {at} TYPE {to}",
            )
        last = own
    drop_left_over(lake, identifier, present, retyped)
    return identifier, retyped


def _alter(lake: Lake, identifier: str, change: str) -> None:
    with_retry(partial(lake.spark.sql, f"ALTER TABLE {identifier} {change}"))
