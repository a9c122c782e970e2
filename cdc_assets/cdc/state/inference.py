"""What the records of a day say of a table's columns: the Spark jobs of planning (R3, C1, D5)."""

from __future__ import annotations

from collections.abc import Collection, Mapping

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.cdc.json_reader import names_in
from cdc_assets.cdc.names import is_column_name
from cdc_assets.cdc.sqltext import Sql, literal, literals
from cdc_assets.cdc.state.day_types import (
    Inferred,
    MessageTypes,
    types_by_schema,
)
from cdc_assets.cdc.state.labels import Labels, label_counts, label_question, labels_counted
from cdc_assets.cdc.state.record_order import names_in_order, place_columns
from cdc_assets.cdc.state.table_day import TableDay
from cdc_assets.cdc.state.table_events import events_on
from cdc_assets.cdc.values import column_types as types
from cdc_assets.cdc.values.json_kinds import shallow
from cdc_assets.cdc.values.json_value import member
from cdc_assets.cdc.values.placeholders import placeholder_forms


def infer(day: TableDay, said: MessageTypes, existing: Collection[str]) -> Inferred:
    """What the records of a day say that its message schemas do not.

    No job where these say all; otherwise one or two for the columns of records without a schema,
    one for the types of a key that no image carries, one for labels that are numbers.

    Args:
        existing: the lake's columns, whose order is settled.
    """
    columns: types.ColumnTypes = {}
    order: list[str] = []
    if day.day_facts.without_schema or said.blank:
        columns, order = _columns(day, said, set(existing))
    by_schema = types_by_schema(said, columns)
    keys = _keys(day, said, {*said.found, *by_schema[None], *said.configured})
    labels = _labels(day, [*by_schema.values(), said.typed])
    return Inferred(columns, order, keys, labels)


def _asked(question: DataFrame) -> Row:
    """The one row of an aggregate: the only Spark action of planning."""
    row = question.first()
    assert row is not None
    return row


def _columns(
    day: TableDay, said: MessageTypes, placed: set[str]
) -> tuple[types.ColumnTypes, list[str]]:
    """Types of columns that only records without a schema have, and the order of new columns."""
    known = set(said.typed)
    rows = _records_without_schema(day, said)
    places = {name: F.expr(sql) for name, sql in place_columns(placed).items()}
    named = [place.alias(name) for name, place in places.items()]
    if known:
        # Names are read far faster than types.
        others = F.expr(f"max(size(array_except(names, array({literals(sorted(known))}))))")
        found = _asked(rows.agg(others.alias("others"), *named))
        if (found.others or 0) < 1:
            return {}, _order(day, found, known - placed)
    key_names = sorted({name for names in day.day_facts.key_names for name in names})
    not_whole = {name: _not_whole(name) for name in key_names}
    row = _asked(
        rows.agg(
            F.expr(f"schema_of_variant_agg({shallow(_without_placeholders(day))})").alias("kind"),
            F.expr(f"schema_of_variant_agg({shallow('key')})").alias("key_kind"),
            *named,
            *(F.expr(sql) for sql in not_whole.values()),
        )
    )
    columns = types.columns_of_inference(row.kind or "")
    order = _order(day, row, {*columns, *known} - placed)
    counts = dict(zip(key_names, row[2 + len(places) :], strict=True))
    columns |= _key_types(columns, types.columns_of_inference(row.key_kind or ""), counts)
    return {name: kind for name, kind in columns.items() if name not in known}, order


def _records_without_schema(day: TableDay, said: MessageTypes) -> DataFrame:
    """The rows of the day that no schema types, and `names`, those in their image."""
    has_none = F.col("schema_id").isNull() | F.col("schema_id").isin(list(said.blank))
    # What a delete says of a row after it is not a row.
    writes = F.col("op").isin("c", "r", "u") & F.col("after").isNotNull()
    rows = events_on(day, [day.day]).where(has_none & writes)
    return rows.withColumn("names", F.expr(names_in("after")))


def _without_placeholders(day: TableDay) -> Sql:
    """The image with null for what was not sent, which says nothing of its column's type (R2)."""
    after = "after"
    # The longest first: a map's placeholder holds the text's.
    for form in sorted(placeholder_forms(day.settings.unavailable_value), key=len)[::-1]:
        after = f"replace({after}, {literal(f':{form}')}, ':null')"
    return after


def _not_whole(name: str) -> Sql:
    """How many records have no whole number in a key column."""
    value = member("try_parse_json(key)", name, "string")
    return f"count_if({value} NOT RLIKE '^[+-]?[0-9]+$')"


def _key_types(
    columns: types.ColumnTypes, keys: types.ColumnTypes, not_whole: Mapping[str, int]
) -> types.ColumnTypes:
    """Keys are typed by the images (D5): here those whose image could not hold them all."""
    return {
        name: keys[name]
        for name, count in not_whole.items()
        if name in columns
        and name in keys
        and not _holds_keys(columns[name].spark, keys[name].spark, are_whole=not count)
    }


def _holds_keys(column: str, keys: str, are_whole: bool) -> bool:
    """Can a column hold keys that came as this type? `are_whole`: their texts are whole numbers."""
    return column in (keys, "string") or (column == "bigint" and are_whole)


def _order(day: TableDay, found: Row, names: set[str]) -> list[str]:
    """In which order records have columns that are new; the landed bytes say it, without a job."""
    if not names or not found.first:
        return []
    sent = day.sent.sent_names(names)
    ordered = names_in_order(day.lake, day.source, day.day, found, sent)
    return list(dict.fromkeys(map(day.sent.lake_name, ordered)))


def _keys(day: TableDay, said: MessageTypes, known: set[str]) -> types.ColumnTypes:
    """Types of key columns that no image carried yet, as on a day of deletes alone."""
    columns = {name for name in known if is_column_name(name)}
    missing = [name for name in said.key_names if name not in columns]
    if not missing or not day.day_facts.events:
        return {}
    rows = events_on(day, [day.day])
    row = _asked(rows.agg(F.expr(f"schema_of_variant_agg({shallow('key')})").alias("kind")))
    inferred = types.columns_of_inference(row.kind or "")
    return {name: inferred[name] for name in missing if name in inferred}


def _labels(day: TableDay, columns: list[types.ColumnTypes]) -> Labels:
    question = label_question(day, columns)
    if question is None:
        return Labels()
    return labels_counted(day, question, _asked(label_counts(day, question)))
