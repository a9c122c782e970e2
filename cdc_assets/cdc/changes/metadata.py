"""What Dagster and the terminal show of a day of `changes`, `control` and `quarantine`."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from cdc_assets.cdc import markdown
from cdc_assets.cdc.changes.figures import ChangesFigures
from cdc_assets.cdc.changes.reasons import REASONS
from cdc_assets.cdc.envelopes.formats import FIRST_HALVES
from cdc_assets.cdc.markdown import Markdown
from cdc_assets.cdc.metadata import OPS, counts

CONTROL_OPS = ("message", "heartbeat", "transaction", "ddl", "tombstone", "other")


def changes_day(figures: ChangesFigures) -> dict[str, dict[str, Any]]:
    """The values of a day of `changes`, `control` and `quarantine`, by table."""
    ops: dict[str, int] = {}
    for label, count in figures.changes.items():
        op, _, source_op = label.partition(":")
        if source_op not in FIRST_HALVES:
            ops[op] = ops.get(op, 0) + count
    changes, control, quarantine = (
        figures.records(table) for table in ("changes", "control", "quarantine")
    )
    return {
        "changes": {
            "dagster/partition_row_count": changes,
            "landed": figures.landed,
            "quarantined": quarantine,
            **counts("op", OPS, ops),
        },
        "control": {
            "dagster/partition_row_count": control,
            **counts("op", CONTROL_OPS, figures.control),
        },
        "quarantine": {
            "dagster/partition_row_count": quarantine,
            **counts("reason", REASONS, figures.quarantine),
        },
    }


def summary_line(values: Mapping[str, Any]) -> str:
    """The counts of a table's day (:func:`changes_day`) in a line."""
    named = {
        name.removeprefix("op_").removeprefix("reason_"): count
        for name, count in values.items()
        if name.startswith(("op_", "reason_")) and count
    }
    listed = ", ".join(f"{name} {count}" for name, count in named.items())
    return f"{values['dagster/partition_row_count']} records" + (f" ({listed})" if listed else "")


def examples_table(examples: Sequence[Any], with_values: bool) -> Markdown:
    """Some quarantined records of a day; `detail` may hold a part of a message."""
    names = ["reason", "table_name", "topic", "partition", "offset"]
    names += ["detail"] if with_values else []
    return markdown.table(names, [[e[name] for name in names] for e in examples])
