"""Values as Kafka Connect's JSON converter writes them, and texts that readers stumble over."""

from __future__ import annotations

import base64
import json
import random
import uuid
from datetime import date, datetime, timezone
from decimal import Decimal

from .kafka import Json

UNAVAILABLE = "__debezium_unavailable_value"

AWKWARD_TEXTS = (
    'says "call me" and hangs up',
    "two\nlines and a\ttab",
    "C:\\invoices\\2026\\",
    "it's 5' 11\" tall",
    "送货前请打电话",
    "配達は午後に",
    "يرجى الاتصال قبل التسليم",
    "✅ done 🚚💨 👩🏽‍🔧",
    "naïve café · ½ price…",
    # A line for Unicode, not for the one-record-a-line files: only \n ends those.
    "line\u2028separator and next\u0085line",
    "null",
    '{"schema":null,"payload":"only a text"}',
    "",
    "; DROP TABLE customers; --",
    "<b>bold</b> &amp; | pipe, comma",
)


def base64_text(content: bytes) -> str:
    """Bytes as the JSON converter writes them."""
    return base64.b64encode(content).decode()


def decimal(text: str, scale: int) -> str:
    """org.apache.kafka.connect.data.Decimal: the unscaled number, big-endian two's complement."""
    unscaled = int(Decimal(text).scaleb(scale))
    size = (unscaled if unscaled >= 0 else ~unscaled).bit_length() // 8 + 1
    return base64_text(unscaled.to_bytes(size, "big", signed=True))


def epoch_days(text: str) -> int:
    """io.debezium.time.Date: days since 1970-01-01, negative before."""
    return (date.fromisoformat(text) - date(1970, 1, 1)).days


def zoned(ms: int) -> str:
    """io.debezium.time.ZonedTimestamp."""
    at = datetime.fromtimestamp(ms // 1000, timezone.utc).strftime("%Y-%m-%dT%H:%M:%S")
    return f"{at}.{ms % 1000:03}Z"


def random_uuid(rng: random.Random) -> str:
    """A version 4 UUID out of the seeded numbers."""
    return str(uuid.UUID(int=rng.getrandbits(128), version=4))


def long_text(subject: str, parts: int = 6) -> str:
    """A text long enough that the simulated PostgreSQL stores it out of line (TOAST)."""
    return " ".join(
        f"({n}) {subject}, as written in the visit report." for n in range(1, parts + 1)
    )


def json_text(document: Json) -> str:
    """io.debezium.data.Json: JSON inside a string."""
    return json.dumps(document, ensure_ascii=False)
