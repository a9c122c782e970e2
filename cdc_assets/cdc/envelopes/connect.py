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
    """SHA-256 of the text's start; null where it has none.

    A second text of the same hash can't be made: its records would have this one's schema.
    """
    return case((has_start(text, parts), f"sha2({parts}[0], 256)"))


def with_document(
    records: Query,
    cut: bool = True,
    hashed: bool = True,
    decoded: bool = False,
    **texts: Sql,
) -> Query:
    """Add `doc`, the value as strict JSON, its text `body`, and `start_hash`.

    `doc` is as :func:`~cdc_assets.cdc.values.strict_json.with_strict_json` makes it.

    Args:
        records: has `value_text`.
        cut: read messages without their starts, where they have one.
        hashed: tell starts by their hash; without it, nothing is cut.
        decoded: some were written with a schema registry: `sent_value`, `sent_value_text` and
            `sent_start` (:meth:`~cdc_assets.cdc.registry.decode.Decoding.add_to`) take the place of
            what would be read from the text.
        texts: more texts to read as strict JSON.

    Returns:
        `start_hash` is SHA-256 of the start's text, null where there is none.
    """
    parts = parts_of("value_text") if hashed else "CAST(NULL AS array<string>)"
    split = records.extend({"_parts": parts})
    found = start_hash("value_text", "_parts")
    hashes = split.extend({"start_hash": f"coalesce(sent_start, {found})" if decoded else found})
    rest = f"concat({literal('{' + PAYLOAD[1:])}, _parts[1])"
    has_parts = "start_hash IS NOT NULL AND _parts IS NOT NULL"
    body = case((has_parts, rest), otherwise="value_text") if cut else "value_text"
    if decoded:
        body = f"coalesce(sent_value_text, {body})"
    opened = hashes.extend({"body": body}).drop("_parts")
    unread = case(("sent_value IS NULL", "body")) if decoded else "body"
    read = with_strict_json(opened, _doc=unread, **texts)
    doc = "_doc"
    if cut and hashed:
        # A message that names its schema twice is not strict JSON.
        twice = f"start_hash IS NOT NULL AND {get('_doc', DOCUMENT + '.schema')} IS NOT NULL"
        doc = f"CASE WHEN NOT ({twice}) THEN _doc END"
    return read.extend({"doc": f"coalesce(sent_value, {doc})" if decoded else doc}).drop("_doc")
