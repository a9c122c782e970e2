"""The check of a landed day: each partition's offsets follow one another."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from datetime import date

from pyspark.sql import Row

from cdc_assets.cdc.findings import Check, Finding, Severity, fault_finding
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.landing.figures import LandedFigures, Offsets
from cdc_assets.cdc.landing.kafka_plan import ONE_DAY, KafkaDay, TopicPartition
from cdc_assets.cdc.landing.source import DERIVED_OFFSETS, LOST, TABLE

CHECKS = (
    Check(
        "offsets_contiguous", "Each partition's offsets follow one another, also from day to day."
    ),
)


def landing_findings(
    lake: Lake, source: str, days: Sequence[date], figures: LandedFigures
) -> dict[date, list[Finding]]:
    """`offsets_contiguous` of some days: gaps, repeats, and the step from the day before.

    Args:
        lake: the lake.
        source: the source.
        days: in order.
        figures: the figures of these days.
    """
    landed = figures.offsets
    commits = lake.day_commits(source, "landing")
    recorded = {day: KafkaDay.from_inputs(day, commit.inputs) for day, commit in commits.items()}
    findings = {}
    for day in days:
        day_before, offsets = day - ONE_DAY, landed.get(day, {})
        warnings: list[str] = []
        if (kafka_day := recorded.get(day)) is not None:
            faults = _kafka_faults(kafka_day, recorded.get(day_before), offsets)
            if TABLE in commits[day].inputs:
                warnings = _gaps(kafka_day, offsets)
        elif day in commits and DERIVED_OFFSETS in commits[day].inputs:
            faults, warnings = [], _overlaps(offsets)
        else:
            faults = _file_faults(offsets, landed.get(day_before, {}))
        if recorded.get(day) is None and day in commits:
            faults += _given_up(commits[day].inputs.get(LOST, {}))
        findings[day] = [_finding(faults, warnings)]
    return findings


def _finding(faults: Sequence[str], warnings: Sequence[str]) -> Finding:
    """What a copy of Kafka can't tell from a fault is a warning."""
    found = fault_finding("offsets_contiguous", [*faults, *warnings])
    if faults or not warnings:
        return found
    return replace(
        found,
        severity=Severity.WARN,
        description="Offsets of a copy: a gap may be a lost record, a compacted one or a "
        "transaction's mark; an overlap of files may be the same records twice.",
    )


def _gaps(day: KafkaDay, offsets: Offsets) -> list[str]:
    """The partitions in which a copy lacks offsets."""
    found = []
    for place, (start, end) in sorted(day.ranges.items()):
        has = offsets[place].offsets if place in offsets else 0
        if missing := end - start - has:
            found.append(f"{_text(place)}: {missing} of the offsets {start} to {end - 1} missing")
    return found


def _overlaps(offsets: Offsets) -> list[str]:
    """The partitions in which files overlap, by offsets that are counted from their starts.

    Gaps say nothing: offsets without a record, such as tombstones, are not in the files.
    """
    return [
        f"{_text(place)}: {row.with_offset - row.offsets} offsets are in two files or more"
        for place, row in sorted(offsets.items())
        if row.with_offset > row.offsets
    ]


def _file_faults(offsets: Offsets, before: Offsets) -> list[str]:
    """Faults of a day landed from files, by its offsets and those of the day before."""
    faults = []
    for place, row in sorted(offsets.items()):
        where = _text(place)
        if missing := row["last"] - row["first"] + 1 - row.offsets:
            faults.append(f"{where}: {missing} offsets missing in {row['first']}…{row['last']}")
        if row.with_offset > row.offsets:
            faults.append(_landed_twice(where, row))
        old = before.get(place)
        if old is not None and row["first"] != old["last"] + 1:
            faults.append(
                f"{where}: starts at {row['first']}, the day before ended at {old['last']}"
            )
    return faults


def _kafka_faults(day: KafkaDay, before: KafkaDay | None, offsets: Offsets) -> list[str]:
    """Faults of a day landed from Kafka, by the offsets that were recorded with it.

    Missing offsets are no fault: compaction and transactions leave gaps.
    """
    faults = []
    for place, (start, end) in sorted(day.ranges.items()):
        where, row = _text(place), offsets.get(place)
        if row is not None and not start <= row["first"] <= row["last"] < end:
            faults.append(
                f"{where}: has {row['first']}…{row['last']}, recorded are {start} to {end - 1}"
            )
        if row is not None and row.with_offset > row.offsets:
            faults.append(_landed_twice(where, row))
        if lost := day.lost.get(place):
            faults.append(f"{where}: {lost[0]} to {lost[1] - 1} were given up with --allow-loss")
        if before is not None and place in before.ranges:
            known = before.range_of(place, day.topics[place[0]].topic_id)
            if known is None:
                faults.append(f"{where}: the topic was made again since the day before")
            elif known[1] != start:
                faults.append(f"{where}: starts at {start}, the day before ended at {known[1]}")
    unknown = [place for place in offsets if place not in day.ranges]
    return faults + [f"{_text(place)}: landed, but not recorded" for place in unknown]


def _landed_twice(where: str, row: Row) -> str:
    return f"{where}: {row.with_offset - row.offsets} records landed twice"


def _given_up(lost: Mapping[str, Sequence[int]]) -> list[str]:
    return [
        f"{file}: {had - has} of {had} records were given up with --allow-loss"
        for file, (had, has) in lost.items()
    ]


def _text(place: TopicPartition) -> str:
    return f"{place[0]} [{place[1]}]"
