"""The images of rows in an event: the canonical JSON of an object each."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_assets.cdc.json_reader import object_of, overlay, value_at, values_at
from cdc_assets.cdc.sqltext import Sql, case, literal, literals


def images_of(data: Sql, old: Sql, ops: Mapping[str, str]) -> tuple[Sql, Sql]:
    """The row before and after, of a message with one row and the old values of what changed.

    Args:
        data: the row (JSON, null where it is no object); of a delete the old one.
        old: the old values of the columns that an update changed (JSON).
        ops: what each op, `v_op` as it was sent, is.
    """
    before = (
        (f"v_op = {literal(op)}", data if short == "d" else overlay(data, old))
        for op, short in sorted(ops.items(), key=lambda of: of[1])
        if short in "ud"
    )
    writes = literals(op for op, short in ops.items() if short in "cur")
    return case(*before), case((f"v_op IN ({writes})", data))


def with_values(image: Sql, value: Sql, other: Sql | None = None) -> Sql:
    """An image with other values; a column whose new value is null is left out.

    Spark interprets it: it is for the images of the few connectors that need it.

    Args:
        image: JSON of an object.
        value: an expression of `name`, `v` (JSON of the column's value) and `o` (that of another
            image, null where there is none).
        other: the other image.
    """
    names = f"json_object_keys({image})"
    own = value_at(other, "name") if other else "CAST(NULL AS string)"
    given = f"get(transform(array({own}), o -> {value}), 0)"
    new = f"zip_with({names}, {values_at(image, names)}, (name, v) -> {given})"
    return case((f"{image} IS NOT NULL", object_of(names, new)))
