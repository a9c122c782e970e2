"""Branches and tags of an Iceberg table, changed within one of Java's transactions."""

from __future__ import annotations

from typing import Any

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import ConcurrentRunError
from cdc_assets.cdc.lake.commits import (
    EMPTY,
    RETYPED,
    DayBranch,
)


def start_branch(transaction: Any, branch: DayBranch) -> None:
    """Create a day's branch at its base, or empty."""
    refs, start = transaction.table().refs(), branch.base
    if start is None and refs.containsKey(EMPTY):
        start = refs.get(EMPTY).snapshotId()
    if start is not None:
        transaction.manageSnapshots().createBranch(branch.name, start).commit()
        return
    # A branch needs a snapshot, and a new table has none.
    transaction.newAppend().toBranch(branch.name).commit()
    empty = transaction.table().refs().get(branch.name).snapshotId()
    transaction.manageSnapshots().createTag(EMPTY, empty).commit()


def retype(transaction: Any, branch: DayBranch) -> None:
    """Give the new fields of a branch the names of those whose place they take.

    Raises:
        ConcurrentRunError: another run of the day took one of them away.
    """
    update, schema = transaction.updateSchema(), transaction.table().schema()
    for retyped in branch.retyped:
        if schema.findField(retyped.stored) is None:
            raise ConcurrentRunError(branch.table, [branch.day])
        update = update.deleteColumn(retyped.name).renameColumn(retyped.stored, retyped.name)
    update.commit()
    transaction.updateProperties().set(RETYPED, str(branch.day)).commit()


def move_main(change: Any, refs: Any, snapshot: int) -> Any:
    """Add to a change of references that main is at a snapshot."""
    if refs.containsKey("main"):
        return change.replaceBranch("main", snapshot)
    return change.createBranch("main", snapshot)


def without_references(config: Config) -> str:
    """The message for a catalog that drops branches and tags."""
    kind = config.lake.catalog.get("type") or config.lake.catalog.get("catalog-impl", "")
    return (
        f"the catalog ({kind}) does not keep branches and tags of Iceberg tables, in which the "
        "days are (Nessie drops them, and has branches of its own). Catalogs that keep them are "
        "JDBC, Hive, Glue, and REST servers such as Polaris and Lakekeeper: name another one in "
        "lake.catalog"
    )
