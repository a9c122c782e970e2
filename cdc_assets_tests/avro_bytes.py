"""Avro's binary encoding, read as its specification has it, to what Kafka Connect writes as JSON.

Strict where libraries are not: fastavro takes a union's branch −1 for the last, any byte for a
boolean and any number for an `int`; Java drops the upper bits of an `int` and makes � of what is no
UTF-8. What stands for one value only is read however it is spelled: numbers with more bytes than
they need, arrays in several blocks or with the size of a block.
"""

from __future__ import annotations

import base64
import math
import struct
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any


class NotAvroError(ValueError):
    """Raised when bytes are not exactly one value of a schema."""


def connect_value(schema: Any, data: bytes) -> Any:
    """The value of some bytes, as Kafka Connect writes it in JSON: bytes are base64.

    Raises:
        NotAvroError: the bytes are not exactly one value of the schema.
    """
    reader = _Reader(data, dict(_named(schema)))
    value = reader.value(schema)
    if reader.at != len(data):
        raise NotAvroError(f"{len(data) - reader.at} bytes behind the value")
    return value


def _named(schema: Any) -> Iterator[tuple[str, Any]]:
    """The types that a schema defines, by full name."""
    if isinstance(schema, dict):
        if "name" in schema and schema.get("type") in ("record", "enum", "fixed"):
            yield ".".join(schema[n] for n in ("namespace", "name") if n in schema), schema
        schema = list(schema.values())
    if isinstance(schema, list):
        for part in schema:
            yield from _named(part)


@dataclass
class _Reader:
    data: bytes
    named: dict[str, Any]
    at: int = 0

    def value(self, schema: Any) -> Any:
        if isinstance(schema, list):
            return self.value(self.one_of(schema))
        if isinstance(schema, str):
            return getattr(self, f"_{schema}", lambda: self.value(self.named[schema]))()
        kind = schema["type"]
        if kind == "record":
            return {f["name"]: self.value(f["type"]) for f in schema["fields"]}
        if kind == "enum":
            return self.one_of(schema["symbols"])
        if kind == "fixed":
            return base64.b64encode(self.take(schema["size"])).decode()
        if kind == "array":
            return [self.value(schema["items"]) for _ in self.items()]
        if kind == "map":
            return {self._string(): self.value(schema["values"]) for _ in self.items()}
        return self.value(kind)

    def take(self, size: int) -> bytes:
        if not 0 <= size <= len(self.data) - self.at:
            raise NotAvroError(f"{size} bytes at {self.at} of {len(self.data)}")
        self.at += size
        return self.data[self.at - size : self.at]

    def one_of(self, options: list[Any]) -> Any:
        if not 0 <= (index := self._long()) < len(options):
            raise NotAvroError(f"the index {index} of {len(options)}")
        return options[index]

    def items(self) -> Iterator[None]:
        """Of an array's blocks, each with the number of its items; a negative one has its size."""
        while count := self._long():
            if count < 0:
                self._long()
            for _ in range(abs(count)):
                yield

    def _null(self) -> None:
        return None

    def _boolean(self) -> bool:
        if (byte := self.take(1)[0]) > 1:
            raise NotAvroError(f"the boolean {byte}")
        return byte == 1

    def _long(self) -> int:
        number = 0
        for place in range(10):
            byte = self.take(1)[0]
            number |= (byte & 0x7F) << 7 * place
            if byte < 0x80:
                number &= 2**64 - 1
                return (number >> 1) ^ -(number & 1)
        raise NotAvroError("a number of more than 10 bytes")

    def _int(self) -> int:
        if not -(2**31) <= (number := self._long()) < 2**31:
            raise NotAvroError(f"the int {number}")
        return number

    def _double(self) -> float | str:
        [number] = struct.unpack("<d", self.take(8))
        if math.isfinite(number):
            return float(number)
        # JSON has no such number.
        return "NaN" if math.isnan(number) else "Infinity" if number > 0 else "-Infinity"

    def _bytes(self) -> str:
        return base64.b64encode(self.take(self._long())).decode()

    def _string(self) -> str:
        try:
            return self.take(self._long()).decode("utf-8")
        except UnicodeDecodeError as error:
            raise NotAvroError(str(error)) from error
