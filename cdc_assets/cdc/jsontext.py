"""Strict JSON as Spark expressions.

Spark's own JSON readers accept trailing text and single quotes, and round fractions when
they hand out an object as text. VARIANT keeps numbers exact to 38 digits and refuses
duplicate names; what it lets pass is trailing text, which :func:`with_strict_json` catches.
"""

from __future__ import annotations

from collections.abc import Callable

from pyspark.sql import Column, DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.names import json_path

# Numbers that VARIANT can't hold: integers of more than 38 digits would pass through a double (R3),
# what no double holds would be infinity.
_HUGE = (
    r"-?[1-9](?:\d{38,}+(?![.eE])|\d{308,}+(?:\.\d+)?+(?:[eE]\+?\d+)?+"
    r"|\d*+(?:\.\d+)?+[eE]\+?0*(?:309|3[1-9]\d|[4-9]\d\d|[1-9]\d{3,})(?!\d))"
)
_HUGE_MEMBER = rf"([\[:,]\s*)({_HUGE})(?=\s*[\],}}])"
_MANY_LEVELS = 100  # Spark writes a type as JSON of at most 1,000 levels, several for each of ours


def with_strict_json(frame: DataFrame, **texts: Column) -> DataFrame:
    """Add VARIANTs ``[document, mark]`` of texts that are exactly one JSON document, else null.

    The document stands in an array behind which its own hash follows: text after the
    document either breaks the array or moves the hash from its place, and no text can
    hold its own hash. Null, too: invalid UTF-8, nesting beyond 1,000 levels, strings beyond
    20 million characters (limits of Spark's parser). Read members with :func:`member`.

    Args:
        frame: rows.
        texts: the new columns' names and the texts that they read.

    Three projections, so that Spark parses each text once.
    """
    texts_of = {f"_{name}_text": text for name, text in texts.items()}
    frame = frame.withColumns(texts_of)
    parsed: dict[str, Column] = {}
    for name in texts:
        text = F.col(f"_{name}_text")
        mark = F.xxhash64(text)
        marked = F.concat(F.lit("["), text, F.lit(","), mark.cast("string"), F.lit("]"))
        parsed[f"_{name}_parsed"] = F.try_parse_json(F.when(F.is_valid_utf8(text), marked))
        parsed[f"_{name}_mark"] = mark
    frame = frame.withColumns(parsed)
    checked: dict[str, Column] = {}
    for name in texts:
        whole = F.try_variant_get(f"_{name}_parsed", "$[1]", "bigint") == F.col(f"_{name}_mark")
        alone = F.try_variant_get(f"_{name}_parsed", "$[2]", "variant").isNull()
        checked[name] = F.when(whole & alone, F.col(f"_{name}_parsed"))
    return frame.withColumns(checked).drop(*texts_of, *parsed)


def digits_of(document: Column, text: Column) -> Column:
    """The document with each number that VARIANT can't hold (1e400) as a text of its digits.

    Args:
        document: of :func:`with_strict_json`.
        text: what it was read from.

    Returns:
        VARIANT ``[document]``; null where the document has no such number.
    """
    listed = F.concat(F.lit("["), text, F.lit("]"))
    # Within a string the added quotes would end it: that is no JSON, and gives null.
    quoted = F.regexp_replace(listed, _HUGE_MEMBER, '$1"$2"')
    return F.when(document.isNotNull() & listed.rlike(_HUGE_MEMBER), F.try_parse_json(quoted))


def member(document: Column, path: str, kind: str) -> Column:
    """A member of a :func:`with_strict_json` document as a type; null where absent or unfit.

    `path` is dotted; its parts are names of the formats, never names from data.
    """
    return F.try_variant_get(document, f"$[0].{path}" if path else "$[0]", kind)


def text_member(document: Column, path: str) -> Column:
    """A member as text: a JSON string as it is, a number as its digits."""
    return member(document, path, "string")


def field(row: Column, name: str, kind: str) -> Column:
    """A named member of a VARIANT object, whatever characters the name has."""
    path = json_path(name)
    if path is not None:
        return F.try_variant_get(row, path, kind)
    # Names with both quotes have no path; a map lookup needs none.
    found = F.element_at(row.try_cast("map<string,variant>"), F.lit(name))
    return found if kind == "variant" else F.try_variant_get(found, "$", kind)


def is_object(value: Column) -> Column:
    """True for a VARIANT that is a JSON object."""
    # Not by schema_of_variant, which walks through the whole of it.
    return F.try_variant_get(value, "$", "map<string,variant>").isNotNull()


def is_text(value: Column) -> Column:
    """True for a VARIANT that is a JSON string."""
    return F.coalesce(F.schema_of_variant(value) == "STRING", F.lit(False))


def at_path(value: Column, path: str, kind: str) -> Column:
    """What stands at a path of a VARIANT, as a type; null where it is absent or does not fit.

    A BIGINT is a whole number or the text of one: `true` is no 1, and 1.5 no 1 either.
    """
    if kind == "bigint":
        return F.try_variant_get(value, path, "string").try_cast(kind)
    return F.try_variant_get(value, path, kind)


def string_of(value: Column) -> Column:
    """The text of a VARIANT that is a JSON string and not empty, else null: 1 is no name."""
    return F.when(is_text(value), F.nullif(F.try_variant_get(value, "$", "string"), F.lit("")))


def is_present(value: Column) -> Column:
    """True for a VARIANT that is there and is not JSON null."""
    return value.isNotNull() & ~F.is_variant_null(value)


def text_of(value: Column) -> Column:
    """Canonical JSON text of a VARIANT (names sorted); null for JSON null."""
    return F.when(is_present(value), F.to_json(value))


def shallow(text: Column) -> Column:
    """A JSON object for ``schema_of_variant_agg``, which fails on objects of many levels.

    Members of a text with many of them become texts: their columns are STRING either way.
    """
    document = F.try_parse_json(text)
    openings = F.length(text) - F.length(F.translate(text, "{[", ""))
    flat = F.transform_values(
        document.try_cast("map<string,variant>"),
        lambda _, v: F.when(
            is_object(v) | v.try_cast("array<variant>").isNotNull(), F.to_json(v).cast("variant")
        ).otherwise(v),
    )
    return F.when(openings > _MANY_LEVELS, F.to_variant_object(flat)).otherwise(document)


def let(value: Column, body: Callable[[Column], Column]) -> Column:
    """``body(value)`` with the value computed once, however often the body names it.

    Spark inlines expressions where they are named; a chain of steps would grow
    exponentially, beyond what it can compile.
    """
    return F.get(F.transform(F.array(value), body), F.lit(0))
