"""The faults of a wrong cdc.yaml: one readable line each, with its path in the file."""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from typing import Any

from cdc_assets.cdc.config.fields import Settings
from cdc_assets.cdc.config.strict_yaml import YamlPath, kind_of, path_of, written_of

_A_NUMBER, _WHOLE, _A_DATE = "a number", "a whole number", "a date such as 2026-11-04"
_INSTANT = "an instant with its zone, such as 2026-11-05T12:30:00Z"
_MAPPING = "a mapping (lines of `name: value`)"
# What a setting expects, by the start of pydantic's error type.
_EXPECTED = {
    "string_too_short": "a text that is not empty",
    "string": "a text",
    "tuple": "a list such as [a, b]",
    "dict": _MAPPING,
    "model": _MAPPING,
    "too_short": "at least one entry",
    "int": _WHOLE,
    "float": _A_NUMBER,
    "finite_number": _A_NUMBER,
    "number": _A_NUMBER,
    "bool": "true or false",
    "datetime": _INSTANT,
    "timezone": _INSTANT,
    "date": _A_DATE,
    "key": "a list of column names such as [id], none, or row",
    "time_of_day": 'a time of day such as "01:00", or null for never',
    "greater_than_equal": "{ge} or more",
    "greater_than": "more than {gt}",
    "less_than_equal": "{le} or less",
    "literal_error": "{expected}",
}
_EXAMPLES = {
    "LandingConfig": (
        "{files: <folder>}, {table: <name>} or {kafka: {bootstrap_servers: …, topics: […]}}"
    ),
    "PathTableConfig": "{path: <folder>, format: parquet | delta}",
    "KafkaConfig": "{bootstrap_servers: …, topics: […]}",
    "SourceConfig": "format, landing and tables",
    "TableConfig": "{key: [id]}, {} for a table without settings, or false for none",
    "HistoryConfig": "true, {columns: […]} or {except: […]}",
    "WebhookConfig": "{url: ${NAME}}",
    "SlackConfig": "{token: ${NAME}, channel: …}",
    "EmailConfig": "{host: …, from: …, to: […]}",
}


def in_words(fault: Any, written: Mapping[YamlPath, str]) -> str:
    """One line on a fault.

    Args:
        fault: one of pydantic's ``ValidationError.errors()``.
        written: values as the file has them; the line shows these, and thus no secret.
    """
    kind, context, value = fault["type"], fault.get("ctx", {}), fault["input"]
    # pydantic adds the branch of a union to the place; the file has none.
    place = tuple(
        p for p in fault["loc"] if not re.match(r"(tuple\[|literal\[|function-|branch-)", str(p))
    )
    if kind == "key_column":
        kind, place, value = "string_type", (*place, context["index"]), value[context["index"]]
    path = path_of(place)
    if kind == "value_error":
        says = str(context["error"])
    elif kind == "extra_forbidden":
        says = f"unknown key; {_meant(place[-1])}"
    elif kind == "missing":
        says = "is missing"
    else:
        says = _got_and_expected(kind, context, value, written_of(written, place, value))
    return f"{path}: {says}" if path else says


def _got_and_expected(kind: str, context: Mapping[str, Any], value: Any, got: str) -> str:
    known = [prefix for prefix in _EXPECTED if kind.startswith(prefix)]
    expected = _EXPECTED[max(known, key=len)] if known else "what docs/configuration.md says"
    expected = expected.format(**{"ge": "", "gt": "", "le": "", "expected": "", **context})
    if kind.startswith(("string_type", "key", "literal")) and (misread := kind_of(value)):
        cure = f'. Write it in quotes: "{got}"' if kind == "string_type" else ""
        return f"got {got}, which YAML reads as {misread}; expected {expected}{cure}"
    if kind.startswith("tuple") and isinstance(value, str):
        return f"got {got}; expected a list. Write [{got.strip(chr(39))}]"
    if example := _EXAMPLES.get(context.get("class_name", "")):
        expected = f"{expected}: {example}"
    return f"got {got}; expected {expected}"


def _meant(key: Any) -> str:
    """The settings whose names are close to an unknown key's."""
    models = Settings.__subclasses__()
    names = {field.alias or name for m in models for name, field in m.model_fields.items()}
    close = sorted(difflib.get_close_matches(str(key), names))
    return f"did you mean {' or '.join(close)}?" if close else "look for a spelling mistake"
