"""Asset checks of a day, with figures and examples.

A check is evaluated per day, also in a range run, and states the healthy condition. The
audit that stops a bad day runs before publishing, inside the step (see
:mod:`cdc_assets.cdc.state.stage`); these checks describe the published day.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, datetime, timedelta, timezone
from typing import Any

import dagster as dg
from pyspark.sql import Window
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.classify import DESTINATIONS
from cdc_assets.cdc.changes.figures import ChangesFigures
from cdc_assets.cdc.changes.hidden_changes import Statement, hidden_statements
from cdc_assets.cdc.changes.order_facts import Scattered, scattered_keys
from cdc_assets.cdc.changes.reasons import REASONS
from cdc_assets.cdc.changes.stray_tables import (
    Counts,
    shared_topics,
    stray_tables,
    tables_before,
)
from cdc_assets.cdc.config import Config, SourceConfig
from cdc_assets.cdc.earlier_positions import is_earlier_sql
from cdc_assets.cdc.lag import MAX_MS
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.landing.kafka_plan import KafkaDay
from cdc_assets.cdc.made_of import LOST
from cdc_assets.cdc.names import key_in_database
from cdc_assets.cdc.positions import epoch_of, in_epoch, time_in_day
from cdc_assets.cdc.sqltext import case
from cdc_assets.cdc.state.epochs import (
    SourceEpochs,
    begin_in_words,
    instant_text,
    named_instants,
    stream_in_words,
)
from cdc_assets.cdc.state.judge import (
    OutOfOrder,
    epochs_until,
    has_several_streams,
    of_tables,
    overtaken,
    unexplained_falls,
)
from cdc_assets.cdc.state.stage import DayReport
from cdc_assets.orchestration import markdown

AUDIT = "audit"  # metadata of a check whose audit kept a day from being published
ERROR, WARN = dg.AssetCheckSeverity.ERROR, dg.AssetCheckSeverity.WARN


@dataclass(frozen=True)
class Check:
    """A check's name, what it says is true, and how bad it is when it is not."""

    name: str
    description: str
    severity: dg.AssetCheckSeverity = ERROR


LANDING = (
    Check(
        "offsets_contiguous", "Each partition's offsets follow one another, also from day to day."
    ),
)
CHANGES = (
    Check(
        "nothing_lost", "Every landed record is in exactly one of changes, control and quarantine."
    ),
    Check("op_codes_known", "No record was quarantined for its op code.", WARN),
    Check("keys_present", "No record was quarantined for its key.", WARN),
    Check("tables_configured", "Every table in the data is in the configuration.", WARN),
    Check("positions_complete", "Every event carries a complete source position.", WARN),
    Check(
        "positions_in_order",
        "No table's highest position is lower than on the day before, and a key's events of equal "
        "positions stand in one partition.",
        WARN,
    ),
    Check(
        "no_hidden_changes", "No statement that may have changed rows without change events.", WARN
    ),
    Check(
        "columns_protected",
        "Each column that exclude or hash names is in rows of the day: none has another name now.",
    ),
    Check(
        "tables_on_their_topics",
        "No record names another table than all others of its topic.",
        WARN,
    ),
    Check(
        "source_alive",
        "The source sent an event or a heartbeat within max_silence_minutes of the day's end, or "
        "of now.",
        WARN,
    ),
    Check("contract", "The table's columns and types are as documented."),
)
QUARANTINE = (
    Check("records_readable", "No landed record of the day is in quarantine.", WARN),
    Check("contract", "The table's columns and types are as documented."),
)
TABLE = (
    Check(
        "keys_unique",
        "Each key written on this day exists exactly once (audited before publishing).",
    ),
    Check("keys_readable", "Every event's key fits the table's key columns."),
    Check(
        "keys_agree",
        "No row image contradicts the key of its event, and none meets another row at its key.",
        WARN,
    ),
    Check(
        "positions_comparable",
        "Every event's position is made of the same source elements as the table's.",
        WARN,
    ),
    Check("one_database", "Every event is of the database that the table is of."),
    Check("built_on_day_before", "The day was built on the current version of the day before."),
    Check("late_within_window", "No event arrived later than late_days.", WARN),
    Check("values_representable", "Every value fits its column.", WARN),
    Check("schema_compatible", "No column came with a type that its column can't take.", WARN),
    Check(
        "contract",
        "The table has all columns that messages and configuration name, with their types.",
    ),
)
# Those that a table without a key does not have.
OF_KEYS = ("keys_unique", "keys_readable", "keys_agree")
LAG = (Check("lag_within_slo", "The p95 capture lag of each table is within lag_slo_ms.", WARN),)


def specs(asset: dg.AssetKey, checks: Sequence[Check]) -> list[dg.AssetCheckSpec]:
    """Dagster's specs of some checks on an asset."""
    return [dg.AssetCheckSpec(c.name, asset=asset, description=c.description) for c in checks]


@dataclass(frozen=True)
class Finding:
    """What a check found on a day.

    `severity` overrides the check's own; `description` is the finding as a sentence, without values
    of the data.
    """

    name: str
    passed: bool
    metadata: Mapping[str, Any] = field(default_factory=dict)
    severity: dg.AssetCheckSeverity | None = None
    description: str | None = None

    def evaluation(
        self, asset: dg.AssetKey, checks: Sequence[Check], day: date | None = None
    ) -> dg.AssetCheckEvaluation:
        """The finding as Dagster records it; `day` is None of a check that belongs to none."""
        usual = {check.name: check.severity for check in checks}[self.name]
        return dg.AssetCheckEvaluation(
            asset_key=asset,
            check_name=self.name,
            passed=self.passed,
            metadata=dict(self.metadata),
            severity=self.severity or usual,
            description=self.description,
            partition=day.isoformat() if day else None,
        )


def of_table(has_key: bool) -> list[Check]:
    """The checks on a table."""
    return [check for check in TABLE if has_key or check.name not in OF_KEYS]


def landing_findings(lake: Lake, name: str, days: Sequence[date]) -> dict[date, list[Finding]]:
    """`offsets_contiguous` of some days: gaps, repeats, and the step from the day before."""
    if not days:
        return {}
    span = [days[0] - timedelta(days=1), *days]
    rows = (
        lake.stage_days(name, "landing", span)
        .where(F.col("offset").isNotNull())
        .groupBy("landing_date", "topic", "partition")
        .agg(
            F.min("offset").alias("first"),
            F.max("offset").alias("last"),
            F.count("*").alias("records"),
            F.count_distinct("offset").alias("offsets"),
        )
        .collect()
    )
    by_day: dict[date, dict[tuple[str, int], Any]] = {}
    for row in rows:
        by_day.setdefault(row.landing_date, {})[row.topic, row.partition] = row
    commits = lake.day_commits(lake.stage(name, "landing"))
    recorded = {day: KafkaDay.of_inputs(day, commit.inputs) for day, commit in commits.items()}
    findings = {}
    for day in days:
        if (of_kafka := recorded.get(day)) is not None:
            faults = _offset_faults(
                of_kafka, recorded.get(day - timedelta(days=1)), by_day.get(day, {})
            )
            findings[day] = [listed("offsets_contiguous", faults)]
            continue
        before = by_day.get(day - timedelta(days=1), {})
        faults = []
        for (topic, partition), row in sorted(by_day.get(day, {}).items()):
            where = f"{topic} [{partition}]"
            if missing := row["last"] - row["first"] + 1 - row.offsets:
                faults.append(f"{where}: {missing} offsets missing in {row['first']}…{row['last']}")
            if row.records > row.offsets:
                faults.append(f"{where}: {row.records - row.offsets} records landed twice")
            old = before.get((topic, partition))
            if old is not None and row["first"] != old["last"] + 1:
                faults.append(
                    f"{where}: starts at {row['first']}, the day before ended at {old['last']}"
                )
        if day in commits:
            faults += _given_up(commits[day].inputs.get(LOST, {}))
        findings[day] = [listed("offsets_contiguous", faults)]
    return findings


def _given_up(lost: Mapping[str, Sequence[int]]) -> list[str]:
    return [
        f"{file}: {had - has} of {had} records were given up with --allow-loss"
        for file, (had, has) in lost.items()
    ]


def _offset_faults(
    day: KafkaDay, before: KafkaDay | None, rows: Mapping[tuple[str, int], Any]
) -> list[str]:
    """Faults of a day landed from Kafka, by the offsets that were recorded with it.

    Offsets without a record inside them are none: compaction and transactions leave such.
    """
    faults = []
    for place, (start, end) in sorted(day.ranges.items()):
        where = f"{place[0]} [{place[1]}]"
        row = rows.get(place)
        if row is not None and not start <= row["first"] <= row["last"] < end:
            faults.append(
                f"{where}: has {row['first']}…{row['last']}, recorded are {start} to {end - 1}"
            )
        if row is not None and row.records > row.offsets:
            faults.append(f"{where}: {row.records - row.offsets} records landed twice")
        if lost := day.lost.get(place):
            faults.append(f"{where}: {lost[0]} to {lost[1] - 1} were given up with --allow-loss")
        if before is not None and place in before.ranges:
            known = before.range_of(place, day.topics[place[0]].topic_id)
            if known is None:
                faults.append(f"{where}: the topic was made again since the day before")
            elif known[1] != start:
                faults.append(f"{where}: starts at {start}, the day before ended at {known[1]}")
    unknown = [f"{t} [{p}]: landed, but not recorded" for t, p in rows if (t, p) not in day.ranges]
    return faults + unknown


def listed(name: str, faults: Sequence[str]) -> Finding:
    """A finding that passes where there is no fault; the first faults are its examples."""
    metadata: dict[str, Any] = {"faults": len(faults)}
    if faults:
        metadata["examples"] = dg.MetadataValue.md(markdown.bullets(faults[:20]))
    return Finding(name, not faults, metadata)


def changes_findings(
    lake: Lake,
    name: str,
    figures: Mapping[date, ChangesFigures],
    examples: Mapping[date, Sequence[Any]],
) -> dict[date, list[Finding]]:
    """The findings of some days of changes.

    Args:
        figures: as :func:`~cdc_assets.cdc.changes.figures.day_figures` gives them.
        examples: as :func:`quarantine_examples` gives them.
    """
    source, days = lake.config.source(name), sorted(figures)
    alive = _newest_record(lake, name, days)
    epochs = SourceEpochs()
    fallen, incomplete = _position_faults(lake, name, days, epochs)
    falls: dict[date, list[OutOfOrder]] = {}
    if source.finds_epochs and (fallen or _may_begin(lake, name, figures.values())):
        epochs = epochs_until(lake, name, days[-1])
        fallen, incomplete = _position_faults(lake, name, days, epochs)
        for day in days:
            found = unexplained_falls(lake, name, day, epochs) if figures[day].falls else []
            falls[day] = [*found, *overtaken(lake, name, day, epochs)]
    scattered = scattered_keys(
        lake.spark.table(lake.stage(name, "changes")),
        {day: figures[day].scattered for day in days if figures[day].scattered},
        source.shows_values,
    )
    statements = hidden_statements(lake, name, days)
    findings = {}
    for day in days:
        of_day = figures[day]
        counted = {table: of_day.records(table) for table in DESTINATIONS}
        written = {table: of_day.written.get(table, 0) for table in DESTINATIONS}
        reached, further = sum(written.values()), of_day.further_rows
        extra = {
            table: count
            for table, count in of_day.tables.items()
            if table is not None and not source.knows(table)
        }
        findings[day] = [
            Finding(
                "nothing_lost",
                reached == of_day.landed + further and counted == written,
                {"landed": of_day.landed, "reached": reached}
                | ({"further_rows_of_records": further} if further else {})
                | ({} if counted == written else {"counted": counted, "written": written}),
            ),
            _reasons_finding("op_codes_known", _OP_REASONS, source, of_day, examples.get(day, [])),
            _reasons_finding("keys_present", _KEY_REASONS, source, of_day, examples.get(day, [])),
            Finding(
                "tables_configured",
                not extra,
                {"tables": len(extra)} | ({"events": _largest(extra)} if extra else {}),
            ),
            listed("positions_complete", incomplete.get(day, [])),
            _order_finding(
                fallen.get(day, []),
                scattered.get(day, []),
                falls.get(day, []),
                epochs,
                day,
            ),
            _statements_finding(statements.get(day, [])),
            _protected_finding(source, of_day.unprotected),
            _topics_finding(lake, name, day, of_day.topics),
            _alive_finding(lake.config, source, day, alive.get(day)),
        ]
    return findings


_OP_REASONS, _KEY_REASONS = ("missing_op", "unknown_op"), ("malformed_key", "missing_key")
_EXAMPLES = 5  # of a reason and day


def _reasons_finding(
    name: str,
    reasons: Sequence[str],
    source: SourceConfig,
    of_day: ChangesFigures,
    examples: Sequence[Any],
) -> Finding:
    found = {reason: of_day.quarantine.get(reason, 0) for reason in reasons}
    count = sum(found.values())
    metadata: dict[str, Any] = dict(found)
    if count:
        lines = [
            f"{e.topic} [{e.partition}] {e.offset}: {e.reason}"
            + (f", {e.detail}" if e.detail else "")
            for e in examples
            if e.reason in found
        ]
        metadata["examples"] = dg.MetadataValue.md(markdown.bullets(lines))
    return _quarantine_finding(name, source, count, of_day.landed, found, metadata)


def quarantine_findings(
    source: SourceConfig, figures: Mapping[date, ChangesFigures]
) -> dict[date, list[Finding]]:
    """`records_readable` of some days: how much is in quarantine, why, and what to do.

    Args:
        figures: as :func:`~cdc_assets.cdc.changes.figures.day_figures` gives them.
    """
    findings = {}
    for day, of_day in figures.items():
        landed = of_day.landed
        found = {**dict.fromkeys(REASONS, 0), **of_day.quarantine}
        count, limit = sum(found.values()), source.quarantine_error_count
        metadata: dict[str, Any] = {
            "quarantined": count,
            "landed": landed,
            "percent": round(_percent(count, landed), 3),
            "error_above_percent": source.quarantine_error_percent,
            "error_above_count": "none" if limit is None else limit,
            **{f"reason_{reason}": records for reason, records in found.items()},
        }
        if count:
            lines = [
                f"- {reason.code}, {found[reason.code]} records: {reason.remedy}"
                for reason in REASONS.values()
                if found[reason.code]
            ]
            metadata["what_to_do"] = dg.MetadataValue.md("\n".join(lines))
        findings[day] = [
            _quarantine_finding("records_readable", source, count, landed, found, metadata)
        ]
    return findings


def _quarantine_finding(
    name: str,
    source: SourceConfig,
    count: int,
    landed: int,
    reasons: Mapping[str, int],
    metadata: Mapping[str, Any],
) -> Finding:
    """Passes without a record; some are a warning, more than the source's limits an error."""
    percent, limit = _percent(count, landed), source.quarantine_error_count
    # One bad message is no share to speak of, however few landed beside it.
    is_share = count > 1 or source.quarantine_error_percent == 0
    is_error = is_share and percent > source.quarantine_error_percent
    is_error = is_error or (limit is not None and count > limit)
    listed_reasons = ", ".join(f"{reason} {n}" for reason, n in reasons.items() if n)
    limits = f"{source.quarantine_error_percent:g} %" + (
        f" or {limit}" if limit is not None else ""
    )
    description = (
        f"{count} of {landed} landed records ({percent:.3g} %) are in quarantine: "
        f"{listed_reasons}. More than {limits} is an error"
    )
    return Finding(
        name,
        not count,
        metadata,
        severity=ERROR if count and is_error else WARN,
        description=description if count else None,
    )


def _percent(count: int, landed: int) -> float:
    return 100 * count / landed if landed else 0.0


def quarantine_examples(lake: Lake, name: str, days: Sequence[date]) -> dict[date, list[Any]]:
    """Of each day and reason the first: `reason, table_name, topic, partition, offset, detail`.

    `detail`, which may hold a part of a message, is null where the source shows no values.
    """
    shows = lake.config.source(name).shows_values
    detail = F.col("detail") if shows else F.lit(None).cast("string").alias("detail")
    order = Window.partitionBy("landing_date", "reason").orderBy("topic", "partition", "offset")
    shown = ("reason", "table_name", "topic", "partition", "offset")
    rows = (
        lake.stage_days(name, "quarantine", days)
        .select("landing_date", *shown, detail)
        .withColumn("n", F.row_number().over(order))
        .where(F.col("n") <= _EXAMPLES)
        .orderBy("landing_date", "reason", "n")
        .collect()
    )
    return _by_day(rows, lambda row: row)


def _newest_record(lake: Lake, name: str, days: Sequence[date]) -> dict[date, int]:
    """When the newest event or heartbeat of each day came to Kafka, in ms.

    A time of the source that is none (beyond the year 9999) says nothing.
    """
    came = F.coalesce("kafka_ts_ms", "processed_ts_ms", "source_ts_ms").alias("ms")
    is_time = F.col("ms").between(0, MAX_MS)
    both = [
        lake.stage_days(name, table, days).select("landing_date", came).where(is_time)
        for table in ("changes", "control")
    ]
    rows = both[0].unionByName(both[1]).groupBy("landing_date").agg(F.max("ms").alias("ms"))
    return {row.landing_date: row.ms for row in rows.collect() if row.ms is not None}


def _alive_finding(config: Config, source: SourceConfig, day: date, newest: int | None) -> Finding:
    until = min(config.end_of(day), datetime.now(timezone.utc))
    limit = source.max_silence_minutes
    metadata: dict[str, Any] = {"max_silence_minutes": "none" if limit is None else limit}
    if newest is None:
        return Finding("source_alive", limit is None, {**metadata, "newest": "no record"})
    silent = round(max(0.0, until.timestamp() - newest / 1000) / 60, 1)
    metadata |= {"newest": dg.MetadataValue.timestamp(newest / 1000), "silent_minutes": silent}
    return Finding("source_alive", limit is None or silent <= limit, metadata)


def _by_day(rows: Sequence[Any], show: Callable[[Any], Any]) -> dict[date, list[Any]]:
    found: dict[date, list[Any]] = {}
    for row in rows:
        found.setdefault(row.landing_date, []).append(show(row))
    return found


Faults = dict[date, list[str]]


def _position_faults(
    lake: Lake, name: str, days: Sequence[date], epochs: SourceEpochs
) -> tuple[Faults, Faults]:
    """Positions that fell behind the day before's, and positions that lack a part.

    O11: a new server starts its positions afresh; without a reset old rows beat new ones.
    O4: what an event does not say of its place counts as 0.
    """
    lacks = F.col("position").isNotNull() & F.exists("source_elements", lambda e: e.isNull())
    time = time_in_day(lake.config.timezone)
    named = epoch_of("kafka_ts_ms", lake.config.source(name).resets)
    epoch = of_tables(epochs, time) if lake.config.source(name).finds_epochs else named
    # Positions of the earlier form have their epoch in front.
    ranked = F.expr(
        case((is_earlier_sql("position_basis"), "position"), otherwise=in_epoch("position", epoch))
    )
    rows = (
        lake.stage_days(name, "changes", [days[0] - timedelta(days=1), *days])
        .groupBy("table_name", "landing_date", "position_basis")
        .agg(F.max(ranked).alias("newest"), F.count_if(lacks).alias("incomplete"))
        .orderBy("table_name", "position_basis")
        .collect()
    )
    # Positions of different bases can't be compared.
    newest = {
        (r.table_name, r.position_basis, r.landing_date): list(r.newest) for r in rows if r.newest
    }
    fallen: Faults = {}
    for (table, basis, day), position in newest.items():
        before = newest.get((table, basis, day - timedelta(days=1)))
        if before is not None and position < before:
            fallen.setdefault(day, []).append(
                f"{table}: {position} after {before}; if the server is new or restored, say when "
                "in position_reset"
            )
    incomplete: Faults = {}
    for row in rows:
        if row.incomplete:
            incomplete.setdefault(row.landing_date, []).append(
                f"{row.table_name}: {row.incomplete} events lack a part of their position"
            )
    return fallen, incomplete


def _may_begin(lake: Lake, name: str, figures: Iterable[ChangesFigures]) -> bool:
    """May an epoch begin on some days, or what a former stream sends land there?"""
    streams: dict[str, set[str]] = {}
    for of_day in figures:
        if of_day.falls:
            return True
        for table, of_table in of_day.streams.items():
            streams.setdefault(table, set()).update(of_table)
    return any(len(of) > 1 for of in streams.values()) or has_several_streams(lake, name)


def _shown(found: OutOfOrder) -> str:
    said = f"{stream_in_words(found.stream)}: {found.events} events of {found.table}"
    since = f"from {instant_text(found.since_ms)} on"
    if found.is_overtaken:
        return f"{said} {since} count as older, as another connector has followed it"
    return f"{said} {since} lie below earlier ones and repeat none"


def _order_finding(
    fallen: Sequence[str],
    scattered: Sequence[Scattered],
    falls: Sequence[OutOfOrder],
    epochs: SourceEpochs,
    day: date,
) -> Finding:
    """`positions_in_order`: an error where nothing tells the order of events (O8, O11)."""
    faults = [*fallen, *map(_shown, falls)]
    begins = [begin_in_words(begin) for begin in epochs.begins if begin.day == day]
    # What is written overrules what was found.
    instants = named_instants([*epochs.starts, *(found.since_ms for found in falls)])
    for found in scattered:
        cure = "; send all events of a key to one partition: make the table's key the message key"
        faults.append(
            f"{found.table}: {found.keys} keys have events of equal positions in several "
            f"partitions, such as {found.example or 'one'} in {found.lanes}"
            + ("" if found.by_kafka else cure)
        )
    finding = listed("positions_in_order", faults)
    untold = sum(found.keys for found in scattered if not found.by_kafka)
    return replace(
        finding,
        metadata={
            **finding.metadata,
            "keys_in_several_partitions": sum(f.keys for f in scattered),
            **({"new_servers": begins} if begins else {}),
            **({"if_a_new_server_sent_them": f"position_reset: {instants}"} if falls else {}),
        },
        severity=(
            dg.AssetCheckSeverity.ERROR
            if untold or any(found.is_overtaken for found in falls)
            else None
        ),
    )


def _statements_finding(statements: Sequence[Statement]) -> Finding:
    """D21, W2: a table that is gone, and whose rows stay, is an error."""
    found = listed("no_hidden_changes", [str(statement) for statement in statements])
    if not any(statement.leaves_rows for statement in statements):
        return found
    return replace(
        found,
        severity=ERROR,
        description="A table was dropped; its rows stay until they are deleted or truncated.",
    )


def _topics_finding(lake: Lake, name: str, day: date, counts: Counts) -> Finding:
    shared = shared_topics(counts)
    before = tables_before(lake, name, day, shared) if shared else {}
    strays = stray_tables(counts, before)
    found = listed("tables_on_their_topics", [str(stray) for stray in strays])
    changes = sum(stray.changes for stray in strays)
    return replace(found, metadata={**found.metadata, "changes": changes})


_LISTED = 100  # tables in a check's metadata


def _largest(counts: Mapping[str, int]) -> dict[str, int]:
    """The tables with the highest figures: data alone decides how many there are."""
    ordered = sorted(counts.items(), key=lambda of: (-of[1], of[0]))
    return dict(sorted(ordered[:_LISTED]))


def _protected_finding(source: SourceConfig, missing: Mapping[str, Sequence[str]]) -> Finding:
    """A wrong name protects nothing: the values leave the landing as they are."""
    faults = [
        f"{table}: no row of the day has {', '.join(columns)}; see whether the column has another "
        "name, whose values are not protected, and correct exclude or hash"
        for table, columns in missing.items()
    ]
    found = listed("columns_protected", faults)
    # There a row has the columns that were written.
    return replace(found, severity=WARN) if source.missing_columns == "keep" else found


def table_findings(
    state: TableState,
    day: date,
    report: DayReport,
    shows: Callable[[str], bool] = lambda _: True,
) -> list[Finding]:
    """The findings of a published day of a table; `shows`: whether a column's values may be."""
    built_on = state.made_of(day).get("day_before")
    before = state.day_before(day)
    # Reports of earlier versions have examples of what is not to be shown.
    unfit = {
        c: f"{v['count']}" + (f", such as {v['example']}" if shows(c) and "example" in v else "")
        for c, v in report.unfit.items()
    }
    of_columns = {
        "columns_to_write": report.units,
        "read_otherwise": report.read_otherwise,
        "numbers_that_may_be_labels": report.open_labels,
    }
    return [
        # A day that fails this audit is not published: the step records the failure.
        Finding("keys_unique", True, {"keys_audited": report.keys_audited, "rows": report.rows}),
        Finding(
            "keys_readable",
            not report.unreadable_keys,
            {"unreadable_keys": report.unreadable_keys},
        ),
        Finding(
            "keys_agree",
            not (report.contradicted or report.arrived_on_rows or report.before_of_others),
            {
                "contradicted": report.contradicted,
                "arrived_on_rows": report.arrived_on_rows,
                "before_of_others": report.before_of_others,
            },
        ),
        Finding(
            "positions_comparable",
            not report.other_basis,
            {
                "events_on_another_basis": report.other_basis,
                "basis": ", ".join(f"epoch {e}: {b}" for e, b in sorted(report.bases.items()))
                or "no event with a position yet",
            },
        ),
        _database_finding(report),
        Finding(
            "built_on_day_before",
            built_on in (None, before),
            {
                "built_on": str(built_on or "nothing, it is the first day"),
                "day_before": str(before or "none"),
            },
        ),
        Finding("late_within_window", not report.too_late, {"too_late": report.too_late}),
        Finding(
            "values_representable",
            not (unfit or report.unresolved or any(of_columns.values())),
            {
                **unfit,
                **{
                    name: json.dumps(dict(columns), ensure_ascii=False)
                    for name, columns in of_columns.items()
                    if columns
                },
                "unfit_columns": len(unfit),
                "unresolved_unchanged_values": report.unresolved,
            },
        ),
        listed("schema_compatible", list(report.incompatible)),
    ]


def _database_finding(report: DayReport) -> Finding:
    """D4: events of another database wait in `changes` for a table of their own."""
    own = {} if report.database is None else {report.database: 0}
    cure = [key_in_database(report.table, db) for db in sorted({**own, **report.other_databases})]
    return Finding(
        "one_database",
        not report.other_databases,
        {
            "database": report.database or "none is said",
            **(
                {"events_by_database": dict(report.other_databases)}
                if report.other_databases
                else {}
            ),
            "events_of_other_databases": sum(report.other_databases.values()),
        },
        description=(
            "events of other databases are left in changes; name all tables of the source in three "
            f"parts: {', '.join(cure)}"
            if report.other_databases
            else None
        ),
    )


def lag_findings(rows: Sequence[Mapping[str, Any]], slo_ms: int | None) -> list[Finding]:
    """`lag_within_slo` of one day's lag rows (hour null)."""
    capture = {
        r["table_name"]: r["p95_ms"]
        for r in rows
        if r["kind"] == "capture" and r["p95_ms"] is not None
    }
    late = {t: p95 for t, p95 in capture.items() if slo_ms is not None and p95 > slo_ms}
    metadata: dict[str, Any] = {
        "lag_slo_ms": slo_ms if slo_ms is not None else "none",
        "tables_above": len(late),
    }
    if capture:
        metadata["worst_p95_ms"] = max(capture.values())
    if late:
        metadata["late_tables"] = _largest(late)
    return [Finding("lag_within_slo", not late, metadata)]
