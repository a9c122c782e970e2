"""The partition spec and the sort order of a table, which Iceberg evolves: no file is touched.

What is written from then on follows them; compaction writes the rest.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cdc_assets.cdc.config import Layout, Transform
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import quote
from cdc_assets.cdc.places import CATALOG
from cdc_assets.cdc.sqltext import Sql

LAYOUT = "cdc.layout"  # table property: the layout that it was given, as JSON
COMPACTED = "cdc.layout-compacted"  # table property: the layout that all its files have
# Iceberg refuses a column that is called as a partition is: these are of no source.
_PREFIX = "_cdc_"


def layout_text(layout: Layout) -> str:
    """The layout as the table's property has it."""
    said = {
        "partition_by": list(map(str, layout.partitions)),
        "sort_by": list(map(str, layout.order)),
    }
    return json.dumps(said, ensure_ascii=False)


NO_LAYOUT = layout_text(Layout())


def layout_of(properties: Mapping[str, str]) -> str:
    """The layout that a table was given, as JSON."""
    return properties.get(LAYOUT, NO_LAYOUT)


def set_layout(lake: Lake, identifier: str, layout: Layout) -> None:
    """Give a table other partitions and another order, in one commit.

    Raises:
        Py4JJavaError: Iceberg has no such transform of the column's type.
    """

    def commit() -> None:
        transaction = lake.handle(identifier).newTransaction()
        _update_spec(lake, transaction, layout)
        _update_order(lake, transaction, layout)
        properties = transaction.updateProperties().set(LAYOUT, layout_text(layout))
        for way in ("", "merge.", "delete."):
            mode = "hash" if layout.partitions else "none"
            properties = properties.set(f"write.{way}distribution-mode", mode)
        properties.commit()
        transaction.commitTransaction()

    with_retry(commit)


def partition_value(transform: Transform, column: Sql) -> Sql:
    """What a transform makes of a column: Iceberg's functions, which its scans know."""
    if transform.name == "identity":
        return column
    number = "" if transform.number is None else f"{transform.number}, "
    return f"{quote(CATALOG)}.system.{transform.name}({number}{column})"


def _update_spec(lake: Lake, transaction: Any, layout: Layout) -> None:
    update = transaction.updateSpec()
    for field in transaction.table().spec().fields():
        update = update.removeField(field.name())
    for transform in layout.partitions:
        number = "" if transform.number is None else f"_{transform.number}"
        name = f"{_PREFIX}{transform.column}_{transform.name}{number}"
        update = update.addField(name, _term(lake, transform))
    update.commit()


def _update_order(lake: Lake, transaction: Any, layout: Layout) -> None:
    jvm: Any = lake.spark._jvm
    nulls = jvm.org.apache.iceberg.NullOrder
    update = transaction.replaceSortOrder()
    for field in layout.order:
        term = _term(lake, field.term)
        if field.is_descending:
            update = update.desc(term, nulls.NULLS_LAST)
        else:
            update = update.asc(term, nulls.NULLS_FIRST)
    update.commit()


def _term(lake: Lake, transform: Transform) -> Any:
    jvm: Any = lake.spark._jvm
    expressions = jvm.org.apache.iceberg.expressions.Expressions
    if transform.number is not None:
        return getattr(expressions, transform.name)(transform.column, transform.number)
    if transform.name == "identity":
        return expressions.ref(transform.column)
    return getattr(expressions, transform.name.removesuffix("s"))(transform.column)
