"""The placeholder that PostgreSQL's connector sends for an unchanged value (FORMATS R2)."""

from __future__ import annotations

import base64
import json
import re

from cdc_assets.cdc.sqltext import Sql, literal

_DEFAULT = "__debezium_unavailable_value"
_UUID = "b68a35a7-17ad-35b3-af2a-ae46edb4545a"


def _coded(placeholder: str) -> list[str]:
    """Its bytes as text: of each `binary.handling.mode`, also with the letters for URLs."""
    sent = placeholder.encode()
    coded = (
        base64.b64encode(sent),
        base64.urlsafe_b64encode(sent),
        hexadecimal_form(placeholder).encode(),
    )
    return list(dict.fromkeys(text.decode() for text in coded))


def hexadecimal_form(placeholder: str) -> str:
    """Its bytes as `binary.handling.mode=hex` writes them."""
    return placeholder.encode().hex()


def placeholder_cores(placeholder: str) -> list[str]:
    """Texts of which a JSON text holds one where it holds a form of the placeholder."""
    codes = ",".join(str(ord(char)) for char in placeholder)
    text = json.dumps(placeholder, ensure_ascii=False)[1:-1]
    cores = [text, *_coded(placeholder), codes]
    # Within a text that is JSON itself its signs are escaped again.
    if (again := json.dumps(text, ensure_ascii=False)[1:-1]) != text:
        cores.append(again)
    return [*cores, _UUID] if placeholder == _DEFAULT else cores


def may_hold_placeholder(text: Sql, placeholder: str) -> Sql:
    """May a JSON text hold a form of the placeholder? A pattern without signs is found fast."""
    found = (f"{text} RLIKE {literal(re.escape(core))}" for core in placeholder_cores(placeholder))
    return f"coalesce({' OR '.join(found)}, false)"


def placeholder_forms(placeholder: str) -> list[str]:
    """The JSON texts that a placeholder takes, by column type (R2)."""
    codes = json.dumps([ord(char) for char in placeholder], separators=(",", ":"))
    text = json.dumps(placeholder, ensure_ascii=False)
    pairs = f"{{{text}:{text}}}"
    texts = [text, *(f'"{coded}"' for coded in _coded(placeholder))]
    forms = [*texts, *(f"[{one}]" for one in texts), codes, pairs]
    # hstore.handling.mode=json sends the map as text.
    forms.append(json.dumps(pairs, ensure_ascii=False))
    return [*forms, f'["{_UUID}"]'] if placeholder == _DEFAULT else forms
