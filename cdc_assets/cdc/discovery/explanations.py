"""What a record is and where it goes, in one sentence."""

from __future__ import annotations

from typing import Any

from cdc_assets.cdc.changes.reasons import REASONS
from cdc_assets.cdc.discovery.rules import Rules
from cdc_assets.cdc.envelopes.formats import FIRST_HALVES, SECOND_HALVES

Row = dict[str, Any]


def explain(row: Row, rules: Rules) -> str:
    """What a record is and where it goes, in one sentence for a newcomer.

    Args:
        row: a record with `COLUMNS` except `explanation`, with `DETAILS`, and `kind`,
            `nearest_offset` and `tombstone_value`.
        rules: the rules that it was read by.
    """
    if row["destination"] == "quarantine":
        text = _quarantined(row)
    elif row["kind"] == "tombstone":
        text = _tombstone(row, rules)
    elif row["destination"] == "control":
        text = f"{_control(row)}: understood, changes no row"
    else:
        text = f"{_change(row, rules)}: goes to changes"
    return text + _configured(row, rules)


def _quarantined(row: Row) -> str:
    reason = REASONS[row["reason"]]
    text = f"can't be read: it {reason.record}. Next: {reason.remedy}"
    if row["kind"] == "tombstone" and row["reason"] == "missing_table":
        text = (
            f"{row['tombstone_value']}: a lone tombstone, and this file shows not exactly one "
            "table on its topic. Earlier days may have shown it, else it is quarantined. "
            f"Next: {reason.remedy}"
        )
    return text


def _tombstone(row: Row, rules: Rules) -> str:
    form = f"{row['tombstone_value']}: a"
    if row["destination"] == "control":
        return (
            f"{form} tombstone; follows its own delete at offset {row['nearest_offset']}, "
            "so nothing changes"
        )
    text = f"{form} lone tombstone: deletes {_the_row(row, rules)}, goes to changes"
    if row["nearest_offset"] is None:
        text += (
            ". This file has no earlier record of its key: if one that landed before, up to the "
            "day before, is the row's delete, it changes nothing"
        )
    return text


_CONTROL = {
    "heartbeat": "a heartbeat",
    "transaction": "a transaction mark",
    "message": "a logical message",
    "ddl": "a schema change or statement",
}


def _control(row: Row) -> str:
    text = _CONTROL.get(row["op"]) or f"an event that concerns no row ({row['source_op']})"
    payload = None if row["op"] == "message" else row["payload"]
    return f"{text} ({_one_line(payload)})" if payload else text


def _change(row: Row, rules: Rules) -> str:
    where = _the_row(row, rules)
    if row["op"] == "t":
        return f"a truncate: empties {_table(row, rules)} of what is older than it"
    if row["source_op"] in FIRST_HALVES:
        return (
            f"the first half of an update of {where}, as it was: waits for its UPDATE_AFTER "
            "(same sequenceId)"
        )
    if row["source_op"] in SECOND_HALVES and row["before"] is None:
        return f"the second half of an update of {where}, as it is now"
    if row["is_snapshot"]:
        return f"a snapshot read of {where}: not a change, so it has no position and no lag"
    if row["op"] == "d" and row["new_key"]:
        return f"a delete of {where}, whose key changes to {row['new_key']}"
    text = {"c": "an insert", "u": "an update", "d": "a delete", "r": "a read"}[row["op"]]
    if row["old_key"]:
        return f"{text} of {where}, whose key was {row['old_key']} before"
    return f"{text} of {where}"


def _the_row(row: Row, rules: Rules) -> str:
    key = f"row {row['key']}" if row["key"] else "a row without key"
    return f"{key} of {_table(row, rules)}"


def _table(row: Row, rules: Rules) -> str:
    return str(row["table"]) if rules.is_bare else f"{rules.source}.{row['table']}"


def _configured(row: Row, rules: Rules) -> str:
    is_known = rules.is_bare or row["table"] is None or rules.settings.knows(row["table"])
    if is_known or row["destination"] != "changes":
        return ""
    return (
        f". sources.{rules.source}.tables in cdc.yaml does not list {row['table']}, "
        "so it stays there"
    )


def _one_line(text: str) -> str:
    flat = " ".join(text.split())
    return flat if len(flat) <= 80 else flat[:79] + "…"
