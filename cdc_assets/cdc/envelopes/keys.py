"""Which row an event is about (FORMATS D5–D10, W3, W4): key columns as sent.

The keys here are *raw*: JSON text of the key columns as the message wrote them. Canonical
keys need column types; :mod:`cdc_assets.cdc.changes` makes them once the schemas are known.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.config import SourceConfig, TableConfig
from cdc_assets.cdc.jsontext import digits_of, field, is_object, is_present, let
from cdc_assets.cdc.placeholders import placeholder_forms

NEW_KEY, OLD_KEY = "__debezium.newkey", "__debezium.oldkey"


def message_key_text() -> Column:
    """The text of the message key; null where it is null or empty."""
    return F.nullif(F.col("key").cast("string"), F.lit(""))


def with_message_key(records: DataFrame) -> DataFrame:
    """Add `key_row` (VARIANT object), `key_scalar` (VARIANT), `key_is_garbage`, `key_schema` (D6).

    All are null or false where there is no message key: null, empty, JSON null, or a struct
    without members. `key_schema` is the text of the key's own schema.

    Args:
        records: has `key_doc`, :func:`message_key_text` as strict JSON.
    """
    document = F.coalesce(digits_of(F.col("key_doc"), message_key_text()), "key_doc")
    records = records.withColumn("key_doc", document)
    root = F.try_variant_get("key_doc", "$[0]", "variant")
    inner = F.try_variant_get("key_doc", "$[0].payload", "variant")
    schema = F.try_variant_get("key_doc", "$[0].schema", "variant")
    has_schema = schema.isNotNull()
    opened = records.withColumn(
        "key_value", F.when(has_schema & inner.isNotNull(), inner).otherwise(root)
    )
    value = F.col("key_value")
    kind = F.schema_of_variant(value)
    is_struct = is_object(value) & (kind != "OBJECT<>")
    is_list = kind.startswith("ARRAY")
    scalar = is_present(value) & ~is_object(value) & ~is_list
    return opened.withColumns(
        {
            "key_row": F.when(is_struct, value),
            "key_scalar": F.when(scalar, value),
            "key_schema": F.when(is_struct & is_object(schema), F.to_json(schema)),
            "key_is_garbage": message_key_text().isNotNull()
            & (F.col("key_doc").isNull() | F.coalesce(is_list, F.lit(False))),
        }
    ).drop("key_doc", "key_value")


def with_header_keys(records: DataFrame) -> DataFrame:
    """Add `header_old_key` and `header_new_key`, raw key JSON of the D9 headers."""
    return records.withColumns(
        {"header_old_key": _header_key(OLD_KEY), "header_new_key": _header_key(NEW_KEY)}
    )


# ``Struct{id=1,region=eu}``: how Connect's text converter writes a struct of plain values.
_JAVA_STRUCT = r'^Struct\{[^=,{}"\\]+=[^=,{}"\\]*(,[^=,{}"\\]+=[^=,{}"\\]*)*\}$'


def _header_key(name: str) -> Column:
    """A header's key, as its converter wrote it: a struct, JSON text of one, or with schema."""

    def as_json(text: Column) -> Column:
        members = F.regexp_replace(text, r"([^=,{}]+)=([^=,{}]*)", '"$1":"$2"')
        is_java = text.rlike(_JAVA_STRUCT)
        return F.when(is_java, F.regexp_replace(members, "^Struct", "")).otherwise(text)

    def unquoted(document: Column) -> Column:
        # A text converter writes the struct's JSON as a JSON string.
        inner = F.try_parse_json(F.try_variant_get(document, "$", "string"))
        return F.coalesce(F.when(is_object(inner), inner), document)

    def payload(document: Column) -> Column:
        inner = F.try_variant_get(document, "$.payload", "variant")
        has_schema = F.try_variant_get(document, "$.schema", "variant").isNotNull()
        key = F.when(has_schema & is_object(inner), inner).otherwise(document)
        return F.when(is_object(document), F.to_json(key))

    found = F.try_parse_json(let(_header(name).cast("string"), as_json))
    return F.when(F.size("headers") > 0, let(let(found, unquoted), payload))


def has_header(name: str) -> Column:
    """True where the record has a header of this name, whatever it holds."""
    found = F.exists("headers", lambda header: header["key"] == name)
    return F.coalesce(F.when(F.size("headers") > 0, found), F.lit(False))


def _header(name: str) -> Column:
    """The bytes of the first header of this name."""
    return F.get(F.filter("headers", lambda header: header["key"] == name), F.lit(0))["value"]


def with_raw_keys(records: DataFrame, source: SourceConfig) -> DataFrame:
    """Add `key_raw`, `old_key_raw`, `new_key_raw`, `key_reason` and `key_detail`.

    Args:
        records: has the columns of `Envelope`, :func:`with_message_key` and
            :func:`with_header_keys`.
    """
    table = F.col("e_table_name")
    # What a delete says of a row after it is no row.
    after = F.when(F.col("e_op") != "d", F.col("e_after_row"))
    before = F.col("e_before_row")
    whole_old = _is_one_of(
        table, (n for n, t in source.tables.items() if source.old_row_is_whole(t))
    ) | F.lit(source.whole_old_rows)
    old_row = F.when(whole_old, before)
    # Where old rows are whole, an image says more than a message key without types.
    images = (
        [after, old_row, F.col("key_row")]
        if source.whole_old_rows
        else [after, F.col("key_row"), old_row]
    )
    picked = _pick(source, table, images, scalar=F.col("key_scalar"))
    # D10: both images are asked for the same columns, be they only named by the message key.
    has_both = (F.col("e_op") == "u") & whole_old & after.isNotNull() & before.isNotNull()
    keyed = records.withColumns(
        {
            "picked": picked,
            "picked_old": F.when(has_both, _pick(source, table, [before], of_image=True)),
            "picked_now": F.when(has_both, _pick(source, table, [after], of_image=True)),
        }
    )
    complete = F.col("picked.complete")
    key = F.when(complete, F.col("picked.json"))
    old = F.when(F.col("picked_old.complete"), F.col("picked_old.json"))
    now = F.coalesce(F.when(F.col("picked_now.complete"), F.col("picked_now.json")), key)
    appends = _is_one_of(table, (n for n, t in source.tables.items() if t.key == "none"))
    by_row = _is_one_of(table, (n for n, t in source.tables.items() if t.key == "row"))
    has_no_key = appends | by_row | (F.col("e_op") == "t")
    is_configured = _is_one_of(table, source.tables)
    needs_key = (
        (F.col("e_kind") == "row")
        & F.col("e_reason").isNull()
        & is_configured
        & (F.col("e_op") != "t")
    )
    malformed = (
        F.coalesce(F.col("picked.has_null"), F.lit(False))
        | F.col("key_is_garbage")
        | (F.col("key_scalar").isNotNull() & F.col("picked.json").isNull())
    )
    reason = (
        F.when(~needs_key, None)
        .when(appends, F.when(~F.col("e_op").isin("c", "r"), "missing_key"))
        # O14: the old row itself is the key.
        .when(by_row, F.when(F.col("e_op").isin("u", "d") & before.isNull(), "missing_key"))
        .when(F.coalesce(complete, F.lit(False)), None)
        .when(malformed, "malformed_key")
        .otherwise("missing_key")
    )
    detail = (
        F.when(appends, F.concat(F.lit("op "), F.col("e_op"), F.lit(" on a table with key: none")))
        .when(
            by_row,
            F.concat(F.lit("op "), F.col("e_op"), F.lit(" without before, with key: row")),
        )
        .when(
            reason == "malformed_key",
            F.lit("a key column is null, or the message key is unreadable"),
        )
        .when(
            reason == "missing_key",
            F.lit("neither the message key nor the images that may serve hold the key"),
        )
    )
    return keyed.withColumns(
        {
            "key_raw": F.when(~has_no_key, key),
            "old_key_raw": F.when(
                ~has_no_key,
                F.coalesce(_same_columns("header_old_key", key), F.when(old != now, old)),
            ),
            "new_key_raw": F.when(~has_no_key, _same_columns("header_new_key", key)),
            "key_reason": reason,
            "key_detail": F.when(reason.isNotNull(), detail),
        }
    ).drop("picked", "picked_old", "picked_now")


def _same_columns(header: str, key: Column) -> Column:
    """The columns of the event's key out of a header's; null where it lacks one, or has a null."""
    names = F.json_object_keys(key)
    held = _members(F.try_parse_json(F.col(header)))
    chosen = F.map_filter(held, lambda name, _: F.array_contains(names, name))
    is_whole = (F.size(chosen) == F.size(names)) & F.forall(F.map_values(chosen), is_present)
    return F.when(F.col(header).isNotNull() & is_whole, F.to_json(chosen))


def _is_one_of(table: Column, names: Iterable[str]) -> Column:
    listed = list(names)
    return F.coalesce(table.isin(*listed), F.lit(False)) if listed else F.lit(False)


def _pick(
    source: SourceConfig,
    table: Column,
    images: list[Column],
    scalar: Column | None = None,
    of_image: bool = False,
) -> Column:
    """The key columns out of these images: STRUCT<json, complete, has_null>.

    The configured columns of the table, else the columns that the message names, else the
    message key as it is; or, `of_image`, the message key's columns in the images.
    """
    unsent = [] if source.whole_old_rows else placeholder_forms(source.unavailable_value)
    by_key: dict[tuple[str, ...], list[str]] = {}
    for name, config in source.tables.items():
        if isinstance(config.key, tuple):
            by_key.setdefault(config.key, []).append(name)
    cases: list[tuple[Column, Column]] = [
        (_is_one_of(table, names), _configured_key(key, images, scalar, unsent))
        for key, names in by_key.items()
    ]
    names = F.col("e_key_names")
    if of_image:
        names = F.coalesce(names, F.map_keys(_members(F.col("key_row"))))
    named = _named_key(images, names, scalar)
    cases.append((names.isNotNull(), named))
    result: Column | None = None
    for condition, value in cases:
        result = F.when(condition, value) if result is None else result.when(condition, value)
    assert result is not None
    return result.otherwise(_message_key(F.col("key_row")))


def _result(json: Column, complete: Column, has_null: Column) -> Column:
    return F.struct(
        json.alias("json"),
        F.coalesce(complete, F.lit(False)).alias("complete"),
        F.coalesce(has_null, F.lit(False)).alias("has_null"),
    )


def _configured_key(
    names: tuple[str, ...], images: list[Column], scalar: Column | None, unsent: list[str]
) -> Column:
    def value(name: str) -> Column:
        found = [field(image, name, "variant") for image in images]
        if unsent:
            # R2: a placeholder is no value of a key.
            found = [F.when(~F.to_json(member).isin(unsent), member) for member in found]
        if scalar is not None and len(names) == 1:
            found.append(scalar)
        return F.coalesce(*found)

    ordered = sorted(names)

    def result(key: Column) -> Column:
        complete, has_null = F.lit(True), F.lit(False)
        for name in ordered:
            member = key.getField(name)
            complete = complete & is_present(member)
            has_null = has_null | F.coalesce(F.is_variant_null(member), F.lit(False))
        return _result(F.to_json(key), complete, has_null)

    return let(F.struct(*(value(name).alias(name) for name in ordered)), result)


def _named_key(images: list[Column], names: Column, scalar: Column | None) -> Column:
    """The key columns that the message itself lists, whose names only the data knows."""
    rows = [_members(image) for image in images]
    if scalar is not None:
        # D6: a bare value is the only column's.
        alone = F.when(
            scalar.isNotNull() & (F.size(names) == 1), F.create_map(F.get(names, F.lit(0)), scalar)
        )
        rows.append(F.coalesce(alone, _no_members()))
    # Each column is of the first image that has it, be it null there.
    chosen, *others = (
        F.map_filter(row, lambda name, _: F.array_contains(names, name)) for row in rows
    )
    for other in others:
        chosen = F.map_zip_with(chosen, other, lambda _, one, two: F.coalesce(one, two))
    values = F.map_values(chosen)
    is_whole = F.size(chosen) == F.size(F.array_distinct(names))
    return _result(
        F.to_json(chosen),
        is_whole & F.forall(values, is_present),
        F.exists(values, F.is_variant_null),
    )


def _members(image: Column) -> Column:
    return F.coalesce(image.try_cast("map<string,variant>"), _no_members())


def _no_members() -> Column:
    return F.create_map().cast("map<string,variant>")


def _message_key(row: Column) -> Column:
    values: Callable[[Column], Column] = lambda r: F.map_values(_members(r))  # noqa: E731
    return _result(
        F.to_json(row),
        row.isNotNull() & F.forall(values(row), is_present),
        row.isNotNull() & F.exists(values(row), F.is_variant_null),
    )


def key_columns(config: TableConfig) -> tuple[str, ...] | None:
    """The configured key columns, if the configuration names any."""
    return config.key if isinstance(config.key, tuple) else None
