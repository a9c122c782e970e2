"""What statements of DDL do to tables (D21), of those that the stories and worlds have."""

from __future__ import annotations

import re
from typing import Any

from cdc_assets_tests.model.documents import full_name
from cdc_assets_tests.model.records import Event

_NAME = r"""`[^`]+`|"[^"]+"|\w+"""
_TABLE = rf"(?:(?:{_NAME})\s*\.\s*)?(?:{_NAME})"
_TABLES = rf"({_TABLE}(?:\s*,\s*{_TABLE})*)"
_EXISTS = r"(?:if\s+exists\s+)?"
_STATEMENTS = {
    "DROP": rf"drop\s+table\s+{_EXISTS}{_TABLES}",
    "DROP DATABASE": rf"drop\s+(?:database|schema)\s+{_EXISTS}{_TABLES}",
    "TRUNCATE": rf"truncate\s+(?:table\s+)?{_TABLES}",
}


def statement_of(event: Event, configs: dict[str, Any]) -> tuple[str | None, set[str]]:
    """What a statement does, and to which of the configured tables."""
    text = re.sub(r"/\*.*?\*/", " ", event.statement or "").strip()
    for kind, pattern in _STATEMENTS.items():
        if found := re.match(pattern, text, re.IGNORECASE | re.DOTALL):
            names = [_parts(name) for name in re.findall(_TABLE, found[1])]
            if kind == "DROP DATABASE":
                databases = {parts[-1] for parts in names}
                return kind, {n for n in configs if n.partition(".")[0] in databases}
            tables = {full_name(*parts[-2:]) for parts in (_in(event, p) for p in names)}
            return kind, tables & set(configs)
    return None, set()


def _parts(name: str) -> list[str]:
    return [part.strip('`"') for part in re.findall(_NAME, name)]


def _in(event: Event, parts: list[str]) -> list[str]:
    namespace = (event.table_name or "").rpartition(".")[0] or event.said_source.get("db") or ""
    return parts if len(parts) > 1 else [namespace, *parts]
