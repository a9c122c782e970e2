"""Metadata of stage and state tables; no row is read.

:class:`LakeMetadata` is what a stage needs to find its stale days.
:class:`cdc_assets.cdc.lake.catalog.Lake` implements it with Spark, :class:`PyIcebergMetadata`
without.
"""

from __future__ import annotations

from datetime import date
from typing import TYPE_CHECKING, Protocol

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import MissingTableError
from cdc_assets.cdc.lake.commits import DayCommit, DayCommits, Snapshot, TableState
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.tables import LakeTable, own_table, state_table

if TYPE_CHECKING:
    from pyiceberg.table import Table


class LakeMetadata(Protocol):
    """The recorded days of stages, and the state of tables."""

    def day_commits(self, source: str, stage: str) -> DayCommits:
        """The latest commit of each day of a stage table; empty if there is no table.

        Args:
            source: the source's name.
            stage: one of the source's own tables, such as `landing`.

        Raises:
            LakeError: the catalog or the table's metadata can't be read.
        """
        ...

    def table_state(self, source: str, table: str) -> TableState | None:
        """References, snapshots and properties of a state table; None if there is no table.

        Args:
            source: the source's name.
            table: ``namespace.table``, as the configuration names it.

        Raises:
            LakeError: the catalog or the table's metadata can't be read.
        """
        ...


class PyIcebergMetadata:
    """:class:`LakeMetadata` without Spark, from the catalog in cdc.yaml.

    An instance reads each table once and does not see later commits.
    """

    def __init__(self, config: Config) -> None:
        self._config = config
        self._read: dict[LakeTable, TableState | None] = {}

    def day_commits(self, source: str, stage: str) -> DayCommits:
        """As :meth:`LakeMetadata.day_commits`."""
        return DayCommits.recorded_in(self._state(own_table(source, stage)))

    def table_state(self, source: str, table: str) -> TableState | None:
        """As :meth:`LakeMetadata.table_state`."""
        return self._state(state_table(self._config, source, table))

    def _state(self, table: LakeTable) -> TableState | None:
        if table not in self._read:
            try:
                self._read[table] = table_state(open_table(self._config, table))
            except MissingTableError:
                self._read[table] = None
        return self._read[table]


def table_state(table: Table) -> TableState:
    """The metadata of a table that PyIceberg has opened."""
    snapshots = {
        s.snapshot_id: Snapshot(
            s.snapshot_id,
            dict(s.summary.additional_properties) if s.summary else {},
            s.timestamp_ms,
            s.parent_snapshot_id,
        )
        for s in table.snapshots()
    }
    refs = {name: ref.snapshot_id for name, ref in table.refs().items()}
    return TableState(refs, snapshots, table.properties, table.location())


def day_commits(table: Table) -> dict[date, DayCommit]:
    """The latest commit of each day of a stage table that PyIceberg has opened."""
    return DayCommits.recorded_in(table_state(table))


def made_days(config: Config, table: LakeTable) -> list[date]:
    """The days of a table that were made, oldest first, also those without rows.

    Raises:
        MissingTableError: no day was made.
        LakeError: the catalog or the table's metadata can't be read.
    """
    return table.kind.days(table_state(open_table(config, table)))
