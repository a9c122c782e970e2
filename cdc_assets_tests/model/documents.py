"""JSON, strict and exact, and small readings of it."""

from __future__ import annotations

import base64
import json
import math
import re
import sys
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import date, datetime, timedelta, timezone
from decimal import Context, Decimal, InvalidOperation
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


LEAF = "_cdc_table"


def table_configs(source: dict[str, Any]) -> dict[str, dict[str, Any]]:
    listed = (source.get("tables") or {}).items()
    if not has_databases(source):
        found = {name: config or {} for name, config in listed if not (config or {}).get("into")}
        for entry in [e for _, e in listed if (e or {}).get("into")]:  # R8
            own = found.get(entry["into"], {})
            columns = {LEAF: "string", **dict.fromkeys(entry.get("add") or {}, "string")}
            found[entry["into"]] = {**own, "columns": {**columns, **(own.get("columns") or {})}}
        return found
    found = {}
    for text, config in listed:
        database, schema, table = _parts(text)
        found[full_name(f"{database}__{schema}", table)] = config or {}
    return found


def goes_into(source: dict[str, Any], table: str) -> tuple[str, dict[str, str]] | None:
    """R8: the table that a leaf goes into, and the columns that `add` gives its rows."""
    listed = source.get("tables") or {}
    if table in listed and not (listed[table] or {}).get("into"):
        return None
    for text, entry in listed.items():
        parts = re.split(r"([*?])", text)
        pattern = "".join(
            {"*": "([^.]*)", "?": "([^.])"}[part] if n % 2 else re.escape(part)
            for n, part in enumerate(parts)
        )
        found = re.fullmatch(pattern, table)
        if found and (entry or {}).get("into"):
            added = dict(entry.get("add") or {})
            for number, said in enumerate(found.groups(), 1):
                added = {name: v.replace(f"{{{number}}}", said) for name, v in added.items()}
            return entry["into"], added
    return None


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


def is_of_cells(image: dict[str, Any] | None) -> bool:
    """D22: is each value that is there ``{"value": …, "set": …}``?"""
    cells = [v for v in (image or {}).values() if v is not None]
    return bool(cells) and all(
        isinstance(cell, dict) and set(cell) == {"value", "set"} and isinstance(cell["set"], bool)
        for cell in cells
    )


MONGODB_NUMBERS = ("$numberLong", "$numberInt")


def mongodb_id(value: Any) -> str:
    """M1, M2: relaxed extended JSON without blanks, of one form for each value."""
    if isinstance(value, dict):
        if (scalar := _bson_scalar(value)) is not None:
            return scalar
        return "{" + ",".join(f"{json_text(n)}:{mongodb_id(v)}" for n, v in value.items()) + "}"
    if isinstance(value, list):
        return "[" + ",".join(map(mongodb_id, value)) + "]"
    if isinstance(value, Decimal):
        return _double_id(float(value), json_text(value))
    return json_text(value)


_NUMBER = re.compile(r"-?\d+(\.\d+)?([eE][+-]?\d{1,4})?", re.ASCII)


def _bson_scalar(value: dict[str, Any]) -> str | None:
    """The text of a value that JSON has no type for; None of a document of members."""
    names, only = list(value), next(iter(value.values()), None)
    if len(names) == 1 and names[0].startswith("$number") and isinstance(only, str):
        return _number_id(names[0], only)
    with suppress(ValueError, TypeError, KeyError, OverflowError):
        return _wrapped_id(value, names, only)
    return None


def _wrapped_id(value: dict[str, Any], names: list[str], only: Any) -> str | None:
    if names == ["$date"]:
        return _date_id(only)
    if names == ["$uuid"]:
        data = base64.b64encode(uuid.UUID(only).bytes).decode()
        return f'{{"$binary":{{"base64":"{data}","subType":"04"}}}}'
    if names == ["$binary", "$type"]:
        kind = str(value["$type"]).lower().rjust(2, "0")
        return f'{{"$binary":{{"base64":"{only}","subType":"{kind}"}}}}'
    if names == ["$binary"] and isinstance(only, dict):
        kind = only["subType"].lower().rjust(2, "0")
        return f'{{"$binary":{{"base64":"{only["base64"]}","subType":"{kind}"}}}}'
    return None


def _number_id(name: str, text: str) -> str:
    """M2: numbers that are equal as exact values have one text."""
    as_sent = json_text({name: text})
    if text in ("NaN", "Infinity", "-Infinity"):
        return json_text({"$numberDouble": text})
    if not _NUMBER.fullmatch(text):
        return as_sent
    exact = Decimal(text)
    if exact == exact.to_integral_value() and abs(exact) < 10**38 and "." not in text.upper():
        return str(int(exact))
    if name == "$numberDecimal" and exact % 1 and exact != Decimal(float(text)):
        plain = format(exact.normalize(Context(prec=50)), "f")
        return json_text({name: plain})
    return _double_id(float(text), as_sent)


def _double_id(double: float, otherwise: str) -> str:
    if math.isinf(double):
        return otherwise
    if abs(double) < 9e18 and double.is_integer():
        return str(int(double))
    return java_double(double)


def java_double(number: float) -> str:
    """A double as Java writes it: in decimals from 0.001 to 10^7, else with an exponent."""
    sign, digits, exponent = Decimal(repr(number)).normalize().as_tuple()
    assert isinstance(exponent, int)
    power = len(digits) - 1 + exponent
    if -3 <= power < 7:
        text = format(abs(Decimal(repr(number))), "f")
        text = text if "." in text else f"{text}.0"
    else:
        rest = "".join(map(str, digits[1:])) or "0"
        text = f"{digits[0]}.{rest}E{power}"
    return f"{'-' if sign else ''}{text}"


def _date_id(sent: Any) -> str | None:
    if isinstance(sent, dict):
        if list(sent) != ["$numberLong"]:
            return None
        ms = int(sent["$numberLong"])
    elif isinstance(sent, str):
        zoned = datetime.fromisoformat(re.sub(r"Z$", "+00:00", sent))
        ms = (zoned - EPOCH_UTC) // timedelta(milliseconds=1)
    elif isinstance(sent, int):
        ms = sent
    else:
        return None
    if not 0 <= ms <= YEAR_9999:
        return json_text({"$date": {"$numberLong": str(ms)}})
    time = EPOCH + timedelta(milliseconds=ms)
    text = time.isoformat(timespec="milliseconds" if ms % 1000 else "seconds")
    return json_text({"$date": f"{text}Z"})


_NOT_FINITE = re.compile(r'("(?:[^"\\]|\\.)*")|(NaN|-?Infinity)')


def finite_json(text: str) -> str:
    """M3: what JSON has no number for, as extended JSON has it."""

    def wrapped(found: re.Match[str]) -> str:
        return found[1] or f'{{"$numberDouble":"{found[2]}"}}'

    return _NOT_FINITE.sub(wrapped, text)


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
