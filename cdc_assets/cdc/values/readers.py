"""JSON values → typed columns (FORMATS R3–R5), as SQL text: what a column can't hold is null (R4).

No value passes through a type that would round it: numbers are read by their digits.
"""

from __future__ import annotations

from collections.abc import Callable

from cdc_assets.cdc.sqltext import (
    Sql,
    base64_of,
    case,
    get,
    is_present,
    literal,
    literals,
    members_of,
)
from cdc_assets.cdc.values.column_types import ColumnType, has_numbers, held_as
from cdc_assets.cdc.values.decimals import read_decimal, read_variable_decimal
from cdc_assets.cdc.values.expressions import (
    cast,
    each,
    from_base64,
    matches,
    null_of,
    once,
    replaced,
    try_cast,
)
from cdc_assets.cdc.values.json_value import At, itself, member
from cdc_assets.cdc.values.numbers import (
    WHOLE,
    number_held,
    read_floating,
    read_inferred_double,
    read_integer,
    read_number,
    read_whole_number,
    truth_as_number,
)
from cdc_assets.cdc.values.spark_types import decimal_parts, is_number
from cdc_assets.cdc.values.times import (
    PER_SECOND,
    floor_by_1000,
    instant,
    iso_value,
    read_days,
    read_iso,
    read_local,
    read_number_or_iso,
)


def read_value(at: At, kind: ColumnType, column: str | None = None) -> Sql:
    """The value as its column's type; null where the column can't hold it (R4).

    Args:
        at: where the value stands.
        kind: how it was written.
        column: the table column's type where it differs from the message's (R5).
    """
    held = kind if column is None or column == kind.spark else held_as(kind, column)
    return _READERS[held.wire](at, held)


def _held(at: At, kind: ColumnType) -> Sql:
    """A value of one type in a column of another: exactly, or null (R4, R5)."""
    assert kind.element is not None
    sent, target = kind.element, kind.spark
    if "<" in target or ("<" in sent.spark and target != "string"):
        return null_of(target)
    if "<" in sent.spark:
        return f"to_json({at('variant')})"
    text = plain_text(read_value(at, sent), sent.spark)
    if target == "string":
        return text_in_column(read_value(at, sent), sent.spark)
    if sent.spark == "boolean" and is_number(target):
        return cast(read_value(at, sent), target)
    if sent.spark == "string" and is_number(target):
        number = once(text, lambda found: number_held(found, target))
        return f"coalesce({number}, {truth_as_number(text, target)})"
    if target == "boolean":
        return _boolean_of(text)
    if is_number(target):
        return number_held(text, target)
    if target == "binary":
        return from_base64(text) if sent.spark == "string" else null_of(target)
    return iso_value(text, target)


def plain_text(value: Sql, spark: str) -> Sql:
    """A value as its canonical text (DESIGN, column `key`)."""
    if spark == "string":
        return value
    if spark == "binary":
        return base64_of(value)
    if spark.startswith("timestamp"):
        pattern = literal("yyyy-MM-dd'T'HH:mm:ss.SSSSSS")
        text = f"date_format({value}, {pattern})"
        text = replaced(replaced(text, r"(\.\d*?)0+$", "$1"), r"\.$", "")
        return f"concat({text}, {literal('Z' if spark == 'timestamp' else '')})"
    if decimal_parts(spark):
        return replaced(cast(value, "string"), r"\.0*$|(\.\d*?)0+$", "$1")
    return cast(value, "string")


def text_in_column(value: Sql, spark: str) -> Sql:
    """A value as a STRING column has it: a decimal with all digits of its scale (R3)."""
    return cast(value, "string") if decimal_parts(spark) else plain_text(value, spark)


def _boolean(at: At, _: ColumnType) -> Sql:
    return _boolean_of(at("string"))


def _boolean_of(text: Sql) -> Sql:
    return case((f"{text} IN ('true', '1')", "true"), (f"{text} IN ('false', '0')", "false"))


def _text(at: At, _: ColumnType) -> Sql:
    return at.text


def _enum(at: At, kind: ColumnType) -> Sql:
    """A label of an ENUM, or the label of its number, from 1; 0 is MySQL's empty text (C1)."""
    text = at("string")
    labels = literals(kind.labels)
    number = try_cast(case((matches(text, r"^\d{1,9}$"), text)), "int")
    label = case(
        (f"{number} = 0", "''"),
        (f"{number} <= {len(kind.labels)}", f"get(array({labels}), {number} - 1)"),
        otherwise=_text(at, kind),
    )
    is_label = f"{text} IN ({labels})"
    first = case((is_label, text), otherwise=label)
    if kind.wire == "enum" and has_numbers(kind.labels):
        first = label
    return first


def _set(at: At, kind: ColumnType) -> Sql:
    """Labels of a SET joined by commas, or those of the bits of its number (C1)."""
    text = at("string")
    bits = f"reverse(conv({text}, 10, 2))"

    def labels(of: Sql) -> Sql:
        set_ones = (
            f"CASE WHEN substring({of}, {n + 1}, 1) = '1' THEN {literal(label)} END"
            for n, label in enumerate(kind.labels)
        )
        is_known = f"{text} = '0' OR length({of}) <= {len(kind.labels)}"
        return case((is_known, f"concat_ws(',', {', '.join(set_ones)})"), otherwise=text)

    of_number = once(bits, labels)
    is_number = matches(text, r"^\d{1,20}$")
    if kind.wire == "set_label":
        is_number = f"({is_number} AND {text} NOT IN ({literals(kind.labels)}))"
    return case((is_number, of_number), otherwise=_text(at, kind))


def _latin1(text: Sql) -> Sql:
    """Bytes that were written as the characters of their numbers; null where one is none."""
    return case((f"{text} RLIKE '^[\\\\x00-\\\\xff]*$'", f"encode({text}, 'ISO-8859-1')"))


def _base64(at: At, _: ColumnType) -> Sql:
    # A number's digits are base64, too.
    return case((at.is_string, from_base64(at("string"))))


def _geometry(at: At, _: ColumnType) -> Sql:
    wkb = from_base64(get(at("variant"), "$.wkb", "string"))
    shape = f"named_struct('wkb', {wkb}, 'srid', {get(at('variant'), '$.srid', 'int')})"
    return case((f"{wkb} IS NOT NULL", shape))


def _array(at: At, kind: ColumnType) -> Sql:
    assert kind.element is not None
    return _all_read(at("array<variant>"), kind.element)


def _map(at: At, kind: ColumnType) -> Sql:
    """A JSON object, or a list of pairs, which is how Connect writes keys that are no text."""
    assert kind.element is not None
    assert kind.key is not None
    key, element = kind.key, kind.element

    def of_parts(parts: Sql) -> Sql:
        keys, values = f"{parts}.keys", f"{parts}.values"
        is_whole = (
            f"{keys} IS NOT NULL AND {values} IS NOT NULL AND NOT exists({keys}, k -> k IS NULL) "
            f"AND size(array_distinct({keys})) = size({keys})"
        )
        return case((is_whole, f"map_from_arrays({keys}, {values})"))

    def read(entries: Sql) -> Sql:
        keys = _all_read(f"transform({entries}, e -> e.key)", key)
        values = _all_read(f"transform({entries}, e -> e.value)", element)
        parts = f"named_struct('keys', {keys}, 'values', {values})"
        return case((f"{entries} IS NOT NULL", once(parts, of_parts)))

    members = (
        f"transform(map_entries({at('map<string,variant>')}), "
        "e -> named_struct('key', CAST(e.key AS variant), 'value', e.value))"
    )
    if key.wire in ("string", "unknown"):
        return once(members, read)
    listed = at("array<array<variant>>")
    pairs = f"transform({listed}, p -> named_struct('key', get(p, 0), 'value', get(p, 1)))"
    are_pairs = f"forall({listed}, p -> size(p) = 2)"
    return once(f"coalesce({members}, {case((are_pairs, pairs))})", read)


def _struct(at: At, kind: ColumnType) -> Sql:
    def read(row: Sql) -> Sql:
        members = (
            f"'m{number}', {_checked(member(row, name), of)}"
            for number, (name, of) in enumerate(kind.members)
        )
        found = f"named_struct({', '.join(members)})"
        return case((f"{members_of(row)} IS NOT NULL", once(found, whole)))

    def whole(found: Sql) -> Sql:
        fits = " AND ".join(
            f"({found}.m{n}.value IS NOT NULL OR NOT {found}.m{n}.is_sent)"
            for n in range(len(kind.members))
        )
        values = (
            f"{literal(name)}, {found}.m{n}.value" for n, (name, _) in enumerate(kind.members)
        )
        return case((fits, f"named_struct({', '.join(values)})"))

    return once(at("variant"), read)


def _checked(value: Sql, element: ColumnType) -> Sql:
    is_sent = is_present(value) if element.wire != "nothing" else "false"
    return f"named_struct('value', {read_value(itself(value), element)}, 'is_sent', {is_sent})"


def _all_read(items: Sql, kind: ColumnType) -> Sql:
    """The values, or null where one of them does not fit: part of a list is no value (R4)."""

    def all_or_none(read: Sql) -> Sql:
        is_lost = f"exists({read}, r -> r.is_sent AND r.value IS NULL)"
        return case((f"NOT {is_lost}", f"transform({read}, r -> r.value)"))

    return once(each(items, lambda value: _checked(value, kind)), all_or_none)


_READERS: dict[str, Callable[[At, ColumnType], Sql]] = {
    "boolean": _boolean,
    "int": read_whole_number,
    "bigint": read_whole_number,
    "float": read_floating,
    "double": read_floating,
    "string": _text,
    "unknown": _text,
    "enum": _enum,
    "enum_label": _enum,
    "set": _set,
    "set_label": _set,
    "bytes": _base64,
    "latin1": lambda at, _: _latin1(at("string")),
    "days": read_days,
    "timestamp_ms": read_local(1_000),
    "timestamp_us": read_local(1_000_000),
    "timestamp_ns": read_local(1_000_000_000),
    "instant_ms": lambda at, _: instant(read_integer(at), 1_000),
    "zoned": read_iso,
    "iso_timestamp": read_iso,
    "iso_date": read_iso,
    "time_ms": lambda at, _: f"try_multiply({read_integer(at)}, 1000)",
    "time_us": lambda at, _: read_integer(at),
    "time_ns": lambda at, _: floor_by_1000(read_integer(at)),
    "decimal": read_decimal,
    "variable_decimal": read_variable_decimal,
    "number": read_number,
    "geometry": _geometry,
    "array": _array,
    "map": _map,
    "struct": _struct,
    "held": _held,
    "nothing": lambda _, kind: null_of(kind.spark),
    "inferred_double": read_inferred_double,
    "any_date": read_number_or_iso(1_000),
    "any_instant": read_number_or_iso(1_000),
    "any_local": read_number_or_iso(1_000),
    **{
        f"{wire}_{unit}": read_number_or_iso(per_second)
        for wire in ("any_instant", "any_local")
        for unit, per_second in PER_SECOND.items()
    },
}


def canonical_key(at: At, kind: ColumnType) -> Sql:
    """A key column's value as VARIANT in canonical form (DESIGN, column `key`).

    Integers stay plain numbers; decimals are texts without trailing zeros, bytes base64,
    times ISO text. Null where the column can't hold the value.
    """
    if "<" in kind.spark:
        return at("variant")
    if kind.wire == "held" and kind.spark == "string" and kind.element is not None:
        sent = kind.element.spark
        if decimal_parts(sent):
            return cast(plain_text(read_value(at, kind.element), sent), "variant")
    value = read_value(at, kind)
    if is_number(kind.spark):
        # True is no number here: a key has one text.
        value = case((f"{at('string')} NOT IN ('true', 'false')", value))
    if kind.spark in ("int", "bigint", "boolean", "float", "double", "string"):
        return cast(value, "variant")
    return cast(plain_text(value, kind.spark), "variant")


def read_key(at: At, column: str) -> Sql:
    """A canonical key value as its table column's type."""
    text = at("string")
    if column == "binary":
        return f"try_to_binary({text}, 'base64')"
    if column in ("int", "bigint"):
        return case((matches(text, WHOLE), try_cast(text, column)))
    if column == "string":
        return f"coalesce({text}, to_json({at('variant')}))"
    return try_cast(text, column)
