"""Column types of cdc.yaml, and how values of a message's types are read into them (FORMATS R3)."""

from __future__ import annotations

from dataclasses import replace

from cdc_assets.cdc.values.column_types import (
    CONFIGURED,
    MAX_DECIMAL,
    TEXT,
    UNKNOWN,
    ColumnType,
    ColumnTypes,
    type_in_config,
)
from cdc_assets.cdc.values.spark_types import NUMERIC, decimal_parts, evolution, is_number

_TIMES_OF_DAY = ("time_ms", "time_us", "time_ns")
_TIMES = ("date", "timestamp", "timestamp_ntz")


def read_as(kind: ColumnType, wanted: ColumnType) -> ColumnType | None:
    """How values of a message's type are read into a column that cdc.yaml types (R3).

    Args:
        kind: what the message's schema says.
        wanted: what `columns:` says.

    Returns:
        None where the one can't become the other.
    """
    if kind.spark == wanted.spark:
        return kind
    if kind == UNKNOWN:
        return wanted
    if kind.spark == "binary" or kind.wire in _TIMES_OF_DAY:
        return None
    if "<" in kind.spark or "<" in wanted.spark:
        return _parts_read_as(kind, wanted)
    is_text, is_whole = kind.spark == "string", kind.wire in ("int", "bigint")
    numeric = (*NUMERIC, "boolean")
    if wanted.spark == "string":
        can_be = True
    elif wanted.spark in numeric or is_number(wanted.spark):
        can_be = is_text or kind.spark in numeric or is_number(kind.spark)
    elif wanted.spark not in _TIMES:
        can_be = False
    elif is_whole:
        return wanted
    elif is_text:
        wire = "iso_date" if wanted.spark == "date" else "iso_timestamp"
        return ColumnType(wire, wanted.spark)
    elif kind.wire == "instant_ms":  # DataWorks' DATE
        can_be = True
    else:
        can_be = {kind.spark, wanted.spark} == {"date", "timestamp_ntz"}
    return _held_in(kind, wanted.spark) if can_be else None


def as_configured(said: ColumnTypes, configured: ColumnTypes, is_key: bool = False) -> ColumnTypes:
    """Types of messages, where cdc.yaml types a column as read into that; and the configured ones.

    A column that can't become what is configured keeps its type; see :func:`cannot_become`.

    Args:
        said: of message schemas.
        configured: of `columns:`.
        is_key: these are key columns.
    """
    found = {**configured, **said}
    for name in said.keys() & configured.keys():
        if not cannot_become(said[name], configured[name], is_key):
            found[name] = read_as(said[name], configured[name]) or said[name]
    if is_key:
        found = {name: _of_key(kind) for name, kind in found.items()}
    return found


def _of_key(kind: ColumnType) -> ColumnType:
    """A key of several members is the text of their canonical JSON: no key column has others."""
    return replace(TEXT, comment=kind.comment) if "<" in kind.spark else kind


def cannot_become(kind: ColumnType, wanted: ColumnType, is_key: bool) -> list[str]:
    """What `columns:` may say of a column of messages instead; empty where it may say `wanted`."""
    if is_key:
        kind = _of_key(kind)
    is_possible = read_as(kind, wanted) is not None
    if is_possible and (not is_key or keeps_keys_apart(kind.spark, wanted.spark)):
        return []
    can_be = (k for k in types_for(kind) if not is_key or keeps_keys_apart(kind.spark, k))
    return list(can_be) or [kind.spark]


def _held_in(kind: ColumnType, spark: str) -> ColumnType:
    return ColumnType("held", spark, element=_widest(kind), comment=kind.comment)


def _widest(kind: ColumnType) -> ColumnType:
    """A number's type with all the digits that it may have: a wider column may hold what a message
    has beyond its own type."""
    if kind.wire == "int":
        return replace(kind, wire="bigint", spark="bigint")
    if kind.wire in ("decimal", "number") and (parts := decimal_parts(kind.spark)):
        return replace(kind, spark=f"decimal({MAX_DECIMAL},{parts[1]})")
    return kind


def types_for(kind: ColumnType) -> list[str]:
    """What `columns:` may say of a column of this type, without digits of decimals."""
    asked = (*CONFIGURED, "decimal(38,10)")
    can_be = [spark for spark in asked if read_as(kind, type_in_config(spark)) is not None]
    return [spark.partition("(")[0] for spark in can_be]


def _parts_read_as(kind: ColumnType, wanted: ColumnType) -> ColumnType | None:
    """Arrays and maps by their elements; all with members may be the text of their JSON."""
    if wanted.spark == "string":
        return _held_in(kind, "string")
    is_map = kind.wire == wanted.wire == "map"
    if not (is_map or kind.wire == wanted.wire == "array"):
        return None
    assert kind.element is not None
    assert wanted.element is not None
    element = read_as(kind.element, wanted.element)
    if element is None or (is_map and (kind.key is None or kind.key.spark != "string")):
        return None
    return replace(kind, spark=wanted.spark, element=element)


def keeps_keys_apart(kind: str, wanted: str) -> bool:
    """May a key column of one type be configured as another: are all keys still distinct (R3)?"""
    if wanted == "string" or evolution(kind, wanted) is not None:
        return True
    exact = [k in ("int", "bigint") or decimal_parts(k) is not None for k in (kind, wanted)]
    return all(exact)


def has_no_unit(kind: ColumnType) -> bool:
    """Is it a configured time stamp whose unit nobody said? Numbers are taken as milliseconds."""
    return kind.wire in ("any_instant", "any_local")
