"""Output of `cdc-assets demo`."""

from __future__ import annotations

import shutil
from datetime import date, timedelta
from pathlib import Path
from typing import Any

from cdc_assets.cdc.changes.quarantine_rows import quarantine_counts
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.lake.figures import day_rows, lag_rows
from cdc_assets.cdc.lake.tables import state_tables
from cdc_assets.cli import output
from cdc_assets.cli.terminal import echo


def print_results(config: Config, first: date, last: date) -> None:
    """Print rows per table and day, end-to-end lag, quarantine by reason and next commands."""
    days = [first + timedelta(days=i) for i in range((last - first).days + 1)]
    for source in config.sources:
        _title(f"{source}: rows at the end of each day")
        rows = _rows_per_day(config, source, days)
        output.print_table(["table", *(f"{day:%m-%d}" for day in days)], rows)
    _title("lag: end to end, ms, of all changes that could be measured")
    output.print_table(
        ["source", "day", "table", "count", "p50", "p95", "max"],
        [
            {
                "source": row["source"], "day": row["landing_date"], "table": row["table_name"],
                "count": row["count"], "p50": row["p50_ms"], "p95": row["p95_ms"],
                "max": row["max_ms"],
            }
            for source in config.sources
            for row in lag_rows(config, source, first, last)
            if row["kind"] == "end_to_end" and row["count"]
        ],
    )  # fmt: skip
    _title("quarantine: records that could not be read, by reason")
    counts = {source: quarantine_counts(config, source) for source in config.sources}
    reasons = sorted({reason for found in counts.values() for reason in found})
    output.print_table(
        ["reason", *counts],
        [{"reason": r, **{s: found.get(r, 0) for s, found in counts.items()}} for r in reasons],
    )
    _print_next(config, days)


def _title(text: str) -> None:
    echo(f"\n{text}")


def _rows_per_day(config: Config, source: str, days: list[date]) -> list[dict[str, Any]]:
    rows = []
    for table in state_tables(config, source):
        counts = day_rows(config, table)
        rows.append({"table": table.name, **{f"{d:%m-%d}": counts.get(d) for d in days}})
    return rows


def _print_next(config: Config, days: list[date]) -> None:
    state = next((t for source in config.sources for t in state_tables(config, source)), None)
    source = next(iter(config.sources))
    middle = days[len(days) // 2]
    # In a fresh checkout the command is in .venv/bin, which is not on PATH.
    program = "cdc-assets" if shutil.which("cdc-assets") else ".venv/bin/cdc-assets"
    _title("next:")
    if state:
        echo(f"  {program} show {state} --as-of {middle}")
    echo(f"  {program} quarantine --source {source}")
    echo(f"  {program} lag --source {source} --from {middle} --to {middle} --hours")
    dagster = 'DAGSTER_HOME="$PWD" dagster dev -w workspace.yaml'
    ui = "make ui" if Path("Makefile").is_file() else dagster
    echo(f"  {ui}    # Dagster on http://127.0.0.1:3000")
