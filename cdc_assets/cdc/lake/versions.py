"""The versions of rows, and a table as it was at any instant, without Spark."""

from __future__ import annotations

from collections.abc import Mapping
from datetime import date, datetime, timezone
from decimal import Decimal
from typing import TYPE_CHECKING, Any, cast

from cdc_assets.cdc.config import Config, is_reserved
from cdc_assets.cdc.errors import ConfigError, LakeError
from cdc_assets.cdc.lake.metadata import table_state
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table, readable_files
from cdc_assets.cdc.lake.rows import key_columns, scan_of, sorted_rows
from cdc_assets.cdc.lake.tables import VALID_FROM, VALID_TO, LakeTable, derived_table, find_table
from cdc_assets.cdc.names import HISTORY

if TYPE_CHECKING:
    import pyarrow as pa
    from pyiceberg.expressions import BooleanExpression


def read_versions(
    config: Config,
    source: str,
    table: str,
    key: Mapping[str, Any] | None = None,
    as_of: date | None = None,
) -> pa.Table:
    """The versions of a table's rows as Arrow, by key and time.

    Args:
        config: cdc.yaml.
        source: the source's name.
        table: the table, such as `public.customers`.
        key: the value of each key column by its name in the lake [default: all keys].
        as_of: as they were known at the end of this day [default: the newest].

    Returns:
        The table's own columns and those that docs/lake.md lists.

    Raises:
        UnknownTableError: there is no such table.
        LakeError: the table keeps no history, or the catalog or a file can't be read.
        ConfigError: the key has other columns than the table's, or a value of another type.
        MissingTableError: no day of the history was made yet.
        MissingDayError: that day was not made.
    """
    return versions_of(config, find_table(config, table, source), key, as_of)


def read_at(
    config: Config, source: str, table: str, instant: datetime, as_of: date | None = None
) -> pa.Table:
    """The rows of a table as it was at an instant of source time, as Arrow, by key.

    Args:
        config: cdc.yaml.
        source: the source's name.
        table: the table, such as `public.customers`.
        instant: with a time zone.
        as_of: by what had landed at the end of this day [default: the newest].

    Returns:
        The table's own columns, `_cdc_valid_from` and `_cdc_valid_to`.

    Raises:
        As :func:`read_versions`.
    """
    return rows_at(config, find_table(config, table, source), instant, as_of)


def history_of_table(config: Config, table: LakeTable) -> LakeTable:
    """The history of a table that was found.

    Raises:
        LakeError: it keeps none.
    """
    if table.kind.is_history:
        return table
    if table.kind.is_own or HISTORY not in config.source(table.source).tables[table.of].derived:
        raise LakeError(
            f"{table} keeps no history of its rows. Write sources.{table.source}.tables."
            f"{table.of}.history: true in cdc.yaml, and make its days again"
            if not table.kind.is_own
            else f"{table} has no rows that change; cdc-assets show prints its records"
        )
    return derived_table(config, table.source, table.of, HISTORY)


def versions_of(
    config: Config,
    table: LakeTable,
    key: Mapping[str, Any] | None = None,
    as_of: date | None = None,
) -> pa.Table:
    """As :func:`read_versions`, of a table already found."""
    history = history_of_table(config, table)
    chosen = None if key is None else _is_key(config, history, key)
    return _read(config, history, chosen, as_of)


def rows_at(
    config: Config, table: LakeTable, instant: datetime, as_of: date | None = None
) -> pa.Table:
    """As :func:`read_at`, of a table already found."""
    at = instant.astimezone(timezone.utc).isoformat()
    is_there = f"{VALID_FROM} <= '{at}' AND ({VALID_TO} IS NULL OR {VALID_TO} > '{at}')"
    found = _read(config, history_of_table(config, table), is_there, as_of)
    times = (VALID_FROM, VALID_TO)
    return found.select([n for n in found.column_names if n in times or not is_reserved(n)])


def _read(
    config: Config, history: LakeTable, chosen: BooleanExpression | str | None, as_of: date | None
) -> pa.Table:
    opened, state, scan = scan_of(config, history, as_of)
    if chosen is not None:
        scan["row_filter"] = chosen
    with readable_files(history):
        rows = opened.scan(**scan).to_arrow()
    order = [*key_columns(config, history, state), VALID_FROM, VALID_TO]
    return sorted_rows(rows, [name for name in order if name in rows.column_names])


def _is_key(config: Config, history: LakeTable, key: Mapping[str, Any]) -> BooleanExpression:
    """The filter for one key.

    Raises:
        ConfigError: it has other columns, or a value that is none of its column.
    """
    from pyiceberg.expressions import AlwaysTrue, And, EqualTo
    from pyiceberg.expressions.literals import literal

    opened = open_table(config, history)
    names = key_columns(config, history, table_state(opened))
    if set(key) != set(names):
        raise ConfigError([f"--key: got {sorted(key)}; {history} is keyed by {sorted(names)}"])
    equal: Any = EqualTo  # its fields are typed for keywords alone
    found: BooleanExpression = AlwaysTrue()
    for name in names:
        kind = opened.schema().find_type(name)
        try:
            # A decimal takes a text, which has all digits.
            value = literal(str(key[name]) if isinstance(key[name], Decimal) else key[name])
            found = cast("BooleanExpression", And(found, equal(name, value.to(kind))))
        except (TypeError, ValueError, ArithmeticError) as error:
            raise ConfigError([f"--key: {name}: got {key[name]!r}; expected {kind}"]) from error
    return found
