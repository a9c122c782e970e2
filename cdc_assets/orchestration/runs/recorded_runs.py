"""Records of days in Dagster: the verdicts of checks and the seconds of stages."""

from __future__ import annotations

from collections.abc import Collection, Sequence
from dataclasses import dataclass
from datetime import date
from typing import Any

import dagster as dg

from cdc_assets.cdc import markdown
from cdc_assets.cdc.config import Config
from cdc_assets.cdc.names import derived_name
from cdc_assets.orchestration.assets.build import build_assets
from cdc_assets.orchestration.assets.keys import (
    PARSED,
    STAGES,
    asset_key,
    asset_keys,
    table_key,
)
from cdc_assets.orchestration.assets.records import newest_evaluations

_TIMED = [stage for stage in STAGES if stage == "changes" or stage not in PARSED]


@dataclass(frozen=True)
class Verdict:
    """The newest evaluation of a check on a day of an asset.

    `asset` is `<source>.<table or stage>`, `holds` the check's description, `says` what it found,
    a line per recorded value.
    """

    asset: str
    check: str
    day: date
    passed: bool
    severity: str
    holds: str
    says: str


def newest_verdicts(
    instance: dg.DagsterInstance, config: Config, sources: Sequence[str], days: Collection[date]
) -> list[Verdict]:
    """The newest verdict of each check of these sources on each day that has one."""
    specs = {
        spec.key: spec
        for source in sources
        for asset in build_assets(source, config)
        for spec in asset.check_specs
    }
    names = _names(config, sources)
    found = []
    for day in sorted(days):
        for key, evaluation in newest_evaluations(instance, list(specs), day).items():
            found.append(
                Verdict(
                    names[key.asset_key],
                    key.name,
                    day,
                    evaluation.passed,
                    evaluation.severity.value,
                    specs[key].description or "",
                    "" if evaluation.passed else _says(evaluation),
                )
            )
    return found


def _names(config: Config, sources: Sequence[str]) -> dict[dg.AssetKey, str]:
    tables = {
        table_key(source, table): f"{source}.{table}"
        for source in sources
        for table in config.sources[source].tables
    } | {
        table_key(source, *derived): f"{source}.{derived_name(*derived)}"
        for source in sources
        for derived in config.sources[source].derived
    }
    keys = [key for source in sources for key in asset_keys(source, config)]
    return {key: tables.get(key, ".".join(key.path)) for key in keys}


def _says(evaluation: dg.AssetCheckEvaluation) -> str:
    lines = [f"{name}: {_text(value)}" for name, value in evaluation.metadata.items()]
    return "\n".join(([evaluation.description] if evaluation.description else []) + lines)


def _text(value: dg.MetadataValue[Any]) -> str:
    if isinstance(value, dg.MarkdownMetadataValue):
        return f"\n{markdown.plain(value.value or '')}"
    return str(value.value)


def stage_seconds(
    instance: dg.DagsterInstance, sources: Sequence[str], days: Collection[date]
) -> list[tuple[str, date, float]]:
    """`<source>.<stage>`, day and seconds of its newest materialization.

    `control` and `quarantine` are made together with `changes` and have no seconds of their own.
    """
    partitions = [day.isoformat() for day in sorted(days)]
    found: dict[tuple[str, date], float] = {}
    for key in [asset_key(source, stage) for source in sources for stage in _TIMED]:
        wanted = dg.AssetRecordsFilter(key, asset_partitions=partitions)
        cursor, has_more = None, True
        while has_more:  # newest first
            page = instance.fetch_materializations(wanted, limit=1_000, cursor=cursor)
            for record in page.records:
                made = record.asset_materialization
                value = made.metadata.get("seconds") if made else None
                if isinstance(value, (dg.FloatMetadataValue, dg.IntMetadataValue)):
                    day = date.fromisoformat(str(record.partition_key))
                    found.setdefault((".".join(key.path), day), float(value.value or 0))
            cursor, has_more = page.cursor, page.has_more
    return [(asset, day, seconds) for (asset, day), seconds in found.items()]
