"""Records of Avro containers as those that Kafka had: Connect's sinks, and Event Hubs Capture.

A container has its schema. Connect writes its own schema into Avro's, so that types survive: value
and key land as ``{"schema": …, "payload": …}``, which Connect's JSON converter would have sent.
"""

from __future__ import annotations

import json
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property
from typing import Any

from cdc_assets.cdc.landing.record_lines import END_OF_TIME_MS, PLACE_IN_FILES
from cdc_assets.cdc.registry.avro import read_avro
from cdc_assets.cdc.registry.decode import AvroReader, Part, connect_text
from cdc_assets.cdc.sqltext import Query, Sql, case, literal

_KAFKA_KEY = "x-opt-kafka-key"
# As .NET prints a time, and as ISO has it.
_NET_TIME = "M/d/yyyy h:mm:ss a"


@dataclass(frozen=True)
class ConnectContainers:
    """Reads keys and values of containers that Kafka Connect's sinks wrote.

    Args:
        schemas: Avro's schemas as JSON; records name theirs by its index.
        parts: the indexes that records of `value` and `key` name.

    Raises:
        SchemaError: at first use, a schema can't be read.
    """

    schemas: Sequence[str]
    parts: Mapping[Part, Collection[int]]

    @cached_property
    def _readers(self) -> list[AvroReader]:
        found = ((str(at), read_avro(text)) for at, text in enumerate(self.schemas))
        return [AvroReader(at, connect_text(avro.connect), avro) for at, avro in found]

    def add_to(self, records: Query) -> Query:
        """Replace columns by the JSON of their records; bytes that are no record stay.

        Args:
            records: `value` and `key` (BINARY), and beside each the index of its schema
                (`value_schema`), null of lines.
        """
        decoded = records.extend({f"_{part}_data": part for part in self.parts}).extend(
            {
                f"_{part}_{at}": case((f"{part}_schema = {at}", self._readers[at].decoded(part)))
                for part, used in self.parts.items()
                for at in used
            }
        )
        return decoded.replace({part: self._document(part) for part in self.parts})

    def _document(self, part: Part) -> Sql:
        branches = []
        for at in self.parts[part]:
            reader = self._readers[at]
            decoded = f"_{part}_{at}"
            # Avro itself told the records apart. A text that is no UTF-8 makes JSON that is none,
            # which is quarantined.
            is_own = f"{part}_schema = {at} AND {reader.is_whole(decoded)}"
            begin = literal('{"schema":' + reader.connect + ",")
            payload = f"named_struct('payload', {reader.payload(decoded)})"
            text = f"to_json({payload}, map('ignoreNullFields', 'false'))"
            document = f"concat({begin}, substring({text}, 2))"
            branches.append((is_own, f"CAST({document} AS binary)"))
        return case(*branches, otherwise=f"_{part}_data")


def headers_as_json(schemas: Mapping[int, str]) -> Sql:
    """`headers` of containers, a list of keys and values, as JSON; those of lines stay.

    Args:
        schemas: Avro's schemas as JSON, by the index that `headers_schema` has.
    """
    branches = [
        (
            f"headers_schema = {at}",
            f"CAST(to_json(from_avro(headers, {literal(text)}, map('mode', 'PERMISSIVE'))) "
            "AS binary)",
        )
        for at, text in schemas.items()
    ]
    return case(*branches, otherwise="headers")


@dataclass(frozen=True)
class CaptureContainers:
    """Reads records that Azure Event Hubs Capture wrote.

    The key is that of Kafka's endpoint, among the system properties; headers are the properties.

    Args:
        schemas: as of :class:`ConnectContainers`; those without the fields of Capture have no
            record.
    """

    schemas: Sequence[str]

    def rows(self, records: Query) -> Query:
        """Landing rows.

        Args:
            records: `value` and `value_schema` as in :class:`ConnectContainers`, `topic`,
                `partition`, `landing_date`, `file`.
        """
        decoded = records.extend(
            {
                f"_{at}": case((f"value_schema = {at}", self._fields(at, text)))
                for at, text in enumerate(self.schemas)
                if _is_capture(json.loads(text))
            }
        )
        found = [f"_{at}" for at, text in enumerate(self.schemas) if _is_capture(json.loads(text))]
        event = f"coalesce({', '.join(found)})" if found else f"CAST(NULL AS {_EVENT})"
        timed = decoded.extend({"_event": event}).extend({"_time": _time("_event.time")})
        is_record = "_event.offset IS NOT NULL"
        columns = {
            "topic": "topic",
            "partition": "partition",
            "offset": "_event.offset",
            "timestamp": "_time",
            "timestamp_type": "CASE WHEN _time IS NOT NULL THEN 1 END",
            "key": "_event.key",
        }
        return timed.select(
            *(f"CASE WHEN {is_record} THEN {sql} END AS {name}" for name, sql in columns.items()),
            f"CASE WHEN {is_record} THEN _event.value ELSE value END AS value",
            f"CASE WHEN {is_record} THEN _event.headers END AS headers",
            "landing_date",
            "file",
            *PLACE_IN_FILES,
        )

    def _fields(self, at: int, text: str) -> Sql:
        record = f"from_avro(value, {literal(text)}, map('mode', 'PERMISSIVE'))"
        schema = json.loads(text)
        system = _as_bytes(schema, "SystemProperties")
        more = _as_bytes(schema, "Properties")
        key = f"e.SystemProperties[{literal(_KAFKA_KEY)}]"
        headers = (
            "transform(map_entries(e.Properties), h -> "
            f"named_struct('key', h.key, 'value', {more.format('h.value')}))"
        )
        event = (
            "named_struct('offset', e.SequenceNumber, 'time', e.EnqueuedTimeUtc, "
            f"'key', {system.format(key)}, 'value', e.Body, 'headers', {headers})"
        )
        return f"get(transform(array({record}), e -> {event}), 0)"


_EVENT = (
    "struct<offset bigint, time string, key binary, value binary, "
    "headers array<struct<key string, value binary>>>"
)
_CAPTURE = {"SequenceNumber", "EnqueuedTimeUtc", "SystemProperties", "Properties", "Body"}


def _is_capture(schema: Any) -> bool:
    names = {f["name"] for f in schema.get("fields", ())} if isinstance(schema, dict) else set()
    return names >= _CAPTURE


def _as_bytes(schema: Mapping[str, Any], name: str) -> Sql:
    """The bytes of a property, a union: Spark has a member for each of its types."""
    kind = next(field["type"] for field in schema["fields"] if field["name"] == name)
    kinds = [k for k in kind["values"] if k != "null"] if isinstance(kind["values"], list) else []
    if len(kinds) < 2:
        return "CAST({0} AS binary)"
    casts = [
        f"{{0}}.member{at}" if k == "bytes" else f"CAST(CAST({{0}}.member{at} AS string) AS binary)"
        for at, k in enumerate(kinds)
    ]
    return f"coalesce({', '.join(casts)})"


def _time(text: Sql) -> Sql:
    parsed = (
        f"coalesce(try_to_timestamp({text}, {literal(_NET_TIME)}), try_cast({text} AS timestamp))"
    )
    return f"CASE WHEN {parsed} < timestamp_millis({END_OF_TIME_MS}) THEN {parsed} END"
