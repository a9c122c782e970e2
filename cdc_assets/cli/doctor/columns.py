"""Checks of `columns:` against messages and lake."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping
from functools import partial

from pyiceberg import types as iceberg
from pyiceberg.table import Table

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.discovery.columns import table_types
from cdc_assets.cdc.errors import CdcError
from cdc_assets.cdc.lake.commits import KEY, REPORT
from cdc_assets.cdc.lake.metadata import table_state
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.tables import find_table
from cdc_assets.cdc.state.configured_types import command_to_make, with_lake, with_messages
from cdc_assets.cdc.values import column_types as types
from cdc_assets.cli.doctor.findings import Context, Finding, Status, run_check


def column_types(context: Context) -> Iterator[Finding]:
    """The column types of cdc.yaml agree with those of messages and lake."""
    for source in context.config.sources if context.config else ():
        title = f"columns of {source}"
        yield from run_check(title, partial(_check_source, title, source), context)


def _check_source(check: str, source: str, context: Context) -> Iterator[Finding]:
    config = context.config
    assert config is not None  # without it there is no source to check
    declared, tables = table_types(config, source), config.sources[source].tables
    found = 0
    for table in tables:
        for finding in _check_table(check, config, source, table, declared.get(table, {})):
            found += 1
            yield finding
    if not found:
        count = sum(bool(settings.columns) for settings in tables.values())
        yield Finding(check, Status.ok, f"{count} tables with `columns`: nothing contradicts them")


def _check_table(
    check: str, config: Config, source: str, table: str, declared: types.ColumnTypes
) -> Iterator[Finding]:
    settings = config.sources[source].tables[table]
    try:
        opened = open_table(config, find_table(config, table, source))
    except CdcError:  # not made yet, or a problem of the check `catalog`
        opened = None
    stored = json.loads(opened.properties.get(KEY, "[]")) if opened else []
    keys = {*stored, *(settings.key if isinstance(settings.key, tuple) else ())}
    configured = types.columns_of_config(settings.lake_columns)
    contradictions = with_messages(source, table, declared, configured, keys)
    if opened is not None:
        state = table_state(opened)
        start, last = config.start_of(source, table), max(state.tags, default=None)
        existing = column_ddl(opened)
        wanted = {settings.rename.get(n, n): kind.spark for n, kind in configured.items()}
        if last is not None:
            in_key = {settings.rename.get(name, name) for name in keys}
            contradictions += with_lake(source, table, existing, wanted, start, last, in_key)
            report = json.loads(state.day_summary(last).get(REPORT, "{}"))
            earlier = _read_otherwise(report, existing, declared)
            if earlier:
                listed = ", ".join(f"{column}: {how}" for column, how in sorted(earlier.items()))
                command = command_to_make(source, table, start, last)
                yield Finding(
                    check,
                    Status.warning,
                    f"{source}.{table} was made by an earlier version that read columns otherwise: "
                    f"{listed}",
                    f"make the table anew: {command}",
                )
    for contradiction in contradictions:
        yield Finding(check, Status.problem, contradiction.found, contradiction.remedy)


def _read_otherwise(
    report: Mapping[str, object], existing: Mapping[str, str], declared: types.ColumnTypes
) -> dict[str, str]:
    """The columns of a table's newest day that an earlier version read otherwise, and how."""
    recorded = report.get("read_otherwise")
    found = {n: str(how) for n, how in recorded.items()} if isinstance(recorded, dict) else {}
    for name, kind in declared.items():
        if existing.get(name) == "decimal(10,0)" and kind.encoding == types.BARE_DECIMAL.encoding:
            found[name] = "a decimal without digits was a DECIMAL(10,0)"
        if kind.labels and name in existing and not report.get("values_version"):
            found[name] = f"{kind.wire.upper()} was the number of its label"
    found.pop("make_anew", None)
    return found


_SCALARS: Mapping[type, str] = {
    iceberg.BooleanType: "boolean",
    iceberg.IntegerType: "int",
    iceberg.LongType: "bigint",
    iceberg.FloatType: "float",
    iceberg.DoubleType: "double",
    iceberg.StringType: "string",
    iceberg.BinaryType: "binary",
    iceberg.DateType: "date",
    iceberg.TimestampType: "timestamp_ntz",
    iceberg.TimestamptzType: "timestamp",
}


def column_ddl(table: Table) -> dict[str, str]:
    """The columns of a table with their types as Spark DDL, without structs."""
    kinds = {field.name: _ddl(field.field_type) for field in table.schema().fields}
    return {name: kind for name, kind in kinds.items() if kind is not None}


def _ddl(kind: iceberg.IcebergType) -> str | None:
    if isinstance(kind, iceberg.DecimalType):
        return f"decimal({kind.precision},{kind.scale})"
    if isinstance(kind, iceberg.ListType):
        element = _ddl(kind.element_type)
        return element and f"array<{element}>"
    if isinstance(kind, iceberg.MapType):
        parts = _ddl(kind.key_type), _ddl(kind.value_type)
        return f"map<{parts[0]},{parts[1]}>" if all(parts) else None
    return _SCALARS.get(type(kind))
