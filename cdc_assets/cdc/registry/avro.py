"""An Avro schema of a registry → how Spark decodes it, and what Kafka Connect would say of it.

Logical types are taken out of what Spark decodes by: values are then those that Kafka Connect's
JSON converter writes (bytes of a decimal in base64, numbers of days and microseconds), and are read
as those, by the schema that the converter would have written beside them. Members that JSON writes
in another way, bytes and fractions, become what a JSON text of them is read as.

Spark decodes some bytes that no writer of Avro writes: text that is not UTF-8, an `int` of more
than 32 bits, of which it drops the upper ones, a `boolean` that is neither 0 nor 1. So an `int` is
decoded as a `long`, a `boolean` as its byte, and such values are found.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any, NamedTuple

from cdc_assets.cdc.names import quote
from cdc_assets.cdc.sqltext import Sql, base64_of, case, literal


class SchemaError(ValueError):
    """Raised when a schema can't be read; the message says what it is that can't."""


class OverLimitError(SchemaError):
    """Raised when a schema asks for more than any table's does: levels, types or references."""


# No honest schema meets these: its types become columns, and all of them stand in each plan.
DEEPEST, MOST_TYPES, MOST_REFERENCES = 200, 20_000, 1_000

Expression = Callable[[Sql], Sql]


class AvroSchema(NamedTuple):
    """`reader`: the Avro schema that values are decoded by; `connect`: Kafka Connect's of them.

    `in_json` makes of a decoded value one whose VARIANT is that of its JSON; None where it is so.
    `is_misfit` is true of a decoded value that the schema can't have; None where there is none.
    """

    reader: Any
    connect: dict[str, Any]
    in_json: Expression | None = None
    is_misfit: Expression | None = None


# Avro: Connect's JSON.
_PRIMITIVES = {
    "boolean": "boolean",
    "int": "int32",
    "long": "int64",
    "float": "float",
    "double": "double",
    "bytes": "bytes",
    "string": "string",
}
# What a writer that is no Kafka Connect says of its values, in Connect's and Debezium's names.
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
    """JSON's 1.0 is a decimal, not a double; NaN and the infinities, which it lacks, are texts."""
    text = f"CAST({value} AS string)"
    return f"coalesce(try_parse_json({text}), CAST({text} AS variant))"


def _is_true(byte: Sql) -> Sql:
    return f"{byte} = X'01'"


# What JSON writes in another way than Avro.
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
        references: schemas that it names types of, each after those that it names itself.

    Raises:
        SchemaError: it is no Avro schema, names an unknown type or itself, or has a union of
            several types, which no column can have.
        OverLimitError: it nests deeper than :data:`DEEPEST` levels, or has more types than
            :data:`MOST_TYPES`, each counted where it is named.
    """
    types = _Types()
    for reference in references:
        types.read(_document(reference), "", "")
    # A reference's types are defined where the schema first names them.
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
                {"type": "array", "items": items.connect, **_said(schema)},
                items.in_json and _of_each("transform({}, x -> {})", items.in_json),
                items.is_misfit and _of_each("exists({}, x -> {})", items.is_misfit),
            )
        if kind == "map":
            values = self.read(schema.get("values"), namespace, f"{where}, values")
            connect = {"type": "map", "keys": _of("string"), "values": values.connect}
            return AvroSchema(
                {"type": "map", "values": values.reader},
                {**connect, **_said(schema)},
                values.in_json and _of_each("transform_values({}, (_, x) -> {})", values.in_json),
                _of_map(values.is_misfit),
            )
        if kind in ("record", "error", "enum", "fixed"):
            return self._definition(schema, namespace, where)
        named = self._named(str(kind), namespace, where)
        return named._replace(connect={**named.connect, **_said(schema)})

    def _named(self, name: str, namespace: str, where: str) -> AvroSchema:
        if name in _PRIMITIVES:
            return AvroSchema(
                self._primitive(name),
                _of(_PRIMITIVES[name]),
                _IN_JSON.get(name),
                _IS_MISFIT.get(name),
            )
        full = name if "." in name or not namespace else f"{namespace}.{name}"
        full = full if full in self._sources else name
        if full not in self._sources:
            raise SchemaError(f"{where}: {name} is no type of Avro and not defined before")
        if full in self._open:
            raise SchemaError(f"{where}: {full} holds itself, which no column can")
        definition, of_namespace = self._sources[full]
        return self._definition(definition, of_namespace, where)

    def _primitive(self, name: str) -> Any:
        """What values are decoded as: the same bytes for all that a writer writes."""
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
        # Avro wants a type defined once, and named from then on.
        reader: Any = full if full in self.defined else {**read.reader, "name": full}
        self.defined.add(full)
        return read._replace(reader=reader, connect={**read.connect, **_said(schema)})

    def _parts(self, schema: Mapping[str, Any], namespace: str, where: str) -> AvroSchema:
        kind = schema["type"]
        if kind == "enum":
            return AvroSchema({"type": "enum", "symbols": schema.get("symbols")}, _of("string"))
        if kind == "fixed":
            return AvroSchema(
                {"type": "fixed", "size": schema.get("size")}, _of("bytes"), base64_of
            )
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
        return AvroSchema(
            {"type": "record", "fields": readers}, struct, _of_members(members), _of_any(misfits)
        )

    def _union(self, schema: list[Any], namespace: str, where: str) -> AvroSchema:
        kinds = [kind for kind in schema if not _is_null(kind)]
        if len(kinds) != 1:
            raise SchemaError(f"{where}: a union of {len(kinds)} types, which no column can hold")
        read = self.read(kinds[0], namespace, where)
        readers = ["null" if _is_null(kind) else read.reader for kind in schema]
        connect = {**read.connect, "optional": len(schema) > 1}
        return read._replace(reader=readers, connect=connect)


def _of_each(function: str, of_item: Expression) -> Expression:
    """A function of Spark's that applies an expression to each item."""
    return lambda items: function.format(items, of_item("x"))


def _of_map(of_value: Expression | None) -> Expression:
    """As `is_misfit`, of a map, whose keys are text."""

    def is_misfit(value: Sql) -> Sql:
        of_keys = f"exists(map_keys({value}), x -> {_is_no_utf8('x')})"
        if of_value is None:
            return of_keys
        return f"{of_keys} OR exists(map_values({value}), x -> {of_value('x')})"

    return is_misfit


def _of_any(members: Mapping[str, Expression | None]) -> Expression | None:
    """As `is_misfit`, of a record with these members."""
    told = {name: of_member for name, of_member in members.items() if of_member}
    if not told:
        return None
    return lambda value: " OR ".join(
        f"({of_member(f'{value}.{quote(name)}')})" for name, of_member in told.items()
    )


def _of_members(members: Mapping[str, Expression | None]) -> Expression | None:
    """As `in_json`, of a record with these members."""
    if not any(members.values()):
        return None

    def in_json(value: Sql) -> Sql:
        parts = []
        for name, of_member in members.items():
            member = f"{value}.{quote(name)}"
            parts += [literal(name), of_member(member) if of_member else member]
        return case((f"{value} IS NOT NULL", f"named_struct({', '.join(parts)})"))

    return in_json


def _is_null(kind: Any) -> bool:
    return kind == "null" or (isinstance(kind, dict) and kind.get("type") == "null")


def _of(kind: str) -> dict[str, Any]:
    return {"type": kind, "optional": False}


def _said(schema: Mapping[str, Any]) -> dict[str, Any]:
    """What a schema says beside its type: name, version and parameters of Connect's."""
    said = {}
    for name in ("name", "version", "parameters", "doc"):
        if (value := schema.get(f"connect.{name}")) is not None:
            said[name] = value
    logical, kind = schema.get("logicalType"), schema.get("type")
    if schema.get("connect.type") in ("int8", "int16"):
        said["type"] = schema["connect.type"]
    if "name" not in said and (connect := _LOGICAL.get((str(kind), str(logical)))) is not None:
        said["name"] = connect
    if logical == "decimal":
        own = said.get("parameters")
        parameters = {"scale": str(schema.get("scale", 0))}
        # Kafka Connect's converters write 64 where no precision is known.
        if isinstance(schema.get("precision"), int) and schema["precision"] != _NO_PRECISION:
            parameters["connect.decimal.precision"] = str(schema["precision"])
        said["parameters"] = {**parameters, **(own if isinstance(own, dict) else {})}
    return said
