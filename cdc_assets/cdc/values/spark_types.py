"""Spark's types as texts: which numbers they are, and what a column of one holds (R5)."""

from __future__ import annotations

import re
from typing import NamedTuple

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from cdc_assets.cdc.names import ddl_of


class Change(NamedTuple):
    """One alteration of a column: the path of what is added or widened, and its type."""

    path: tuple[str, ...]
    kind: str
    is_new: bool = False


def evolution(column: str, new: str) -> list[Change] | None:
    """What makes a column hold a new type too: nothing, some changes, or None (R5)."""
    if column == new:
        return []
    if "<" in column and "<" in new:
        return _nested_evolution(DataType.fromDDL(column), DataType.fromDDL(new), ())
    return _scalar_evolution(column, new, ())


def _scalar_evolution(column: str, new: str, path: tuple[str, ...]) -> list[Change] | None:
    if holds(column, new):
        return []
    if (column, new) in {("int", "bigint"), ("float", "double")}:
        return [Change(path, new)]
    old_decimal, new_decimal = decimal_parts(column), decimal_parts(new)
    if old_decimal and new_decimal and old_decimal[1] == new_decimal[1]:
        return [Change(path, new)]
    return None


def _nested_evolution(
    column: DataType, new: DataType, path: tuple[str, ...]
) -> list[Change] | None:
    """Elements and values may widen; a struct may gain members; keys of maps stay."""
    if isinstance(column, ArrayType) and isinstance(new, ArrayType):
        parts = [_nested_evolution(column.elementType, new.elementType, (*path, "element"))]
    elif isinstance(column, MapType) and isinstance(new, MapType):
        same_keys = ddl_of(column.keyType) == ddl_of(new.keyType)
        values = _nested_evolution(column.valueType, new.valueType, (*path, "value"))
        parts = [values if same_keys else None]
    elif isinstance(column, StructType) and isinstance(new, StructType):
        own = {field.name: field.dataType for field in column.fields}
        parts = [
            _nested_evolution(own[field.name], field.dataType, (*path, field.name))
            if field.name in own
            else [Change((*path, field.name), ddl_of(field.dataType), is_new=True)]
            for field in new.fields
        ]
    else:
        return _scalar_evolution(ddl_of(column), ddl_of(new), path)
    changes: list[Change] = []
    for part in parts:
        if part is None:
            return None
        changes += part
    return changes


def holds(column: str, new: str) -> bool:
    """True where a column of one type holds every value of another."""
    if column == new or (column, new) in {
        ("bigint", "int"),
        ("double", "float"),
        ("double", "int"),
    }:
        return True
    old_decimal, new_decimal = decimal_parts(column), decimal_parts(new)
    if old_decimal and new_decimal:
        whole = old_decimal[0] - old_decimal[1] >= new_decimal[0] - new_decimal[1]
        return whole and old_decimal[1] >= new_decimal[1]
    return False


NUMERIC = ("int", "bigint", "float", "double")


def is_number(spark: str) -> bool:
    """Is a column of this type one of numbers?"""
    return spark in NUMERIC or spark.startswith("decimal")


def decimal_parts(kind: str) -> tuple[int, int] | None:
    found = re.fullmatch(r"decimal\((\d+),(\d+)\)", kind)
    return (int(found.group(1)), int(found.group(2))) if found else None
