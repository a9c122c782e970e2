"""Rows, bytes and instants of the lake as JSON values, without loss."""

from __future__ import annotations

import base64
import json
import math
import re
from collections.abc import Iterator, Sequence
from datetime import date, datetime, time, timedelta
from decimal import Decimal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pyarrow as pa

_EPOCH = datetime(1970, 1, 1)


def json_rows(rows: pa.Table) -> Iterator[dict[str, Any]]:
    """Rows as JSON values, without loss.

    Instants are ISO texts in UTC, decimals exact texts, bytes base64, nested values objects
    and lists; NaN and infinities are texts.
    """
    kinds = {field.name: field.type for field in rows.schema}
    for batch in rows.to_batches(max_chunksize=1_000):
        for row in _python_rows(batch):
            yield {name: json_value(value, kinds[name]) for name, value in row.items()}


def _python_rows(batch: pa.RecordBatch) -> Iterator[dict[str, Any]]:
    """Rows as Python values; instants outside Python's years are texts."""
    columns = [python_values(column) for column in batch.columns]
    for values in zip(*columns, strict=True):
        yield dict(zip(batch.schema.names, values, strict=True))


def python_values(column: pa.Array | pa.ChunkedArray) -> list[Any]:
    """Values as Python's; instants outside Python's years are texts."""
    import pyarrow as pa

    try:
        values: list[Any] = column.to_pylist()
    except (OverflowError, ValueError):
        if not pa.types.is_timestamp(column.type):
            raise
        micros = column.cast(pa.timestamp("us")).cast(pa.int64()).to_pylist()
        return [None if instant is None else instant_text(instant) for instant in micros]
    return values


def plain_texts(column: pa.Array | pa.ChunkedArray) -> list[str | None]:
    """Values as the text that they have in a column that became STRING (R3)."""
    import pyarrow as pa

    values = python_values(column)
    if pa.types.is_float32(column.type):
        # With the digits that tell it from other floats, not from other doubles.
        shortest = column.cast(pa.string()).to_pylist()
        values = [None if text is None else float(text) for text in shortest]
    return [
        None if value is None else _plain_text(json_value(value, column.type), value)
        for value in values
    ]


def _plain_text(shown: Any, value: Any) -> str:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and math.isfinite(value):
        return _floating_text(value)
    if isinstance(value, datetime):
        return re.sub(r"(\.\d*?)0+(?=Z?$)", r"\1", str(shown)).replace(".Z", "Z").rstrip(".")
    if isinstance(shown, (dict, list)):
        return json.dumps(shown, separators=(",", ":"), ensure_ascii=False)
    return str(shown)


def _floating_text(value: float) -> str:
    """As Java writes it, and so Spark: with an exponent below 0.001 and from 10,000,000 on."""
    if value == 0 or 1e-3 <= abs(value) < 1e7:
        return str(value)
    sign, digits, exponent = Decimal(repr(value)).as_tuple()
    text = "".join(map(str, digits)).rstrip("0") or "0"
    power = len(digits) - 1 + int(exponent)
    return f"{'-' * sign}{text[0]}.{text[1:] or '0'}E{power}"


def json_messages(rows: pa.Table, with_bytes: bool) -> Iterator[dict[str, Any]]:
    """Rows of `landing` or `quarantine` as :func:`json_rows`, keys, values and headers as text.

    Args:
        rows: of that table.
        with_bytes: keep the base64 of the bytes, and add `key_text`, `value_text` and each
            header's `value_text`, null where the bytes are not UTF-8. Otherwise the text replaces
            the bytes; bytes that are not UTF-8 become base64 with the prefix ``base64:``.
    """
    for row in json_rows(rows):
        yield _with_texts(row, ("key", "value"), with_bytes) | {
            "headers": [_with_texts(h, ("value",), with_bytes) for h in row["headers"] or ()]
        }


def _with_texts(row: dict[str, Any], names: Sequence[str], with_bytes: bool) -> dict[str, Any]:
    coded = {name: row[name] for name in names}
    texts = {
        name: None if code is None else text_of(base64.b64decode(code))
        for name, code in coded.items()
    }
    if with_bytes:
        return {**row, **{f"{name}_text": text for name, text in texts.items()}}
    shown = {
        name: f"base64:{code}" if code is not None and texts[name] is None else texts[name]
        for name, code in coded.items()
    }
    return {**row, **shown}


def json_value(value: Any, kind: pa.DataType) -> Any:
    """One Arrow value, converted to Python, as a JSON value."""
    import pyarrow as pa

    if isinstance(value, datetime):
        text = value.isoformat()
        return text.replace("+00:00", "Z") if value.tzinfo else text
    if isinstance(value, (date, time)):
        return value.isoformat()
    if isinstance(value, Decimal):
        return format(value, "f")
    if isinstance(value, bytes):
        return base64.b64encode(value).decode()
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if value is None or isinstance(value, (bool, int, float, str)):
        return value
    if pa.types.is_map(kind):
        return {str(json_value(k, kind.key_type)): json_value(v, kind.item_type) for k, v in value}
    if pa.types.is_struct(kind):
        return {f.name: json_value(value.get(f.name), f.type) for f in kind}
    return [json_value(item, kind.value_type) for item in value]


def instant_text(micros: int) -> str:
    """µs since 1970 as ISO text in UTC, also outside Python's years."""
    try:
        instant = _EPOCH + timedelta(microseconds=micros)
    except OverflowError:
        import pyarrow as pa

        text = pa.scalar(micros, pa.timestamp("us")).cast(pa.string()).as_py()
        return str(text).replace(" ", "T") + "Z"
    return instant.isoformat() + "Z"


def text_of(data: bytes | None) -> str | None:
    """Bytes as text; null where they are not UTF-8."""
    try:
        return None if data is None else data.decode()
    except UnicodeDecodeError:
        return None


def texts_of(name: str, data: bytes | None) -> dict[str, str | None]:
    """Bytes as a member of a landed line: text, else ``<name>_base64``; null stays null."""
    text = text_of(data)
    if data is None or text is not None:
        return {name: text}
    return {f"{name}_base64": base64.b64encode(data).decode()}
