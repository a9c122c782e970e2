"""`cdc-assets lag`: the lag of changes, without Spark."""

from __future__ import annotations

from typing import Annotated

import typer

from cdc_assets.cli.imports import import_without_pandas
from cdc_assets.cli.options import (
    ConfigFile,
    Form,
    Format,
    From,
    Source,
    To,
    check_range,
    load,
    selected_sources,
)
from cdc_assets.cli.terminal import echo

_LAG_COLUMNS = {
    "table_name": "table",
    "kind": "kind",
    "count": "count",
    "negative": "negative",
    "p50_ms": "p50",
    "p95_ms": "p95",
    "p99_ms": "p99",
    "max_ms": "max",
}


def lag(
    source: Source = None,
    first: From = None,
    last: To = None,
    hours: Annotated[
        bool, typer.Option("--hours", help="Per hour of the source time instead of per day.")
    ] = False,
    form: Format = Form.table,
    config_file: ConfigFile = None,
) -> None:
    """Print the lag of changes per day and table, in ms.

    capture: from the source to the connector; delivery: from the connector to Kafka; end_to_end:
    from the source to Kafka.
    """
    check_range(first, last)
    from cdc_assets.cli import output

    with output.Activity("reading the lag of the changes"):
        config = load(config_file)
        sources = selected_sources(config, source)
        from cdc_assets.cdc.lake.figures import LAG_COLUMNS, lag_rows, require_made

        import_without_pandas("pyarrow.dataset")
        rows = [row for s in sources for row in lag_rows(config, s, first, last, hours)]
        if not rows:
            require_made(config, "lag", sources, first, last)
    if form is Form.table:
        columns = {"landing_date": "day", **({"hour": "hour"} if hours else {}), **_LAG_COLUMNS}
        short = [{**row, "table_name": f"{row['source']}.{row['table_name']}"} for row in rows]
        output.print_table(
            list(columns.values()), [{columns[c]: row[c] for c in columns} for row in short]
        )
    else:
        output.print_rows(["source", *LAG_COLUMNS], rows, form.value)
    if not rows:
        echo("these days have no change with a measurable lag", err=True)
