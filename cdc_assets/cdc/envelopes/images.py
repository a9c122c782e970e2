"""The images of rows in an event: as maps and as canonical JSON, exact to the last digit."""

from __future__ import annotations

from collections.abc import Mapping

from cdc_assets.cdc.sqltext import Query, Sql, case, literal, literals, members_of
from cdc_assets.cdc.values.strict_json import digits_of

_DOUBLE = "[0-9]E[-0-9]|Infinity"  # what Spark writes of such a double


def with_old_values(row: Sql, old: Sql) -> Sql:
    """The whole old row: the new one with the old values of the columns that changed.

    Both are MAP<STRING, VARIANT>; null where either is.
    """
    was = f"CASE WHEN map_contains_key({old}, name) THEN try_element_at({old}, name) ELSE v END"
    return case((f"{old} IS NOT NULL", f"transform_values({row}, (name, v) -> {was})"))


def images_of(data: Sql, old: Sql, ops: Mapping[str, str]) -> tuple[Sql, Sql]:
    """The row before and after, of a message with one row and the old values of what changed.

    Args:
        data: the row; of a delete the old one.
        old: the old values of the columns that an update changed.
        ops: what each op, `v_op` as it was sent, is.
    """
    row = members_of(data)
    before = (
        (f"v_op = {literal(op)}", row if short == "d" else with_old_values(row, members_of(old)))
        for op, short in sorted(ops.items(), key=lambda of: of[1])
        if short in "ud"
    )
    writes = literals(op for op, short in ops.items() if short in "cur")
    return case(*before), case((f"v_op IN ({writes})", row))


def with_images(records: Query, before: Sql, after: Sql, again: tuple[Sql, Sql]) -> Query:
    """Add `before_row`, `after_row` (MAP<STRING, VARIANT>, null where not an object), `before` and
    `after` (their JSON), and `digits`.

    Args:
        records: has `doc` and `body`.
        before: an image as MAP<STRING, VARIANT>; `after` the other.
        again: the same two of the column `digits`, the document with the digits of numbers that
            VARIANT can't hold.
    """
    rows = records.extend({"_b": before, "_a": after})
    texts = rows.extend({"_before": "to_json(_b)", "_after": "to_json(_a)"})
    # Such numbers became doubles: with an exponent, or infinite.
    odd = " OR ".join(
        f"((contains({text}, 'E') OR contains({text}, 'Infinity')) AND {text} RLIKE '{_DOUBLE}')"
        for text in ("_before", "_after")
    )
    checked = texts.extend({"digits": case((odd, digits_of("doc", "body")))})
    exact = {
        name: f"CASE WHEN digits IS NULL THEN {read} ELSE {image} END"
        for name, read, image in (
            ("before_row", "_b", again[0]),
            ("after_row", "_a", again[1]),
        )
    }
    read_again = checked.extend(exact)
    done = read_again.extend(
        {
            name: f"CASE WHEN digits IS NULL THEN _{name} ELSE to_json({name}_row) END"
            for name in ("before", "after")
        }
    )
    return done.drop("_b", "_a", "_before", "_after")
