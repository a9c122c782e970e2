"""Figures of days in the lake's small tables and commits, read with PyIceberg."""

from __future__ import annotations

import json
from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import LakeError
from cdc_assets.cdc.lake.commits import REPORT
from cdc_assets.cdc.lake.json_values import json_rows
from cdc_assets.cdc.lake.metadata import made_days, table_state
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table, readable_files
from cdc_assets.cdc.lake.rows import sorted_rows
from cdc_assets.cdc.lake.tables import LakeTable, own_table

LAG_COLUMNS = (
    "landing_date", "table_name", "hour", "kind", "count", "excluded", "negative", "min_ms",
    "p50_ms", "p90_ms", "p95_ms", "p99_ms", "max_ms", "mean_ms", "complete",
)  # fmt: skip


def lag_rows(
    config: Config,
    source: str,
    first: date | None = None,
    last: date | None = None,
    hours: bool = False,
) -> list[dict[str, Any]]:
    """Rows of a source's table `lag`: whole days, or source hours if `hours` is true.

    Raises:
        MissingTableError: the source has no lag yet.
        LakeError: the catalog or a file can't be read.
    """
    wanted = ["hour IS NOT NULL" if hours else "hour IS NULL"]
    if first:
        wanted.append(f"landing_date >= '{first}'")
    if last:
        wanted.append(f"landing_date <= '{last}'")
    lag = own_table(source, "lag")
    opened = open_table(config, lag)
    with readable_files(lag):
        rows = opened.scan(row_filter=" AND ".join(wanted)).to_arrow()
    ordered = sorted_rows(rows, ["landing_date", "table_name", "hour", "kind"])
    return [{"source": source, **row} for row in json_rows(ordered)]


def require_made(
    config: Config, name: str, sources: Sequence[str], first: date | None, last: date | None
) -> None:
    """Check that a source has made one of these days of its own table `name`.

    Raises:
        LakeError: no source has.
    """
    first, last = first or config.start_date, last or config.today()
    tables = [own_table(source, name) for source in sources]
    made = {table: made_days(config, table) for table in tables}
    if any(first <= day <= last for days in made.values() for day in days):
        return
    has = [f"{t} has {min(days)} to {max(days)}" for t, days in made.items() if days]
    raise LakeError(
        f"no {name} for {first} to {last}: {'; '.join(has) or 'no day is made yet'}. "
        + _how_to_make(config, sources, first, last)
    )


def _how_to_make(config: Config, sources: Sequence[str], first: date, last: date) -> str:
    first, last = max(first, config.start_date), min(last, config.today())
    if last < first:
        return f"Days can be made from {config.start_date} to {config.today()}"
    option = f" --source {sources[0]}" if len(sources) == 1 else ""
    return f"Make the days first: cdc-assets run{option} --from {first} --to {last}"


def record_counts(config: Config, source: str, days: Collection[date] = ()) -> list[dict[str, Any]]:
    """Records of each day by destination, as `changes` recorded them.

    Args:
        config: cdc.yaml.
        source: the source's name.
        days: the landing days [default: all].

    Returns:
        `landing_date, destination, table_name, op, source_op, reason, records`; one row per
        combination, unordered.
    """
    facts = own_table(source, "facts")
    opened = open_table(config, facts)
    chosen = f"landing_date >= '{min(days)}' AND landing_date <= '{max(days)}'" if days else "true"
    keys = ["landing_date", "destination", "table_name", "op", "source_op", "reason"]
    with readable_files(facts):
        scan = opened.scan(row_filter=chosen, selected_fields=(*keys, "records"))
        rows = scan.to_arrow().group_by(keys).aggregate([("records", "sum")]).to_pylist()
    return [
        {**{key: row[key] for key in keys}, "records": row["records_sum"]}
        for row in rows
        if not days or row["landing_date"] in days
    ]


@dataclass(frozen=True)
class TableDay:
    """A published day of a state table: its rows and bytes, and the seconds to make it.

    `bytes` is the size of the table's data and delete files.
    """

    rows: int
    bytes: int
    seconds: float | None


def table_days(config: Config, table: LakeTable) -> dict[date, TableDay]:
    """Figures of a state table's days from its commits, oldest first; no rows are read.

    Raises:
        MissingTableError: nothing of it was made yet.
    """
    state, found = table_state(open_table(config, table)), {}
    for day in sorted(state.tags):
        summary = state.day_summary(day)
        report = json.loads(summary.get(REPORT, "{}"))
        if "rows" in report:
            size = int(summary.get("total-files-size", 0))
            found[day] = TableDay(int(report["rows"]), size, report.get("seconds"))
    return found


def day_rows(config: Config, table: LakeTable) -> dict[date, int]:
    """Rows of a state table at the end of each day, as :func:`table_days` has them."""
    return {day: made.rows for day, made in table_days(config, table).items()}
