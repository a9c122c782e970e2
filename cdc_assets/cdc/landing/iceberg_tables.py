"""Iceberg tables that have a copy of Kafka's records, in the lake's catalog or another one."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from typing import TYPE_CHECKING

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import CdcError, LandingError, first_line
from cdc_assets.cdc.lake.pyiceberg_catalog import any_catalog, catalog_settings
from cdc_assets.cdc.landing.source_tables import Appended, Seen
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.places import CATALOG

if TYPE_CHECKING:
    from pyiceberg.catalog import Catalog
    from pyiceberg.table import Table
    from pyspark.sql import DataFrame, SparkSession


@dataclass(frozen=True)
class IcebergTable:
    """A table that records are read from, as of its newest snapshot."""

    parts: tuple[str, ...]  # the catalog first
    opened: Table
    timestamp: str  # the column of Kafka's timestamp, with dots where it is in a struct

    @property
    def identifier(self) -> str:
        """Its name in SQL."""
        return quote(*self.parts)

    @property
    def name(self) -> str:
        """Its name as it is shown, and recorded."""
        return ".".join(self.parts)

    @property
    def topic(self) -> str:
        """Its last part, which is the topic where each topic has a table."""
        return self.parts[-1]

    @property
    def seen(self) -> Seen:
        """The newest snapshot."""
        found = self.opened.current_snapshot()
        if found is None:
            return Seen(None, 0, 0)
        return Seen(found.snapshot_id, found.sequence_number or 0, found.timestamp_ms)

    @property
    def records(self) -> int:
        """How many rows it has, by its newest snapshot."""
        found = self.opened.current_snapshot()
        said = found.summary.additional_properties if found and found.summary else {}
        return int(said.get("total-records", 0))

    @property
    def has_times(self) -> bool:
        """Whether the statistics of all files say the times of their records."""
        found = self.opened.current_snapshot()
        field = self.opened.schema().find_field(self.timestamp).field_id
        return found is None or all(
            field in entry.data_file.lower_bounds
            for manifest in found.manifests(self.opened.io)
            if manifest.content == 0
            for entry in manifest.fetch_manifest_entry(self.opened.io)
            if entry.data_file.record_count
        )

    def read(self, spark: SparkSession, since_ms: int | None) -> DataFrame | None:
        """Its rows at its newest snapshot; statistics say which are needed."""
        snapshot = self.seen.snapshot
        if snapshot is None:
            return None
        return spark.read.option("versionAsOf", str(snapshot)).table(self.identifier)

    def appended_since(self, seen: Seen) -> Iterator[Appended]:
        """The files that were added after a snapshot, by the statistics of their records' times.

        Files that only hold what others held, as compaction writes them, are left out, as are
        files without statistics.
        """
        from pyiceberg.conversions import from_bytes
        from pyiceberg.table.snapshots import Operation
        from pyiceberg.types import PrimitiveType

        current = self.opened.current_snapshot()
        if current is None or current.snapshot_id == seen.snapshot:
            return
        field = self.opened.schema().find_field(self.timestamp)
        assert isinstance(field.field_type, PrimitiveType)
        snapshots = {s.snapshot_id: s for s in self.opened.snapshots()}
        for manifest in current.manifests(self.opened.io):
            if manifest.content != 0 or 0 < manifest.sequence_number <= seen.sequence:
                continue
            for entry in manifest.fetch_manifest_entry(self.opened.io):
                by = snapshots.get(entry.snapshot_id or 0)
                added = Seen(
                    entry.snapshot_id, entry.sequence_number or 0, by.timestamp_ms if by else 0
                )
                if by and by.summary and by.summary.operation == Operation.REPLACE:
                    continue
                if not added.is_newer(seen):
                    continue
                low = entry.data_file.lower_bounds.get(field.field_id)
                high = entry.data_file.upper_bounds.get(field.field_id)
                if low is None or high is None:
                    continue
                first, last = (int(from_bytes(field.field_type, b)) // 1000 for b in (low, high))
                yield Appended(added, first, last)


def iceberg_tables(config: Config, source: str, timestamp: str) -> list[IcebergTable]:
    """The tables that `landing.table` of a source names, in the order of their names.

    Raises:
        LandingError: there is none, its catalog can't be read, or it lacks the timestamp.
    """
    landing = config.source(source).landing
    path = landing.table_path
    assert path is not None
    named = path.namespace[0]
    is_catalog = named == CATALOG or bool(catalog_settings(config, named))
    catalog_name = named if is_catalog else CATALOG
    namespace = path.namespace[1:] if is_catalog else path.namespace
    try:
        catalog = any_catalog(config, catalog_name)
        listed = sorted(_names(catalog, namespace) if path.is_pattern else [path.table])
        names = [name for name in listed if path.matches(name)]
        opened = {name: catalog.load_table((*namespace, name)) for name in names}
    except CdcError:
        raise
    except Exception as error:  # each catalog has a library and errors of its own
        raise LandingError(
            source,
            f"the table {landing.table} can't be opened: {type(error).__name__}: "
            f"{first_line(error)}. See sources.{source}.landing.table, and that its catalog "
            f"({catalog_name}) is up",
        ) from error
    if not opened:
        raise LandingError(
            source,
            f"no table matches {landing.table}; the namespace has {', '.join(listed) or 'none'}. "
            f"Correct sources.{source}.landing.table",
        )
    found = [
        IcebergTable((catalog_name, *namespace, name), table, timestamp)
        for name, table in opened.items()
    ]
    for table in found:
        _refuse_without(source, table)
    return found


def _names(catalog: Catalog, namespace: tuple[str, ...]) -> list[str]:
    return [identifier[-1] for identifier in catalog.list_tables(namespace)]


def _refuse_without(source: str, table: IcebergTable) -> None:
    """Refuse a table without the timestamp by which its days are cut."""
    from pyiceberg.types import TimestampType, TimestamptzType

    names = [field.name for field in table.opened.schema().fields]
    try:
        kind = table.opened.schema().find_type(table.timestamp)
    except ValueError:
        kind = None
    if not isinstance(kind, (TimestampType, TimestamptzType)):
        got = "is missing" if kind is None else f"is {kind}, expected timestamp"
        raise LandingError(
            source,
            f"{table.name}: the column {table.timestamp} {got}; it has {', '.join(names)}. Say "
            "which column has Kafka's timestamp: landing: {table: …, columns: {timestamp: <name>}}",
        )
