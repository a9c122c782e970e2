"""The records of a day: a line in the log, a materialization with metadata, check evaluations.

Each day is recorded as soon as it is done. A day whose snapshot and fingerprint are as recorded
is recorded again with the same metadata, and not examined. The fingerprint covers the settings,
and the day before if checks compare the two.
"""

from __future__ import annotations

import logging
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from datetime import date
from typing import Any

import dagster as dg

from cdc_assets.cdc.findings import Check, Finding
from cdc_assets.cdc.stages.contract import Version
from cdc_assets.orchestration.checks import evaluation
from cdc_assets.orchestration.internals import (
    SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION,
    AssetCheckExecutionRecordStatus,
    PartitionKeyFilter,
)
from cdc_assets.orchestration.metadata import dagster_values

SNAPSHOT, UNCHANGED = "iceberg_snapshot", "unchanged_since_last_made"
FINGERPRINT = "fingerprint"
# An output with this mark gets no materialization. Without it Dagster would record one more of each
# day of the run when the step ends.
_RECORDED = {SYSTEM_METADATA_KEY_SOURCE_ASSET_OBSERVATION: True}
_PAGE = 500  # records per query

Metadata = Mapping[str, Any]


@dataclass(frozen=True)
class DayRecord:
    """The records of an asset's day; without `metadata` only its findings."""

    key: dg.AssetKey
    day: date
    says: str = ""
    metadata: Metadata | None = None
    findings: Sequence[Finding] = field(default_factory=tuple)

    def events(
        self, context: dg.AssetExecutionContext, checks: Sequence[Check]
    ) -> Iterator[dg.AssetMaterialization | dg.AssetCheckEvaluation]:
        """The events for the step to yield; logs what the day says.

        An `AssetCheckResult` would have no partition in a run of several days.
        """
        day = self.day.isoformat()
        if self.metadata is not None:
            context.log.info(f"{self.key.to_user_string()} {day}: {self.says}")
            yield dg.AssetMaterialization(
                self.key, partition=day, metadata=dagster_values(self.metadata)
            )
        for finding in self.findings:
            yield evaluation(finding, self.key, checks, self.day)


def result(key: dg.AssetKey) -> dg.MaterializeResult[Any]:
    """The result of an asset whose days are recorded."""
    return dg.MaterializeResult(asset_key=key, metadata=_RECORDED)


def leave_out_missing_checks(context: dg.AssetExecutionContext) -> None:
    """Filter a wrong warning out of the log: evaluations are no outputs of the step."""
    context.log.addFilter(_is_no_omission)


def _is_no_omission(record: logging.LogRecord) -> bool:
    return "did not yield or return expected outputs" not in record.getMessage()


def recorded(
    context: dg.AssetExecutionContext, key: dg.AssetKey, days: Sequence[date]
) -> dict[date, Metadata]:
    """The metadata of the newest materialization of each day that has one."""
    instance = context.instance
    newest = instance.get_latest_storage_id_by_partition(
        key, dg.DagsterEventType.ASSET_MATERIALIZATION, set(map(str, days))
    )
    ids = sorted(newest.values())
    pages = [ids[n : n + _PAGE] for n in range(0, len(ids), _PAGE)]
    events = [
        record.asset_materialization
        for page in pages
        for record in instance.fetch_materializations(
            dg.AssetRecordsFilter(asset_key=key, storage_ids=page), limit=_PAGE
        ).records
    ]
    return {date.fromisoformat(e.partition): e.metadata for e in events if e and e.partition}


def version_metadata(version: Version) -> dict[str, Any]:
    """The metadata that identifies the version of a day that is recorded anew."""
    return {
        SNAPSHOT: str(version.snapshot),
        FINGERPRINT: version.fingerprint,
        UNCHANGED: False,
    }


def as_recorded(version: Version, known: Metadata | None) -> dict[str, Any] | None:
    """The recorded metadata if it is of this version, else None."""
    expected = {SNAPSHOT: str(version.snapshot), FINGERPRINT: version.fingerprint}
    if known is None or any(n not in known or known[n].value != v for n, v in expected.items()):
        return None
    return {**known, UNCHANGED: True}


_ENDED = {AssetCheckExecutionRecordStatus.SUCCEEDED, AssetCheckExecutionRecordStatus.FAILED}


def newest_evaluations(
    instance: dg.DagsterInstance, keys: Sequence[dg.AssetCheckKey], day: date
) -> dict[dg.AssetCheckKey, dg.AssetCheckEvaluation]:
    """The newest ended evaluation of each check on a day, if it has one."""
    storage, partition = instance.event_log_storage, PartitionKeyFilter(key=day.isoformat())
    found = {}
    for key, record in storage.get_latest_asset_check_execution_by_key(keys, partition).items():
        ended = [record]
        if record.status not in _ENDED:  # such as in this run
            ended = list(
                storage.get_asset_check_execution_history(
                    key, limit=1, status=_ENDED, partition_filter=partition
                )
            )
        event = ended[0].event.dagster_event if ended and ended[0].event else None
        if event is not None:
            found[key] = event.asset_check_evaluation_data
    return found
