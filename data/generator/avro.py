"""Kafka Connect's Avro converter and the schema registry that it writes to."""

from __future__ import annotations

import base64
import io
import json
from pathlib import Path
from typing import Any

import fastavro

from .kafka import Json

_PRIMITIVES = {"int8": "int", "int16": "int", "int32": "int", "int64": "long"}
_DECIMAL = "org.apache.kafka.connect.data.Decimal"


class Registry:
    """Schemas by id, in the order in which the converter meets them."""

    def __init__(self) -> None:
        self._texts: list[str] = []
        self._writers: list[Any] = []

    def framed(self, schema: Json, payload: Json) -> bytes:
        """A value of a Connect schema in Confluent's wire format: 0, the id, Avro."""
        text = json.dumps(avro_schema(schema, set()), separators=(",", ":"))
        if text not in self._texts:
            self._texts.append(text)
            self._writers.append(fastavro.parse_schema(_without_logical_types(json.loads(text))))
        index, out = self._texts.index(text), io.BytesIO()
        fastavro.schemaless_writer(out, self._writers[index], _native(schema, payload))
        return b"\0" + (index + 1).to_bytes(4, "big") + out.getvalue()

    def save(self, folder: Path) -> int:
        """Writes what the registry answers for each id; returns how many there are."""
        (folder / "schemas" / "ids").mkdir(parents=True)
        for number, text in enumerate(self._texts, start=1):
            file = folder / "schemas" / "ids" / f"{number}.json"
            file.write_text(json.dumps({"schema": text}) + "\n", "utf-8")
        return len(self._texts)


def avro_schema(schema: Json, defined: set[str]) -> Json:
    """The Avro schema that the converter registers for a Connect schema."""
    kind, avro = schema["type"], dict[str, Json]()
    if kind == "struct":
        name = schema["name"]
        if name in defined:
            return _optional(schema, name)
        defined.add(name)
        namespace, _, own = name.rpartition(".")
        avro = {"type": "record", "name": own} | ({"namespace": namespace} if namespace else {})
        avro["fields"] = [_field(f, defined) for f in schema["fields"]]
    else:
        avro["type"] = _PRIMITIVES.get(kind, kind)
        if kind in ("int8", "int16"):
            avro["connect.type"] = kind
    if schema.get("name") == _DECIMAL:
        parameters = schema["parameters"]
        avro |= {
            "logicalType": "decimal",
            "scale": int(parameters["scale"]),
            "precision": int(parameters["connect.decimal.precision"]),
        }
    for said in ("version", "parameters", "default", "name"):
        if said in schema:
            avro[f"connect.{said}"] = schema[said]
    return _optional(schema, avro["type"] if set(avro) == {"type"} else avro)


def _field(schema: Json, defined: set[str]) -> Json:
    default = {"default": schema.get("default")} if schema["optional"] else {}
    return {"name": schema["field"], "type": avro_schema(schema, defined)} | default


def _optional(schema: Json, avro: Json) -> Json:
    """A union with null; the type of the default comes first, as Avro demands."""
    if not schema["optional"]:
        return avro
    return [avro, "null"] if "default" in schema else ["null", avro]


def _without_logical_types(avro: Json) -> Json:
    """Decimals are written as the bytes that they are."""
    if isinstance(avro, list):
        return [_without_logical_types(part) for part in avro]
    if not isinstance(avro, dict):
        return avro
    return {name: _without_logical_types(v) for name, v in avro.items() if name != "logicalType"}


def _native(schema: Json, value: Json) -> Any:
    """A value as the JSON converter writes it → as Avro's writer takes it."""
    if value is None:
        return None
    if schema["type"] == "struct":
        return {f["field"]: _native(f, value.get(f["field"])) for f in schema["fields"]}
    return base64.b64decode(value) if schema["type"] == "bytes" else value
