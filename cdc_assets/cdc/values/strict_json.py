"""Strict JSON as Spark expressions.

Spark's own JSON readers accept trailing text and single quotes, and round fractions when
they hand out an object as text. VARIANT keeps numbers exact to 38 digits and refuses
duplicate names; what it lets pass is trailing text, which :func:`with_strict_json` catches.
"""

from __future__ import annotations

from cdc_assets.cdc.sqltext import Query, Sql, case, get, literal, members_of

# Numbers that VARIANT can't hold: integers of more than 38 digits would pass through a double (R3),
# what no double holds would be infinity.
_HUGE = (
    r"-?[1-9](?:\d{38,}+(?![.eE])|\d{308,}+(?:\.\d+)?+(?:[eE]\+?\d+)?+"
    r"|\d*+(?:\.\d+)?+[eE]\+?0*(?:309|3[1-9]\d|[4-9]\d\d|[1-9]\d{3,})(?!\d))"
)
_HUGE_MEMBER = rf"([\[:,]\s*)({_HUGE})(?=\s*[\],}}])"
_QUOTED = '$1"$2"'
DOCUMENT = "$[0]"  # the path of the document in what :func:`with_strict_json` adds
_MANY_LEVELS = 100  # Spark writes a type as JSON of at most 1,000 levels, several for each of ours


def is_utf8(text: Sql) -> Sql:
    """Are a text's bytes UTF-8, as `is_valid_utf8` says at three times the cost?

    Java replaces bytes that are none when it takes a text over.
    """
    return f"format_string('%s', {text}) = {text}"


def with_strict_json(frame: Query, **texts: Sql) -> Query:
    """Add VARIANTs of texts that are exactly one JSON document, else null.

    A text is parsed once, in an array in which its own hash follows: text behind the document
    either breaks the array or moves the hash from its place, and no text can hold its own hash.
    The VARIANT is this array, so that nothing is copied: the document stands at :data:`DOCUMENT`.
    Null, too: invalid UTF-8, names that stand twice in one object, nesting
    beyond 1,000 levels, strings beyond 20 million characters (limits of Spark's parser).

    Args:
        frame: rows.
        texts: the new columns' names and the texts that they read.

    Four projections, so that Spark computes each step once.
    """
    names = list(texts)
    frame = frame.extend({f"_{n}_text": text for n, text in texts.items()})
    frame = frame.extend({f"_{n}_mark": f"xxhash64(_{n}_text)" for n in names})
    frame = frame.extend(
        {
            f"_{n}_items": f"CASE WHEN {is_utf8(f'_{n}_text')} THEN "
            f"try_parse_json(concat('[', _{n}_text, ',', _{n}_mark, ']')) END"
            for n in names
        }
    )
    frame = frame.extend(
        {
            n: f"CASE WHEN {get(f'_{n}_items', '$[1]', 'bigint')} = _{n}_mark THEN _{n}_items END"
            for n in names
        }
    )
    return frame.drop(*(f"_{n}_{part}" for n in names for part in ("text", "mark", "items")))


def document_in(strict: Sql) -> Sql:
    """The document in what :func:`with_strict_json` adds."""
    return get(strict, DOCUMENT)


def digits_of(document: Sql, text: Sql) -> Sql:
    """The document with each number that VARIANT can't hold (1e400) as a text of its digits.

    Args:
        document: of :func:`with_strict_json`.
        text: what it was read from.

    Returns:
        VARIANT; null where the document has no such number.
    """
    listed = f"concat('[', {text}, ']')"
    # Within a string the added quotes would end it: that is no JSON, and gives null.
    quoted = f"regexp_replace({listed}, {literal(_HUGE_MEMBER)}, {literal(_QUOTED)})"
    has_one = f"{document} IS NOT NULL AND {listed} RLIKE {literal(_HUGE_MEMBER)}"
    return f"CASE WHEN {has_one} THEN {get(f'try_parse_json({quoted})', '$[0]')} END"


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
