"""JSON, strict and exact, and small readings of it."""

from __future__ import annotations

import base64
import json
import math
import re
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal, InvalidOperation
from typing import Any

MAX_DEPTH = 1000


class NotJsonError(ValueError):
    """Raised when bytes are not exactly one strict JSON document."""


@contextmanager
def deep_recursion() -> Iterator[None]:
    """Documents nest up to 1000 levels, and a level costs the functions here a few frames."""
    before = sys.getrecursionlimit()
    sys.setrecursionlimit(max(before, 20_000))
    try:
        yield
    finally:
        sys.setrecursionlimit(before)


def parse_json(data: bytes) -> Any:
    """Integers become int, other numbers Decimal: no number passes through a double (R3).

    Raises: NotJsonError for trailing text, NaN, duplicate names, bad UTF-8, a BOM, more than
    1000 levels … (D19).
    """
    try:
        text = data.decode("utf-8")
    except UnicodeDecodeError as error:
        raise NotJsonError(str(error)) from error
    if _depth(text) > MAX_DEPTH:
        raise NotJsonError(f"more than {MAX_DEPTH} levels")
    try:
        document = json.loads(
            text,
            parse_int=_integer,
            parse_float=fraction_of,
            parse_constant=_refuse_constant,
            object_pairs_hook=_unique_names,
        )
    except ValueError as error:
        raise NotJsonError(str(error)) from error
    # Java writes a lone surrogate, which only an escape can spell, as "?".
    return _without_lone_surrogates(document) if "\\u" in text else document


def _depth(text: str) -> int:
    depth = deepest = 0
    in_string = escaped = False
    for char in text:
        if in_string:
            if escaped:
                escaped = False
            elif char == "\\":
                escaped = True
            elif char == '"':
                in_string = False
        elif char == '"':
            in_string = True
        elif char in "[{":
            depth += 1
            deepest = max(deepest, depth)
        elif char in "]}":
            depth -= 1
    return deepest


def _integer(text: str) -> int | Decimal:
    return int(text) if len(text) <= 4000 else Decimal(text)  # Python limits int() to 4300 digits


def fraction_of(text: str) -> Decimal:
    try:
        return Decimal(text)
    except InvalidOperation:  # an exponent of nineteen digits and more: no column holds it (R4)
        return Decimal("Infinity")


def _refuse_constant(text: str) -> Any:
    raise NotJsonError(f"{text} is not JSON")


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    result = dict(pairs)
    if len(result) != len(pairs):
        raise NotJsonError("a name twice in one object")
    return result


def _without_lone_surrogates(value: Any) -> Any:
    if isinstance(value, str):
        return value.encode("utf-8", "replace").decode("utf-8")
    if isinstance(value, list):
        return [_without_lone_surrogates(v) for v in value]
    if isinstance(value, dict):
        return {_without_lone_surrogates(k): _without_lone_surrogates(v) for k, v in value.items()}
    return value


def json_text(value: Any) -> str:
    """Compact JSON, names sorted, numbers exact: what a nested value is as text."""
    if isinstance(value, dict):
        members = (f"{_quoted(k)}:{json_text(value[k])}" for k in sorted(value))
        return "{" + ",".join(members) + "}"
    if isinstance(value, list):
        return "[" + ",".join(json_text(v) for v in value) + "]"
    if isinstance(value, str):
        return _quoted(value)
    if isinstance(value, Decimal):
        return number_text(value)
    return json.dumps(value)


def _quoted(text: str) -> str:
    return json.dumps(text, ensure_ascii=False)


def number_text(number: Decimal) -> str:
    """Plain digits without trailing zeros (scientific beyond 400 digits)."""
    if not number.is_finite():
        return str(number)
    stripped = without_zeros(number)
    return format(stripped, "f") if abs(stripped.adjusted()) < 400 else str(stripped)


def without_zeros(number: Decimal) -> Decimal:
    """The same number without trailing zeros; Decimal.normalize would round to 28 digits."""
    sign, digits, exponent = number.as_tuple()
    if not isinstance(exponent, int):
        return number
    kept = list(digits)
    while kept and kept[-1] == 0:
        kept.pop()
        exponent += 1
    return Decimal((sign, tuple(kept), exponent)) if kept else Decimal(0)


def key_text(key: dict[str, Any]) -> str:
    """The canonical text of a key: section 4, ``changes.key``."""
    return json_text({name: _key_member(value) for name, value in key.items()})


class AsSent(Decimal):
    """A number of a key whose column's type nobody knows: it stands as JSON wrote it."""


def _key_member(value: Any) -> Any:
    if isinstance(value, Decimal) and not isinstance(value, AsSent):
        return number_text(value)
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, (date, datetime)):
        return iso_text(value)
    if isinstance(value, dict):
        return {name: _key_member(v) for name, v in value.items()}
    if isinstance(value, list):
        return [_key_member(v) for v in value]
    return value


def iso_text(value: date | datetime) -> str:
    return value.isoformat().replace("+00:00", "Z")


NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d+)?", re.ASCII)
WHOLE = re.compile(r"-?\d+", re.ASCII)


def int_of(value: Any) -> int | None:
    """An integer that may come as text (``"ts_ms": "1580390884335"`` in the documents)."""
    if isinstance(value, int) and not isinstance(value, bool):
        return value
    if isinstance(value, str) and len(value) <= 4000 and WHOLE.fullmatch(value):
        return int(value)
    if isinstance(value, Decimal) and value.is_finite():
        sign, digits, exponent = value.as_tuple()  # 1.0 is the number 1
        if isinstance(exponent, int) and -38 <= exponent < 0 and not any(digits[exponent:]):
            return int(Decimal((sign, digits[:exponent], 0)))
    return None


def long_of(value: Any) -> int | None:
    """As :func:`int_of`, where a column of 64 bits holds it."""
    number = int_of(value)
    return number if number is not None and -(2**63) <= number < 2**63 else None


def dict_of(value: Any) -> dict[str, Any] | None:
    return value if isinstance(value, dict) else None


def name_of(value: Any) -> str | None:
    return value if isinstance(value, str) and value else None


def date_of(value: Any) -> date | None:
    if isinstance(value, datetime):
        return value.date()
    return date.fromisoformat(value) if isinstance(value, str) else value


def instant_ms(value: str | datetime) -> int:
    if isinstance(value, str):
        value = datetime.fromisoformat(value.replace("Z", "+00:00"))
    if value.tzinfo is None:
        value = value.replace(tzinfo=timezone.utc)
    return (value - EPOCH_UTC) // timedelta(milliseconds=1)


def table_configs(source: dict[str, Any]) -> dict[str, dict[str, Any]]:
    listed = (source.get("tables") or {}).items()
    if not has_databases(source):
        return {name: config or {} for name, config in listed}
    found = {}
    for text, config in listed:
        database, schema, table = _parts(text)
        found[full_name(f"{database}__{schema}", table)] = config or {}
    return found


def has_databases(source: dict[str, Any]) -> bool:
    """D4: names of three parts, the first of them a database."""
    return any(len(_parts(text)) == 3 for text in source.get("tables") or {})


def of_database(database: Any, schema: Any) -> str | None:
    """The namespace of a schema of one of several databases."""
    if name_of(database) is None or name_of(schema) is None:
        return None
    return f"{database}__{schema}"


def _parts(text: str) -> list[str]:
    found = re.findall(r'"((?:[^"]|"")*)"|([^."]+)', text)
    return [plain or quoted.replace('""', '"') for quoted, plain in found]


def full_name(namespace: str, table: str) -> str:
    """``namespace.table``; a part that holds a dot or a quote is quoted."""
    parts = (
        '"' + part.replace('"', '""') + '"' if "." in part or '"' in part else part
        for part in (namespace, table)
    )
    return ".".join(parts)


EPOCH = datetime(1970, 1, 1)
EPOCH_UTC = EPOCH.replace(tzinfo=timezone.utc)
YEAR_1, YEAR_9999 = -62_135_596_800_000, 253_402_300_799_999  # ms since 1970


def unavailable_value(source: dict[str, Any]) -> str:
    said: str = source.get("unavailable_value") or "__debezium_unavailable_value"
    return bytes.fromhex(said[4:]).decode() if said.startswith("hex:") else said


MONGODB_NUMBERS = ("$numberLong", "$numberInt")


def mongodb_id(value: Any) -> str:
    """Extended JSON; a whole number is its digits."""
    for name in MONGODB_NUMBERS:
        if isinstance(value, dict) and value.get(name) is not None:
            return mongodb_text(value[name])
    text = json_text(value) if isinstance(value, str) else mongodb_text(value)
    return f'"{text}"' if text.endswith("Infinity") else text  # JSON has no such number


def mongodb_text(value: Any) -> str:
    """A text as it is, else JSON; MongoDB's numbers beyond 38 digits are doubles."""
    if isinstance(value, str):
        return value
    if isinstance(value, (int, Decimal)) and not isinstance(value, bool) and is_wide(value):
        return double_text(value)
    return json_text(value)


def is_wide(number: int | Decimal) -> bool:
    """Does it have more digits than a decimal of 38?"""
    exact = Decimal(number)
    if not exact.is_finite():
        return True
    return len(exact.as_tuple().digits) > 38 or abs(exact.adjusted()) >= 38


def double_text(number: int | Decimal) -> str:
    """The double that a number becomes."""
    try:
        double = float(number)
    except OverflowError:
        double = math.inf if number > 0 else -math.inf
    if math.isinf(double):
        return "Infinity" if double > 0 else "-Infinity"
    return repr(double)
