"""Files that repeat another file of their partition, as sinks write them after a rebalance."""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Iterable, Mapping, Sequence
from datetime import date

from pyspark.sql import DataFrame, Row
from pyspark.sql import functions as F

from cdc_assets.cdc.sqltext import local_frame

COPIED = "records_in_copied_files"
_PARTITION = ("landing_date", "topic", "partition")
_DayFile = tuple[date, str]


def without_copies(rows: DataFrame) -> tuple[DataFrame, Mapping[date, Mapping[str, int]]]:
    """Leave out each file whose records all stand, in that order, in another of its partition.

    A job finds the files of a day whose offsets overlap; where there are any, a second one compares
    their records. Equal records in files that do not overlap were sent twice: they stay.

    Args:
        rows: the records of some days, with the columns of `LANDING`.

    Returns:
        The rows that stay, and by day the number of others.
    """
    overlapping = _overlapping(rows)
    if not overlapping:
        return rows, {}
    spark = rows.sparkSession
    names = ["landing_date", "file"]
    found = local_frame(spark, overlapping, "landing_date date, file string")
    copies = _copies(rows.join(F.broadcast(found), names, "left_semi"))
    if not copies:
        return rows, {}
    counts: dict[date, dict[str, int]] = defaultdict(lambda: {COPIED: 0})
    for (day, _), records in copies.items():
        counts[day][COPIED] += records
    left_out = local_frame(spark, list(copies), "landing_date date, file string")
    return rows.join(F.broadcast(left_out), names, "left_anti").select(*rows.columns), dict(counts)


def _overlapping(rows: DataFrame) -> list[_DayFile]:
    """The files whose offsets overlap those of another file of their partition and day."""
    spans = (
        rows.where("file IS NOT NULL")
        .groupBy(*_PARTITION, "file")
        .agg(F.min("offset").alias("first"), F.max("offset").alias("last"))
        .orderBy(*_PARTITION, "first", "file")
        .collect()
    )
    found: dict[_DayFile, None] = {}
    furthest: Row | None = None
    for span in spans:
        is_same = furthest is not None and all(furthest[n] == span[n] for n in _PARTITION)
        if furthest is not None and is_same and span["first"] <= furthest["last"]:
            for file in (furthest, span):
                found[file.landing_date, file.file] = None
        if furthest is None or not is_same or span["last"] > furthest["last"]:
            furthest = span
    return list(found)


def _copies(rows: DataFrame) -> dict[_DayFile, int]:
    """The files that repeat another one, with the number of their records."""
    record = F.struct("offset", F.xxhash64("key", "value").alias("content"))
    files = (
        rows.groupBy(*_PARTITION, "file")
        .agg(F.array_sort(F.collect_list(record)).alias("records"))
        .selectExpr(*_PARTITION, "file", "transform(records, r -> r.content) AS records")
        .collect()
    )
    by_partition: dict[tuple[date, str, int], list[Row]] = defaultdict(list)
    for file in files:
        by_partition[file.landing_date, file.topic, file.partition].append(file)
    copies: dict[_DayFile, int] = {}
    for in_partition in by_partition.values():
        kept: list[Sequence[int]] = []
        # The longest first: of two equal files, that with the lower name stays.
        for file in sorted(in_partition, key=lambda f: (-len(f.records), f.file)):
            if any(_stands_in(file.records, other) for other in kept):
                copies[file.landing_date, file.file] = len(file.records)
            else:
                kept.append(file.records)
    return copies


def _stands_in(records: Iterable[int], other: Iterable[int]) -> bool:
    """Whether all records stand, in their order, in the other ones."""
    rest = iter(other)
    return all(record in rest for record in records)
