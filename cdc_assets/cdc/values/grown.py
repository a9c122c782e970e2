"""Values of a table's older rows in the types that their columns have now."""

from __future__ import annotations

from pyspark.sql.types import ArrayType, DataType, MapType, StructType

from cdc_assets.cdc.names import ddl_of, quote
from cdc_assets.cdc.sqltext import Sql, case, literal
from cdc_assets.cdc.values.expressions import cast, each, lambda_variable, null_of
from cdc_assets.cdc.values.readers import text_in_column


def grown(value: Sql, old: DataType, column: str) -> Sql:
    """A value of an older schema as its column's type now: widened, with new members null."""
    if ddl_of(old) == column:
        return value
    if column == "string":
        return _text(value, ddl_of(old))
    if "<" not in column:
        return cast(value, column)
    return _grown(value, old, DataType.fromDDL(column))


def _text(value: Sql, old: str) -> Sql:
    """A value as the text that events of its type leave in a STRING column (R3)."""
    if "<" in old:
        return f"to_json({value}, map('ignoreNullFields', 'false'))"
    return text_in_column(value, old)


def _grown(value: Sql, old: DataType, new: DataType) -> Sql:
    if isinstance(old, ArrayType) and isinstance(new, ArrayType):
        return each(value, lambda v: _grown(v, old.elementType, new.elementType))
    if isinstance(old, MapType) and isinstance(new, MapType):
        name = lambda_variable(value)
        return (
            f"transform_values({value}, (k, {name}) -> "
            f"{_grown(name, old.valueType, new.valueType)})"
        )
    if isinstance(old, StructType) and isinstance(new, StructType):
        of_old = {field.name: field.dataType for field in old.fields}
        members = (
            f"{literal(field.name)}, "
            + (
                _grown(f"{value}.{quote(field.name)}", of_old[field.name], field.dataType)
                if field.name in of_old
                else null_of(ddl_of(field.dataType))
            )
            for field in new.fields
        )
        return case((f"{value} IS NOT NULL", f"named_struct({', '.join(members)})"))
    return cast(value, ddl_of(new))
