"""A JSON Schema of a registry → Kafka Connect's schema of its values.

Confluent's converter writes types that JSON lacks into ``connect.type``, ``connect.version`` and
``connect.parameters``, the name of a type into ``title``, the place of a field into
``connect.index``, and an optional value as ``oneOf`` of null and its type. Values are plain JSON:
what a schema leaves open is read as without a schema.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cdc_assets.cdc.registry.avro import DEEPEST, MOST_TYPES, OverLimitError, SchemaError

_TYPES = {"boolean": "boolean", "integer": "int64", "number": "double", "string": "string"}
_CONNECT = {"float32": "float", "float64": "double"}
_ATTRIBUTES = {"title": "name", "connect.version": "version", "connect.parameters": "parameters"}


def read_json_schema(text: str) -> dict[str, Any]:
    """Kafka Connect's schema of the values of a JSON Schema.

    Raises:
        SchemaError: it is no JSON Schema.
        OverLimitError: it nests deeper than any table's, or has more types.
    """
    try:
        document = json.loads(text)
    except RecursionError:
        raise OverLimitError(f"the schema: nests more than {DEEPEST} levels") from None
    except ValueError as error:
        raise SchemaError(f"the schema: {error}") from error
    if not isinstance(document, dict):
        raise SchemaError(f"the schema: got {text[:60]}, expected a JSON Schema")
    return _Reader(document).read(document, ())


class _Reader:
    """Reads the parts of a document; counts types at each use."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self._types = 0

    def read(self, schema: Any, above: tuple[str, ...]) -> dict[str, Any]:
        """Kafka Connect's schema; an empty one if nothing is known of the values."""
        if not isinstance(schema, dict):
            return {}
        self._types += 1
        if len(above) > DEEPEST:
            raise OverLimitError(f"the schema: nests more than {DEEPEST} levels")
        if self._types > MOST_TYPES:
            raise OverLimitError(f"the schema: has more than {MOST_TYPES} types")
        reference = schema.get("$ref")
        if isinstance(reference, str):
            found = None if reference in above else _at(reference, self._document)
            return {**self.read(found, (*above, reference)), **_place(schema)}
        variants = schema.get("oneOf", schema.get("anyOf"))
        if isinstance(variants, list):
            known = [v for v in variants if v != {"type": "null"}]
            read = self.read(known[0], (*above, "")) if len(known) == 1 else {}
            return {**read, **_attributes(schema), "optional": len(known) < len(variants)}
        read = self._typed(schema, above)
        return {**read, **_attributes(schema)} if read else {}

    def _typed(self, schema: Mapping[str, Any], above: tuple[str, ...]) -> dict[str, Any]:
        kinds = schema.get("type")
        listed = [k for k in kinds if k != "null"] if isinstance(kinds, list) else [kinds]
        kind, connect = listed[0] if len(listed) == 1 else None, schema.get("connect.type")
        if kinds is None and isinstance(schema.get("properties"), dict):
            kind = "object"  # `type` may be left out
        inner = (*above, "")
        values = schema.get("additionalProperties")
        if kind == "object" and (connect == "map" or (values and "properties" not in schema)):
            values_schema = self.read(values, inner)
            return {"type": "map", "keys": {"type": "string"}, "values": values_schema}
        if kind == "object":
            members = schema.get("properties")
            fields = [
                {**self.read(own, inner), "field": name}
                for name, own in sorted(
                    (members if isinstance(members, dict) else {}).items(), key=_index
                )
            ]
            return {"type": "struct", "fields": fields}
        if kind == "array" and connect != "map":
            return {"type": "array", "items": self.read(schema.get("items"), inner)}
        if isinstance(connect, str) and connect != "map":
            return {"type": _CONNECT.get(connect, connect)}
        return {"type": _TYPES[kind]} if isinstance(kind, str) and kind in _TYPES else {}


def _index(member: tuple[str, Any]) -> int:
    """The place of a field; 0 without one, which keeps the order of the schema."""
    own = member[1] if isinstance(member[1], dict) else {}
    index = own.get("connect.index")
    return index if isinstance(index, int) else 0


def _attributes(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {to: schema[name] for name, to in _ATTRIBUTES.items() if name in schema}


def _place(schema: Mapping[str, Any]) -> dict[str, Any]:
    return {
        to: schema[name] for name, to in _ATTRIBUTES.items() if name in schema and name != "title"
    }


def _at(reference: str, document: Mapping[str, Any]) -> Any:
    """The part of the document at a pointer such as ``#/definitions/Row``."""
    if not reference.startswith("#/"):
        raise SchemaError(f"the schema: {reference} names another schema, which is not read")
    found: Any = document
    for part in reference[2:].split("/"):
        name = part.replace("~1", "/").replace("~0", "~")
        found = found.get(name) if isinstance(found, dict) else None
    if found is None:
        raise SchemaError(f"the schema: {reference} is not in it")
    return found
