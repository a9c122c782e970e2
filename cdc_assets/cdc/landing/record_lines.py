"""Lines of text as landing rows.

A line is a record as ``kcat -J`` writes it or with the names of Spark's Kafka source. Other lines
land too: `value` has the line's bytes, `topic` and `offset` are null. A line with a partition,
offset or timestamp that is impossible in Kafka is not a record.

The lines of sinks say less: the value alone, an object of value, key and more, or fields between
commas. What they lack, their file's path says.
"""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame

from cdc_assets.cdc.json_reader import Wanted, read, values_at
from cdc_assets.cdc.landing.lines import LINE_BYTES
from cdc_assets.cdc.sqltext import Query, Sql, case, literal, whole

NO_TIMESTAMP = -1  # of a record without timestamp in Kafka's clients
END_OF_TIME_MS = 253_402_300_800_000  # year 10000, out of range for DATE and Python's datetime

# The members of a line.
_BYTES = ("payload", "value", "key")
_LINE: dict[str, Wanted] = {
    **{name: ("text", name) for name in ("topic", "partition", "offset", "ts", "timestamp")},
    **{name: ("text", name) for name in ("tstype", "timestampType")},
    **{name: ("text", name) for name in _BYTES},
    **{f"{name}_kind": ("kind", name) for name in _BYTES},
    **{f"{name}_base64": ("text", f"{name}_base64") for name in _BYTES},
    "headers": ("kind", "headers"),
    "header_texts": ("texts", "headers"),
    "header_items": ("items", "headers"),
}
_HEADER: dict[str, Wanted] = {name: ("text", name) for name in ("key", "value", "value_base64")}


def from_lines(
    lines: DataFrame, long_bytes: Sql = "CAST(NULL AS bigint)", kept: Sequence[Sql] = ()
) -> DataFrame:
    """Landing rows of text lines.

    Args:
        lines: `value` (the line's bytes as text), `landing_date`, `file`.
        long_bytes: how long a line is of which `value` is the beginning alone; null for others.
        kept: more columns of the lines to keep.
    """
    key, value = _bytes("key"), _bytes("payload", "value")
    columns = {
        "topic": "_topic",
        "partition": "_partition",
        "offset": "_offset",
        "timestamp": "_timestamp",
        "timestamp_type": _TIMESTAMP_TYPE,
        "key": key,
    }
    return (
        _with_is_record(_parsed(lines))
        .select(
            *(f"CASE WHEN is_record THEN {sql} END AS {name}" for name, sql in columns.items()),
            f"CASE WHEN is_record THEN {value} ELSE CAST(value AS binary) END AS value",
            f"CASE WHEN is_record THEN {_headers()} ELSE {_line_bytes(long_bytes)} END AS headers",
            "landing_date",
            "file",
            *kept,
        )
        .plan()
    )


def _line_bytes(long_bytes: Sql) -> Sql:
    """The header that says how long a line was of which the beginning landed; null for others."""
    size = f"CAST(CAST({long_bytes} AS string) AS binary)"
    pair = f"array(named_struct('key', {literal(LINE_BYTES)}, 'value', {size}))"
    return f"CASE WHEN {long_bytes} IS NOT NULL THEN {pair} END"


def _parsed(lines: DataFrame) -> Query:
    """Add the line's members as `l`, and candidates of its columns; empty lines are left out."""
    # The first character is tested first: a regular expression scans the whole line.
    is_empty = (
        f"ascii(value) IN (0, {ord(' ')}, {ord(chr(13))}) AND value RLIKE '^ *\\\\r{{0,2}}\\\\z'"
    )
    filled = Query(lines).where(f"NOT ({is_empty})")
    parsed = filled.extend({"l": read("value", **_LINE)})
    sent = "coalesce(l.ts, l.timestamp)"
    return parsed.extend(
        {
            "_topic": "l.topic",
            "_partition": _count("l.partition", "int"),
            "_offset": _count("l.offset", "bigint"),
            "_sent": sent,
            "_millis": _millis_of(sent),
            **{f"_{name}_bytes": _coded(f"l.{name}_base64") for name in _BYTES},
            "_pairs": _header_pairs(),
        }
    )


def _with_is_record(parsed: Query) -> Query:
    """Add `_timestamp`, and `is_record`: the line has a valid place in Kafka, and no bytes lost."""
    timed = parsed.extend(
        {
            "_timestamp": _TIMESTAMP,
            "_fits": " AND ".join([*map(_is_text_or_null, _BYTES), _HEADERS_FIT]),
        }
    )
    is_time = f"(_sent IS NULL OR _timestamp IS NOT NULL OR _millis <=> {NO_TIMESTAMP}L)"
    return timed.extend(
        {
            "is_record": "coalesce(_topic IS NOT NULL AND _offset IS NOT NULL "
            f"AND _partition IS NOT NULL AND {is_time} AND _fits, false)"
        }
    )


# Of `_sent`, a text, and `_millis`, the same as a number.
_TIMESTAMP = (
    "coalesce("
    f"CASE WHEN _millis >= 0 AND _millis < {END_OF_TIME_MS} "
    "THEN timestamp_millis(_millis) END, "
    "CASE WHEN NOT _sent RLIKE '^[-+]?[0-9.]+$' "
    f"AND try_cast(_sent AS timestamp) < timestamp_millis({END_OF_TIME_MS}) "
    "THEN try_cast(_sent AS timestamp) END)"
)

# 0 CreateTime, 1 LogAppendTime, as in Spark's Kafka source.
_TIMESTAMP_TYPE = (
    "coalesce(try_cast(l.timestampType AS int), "
    "CASE l.tstype WHEN 'create' THEN 0 WHEN 'logappend' THEN 1 END)"
)


def _millis_of(sent: Sql) -> Sql:
    """A text of digits as a number."""
    return case((f"{sent} RLIKE '^-?[0-9]+$'", whole(sent)))


def _count(digits: Sql, kind: str) -> Sql:
    """A non-negative number; null for a fraction, a sign or an overflow."""
    return f"CASE WHEN {digits} RLIKE '^[0-9]+$' THEN try_cast({digits} AS {kind}) END"


def _coded(text: Sql) -> Sql:
    return f"try_to_binary({text}, 'base64')"


def _bytes(*names: str) -> Sql:
    """The bytes of a text member, or of its ``_base64`` twin."""
    coded = [f"_{name}_bytes" for name in names]
    plain = [f"CAST(l.{name} AS binary)" for name in names]
    return f"coalesce({', '.join([*coded, *plain])})"


def _is_text_or_null(name: str) -> Sql:
    """False if a member is an object, a list or a number: its bytes are lost."""
    is_coded = f"l.{name}_base64 IS NULL OR _{name}_bytes IS NOT NULL"
    return f"coalesce(l.{name}_kind IN ('string', 'null'), true) AND ({is_coded})"


def _headers() -> Sql:
    """kcat's flat list ``[k, v, …]`` or Spark's ``[{key, value}, …]`` as one array of pairs."""
    flat = "l.header_texts"
    from_flat = (
        f"transform(sequence(0, CAST(size({flat}) / 2 AS int) - 1), i -> named_struct("
        f"'key', get({flat}, i * 2), 'value', CAST(get({flat}, i * 2 + 1) AS binary)))"
    )
    from_pairs = (
        "transform(_pairs, h -> named_struct('key', h.key, 'value', "
        f"coalesce({_coded('h.value_base64')}, CAST(h.value AS binary))))"
    )
    return case(("_pairs IS NOT NULL", from_pairs), (f"size({flat}) >= 2", from_flat))


def _header_pairs() -> Sql:
    """Headers as a list of objects; null for kcat's flat list and without headers."""
    are_pairs = (
        "exists(l.header_items, h -> startswith(h, '{')) "
        "AND forall(l.header_items, h -> h IS NULL OR startswith(h, '{') OR h = 'null')"
    )
    pairs = f"transform(l.header_items, h -> {read('h', **_HEADER)})"
    return case(("l.headers = 'array'", case((are_pairs, pairs))))


# False if the bytes of a header's value are lost.
_HEADERS_FIT = (
    "(_pairs IS NULL OR NOT exists(_pairs, h -> "
    f"h.value_base64 IS NOT NULL AND {_coded('h.value_base64')} IS NULL))"
)


# -- lines of sinks

# The file's place among those that are read, and the line's in it: kept beside a landing's columns.
PLACE_IN_FILES = ("file_number", "line")


def from_values(lines: DataFrame) -> DataFrame:
    """Landing rows of lines that are values, or the keys and headers beside them.

    A line that is a JSON string is the text in it: a converter of strings wrote JSON once more.

    Args:
        lines: `value`, `key`, `headers` (bytes of a line each; null without one), `long_bytes` (as
            of :func:`from_lines`), `topic`, `partition`, `offset` (as the path says; null if it
            does not), `landing_date`, `file`, and :data:`PLACE_IN_FILES`, which stay.
    """
    sent = Query(lines).extend(
        {
            "_topic": "topic",
            "_partition": "partition",
            "_offset": "offset",
            "_timestamp": "CAST(NULL AS timestamp)",
            "_value": _unwrapped("value"),
            "_key": _unwrapped("key"),
            "l": read("headers", **_HEADERS_ALONE),
            "is_record": "long_bytes IS NULL",
        }
    )
    return _records(sent.extend({"_pairs": _header_pairs()}), _headers()).plan()


def from_envelopes(lines: DataFrame, is_base64: bool) -> DataFrame:
    """Landing rows of lines that are objects of `value`, and perhaps `key`, `offset`, `timestamp`,
    `headers`, or of these in `metadata`. A line that is none lands as it is.

    Args:
        lines: as of :func:`from_values`.
        is_base64: whether key and value are base64 in a text, else they are JSON in place, or text.
    """
    parsed = Query(lines).extend({"l": read("value", **_ENVELOPE)})
    sent = "coalesce(l.timestamp, l.meta_timestamp)"
    named = parsed.extend(
        {
            "_sent": sent,
            "_millis": _millis_of(sent),
            "_pairs": _header_pairs(),
            "_named": values_at("l.headers_object", "l.header_names"),
            "_offset": f"coalesce({_count('coalesce(l.offset, l.meta_offset)', 'bigint')}, offset)",
            "_partition": f"coalesce({_count('l.meta_partition', 'int')}, partition)",
            "_topic": "coalesce(l.meta_topic, topic)",
            **{f"_{name}": _decoded(f"l.{name}", is_base64) for name in ("key", "value")},
        }
    )
    fits = " AND ".join(f"(l.{n} IS NULL OR _{n} IS NOT NULL)" for n in ("key", "value"))
    judged = named.extend(
        {
            "_timestamp": _TIMESTAMP,
            "is_record": "coalesce(l.value_kind IS NOT NULL AND _topic IS NOT NULL AND "
            f"_partition IS NOT NULL AND _offset IS NOT NULL AND {fits} AND {_HEADERS_FIT}, false)",
        }
    )
    return _records(judged, f"coalesce({_headers()}, {_named_headers()})").plan()


def from_csv(lines: DataFrame, fields: Sequence[str], is_base64: bool) -> DataFrame:
    """Landing rows of lines of fields between commas; a line that lacks one lands as it is.

    Args:
        lines: as of :func:`from_values`.
        fields: of `key`, `value`, `offset`, `timestamp`, in order, `value` among them.
        is_base64: whether key and value are base64; if not, the value may hold commas.
    """
    pattern = ",".join("(.*)" if name == "value" else "([^,]*)" for name in fields)
    text = "regexp_replace(CAST(value AS string), '\\r$', '')"
    split = Query(lines).extend({"_line": text})
    matched = split.extend({"_fits": f"_line RLIKE {literal(f'^(?s:{pattern})$')}"})
    named = matched.extend(
        {
            f"_{name}_text": f"regexp_extract(_line, {literal(f'^(?s:{pattern})$')}, {at})"
            for at, name in enumerate(fields, 1)
        }
    )

    def text_of(name: str) -> Sql:
        return f"nullif(_{name}_text, '')" if name in fields else "CAST(NULL AS string)"

    typed = named.extend(
        {
            "_topic": "topic",
            "_partition": "partition",
            "_offset": f"coalesce({_count(text_of('offset'), 'bigint')}, offset)",
            "_sent": text_of("timestamp"),
            "_millis": _millis_of(text_of("timestamp")),
            **{f"_{name}": _decoded(text_of(name), is_base64) for name in ("key", "value")},
        }
    )
    coded = " AND ".join(f"({text_of(n)} IS NULL OR _{n} IS NOT NULL)" for n in ("key", "value"))
    judged = typed.extend(
        {
            "_timestamp": _TIMESTAMP,
            "is_record": f"coalesce(_fits AND _offset IS NOT NULL AND _partition IS NOT NULL "
            f"AND {coded}, false)",
        }
    )
    return _records(judged, _NO_HEADERS).plan()


def _records(judged: Query, headers: Sql) -> Query:
    """The columns of a landing; lines that are no record have only their bytes."""
    columns = {
        "topic": "_topic",
        "partition": "_partition",
        "offset": "_offset",
        "timestamp": "_timestamp",
        "timestamp_type": "CAST(NULL AS int)",
        "key": "_key",
    }
    return judged.select(
        *(f"CASE WHEN is_record THEN {sql} END AS {name}" for name, sql in columns.items()),
        "CASE WHEN is_record THEN _value ELSE value END AS value",
        f"CASE WHEN is_record THEN {headers} ELSE {_line_bytes('long_bytes')} END AS headers",
        "landing_date",
        "file",
        *PLACE_IN_FILES,
    )


_HEADERS_ALONE: dict[str, Wanted] = {
    "headers": ("kind",),
    "header_texts": ("texts",),
    "header_items": ("items",),
}
_ENVELOPE: dict[str, Wanted] = {
    **{name: ("text", name) for name in ("key", "value", "offset", "timestamp")},
    "value_kind": ("kind", "value"),
    **{f"meta_{n}": ("text", "metadata", n) for n in ("topic", "partition", "offset", "timestamp")},
    "headers": ("kind", "headers"),
    "headers_object": ("object", "headers"),
    "header_names": ("names", "headers"),
    "header_texts": ("texts", "headers"),
    "header_items": ("items", "headers"),
}
_NO_HEADERS = "CAST(NULL AS array<struct<key string, value binary>>)"


def _unwrapped(line: Sql) -> Sql:
    """The bytes of a line of JSON, of the text in it where it is a string; null of null."""
    text = read(line, text=("text",))
    return (
        f"CASE WHEN substring({line}, 1, 1) = X'22' "
        f"THEN coalesce(CAST({text}.text AS binary), {line}) "
        f"WHEN length({line}) > 0 AND {line} <> X'6E756C6C' THEN {line} END"
    )


def _decoded(text: Sql, is_base64: bool) -> Sql:
    return _coded(text) if is_base64 else f"CAST({text} AS binary)"


def _named_headers() -> Sql:
    """Headers that are an object: the text of each value."""
    text = read("get(_named, i)", text=("text",))
    pairs = (
        "transform(l.header_names, (name, i) -> named_struct('key', name, 'value', "
        f"CAST({text}.text AS binary)))"
    )
    return case(("l.headers = 'object'", pairs), otherwise=_NO_HEADERS)
