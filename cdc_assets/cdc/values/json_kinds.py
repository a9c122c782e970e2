"""JSON as Spark's inference of types reads it."""

from __future__ import annotations

from cdc_assets.cdc.sqltext import Sql, case, members_of

_MANY_LEVELS = 100  # Spark writes a type as JSON of at most 1,000 levels, several for each of ours


def shallow(text: Sql) -> Sql:
    """A JSON object for ``schema_of_variant_agg``, which fails on objects of many levels.

    Members of a text with many of them become texts: their columns are STRING either way.
    """
    document = f"try_parse_json({text})"
    openings = f"length({text}) - length(translate({text}, '{{[', ''))"
    is_nested = f"{members_of('v')} IS NOT NULL OR try_cast(v AS array<variant>) IS NOT NULL"
    flat = (
        f"transform_values({members_of(document)}, "
        f"(k, v) -> {case((is_nested, 'CAST(to_json(v) AS variant)'), otherwise='v')})"
    )
    return case((f"{openings} > {_MANY_LEVELS}", f"to_variant_object({flat})"), otherwise=document)
