"""The check `matches_source` of tables whose source names its database.

`cdc-assets verify` records it; a person runs it on its page. The job `daily` leaves it out, as it
reads the whole table and that of the database.

(Dagster reads the annotations of bodies as objects, so this module does not postpone them.)
"""

from collections.abc import Iterator

import dagster as dg

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.config.database import Address
from cdc_assets.cdc.errors import CdcError
from cdc_assets.cdc.java_errors import JAVA_ERRORS
from cdc_assets.cdc.lake.errors import one_line
from cdc_assets.cdc.stages.source import stages_of_tables
from cdc_assets.cdc.stages.tables import TableStage
from cdc_assets.cdc.verification.findings import MATCHES_SOURCE, Verification
from cdc_assets.orchestration.assets.keys import asset_key
from cdc_assets.orchestration.checks import evaluation, result, specs
from cdc_assets.orchestration.execution.failures import failure
from cdc_assets.orchestration.execution.resources import SparkResource


def checked_tables(config: Config, source: str) -> dict[str, dg.AssetCheckKey]:
    """The tables of a source that have the check; none if it names no database."""
    if config.source(source).database is None:
        return {}
    return {
        stage.table: dg.AssetCheckKey(asset_key(source, stage.table), MATCHES_SOURCE.name)
        for stage in stages_of_tables(config, source)
        if isinstance(stage, TableStage) and stage.has_key
    }


def build_source_checks(config: Config) -> list[dg.AssetChecksDefinition]:
    """The definitions of the check, one for all tables of a source."""
    found = ((source, checked_tables(config, source)) for source in config.sources)
    return [_checks(source, tables) for source, tables in found if tables]


def _checks(source: str, tables: dict[str, dg.AssetCheckKey]) -> dg.AssetChecksDefinition:
    listed = [s for key in tables.values() for s in specs(key.asset_key, [MATCHES_SOURCE])]

    @dg.multi_asset_check(
        name=f"{source}__{MATCHES_SOURCE.name}",
        specs=listed,
        can_subset=True,
        pool=f"cdc_{source}",  # not at the same time as a run of the source
    )
    def body(
        context: dg.AssetCheckExecutionContext, spark: SparkResource
    ) -> Iterator[dg.AssetCheckResult]:
        from cdc_assets.cdc.verification.verify import verify

        config = spark.config()
        failures: list[Exception] = []
        for table, key in tables.items():
            if key not in context.selected_asset_check_keys:
                continue
            try:
                address = Address.parse(config.source(source).database or "")
                told = verify(spark.lake(), source, table, address, tell=context.log.info)
            except (CdcError, *JAVA_ERRORS) as error:
                # What can't be compared is not unequal: its check has no result.
                failures.append(error)
                continue
            yield result(_evaluation(key, told))
        if failures:
            text = "\n".join(one_line(error, config) for error in failures)
            raise failure(text, failures[0], config, allow_retries=False) from None

    return body


def record(
    instance: dg.DagsterInstance, config: Config, source: str, table: str, told: Verification
) -> bool:
    """Record a verification as the check's evaluation; False if the table has no such check."""
    key = checked_tables(config, source).get(table)
    if key is not None:
        instance.report_runless_asset_event(_evaluation(key, told))
    return key is not None


def _evaluation(key: dg.AssetCheckKey, told: Verification) -> dg.AssetCheckEvaluation:
    return evaluation(told.finding, key.asset_key, [MATCHES_SOURCE])
