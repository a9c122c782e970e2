"""Records in the wire formats of schema registries → the text that Kafka Connect would have sent.

A record that was written with a schema registry becomes ``{"schema":…,"payload":…}``, the text of
Kafka Connect's JSON converter, and is read as any other from there on.

An Avro value is decoded together with eight bytes behind it: only where these come out as they went
in, the schema has read all of the value, and nothing but it. Spark reads bytes that do not fit as
null. What a JSON Schema describes is JSON already, exactly one document.
"""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any, Literal

from cdc_assets.cdc.envelopes.connect import PAYLOAD, SCHEMA
from cdc_assets.cdc.registry.avro import SchemaError, read_avro
from cdc_assets.cdc.registry.client import AVRO, JSON, RegistrySchema
from cdc_assets.cdc.registry.json_schema import read_json_schema
from cdc_assets.cdc.sqltext import Query, Sql, case, literal, literals, lookup
from cdc_assets.cdc.values.strict_json import with_strict_json

Part = Literal["key", "value"]
PARTS: tuple[Part, ...] = ("key", "value")
_END = "1bcdca55e75e4d00"  # hexadecimal
# Serializers that keep ids out of the bytes write them here: Confluent's a 0 and four bytes, or a 1
# and the sixteen of a GUID; Apicurio's eight bytes.
_CONFLUENT, _APICURIO = "__{}_schema_id", "apicurio.{}.contentId"


def schema_id_of(part: Part) -> Sql:
    """The registry's id (STRING) that a record says of its key or value; null without one."""
    return f"coalesce({_id_in_header(part)}, {_id_in_bytes(part)})"


def _id_in_bytes(part: Part) -> Sql:
    return case((is_framed(part), number_in(part)))


def _id_in_header(part: Part) -> Sql:
    confluent, apicurio = (_header(name.format(part)) for name in (_CONFLUENT, _APICURIO))
    digits = f"lower(hex(substring({confluent}, 2)))"
    guid = f"regexp_replace({digits}, '(.{{8}})(.{{4}})(.{{4}})(.{{4}})', '$1-$2-$3-$4-')"
    of_header = case(
        (f"length({confluent}) = 5 AND startswith({confluent}, X'00')", number_in(confluent)),
        (f"length({confluent}) = 17 AND startswith({confluent}, X'01')", guid),
        (f"length({apicurio}) = 8", f"conv(hex({apicurio}), 16, 10)"),
    )
    return case((f"size(headers) > 0 AND {part} IS NOT NULL", of_header))


def is_framed(part: Part) -> Sql:
    """True where a key or value begins as Confluent's wire format does."""
    return f"coalesce(length({part}) >= 5 AND startswith({part}, X'00'), false)"


def number_in(framed: Sql) -> Sql:
    """The number (STRING) behind the first of some bytes, in Confluent's wire format."""
    return f"conv(hex(substring({framed}, 2, 4)), 16, 10)"


def _header(name: str) -> Sql:
    return f"get(filter(headers, header -> header.key = {literal(name)}), 0).value"


@dataclass(frozen=True)
class Decoding:
    """How the records of some days are decoded, by the registry's ids.

    `schemas` are those that the registry has; a record with another id is not read.
    """

    schemas: Mapping[str, RegistrySchema]

    def add_to(self, records: Query, whole: bool = False) -> Query:
        """Add `key_sent` and `value_sent`, the texts that Kafka Connect would have sent.

        They are null where the record was not written with a registry, or can't be decoded: then
        `registry_fault` says why. `value_sent` is without its schema, unless it is wanted `whole`;
        `value_start` is the hash of what was left out, as
        :func:`~cdc_assets.cdc.envelopes.connect.start_hash` has it.
        """
        readers, faults = self._readers()
        headed = records.extend({f"_{part}_header": _id_in_header(part) for part in PARTS})
        ids = {f"_{part}_id": f"coalesce(_{part}_header, {_id_in_bytes(part)})" for part in PARTS}
        # With an id in a header, all of the bytes are the value's, also a zero at their start.
        data = {
            f"_{part}_data": case(
                (f"_{part}_header IS NOT NULL", part), otherwise=f"substring({part}, 6)"
            )
            for part in PARTS
        }
        bare = headed.extend({**ids, **data})
        steps = ["header", "id", "data", *map(str, range(len(readers)))]
        if of_json := literals(i for i, reader in readers.items() if reader.wrapped is None):
            steps += ["text", "json"]
            texts = {
                f"_{p}_text": case((f"_{p}_id IN ({of_json})", f"CAST(_{p}_data AS string)"))
                for p in PARTS
            }
            documents = {f"_{part}_json": f"_{part}_text" for part in PARTS}
            bare = with_strict_json(bare.extend(texts), **documents)
        decoded = bare.extend(
            {
                f"_{part}_{n}": case((f"_{part}_id = {literal(schema_id)}", reader.decoded(part)))
                for part in PARTS
                for n, (schema_id, reader) in enumerate(readers.items())
            }
        )
        of_value = list(enumerate(readers.values()))
        sent = {
            "key_sent": _sent("key", of_value, whole=True),
            "value_sent": _sent("value", of_value, whole),
            # A constant, which Spark computes once.
            "value_start": case(
                *(
                    (reader.is_read("value", n), f"xxhash64({literal(reader.start)})")
                    for n, reader in of_value
                ),
                otherwise="CAST(NULL AS bigint)",
            ),
        }
        why = lookup("_value_id", {**faults, **dict.fromkeys(readers, _MISFIT)})
        fault = f"concat('schema id ', _value_id, ': ', coalesce({why}, {literal(_UNKNOWN)}))"
        faulty = decoded.extend(sent).extend(
            {"registry_fault": case(("_value_id IS NOT NULL AND value_sent IS NULL", fault))}
        )
        return faulty.drop(*(f"_{part}_{step}" for part in PARTS for step in steps))

    def _readers(self) -> tuple[dict[str, _Reader], dict[str, str]]:
        """By id: how its values are decoded, and why those of others can't be."""
        readers, faults = {}, {}
        for schema_id, schema in sorted(self.schemas.items()):
            try:
                readers[schema_id] = _reader_of(schema)
            except SchemaError as error:
                faults[schema_id] = str(error)
        return readers, faults


_MISFIT = "the bytes are not exactly one value of this schema"
_UNKNOWN = "the registry has no schema of this id"


@dataclass(frozen=True)
class _Reader:
    wrapped: str | None  # the Avro schema of a record of the value and what must stand behind it
    start: str  # of the message, before its payload

    def decoded(self, part: Part) -> Sql:
        """The value, with what stands behind it; or its JSON."""
        if self.wrapped is None:
            return case((f"_{part}_json IS NOT NULL", f"_{part}_text"))
        framed = f"concat(_{part}_data, X'{_END}')"
        return f"from_avro({framed}, {literal(self.wrapped)}, map('mode', 'PERMISSIVE'))"

    def is_read(self, part: Part, n: int) -> Sql:
        """Is the column of a decoded value all of the value, and nothing but it?"""
        if self.wrapped is None:
            return f"_{part}_{n} IS NOT NULL"
        return f"_{part}_{n}.end = X'{_END}'"

    def payload(self, part: Part, n: int) -> Sql:
        """``{"payload":…}`` with the decoded value."""
        if self.wrapped is None:
            return f"concat('{{\"payload\":', _{part}_{n}, '}}')"
        members = f"struct(_{part}_{n}.payload AS payload)"
        return f"to_json({members}, map('ignoreNullFields', 'false'))"


def _reader_of(schema: RegistrySchema) -> _Reader:
    if schema.kind == JSON:
        return _Reader(None, _start(read_json_schema(schema.text)))
    if schema.kind != AVRO:
        raise SchemaError(f"a schema of {schema.kind} is not read, only AVRO and JSON")
    read = read_avro(schema.text, schema.references)
    end = {"type": "fixed", "name": "cdc_assets.End", "size": len(_END) // 2}
    wrapped = {
        "type": "record",
        "name": "cdc_assets.Framed",
        "fields": [{"name": "payload", "type": read.reader}, {"name": "end", "type": end}],
    }
    return _Reader(json.dumps(wrapped), _start(read.connect))


def _start(connect: Mapping[str, Any]) -> str:
    """What stands before the payload of a message with this schema of Kafka Connect."""
    # A message is cut at the first PAYLOAD: a member of that name within the schema must not look
    # like it.
    text = json.dumps(connect, ensure_ascii=False, separators=(",", ":"))
    return SCHEMA + text.replace(PAYLOAD, PAYLOAD.replace("p", "\\u0070", 1))


def _sent(part: Part, readers: Iterable[tuple[int, _Reader]], whole: bool) -> Sql:
    branches = []
    for n, reader in readers:
        payload = reader.payload(part, n)
        text = f"concat({literal(reader.start + ',')}, substring({payload}, 2))"
        branches.append((reader.is_read(part, n), text if whole else payload))
    return case(*branches, otherwise="CAST(NULL AS string)")
