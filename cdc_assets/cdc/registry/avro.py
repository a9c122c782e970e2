"""An Avro schema of a registry → how Spark decodes it, and what Kafka Connect would say of it.

The reader schema has no logical types: decoded values are those that Kafka Connect's JSON converter
writes (bytes of a decimal in base64, numbers of days and microseconds), and are read by the schema
that the converter would have written beside them. Bytes and fractions, which JSON writes in another
way, become what their JSON text is read as.

Spark accepts bytes that no Avro writer produces: text that is not UTF-8, an `int` of more than 32
bits (it drops the upper ones), a `boolean` that is neither 0 nor 1. To detect such values, an `int`
is decoded as a `long` and a `boolean` as its byte.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Sql, base64_of, case, literal


class SchemaError(ValueError):
    """Raised when a schema can't be read; the message names the unreadable part."""


class OverLimitError(SchemaError):
    """Raised when a schema exceeds a limit of levels, types or references."""


# Far above any real table: each type becomes a column, and every plan lists all of them.
DEEPEST, MOST_TYPES, MOST_REFERENCES = 200, 20_000, 1_000

Expression = Callable[[Sql], Sql]


class AvroSchema(NamedTuple):
    """`reader` is the Avro schema that decodes values; `connect` is Kafka Connect's schema of them.

    `in_json` turns a decoded value into one whose VARIANT equals that of its JSON; None where the
    decoded value already does. `is_misfit` is true for a decoded value outside the schema; None
    where the type has no such value.
    """

    reader: Any
    connect: dict[str, Any]
    in_json: Expression | None = None
    is_misfit: Expression | None = None


# Avro type → Kafka Connect type
_PRIMITIVES = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
}
# Logical types, which writers other than Kafka Connect use → names of Connect and Debezium
_LOGICAL = {
    ("bytes", "decimal"): "org.apache.kafka.connect.data.Decimal",
    ("fixed", "decimal"): "org.apache.kafka.connect.data.Decimal",
    ("int", "date"): "org.apache.kafka.connect.data.Date",
    ("int", "time-millis"): "org.apache.kafka.connect.data.Time",
    ("long", "time-micros"): "io.debezium.time.MicroTime",
    ("long", "timestamp-millis"): "org.apache.kafka.connect.data.Timestamp",
    ("long", "timestamp-micros"): "io.debezium.time.MicroTimestamp",
    ("long", "local-timestamp-millis"): "io.debezium.time.Timestamp",
    ("long", "local-timestamp-micros"): "io.debezium.time.MicroTimestamp",
    ("string", "uuid"): "io.debezium.data.Uuid",
}
_NO_PRECISION = 64
_BOOLEAN = "cdc_assets.Boolean"


def _number(value: Sql) -> Sql:
    """A fraction as JSON has it: 1.0 is a decimal, NaN and the infinities are texts."""
    text = f"CAST({value} AS string)"
    return f"coalesce(try_parse_json({text}), CAST({text} AS variant))"


def _is_true(byte: Sql) -> Sql:
    return f"{byte} = X'01'"


# Types that JSON writes in another way than Avro
_IN_JSON: Mapping[str, Expression] = {
    "boolean": _is_true,
    "bytes": base64_of,
    "float": _number,
    "double": _number,
}


def _is_no_boolean(byte: Sql) -> Sql:
    return f"{byte} NOT IN (X'00', X'01')"


def _is_no_int(value: Sql) -> Sql:
    return f"{value} NOT BETWEEN -2147483648 AND 2147483647"


def _is_no_utf8(text: Sql) -> Sql:
    return f"NOT is_valid_utf8({text})"


_IS_MISFIT: Mapping[str, Expression] = {
    "boolean": _is_no_boolean,
    "int": _is_no_int,
    "string": _is_no_utf8,
}


def read_avro(text: str, references: Sequence[str] = ()) -> AvroSchema:
    """Read a schema.

    Args:
        text: the schema's JSON, or the bare name of a type.
        references: schemas whose types it uses, dependencies first.

    Raises:
        SchemaError: it is no Avro schema, refers to an unknown type or to itself, or has a union
            of several types, which no column can hold.
        OverLimitError: it nests deeper than :data:`DEEPEST` levels, or has more than
            :data:`MOST_TYPES` types, counted at each use.
    """
    types = _Types()
    for reference in references:
        types.read(_document(reference), "", "")
    # The reader schema defines a reference's types at their first use.
    types.defined.clear()
    return types.read(_document(text), "", "the schema")


def _document(text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        return text.strip()  # `string` for `"string"`
    except RecursionError:
        raise OverLimitError(f"the schema: nests more than {DEEPEST} levels") from None


class _Types:
    """The named types of a schema."""

    def __init__(self) -> None:
        self._sources: dict[str, tuple[Any, str]] = {}
        self._open: list[str] = []
        self._levels = self._read_types = 0
        self.defined: set[str] = set()

    def read(self, schema: Any, namespace: str, where: str) -> AvroSchema:
        self._levels += 1
        self._read_types += 1
        if self._levels > DEEPEST:
            raise OverLimitError(f"the schema: nests more than {DEEPEST} levels")
        if self._read_types > MOST_TYPES:
            raise OverLimitError(f"the schema: has more than {MOST_TYPES} types")
        read = self._read(schema, namespace, where)
        self._levels -= 1
        return read

    def _read(self, schema: Any, namespace: str, where: str) -> AvroSchema:
        if isinstance(schema, str):
            return self._named(schema, namespace, where)
        if isinstance(schema, list):
            return self._union(schema, namespace, where)
        if not isinstance(schema, dict):
            raise SchemaError(f"{where}: got {json.dumps(schema)[:60]}, expected an Avro type")
        kind = schema.get("type")
        if isinstance(kind, (dict, list)):
            return self.read(kind, namespace, where)
        if kind == "array":
            items = self.read(schema.get("items"), namespace, f"{where}, items")
            return AvroSchema(
                {"type": "array", "items": items.reader},
                {"type": "array", "items": items.connect, **_attributes(schema)},
                items.in_json and _for_each("transform({}, x -> {})", items.in_json),
                items.is_misfit and _for_each("exists({}, x -> {})", items.is_misfit),
            )
        if kind == "map":
            values = self.read(schema.get("values"), namespace, f"{where}, values")
            connect = {"type": "map", "keys": _connect_type("string"), "values": values.connect}
            return AvroSchema(
                {"type": "map", "values": values.reader},
                {**connect, **_attributes(schema)},
                values.in_json and _for_each("transform_values({}, (_, x) -> {})", values.in_json),
                _map_misfit(values.is_misfit),
            )
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema, namespace, where)
        named = self._named(str(kind), namespace, where)
        return named._replace(connect={**named.connect, **_attributes(schema)})

    def _named(self, name: str, namespace: str, where: str) -> AvroSchema:
        if name in _PRIMITIVES:
            return AvroSchema(
                self._primitive(name),
                _connect_type(_PRIMITIVES[name]),
                _IN_JSON.get(name),
                _IS_MISFIT.get(name),
            )
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._sources else name
        if full not in self._sources:
            raise SchemaError(f"{where}: {name} is no type of Avro and not defined before")
        if full in self._open:
            raise SchemaError(f"{where}: {full} holds itself, which no column can")
        definition, own_namespace = self._sources[full]
        return self._definition(definition, own_namespace, where)

    def _primitive(self, name: str) -> Any:
        """The type that decodes values: it reads the same bytes as the written type."""
        if name != "boolean":
            return "long" if name == "int" else name
        if _BOOLEAN in self.defined:
            return _BOOLEAN
        self.defined.add(_BOOLEAN)
        return {"type": "fixed", "name": _BOOLEAN, "size": 1}

    def _definition(self, schema: Mapping[str, Any], namespace: str, where: str) -> AvroSchema:
        name = schema.get("name")
        if not isinstance(name, str):
            raise SchemaError(f"{where}: a {schema['type']} without name")
        own = schema.get("namespace", namespace)
        full = name if "." in name or not own else f"{own}.{name}"
        inner = full.rpartition(".")[0]
        self._sources[full] = (schema, namespace)
        self._open.append(full)
        read = self._parts(schema, inner, where)
        self._open.pop()
        # Avro allows one definition of a type; later uses name it.
        reader: Any = full if full in self.defined else {**read.reader, "name": full}
        self.defined.add(full)
        return read._replace(reader=reader, connect={**read.connect, **_attributes(schema)})

    def _parts(self, schema: Mapping[str, Any], namespace: str, where: str) -> AvroSchema:
        kind = schema["type"]
        if kind == "enum":
            reader = {"type": "enum", "symbols": schema.get("symbols")}
            return AvroSchema(reader, _connect_type("string"))
        if kind == "fixed":
            reader = {"type": "fixed", "size": schema.get("size")}
            return AvroSchema(reader, _connect_type("bytes"), base64_of)
        readers, connects, members, misfits = [], [], {}, {}
        fields = schema.get("fields") or ()
        if not isinstance(fields, list | tuple):
            raise SchemaError(f"{where}: got fields {json.dumps(fields)[:60]}, expected a list")
        for field in fields:
            name = field.get("name") if isinstance(field, dict) else None
            if not isinstance(name, str):
                raise SchemaError(f"{where}: a field without name")
            read = self.read(field.get("type"), namespace, f"{where}.{name}")
            readers.append({"name": name, "type": read.reader})
            doc = {"doc": field["doc"]} if isinstance(field.get("doc"), str) else {}
            connects.append({**doc, **read.connect, "field": name})
            members[name], misfits[name] = read.in_json, read.is_misfit
        struct = {"type": "struct", "fields": connects, "optional": False}
        reader = {"type": "record", "fields": readers}
        return AvroSchema(reader, struct, _record_json(members), _record_misfit(misfits))

    def _union(self, schema: list[Any], namespace: str, where: str) -> AvroSchema:
        kinds = [kind for kind in schema if not _is_null(kind)]
        if len(kinds) != 1:
            raise SchemaError(f"{where}: a union of {len(kinds)} types, which no column can hold")
        read = self.read(kinds[0], namespace, where)
        readers = ["null" if _is_null(kind) else read.reader for kind in schema]
        connect = {**read.connect, "optional": len(schema) > 1}
        return read._replace(reader=readers, connect=connect)


def _for_each(function: str, item_sql: Expression) -> Expression:
    """A higher-order function that applies an expression to each item."""
    return lambda items: function.format(items, item_sql("x"))


def _map_misfit(value_misfit: Expression | None) -> Expression:
    """`is_misfit` of a map, whose keys are text."""

    def is_misfit(value: Sql) -> Sql:
        keys_misfit = f"exists(map_keys({value}), x -> {_is_no_utf8('x')})"
        if value_misfit is None:
            return keys_misfit
        return f"{keys_misfit} OR exists(map_values({value}), x -> {value_misfit('x')})"

    return is_misfit


def _record_misfit(members: Mapping[str, Expression | None]) -> Expression | None:
    """`is_misfit` of a record with these members."""
    checked = {name: member_sql for name, member_sql in members.items() if member_sql}
    if not checked:
        return None
    return lambda value: " OR ".join(
        f"({member_sql(f'{value}.{quote(name)}')})" for name, member_sql in checked.items()
    )


def _record_json(members: Mapping[str, Expression | None]) -> Expression | None:
    """`in_json` of a record with these members."""
    if not any(members.values()):
        return None

    def in_json(value: Sql) -> Sql:
        parts = []
        for name, member_sql in members.items():
            member = f"{value}.{quote(name)}"
            parts += [literal(name), member_sql(member) if member_sql else member]
        return case((f"{value} IS NOT NULL", f"named_struct({', '.join(parts)})"))

    return in_json


def _is_null(kind: Any) -> bool:
    return kind == "null" or (isinstance(kind, dict) and kind.get("type") == "null")


def _connect_type(kind: str) -> dict[str, Any]:
    return {"type": kind, "optional": False}


def _attributes(schema: Mapping[str, Any]) -> dict[str, Any]:
    """Attributes beside the type: Connect's name, version, parameters and doc."""
    attributes = {}
    for name in ("name", "version", "parameters", "doc"):
        if (value := schema.get(f"connect.{name}")) is not None:
            attributes[name] = value
    logical, kind = schema.get("logicalType"), schema.get("type")
    if schema.get("connect.type") in ("int8", "int16"):
        attributes["type"] = schema["connect.type"]
    if (
        "name" not in attributes
        and (connect := _LOGICAL.get((str(kind), str(logical)))) is not None
    ):
        attributes["name"] = connect
    if logical == "decimal":
        own = attributes.get("parameters")
        parameters = {"scale": str(schema.get("scale", 0))}
        # Kafka Connect's converters write 64 where no precision is known.
        if isinstance(schema.get("precision"), int) and schema["precision"] != _NO_PRECISION:
            parameters["connect.decimal.precision"] = str(schema["precision"])
        attributes["parameters"] = {**parameters, **(own if isinstance(own, dict) else {})}
    return attributes
