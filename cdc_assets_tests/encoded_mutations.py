"""Hostile variants of records that were written with a schema registry, from a seed.

As mutations.py, of bytes: ``EncodedMutator(Random(7), schemas)(record)`` returns what lands instead
of a good record.
"""

from __future__ import annotations

import io
import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from random import Random
from typing import Any, Literal

import fastavro

from cdc_assets_tests.model import Record
from cdc_assets_tests.mutations import CLOCKS, KEYS, NUMBERS, OPS, SNAPSHOTS, TABLES, TEXTS, _places
from cdc_assets_tests.registries import encoded, framed, plain_avro


def varint(number: int) -> bytes:
    """A number as Avro writes it."""
    return encoded("long", number)


# Where such bytes stand for a length, an index or a number: none, too many, or spelled otherwise.
VARINTS = (
    *map(varint, (-1, -2, 1, 2, 64, 10**6, 10**9, 2**31 - 9, 2**31, 2**40, 2**63 - 1, -(2**63))),
    b"\x80\0", b"\x82\0", b"\x82\x80\x80\0", b"\x80" * 9 + b"\1", b"\xff" * 9 + b"\x7f",
    b"\xff" * 11,
)  # fmt: skip
BYTES = (
    *VARINTS, b"\0", b"\1", b"\2", b"\3", b"\x7f", b"\xff", b"\xc3(", b"\xed\xa0\x80", b"\xf8",
    b"\4\xff\xfe", b"\2\xe9", b"\1\2", b"\0" * 8, b"\xff" * 8, b"\0\0\0\0\0\0\xf8\x7f",
    b"\1\0\0\0\0\0\xf0\x7f",
)  # fmt: skip
HEADER_VALUES = (b"", b"\0", b"\0\0\0\0", b"\1" + b"\x8f" * 16, b"\0\xff\xff\xff\xff", b"\2" * 5)
WHOLE = (
    b"", b"\0", b"\0\0\0\0", b"\0\0\0\0\0", b"\0\xff\xff\xff\xff", b"null", b"{}", b"\1\0\0\0\7a",
)  # fmt: skip
FLOATS = (0.0, -0.0, 0.5, -1.5, 1e300, float("nan"), float("inf"), float("-inf"))
_IDS = (0, 1, 7, 2**31, 2**32 - 1)  # of no schema

Part = Literal["key", "value"]
_OF_APICURIO = 8  # bytes of an id in its header


@dataclass
class Sent:
    """A record while it is damaged: its key or its value."""

    record: Record
    part: Part
    schemas: Mapping[int, Any]  # Avro's, by id

    @property
    def data(self) -> bytes:
        return getattr(self.record, self.part) or b""

    @property
    def id(self) -> bytes:
        """The registry's, as the wire format has it."""
        return self.data[1:5]

    @property
    def body(self) -> bytes:
        return self.data[5:]

    def send(self, data: bytes | None) -> None:
        self.record = replace(self.record, **{self.part: data})

    def send_body(self, body: bytes) -> None:
        self.send(self.data[:5] + body)

    def add_header(self, name: str, value: bytes) -> None:
        self.record = replace(self.record, headers=(*self.record.headers, (name, value)))


def cut(rng: Random, sent: Sent) -> None:
    sent.send(sent.data[: rng.randrange(len(sent.data) + 1)])


def flip(rng: Random, sent: Sent) -> None:
    """Some bits of the body."""
    body = bytearray(sent.body)
    for _ in range(rng.choice((1, 1, 1, 2, 8))):
        if body:
            body[rng.randrange(len(body))] ^= 1 << rng.randrange(8)
    sent.send_body(bytes(body))


def insert(rng: Random, sent: Sent) -> None:
    at = rng.randrange(len(sent.body) + 1)
    sent.send_body(sent.body[:at] + rng.choice(BYTES) + sent.body[at:])


def overwrite(rng: Random, sent: Sent) -> None:
    """The first byte of a number, a length or a text, or any other, becomes others."""
    at = rng.randrange(len(sent.body) + 1)
    sent.send_body(sent.body[:at] + rng.choice(BYTES) + sent.body[at + 1 :])


def append(rng: Random, sent: Sent) -> None:
    sent.send_body(sent.body + rng.choice((*BYTES, sent.data, b"}")))


def value(rng: Random, sent: Sent) -> None:
    """A member of the value has another value, which its schema can have."""
    schema = sent.schemas.get(int.from_bytes(sent.id, "big"))
    if schema is None:
        return
    parsed = fastavro.parse_schema(plain_avro(schema))
    document = {"": fastavro.schemaless_reader(io.BytesIO(sent.body), parsed)}
    container, name = rng.choice(_places(document))
    container[name] = _other(rng, container[name])
    try:
        sent.send_body(encoded(schema, document[""]))
    except (ValueError, TypeError, AttributeError, OverflowError):
        return  # not of its type


def _other(rng: Random, old: Any) -> Any:
    if rng.random() < 0.2:
        return None
    if isinstance(old, bool):
        return not old
    if isinstance(old, int):
        found = rng.choice((*NUMBERS, *CLOCKS))
        return found if type(found) is int and abs(found) < 2**63 else old
    if isinstance(old, float):
        return rng.choice(FLOATS)
    if isinstance(old, bytes):
        return rng.choice((b"", b"\0", b"\xff" * 20, old[:1], old + b"\0"))
    if isinstance(old, str):
        found = rng.choice((*TEXTS, *OPS, *TABLES, *SNAPSHOTS))
        return found if isinstance(found, str) else old
    return type(old)()


def other_id(rng: Random, sent: Sent) -> None:
    """Of another schema, or of none."""
    number = rng.choice((rng.choice(list(sent.schemas)), rng.choice(_IDS)))
    sent.send(framed(number, sent.body))


def magic(rng: Random, sent: Sent) -> None:
    sent.send(rng.choice((b"\1", b"\2", b"{", b" ", b"\xff")) + sent.data[1:])


def whole(rng: Random, sent: Sent) -> None:
    """Other bytes: a key's, none, the beginning of a frame."""
    sent.send(rng.choice((None, *WHOLE, *KEYS)))


def in_header(rng: Random, sent: Sent) -> None:
    """The id moves to a header."""
    if rng.random() < 0.5:
        sent.add_header(f"__{sent.part}_schema_id", b"\0" + sent.id)
    else:
        sent.add_header(f"apicurio.{sent.part}.contentId", sent.id.rjust(_OF_APICURIO, b"\0"))
    sent.send(sent.body)


def lying_header(rng: Random, sent: Sent) -> None:
    """A header says another id than the bytes, or none."""
    number = rng.choice((rng.choice(list(sent.schemas)), rng.choice(_IDS)))
    name = rng.choice((f"__{sent.part}_schema_id", f"apicurio.{sent.part}.contentId"))
    size = _OF_APICURIO if name.startswith("apicurio") else 5
    said = number.to_bytes(size, "big")
    sent.add_header(name, rng.choice((said, said, said, *HEADER_VALUES)))


def swap(rng: Random, sent: Sent) -> None:
    """Key and value."""
    sent.record = replace(sent.record, key=sent.record.value, value=sent.record.key)


Damage = Callable[[Random, Sent], None]
MUTATIONS: Mapping[Damage, int] = {
    cut: 5, flip: 12, insert: 10, overwrite: 10, append: 3, value: 20, other_id: 5, magic: 2,
    whole: 4, in_header: 4, lying_header: 4, swap: 1,
}  # fmt: skip


class EncodedMutator:
    """Changes a share of the records that it is given, each in one to three ways.

    Args:
        rng: where all draws come from.
        schemas: Avro's, by id.
        share: how many of the records change, between 0 and 1.
        kinds: the mutations, each with its weight.
    """

    def __init__(
        self,
        rng: Random,
        schemas: Mapping[int, Any],
        *,
        share: float = 0.4,
        kinds: Mapping[Damage, int] = MUTATIONS,
    ) -> None:
        self.rng, self.schemas, self.share = rng, schemas, share
        self._kinds, self._weights = list(kinds), list(kinds.values())

    def __call__(self, record: Record) -> list[Record]:
        """What lands instead of a good record; offsets are still those of that record."""
        rng = self.rng
        if rng.random() >= self.share:
            return [record]
        part: Part = "key" if rng.random() < 0.25 else "value"
        sent = Sent(record, part, self.schemas)
        damages = rng.choices(self._kinds, self._weights, k=rng.choice((1, 1, 1, 2, 3)))
        # A value is changed while its bytes are good.
        for damage in sorted(damages, key=lambda damage: damage is not value):
            damage(rng, sent)
        return [sent.record] * rng.choices((0, 1, 2, 3), (2, 90, 6, 2))[0]


def schemas_by_id(answers: Mapping[str, Mapping[str, Any]]) -> dict[int, Any]:
    """Avro's schemas of a registry's answers."""
    return {int(number): json.loads(answer["schema"]) for number, answer in answers.items()}
