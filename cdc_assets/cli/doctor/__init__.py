"""Checks of everything that a run needs: machine, configuration, lake, landings, Dagster.

Each check yields findings with a remedy. An exception in a check becomes a problem, and no finding
shows a secret.
"""

from __future__ import annotations

from collections.abc import Callable, Collection, Iterator

from cdc_assets.cli.doctor import columns, configuration, environment, lake, sources
from cdc_assets.cli.doctor.findings import Check, Context, Finding, Status, run_check

__all__ = ["CHECKS", "Finding", "Status", "run_checks"]

CHECKS: dict[str, Check] = {
    "configuration": configuration.configuration,
    "python": environment.python,
    "packages": environment.packages,
    "java": environment.java,
    "jars": environment.jars,
    "definitions": configuration.definitions,
    "warehouse": lake.warehouse,
    "catalog": lake.catalog,
    "spark": lake.spark,
    "landing": sources.landings,
    "keys": sources.columns,
    "columns": columns.column_types,
    "servers": lake.epochs,
    "dagster": environment.dagster,
}


def run_checks(
    config_file: str | None = None,
    quick: bool = False,
    only: Collection[str] = (),
    on_start: Callable[[str], None] = lambda _: None,
) -> Iterator[Finding]:
    """Run the checks in order; yields each finding as soon as it is known. Never raises.

    Args:
        config_file: cdc.yaml [default: the usual places].
        quick: start no Spark session; then topics and credentials of Kafka are not checked.
        only: names of :data:`CHECKS` [default: all]; most need `configuration`.
        on_start: called with the name of each check before it starts.
    """
    context = Context(config_file, quick)
    try:
        for name, check in CHECKS.items():
            if not only or name in only:
                on_start(name)
                yield from run_check(name, check, context)
    finally:
        if context.spark is not None:
            context.spark.stop()
