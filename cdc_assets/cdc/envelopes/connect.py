"""Message schemas that come with every message, cut off before the message is read.

Kafka Connect's JSON converter writes ``{"schema":…,"payload":…}``, the schema often five times
the size of the event and the same in millions of them. What stands before the first
``,"payload":`` is a message's *start*; a message is read without it, and the few starts of a day
are read once, by :mod:`cdc_assets.cdc.changes.reading`. What is found is the same as by reading the
whole message, by the grammar of JSON: where a document starts with ``{"schema":`` and a whole JSON
object and ``,"payload":``, that object is its schema, wherever else these texts occur. A start
that is no ``{"schema":`` and a whole object is not cut off.
"""

from __future__ import annotations

from cdc_assets.cdc.sqltext import Query, Sql, case, get, literal
from cdc_assets.cdc.values.strict_json import DOCUMENT, with_strict_json

SCHEMA, PAYLOAD = '{"schema":', ',"payload":'


def parts_of(text: Sql) -> Sql:
    """A message's text in two at the first end of a start; see :func:`has_start`.

    Splitting by a regular expression, which a plain text is too, finds it by skipping; Spark's own
    search compares at each byte.
    """
    # An empty schema is none (L1).
    may_start = (
        f"startswith({text}, {literal(SCHEMA + '{')}) "
        f"AND NOT startswith({text}, {literal(SCHEMA + '{}')})"
    )
    return case((may_start, f"split({text}, {literal(PAYLOAD)}, 2)"))


def has_start(text: Sql, parts: Sql) -> Sql:
    """Are these :func:`parts_of` a text its start and the rest?

    Splitting replaces bytes that are not UTF-8; joined again they would not be what they were.
    """
    return f"(size({parts}) = 2 AND concat_ws({literal(PAYLOAD)}, {parts}) = {text})"


def start_hash(text: Sql, parts: Sql) -> Sql:
    """XXH64 of the text's start; null where it has none."""
    return case((has_start(text, parts), f"xxhash64({parts}[0])"))


def with_document(
    records: Query,
    cut: bool = True,
    hashed: bool = True,
    known_start: Sql | None = None,
    **texts: Sql,
) -> Query:
    """Add `doc`, the value as strict JSON, its text `body`, and `start_hash`.

    `doc` is as :func:`~cdc_assets.cdc.values.strict_json.with_strict_json` makes it.

    Args:
        records: has `value_text`.
        cut: read messages without their starts, where they have one.
        hashed: tell starts by their hash; without it, nothing is cut.
        known_start: the hash of a start that stands no more in the text.
        texts: more texts to read as strict JSON.

    Returns:
        `start_hash` is XXH64 of the start's text, null where there is none.
    """
    parts = parts_of("value_text") if hashed else "CAST(NULL AS array<string>)"
    split = records.extend({"_parts": parts})
    found = start_hash("value_text", "_parts")
    starts = "start_hash IS NOT NULL"
    if known_start is not None:
        found, starts = f"coalesce({known_start}, {found})", f"{known_start} IS NULL AND {starts}"
    hashes = split.extend({"start_hash": found})
    rest = f"concat({literal('{' + PAYLOAD[1:])}, _parts[1])"
    body = case((starts, rest), otherwise="value_text") if cut else "value_text"
    opened = hashes.extend({"body": body}).drop("_parts")
    if not (cut and hashed):
        return with_strict_json(opened, doc="body", **texts)
    read = with_strict_json(opened, _doc="body", **texts)
    # A message that names its schema twice is not strict JSON.
    twice = f"start_hash IS NOT NULL AND {get('_doc', DOCUMENT + '.schema')} IS NOT NULL"
    return read.extend({"doc": f"CASE WHEN NOT ({twice}) THEN _doc END"}).drop("_doc")
