"""Records in the wire formats of schema registries → documents of Kafka Connect's JSON converter.

A record that was written with a schema registry becomes the JSON ``{"schema":null,"payload":…}``,
as Kafka Connect's JSON converter would have written it, and is then read like any other record. Its
schema is identified by the registry's id and read once.

An Avro value is decoded together with eight marker bytes behind it: they come out unchanged only if
the schema consumed exactly the value. Spark reads bytes that do not fit as null;
:mod:`~cdc_assets.cdc.registry.avro` detects values that Spark accepts and Avro does not allow. A
value with a JSON Schema is JSON already, exactly one document.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Collection, Mapping
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

from cdc_assets.cdc.envelopes.headers import header
from cdc_assets.cdc.json_reader import read as read_json
from cdc_assets.cdc.registry.avro import (
    DEEPEST,
    MOST_REFERENCES,
    AvroSchema,
    OverLimitError,
    SchemaError,
    read_avro,
)
from cdc_assets.cdc.registry.client import AVRO, JSON, RegistrySchema
from cdc_assets.cdc.registry.json_schema import read_json_schema
from cdc_assets.cdc.sqltext import Query, Sql, case, is_one_of, literal, literals, lookup

Part = Literal["key", "value"]
PARTS: tuple[Part, ...] = ("key", "value")
_END = "1bcdca55e75e4d00"  # hexadecimal
# Headers with the schema id. Confluent: a 0 and four bytes, or a 1 and the sixteen of a GUID;
# Apicurio: eight bytes.
_CONFLUENT, _APICURIO = "__{}_schema_id", "apicurio.{}.contentId"


def schema_id_of(part: Part) -> Sql:
    """The registry's schema id (STRING) of a record's key or value; null without one."""
    return f"coalesce({_id_in_header(part)}, {_id_in_bytes(part)})"


def _id_in_bytes(part: Part) -> Sql:
    return case((is_framed(part), number_in(part)))


def _id_in_header(part: Part) -> Sql:
    confluent, apicurio = (header(name.format(part)) for name in (_CONFLUENT, _APICURIO))
    digits = f"lower(hex(substring({confluent}, 2)))"
    guid = f"regexp_replace({digits}, '(.{{8}})(.{{4}})(.{{4}})(.{{4}})', '$1-$2-$3-$4-')"
    header_id = case(
        (f"length({confluent}) = 5 AND startswith({confluent}, X'00')", number_in(confluent)),
        (f"length({confluent}) = 17 AND startswith({confluent}, X'01')", guid),
        (f"length({apicurio}) = 8", f"conv(hex({apicurio}), 16, 10)"),
    )
    return case((f"size(headers) > 0 AND {part} IS NOT NULL", header_id))


def is_framed(part: Part) -> Sql:
    """True where a key or value begins as Confluent's wire format does."""
    return f"coalesce(length({part}) >= 5 AND startswith({part}, X'00'), false)"


def number_in(framed: Sql) -> Sql:
    """The schema id (STRING) behind the magic byte of Confluent's wire format."""
    return f"conv(hex(substring({framed}, 2, 4)), 16, 10)"


@dataclass(frozen=True)
class Decoding:
    """How the records of some days are decoded, by the registry's ids.

    `schemas` are those that the registry has; a record with another id is not read. `ids` are the
    schema ids in the records' keys and values; `has_more`: there are more than a run requests.
    """

    schemas: Mapping[str, RegistrySchema]
    ids: Mapping[Part, Collection[str]]
    has_more: bool = False

    @cached_property
    def connect_schemas(self) -> dict[str, str]:
        """Kafka Connect's schemas (canonical JSON) of decoded values, by `sent_schema_id`."""
        return {reader.schema_id: reader.connect for reader in self._readers}

    def add_to(self, records: Query) -> Query:
        """Add the documents that Kafka Connect would have sent; null for records not decoded.

        `sent_key` and `sent_value` are JSON without their schemas. `sent_key_schema` is the key's
        schema (JSON), `sent_schema_id` the id of the value's schema (:attr:`connect_schemas`).
        `registry_fault` says why a value with a schema id can't be decoded.
        """
        decoded = self._with_avro(self._with_json(_with_data(records)))
        sent = decoded.extend({**self._sent("key"), **self._sent("value")})
        read = sent.extend(
            {
                "sent_key_schema": self._by_id("key", lambda r: r.connect, "string"),
                "sent_schema_id": self._by_id("value", lambda r: r.schema_id, "string"),
                "registry_fault": self._fault(),
                "registry_is_over": self._is_over(),
            }
        )
        steps = [f"_{part}_{step}" for part in PARTS for step in ("header", "id", "data")]
        columns = [column for part in PARTS for column, _ in self._avro(part)]
        texts = [f"_{part}_{step}" for part in self._in_json for step in ("json", "read")]
        return read.drop(*steps, *columns, *texts)

    def _with_json(self, records: Query) -> Query:
        """Add keys and values that have a JSON Schema, and whether they are strict JSON."""
        if not self._in_json:
            return records
        texts = {
            f"_{part}_json": case(
                (f"_{part}_id IN ({literals(ids)})", f"CAST(_{part}_data AS string)")
            )
            for part, ids in self._in_json.items()
        }
        found = records.extend(texts)
        return found.extend({f"_{part}_read": read_json(f"_{part}_json") for part in self._in_json})

    def _with_avro(self, records: Query) -> Query:
        """Add a column of decoded records for each Avro schema of keys and of values."""
        return records.extend(
            {
                column: case((f"_{part}_id = {literal(reader.id)}", reader.decoded(part)))
                for part in PARTS
                for column, reader in self._avro(part)
            }
        )

    def _sent(self, part: Part) -> dict[str, Sql]:
        """The document of a key or value."""
        branches = [reader.document(column) for column, reader in self._avro(part)]
        if part in self._in_json:
            text = f"_{part}_json"
            whole = f"concat('{{\"schema\":null,\"payload\":', {text}, '}}')"
            branches.append((f"_{part}_read.is_json", whole))
        return {f"sent_{part}": case(*branches, otherwise="CAST(NULL AS string)")}

    def _fault(self) -> Sql:
        whys = {**{reader.id: _MISFIT for reader in self._readers_for("value")}, **self._faults}
        otherwise = _MORE if self.has_more else _UNKNOWN
        why = f"coalesce({lookup('_value_id', whys)}, {literal(otherwise)})"
        fault = f"concat('schema id ', _value_id, ': ', {why})"
        return case(("_value_id IS NOT NULL AND sent_value IS NULL", fault))

    def _is_over(self) -> Sql:
        """True where a value's schema exceeds a limit, or its id was not requested."""
        over = [i for i, read in self._read.items() if isinstance(read, OverLimitError)]
        conditions = [f"_value_id IN ({literals(over)})"] if over else []
        if self.has_more:
            known = sorted(self.ids["value"])
            conditions.append(f"NOT {is_one_of('_value_id', known)}")
        return f"coalesce({' OR '.join(conditions) or 'false'}, false)"

    def _by_id(self, part: Part, attribute: Callable[[Reader], str], kind: str) -> Sql:
        """An attribute of the schema of each decoded key or value."""
        readers = self._readers_for(part)
        by_id = ((f"_{part}_id = {literal(r.id)}", literal(attribute(r))) for r in readers)
        return case((f"sent_{part} IS NOT NULL", f"CAST({case(*by_id)} AS {kind})"))

    def _readers_for(self, part: Part) -> list[Reader]:
        """The readers of keys or of values."""
        return [reader for reader in self._readers if reader.id in self.ids[part]]

    def _avro(self, part: Part) -> list[tuple[str, AvroReader]]:
        """The Avro readers, each with the column of its decoded records."""
        readers = [reader for reader in self._readers_for(part) if isinstance(reader, AvroReader)]
        return [(f"_{part}_{number}", reader) for number, reader in enumerate(readers)]

    @cached_property
    def _in_json(self) -> dict[Part, list[str]]:
        """The ids of JSON Schemas of keys and of values; parts without any are left out."""
        ids = {
            part: [r.id for r in self._readers_for(part) if not isinstance(r, AvroReader)]
            for part in PARTS
        }
        return {part: found for part, found in ids.items() if found}

    @cached_property
    def _readers(self) -> list[Reader]:
        return [read for read in self._read.values() if isinstance(read, Reader)]

    @cached_property
    def _faults(self) -> dict[str, str]:
        """Why the values of a schema can't be decoded, by its id."""
        return {i: str(read) for i, read in self._read.items() if isinstance(read, SchemaError)}

    @cached_property
    def _read(self) -> dict[str, Reader | SchemaError]:
        read: dict[str, Reader | SchemaError] = {}
        for schema_id, schema in sorted(self.schemas.items()):
            try:
                read[schema_id] = _reader_of(schema_id, schema)
            except SchemaError as error:
                read[schema_id] = error
        return read


def _with_data(records: Query) -> Query:
    """Add the schema ids of keys and values, and their bytes without the ids."""
    headed = records.extend({f"_{part}_header": _id_in_header(part) for part in PARTS})
    ids = {f"_{part}_id": f"coalesce(_{part}_header, {_id_in_bytes(part)})" for part in PARTS}
    # If a header has the id, all bytes belong to the value, even a zero at their start.
    data = {
        f"_{part}_data": case(
            (f"_{part}_header IS NOT NULL", part), otherwise=f"substring({part}, 6)"
        )
        for part in PARTS
    }
    return headed.extend({**ids, **data})


_MISFIT = "the bytes are not exactly one value of this schema"
_UNKNOWN = "the registry has no schema of this id"
_MORE = f"{_UNKNOWN}, or it is one of more ids than a run asks for (max_kinds)"


@dataclass(frozen=True)
class Reader:
    """Reads the values of one schema; `connect` is Kafka Connect's schema of them (JSON)."""

    id: str
    connect: str

    @property
    def schema_id(self) -> str:
        """The schema's SHA-256."""
        return hashlib.sha256(self.connect.encode()).hexdigest()


@dataclass(frozen=True)
class AvroReader(Reader):
    avro: AvroSchema

    def decoded(self, part: Part) -> Sql:
        """A record of the Avro value (`payload`) and the marker bytes behind it (`end`)."""
        end = {"type": "fixed", "name": "cdc_assets.End", "size": len(_END) // 2}
        framed = {
            "type": "record",
            "name": "cdc_assets.Framed",
            "fields": [{"name": "payload", "type": self.avro.reader}, {"name": "end", "type": end}],
        }
        data = f"concat(_{part}_data, X'{_END}')"
        return f"from_avro({data}, {literal(json.dumps(framed))}, map('mode', 'PERMISSIVE'))"

    def document(self, decoded: Sql) -> tuple[Sql, Sql]:
        """Whether the decoded record is exactly the Avro value, and its document."""
        is_read, is_misfit = self.is_whole(decoded), self.avro.is_misfit
        if is_misfit is not None:
            is_read = f"{is_read} AND NOT coalesce({is_misfit(f'{decoded}.payload')}, false)"
        return is_read, _document(self.payload(decoded))

    def is_whole(self, decoded: Sql) -> Sql:
        """True where the bytes end with the value."""
        return f"{decoded}.end = X'{_END}'"

    def payload(self, decoded: Sql) -> Sql:
        """What the JSON of the value is made of."""
        payload, in_json = f"{decoded}.payload", self.avro.in_json
        return in_json(payload) if in_json else payload


def _reader_of(schema_id: str, schema: RegistrySchema) -> Reader:
    if schema.has_too_many_references:
        raise OverLimitError(
            f"the schema: refers to more than {MOST_REFERENCES} others, or {DEEPEST} in a row"
        )
    if schema.kind == JSON:
        return Reader(schema_id, connect_text(read_json_schema(schema.text)))
    if schema.kind != AVRO:
        raise SchemaError(f"a schema of {schema.kind} is not read, only AVRO and JSON")
    avro = read_avro(schema.text, schema.references)
    return AvroReader(schema_id, connect_text(avro.connect), avro)


def connect_text(connect: Mapping[str, Any]) -> str:
    """Canonical JSON, as :mod:`cdc_assets.cdc.json_reader` writes it."""
    return json.dumps(connect, ensure_ascii=False, sort_keys=True, separators=(",", ":"))


def _document(payload: Sql) -> Sql:
    """``{"schema":null,"payload":…}``."""
    members = f"named_struct('schema', CAST(NULL AS string), 'payload', {payload})"
    return f"to_json(to_variant_object({members}))"
