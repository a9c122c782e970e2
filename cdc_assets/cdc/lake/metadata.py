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


class ReadOnce:
    """:class:`LakeMetadata` that reads each table once, at the first call."""

    def __init__(self, lake: LakeMetadata) -> None:
        self._lake = lake
        self._commits: dict[tuple[str, str], DayCommits] = {}
        self._states: dict[tuple[str, str], TableState | None] = {}

    def day_commits(self, source: str, stage: str) -> DayCommits:
        if (source, stage) not in self._commits:
            self._commits[source, stage] = self._lake.day_commits(source, stage)
        return self._commits[source, stage]

    def table_state(self, source: str, table: str) -> TableState | None:
        if (source, table) not in self._states:
            self._states[source, table] = self._lake.table_state(source, table)
        return self._states[source, table]


class PyIcebergMetadata(ReadOnce):
    """:class:`LakeMetadata` without Spark, from the catalog in cdc.yaml, read once."""

    def __init__(self, config: Config) -> None:
        super().__init__(_PyIcebergReader(config))


class _PyIcebergReader:
    def __init__(self, config: Config) -> None:
        self._config = config

    def day_commits(self, source: str, stage: str) -> DayCommits:
        return DayCommits.recorded_in(self._state(own_table(source, stage)))

    def table_state(self, source: str, table: str) -> TableState | None:
        return self._state(state_table(self._config, source, table))

    def _state(self, table: LakeTable) -> TableState | None:
        try:
            return table_state(open_table(self._config, table))
        except MissingTableError:
            return None


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
