"""The checks of `changes` and `quarantine`.

They use the facts of the days instead of the tables: an ordinary day costs one job, which reads the
facts.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from datetime import date, datetime, timedelta, timezone
from functools import cached_property
from typing import Any

from pyspark.sql import Row, Window
from pyspark.sql import functions as F

from cdc_assets.cdc import markdown
from cdc_assets.cdc.changes.classify import DESTINATIONS
from cdc_assets.cdc.changes.facts import arrival_ms, read_facts
from cdc_assets.cdc.changes.figures import ChangesFigures
from cdc_assets.cdc.changes.hidden_changes import Statement, hidden_statements
from cdc_assets.cdc.changes.reasons import REASONS
from cdc_assets.cdc.changes.stray_tables import Counts, stray_tables, tables_before
from cdc_assets.cdc.config import Config, SourceConfig
from cdc_assets.cdc.findings import Check, Finding, Severity, fault_finding, largest
from cdc_assets.cdc.lake.catalog import Lake

_WARN = Severity.WARN
CHECKS = (
    Check(
        "nothing_lost", "Every landed record is in exactly one of changes, control and quarantine."
    ),
    Check("op_codes_known", "No record was quarantined for its op code.", _WARN),
    Check("keys_present", "No record was quarantined for its key.", _WARN),
    Check("tables_configured", "Every table in the data is in the configuration.", _WARN),
    Check("positions_complete", "Every event carries a complete source position.", _WARN),
    Check(
        "positions_in_order",
        "No table's highest position is lower than on the day before, and a key's events of equal "
        "positions stand in one partition.",
        _WARN,
    ),
    Check(
        "no_hidden_changes",
        "No statement that may have changed rows without change events.",
        _WARN,
    ),
    Check(
        "columns_protected",
        "Each column that exclude or hash names is in rows of the day: none has another name now.",
    ),
    Check(
        "tables_on_their_topics",
        "No record names another table than all others of its topic.",
        _WARN,
    ),
    Check(
        "source_alive",
        "The source sent an event or a heartbeat within max_silence_minutes of the day's end, or "
        "of now.",
        _WARN,
    ),
    Check("contract", "The table's columns and types are as documented."),
)
QUARANTINE_CHECKS = (
    Check("records_readable", "No landed record of the day is in quarantine.", _WARN),
    Check("contract", "The table's columns and types are as documented."),
)
_OP_REASONS, _KEY_REASONS = ("missing_op", "unknown_op"), ("malformed_key", "missing_key")
_EXAMPLES = 5  # a reason and day


@dataclass(frozen=True)
class ParsedDays:
    """The days of a source to check.

    Args:
        lake: where they are.
        source: the source.
        figures: by day (:func:`~cdc_assets.cdc.changes.figures.day_figures`).
    """

    lake: Lake
    source: str
    figures: Mapping[date, ChangesFigures]

    @property
    def settings(self) -> SourceConfig:
        """The source's settings."""
        return self.lake.config.source(self.source)

    @property
    def days(self) -> list[date]:
        """The days, in order."""
        return sorted(self.figures)

    @property
    def days_and_before(self) -> list[date]:
        """The days and the one before the first of them."""
        return [self.days[0] - timedelta(days=1), *self.days]

    @cached_property
    def facts(self) -> list[Row]:
        """The facts of :attr:`days_and_before`: a job, once."""
        return read_facts(self.lake, self.source, self.days_and_before)


def changes_findings(
    parsed: ParsedDays,
    examples: Mapping[date, Sequence[Row]],
    order: Mapping[date, Sequence[Finding]],
) -> dict[date, list[Finding]]:
    """The findings of some days of `changes`, except `contract`.

    Args:
        parsed: the days.
        examples: :func:`quarantine_examples`.
        order: findings about positions
            (:func:`~cdc_assets.cdc.state.order_findings.order_findings`).
    """
    lake, settings = parsed.lake, parsed.settings
    newest = newest_records(parsed)
    statements = hidden_statements(lake, parsed.source, _days_with_statements(parsed))
    topics = {day: parsed.figures[day].topics for day in parsed.days}
    before = tables_before(lake, parsed.source, topics)
    findings = {}
    for day in parsed.days:
        figures, quarantined = parsed.figures[day], examples.get(day, [])
        findings[day] = [
            _nothing_lost(figures),
            _reasons_finding("op_codes_known", _OP_REASONS, settings, figures, quarantined),
            _reasons_finding("keys_present", _KEY_REASONS, settings, figures, quarantined),
            _tables_configured(settings, figures.tables),
            *order[day],
            _no_hidden_changes(statements.get(day, [])),
            _columns_protected(settings, figures.unprotected),
            _tables_on_their_topics(topics[day], before.get(day, {})),
            _source_alive(lake.config, settings, day, newest.get(day)),
        ]
    return findings


def _nothing_lost(figures: ChangesFigures) -> Finding:
    counted = {table: figures.records(table) for table in DESTINATIONS}
    written = {table: figures.written.get(table, 0) for table in DESTINATIONS}
    reached, further = sum(written.values()), figures.further_rows
    values = {"landed": figures.landed, "reached": reached}
    if further:
        values["further_rows_of_records"] = further
    return Finding(
        "nothing_lost",
        reached == figures.landed + further and counted == written,
        values if counted == written else {**values, "counted": counted, "written": written},
    )


def _reasons_finding(
    name: str,
    reasons: Sequence[str],
    settings: SourceConfig,
    figures: ChangesFigures,
    examples: Sequence[Row],
) -> Finding:
    found = {reason: figures.quarantine.get(reason, 0) for reason in reasons}
    values: dict[str, Any] = dict(found)
    if any(found.values()):
        values["examples"] = markdown.bullets(
            f"{e.topic} [{e.partition}] {e.offset}: {e.reason}"
            + (f", {e.detail}" if e.detail else "")
            for e in examples
            if e.reason in found
        )
    return _quarantine_finding(name, settings, figures.landed, found, values)


def quarantine_findings(
    settings: SourceConfig, figures: Mapping[date, ChangesFigures]
) -> dict[date, list[Finding]]:
    """`records_readable` of some days: how many records are in quarantine, why, and what to do.

    Args:
        settings: the source's, with the limits.
        figures: by day (:func:`~cdc_assets.cdc.changes.figures.day_figures`).
    """
    return {
        day: [_records_readable(settings, counted.landed, counted.quarantine)]
        for day, counted in figures.items()
    }


def _records_readable(
    settings: SourceConfig, landed: int, quarantined: Mapping[str, int]
) -> Finding:
    found = {**dict.fromkeys(REASONS, 0), **quarantined}
    count, limit = sum(found.values()), settings.quarantine_error_count
    values: dict[str, Any] = {
        "quarantined": count,
        "landed": landed,
        "percent": round(_percent(count, landed), 3),
        "error_above_percent": settings.quarantine_error_percent,
        "error_above_count": "none" if limit is None else limit,
        **{f"reason_{reason}": records for reason, records in found.items()},
    }
    if count:
        values["what_to_do"] = markdown.Markdown(
            "\n".join(
                f"- {reason.code}, {found[reason.code]} records: {reason.remedy}"
                for reason in REASONS.values()
                if found[reason.code]
            )
        )
    return _quarantine_finding("records_readable", settings, landed, found, values)


def _quarantine_finding(
    name: str,
    settings: SourceConfig,
    landed: int,
    reasons: Mapping[str, int],
    values: Mapping[str, Any],
) -> Finding:
    """Passes without a record; more than the source's limits are an error, fewer a warning."""
    count = sum(reasons.values())
    percent, limit = _percent(count, landed), settings.quarantine_error_count
    # The share of a single bad message is not an error, however few records landed.
    is_share = count > 1 or settings.quarantine_error_percent == 0
    is_error = is_share and percent > settings.quarantine_error_percent
    is_error = is_error or (limit is not None and count > limit)
    by_reason = ", ".join(f"{reason} {n}" for reason, n in reasons.items() if n)
    limits = f"{settings.quarantine_error_percent:g} %" + (
        f" or {limit}" if limit is not None else ""
    )
    description = (
        f"{count} of {landed} landed records ({percent:.3g} %) are in quarantine: "
        f"{by_reason}. More than {limits} is an error"
    )
    return Finding(
        name,
        not count,
        values,
        severity=Severity.ERROR if count and is_error else _WARN,
        description=description if count else None,
    )


def _percent(count: int, landed: int) -> float:
    return 100 * count / landed if landed else 0.0


def quarantine_examples(parsed: ParsedDays) -> dict[date, list[Row]]:
    """The first records of each reason and day; one job, or none without a quarantined record.

    Returns:
        Rows of `landing_date, reason, table_name, topic, partition, offset, detail`; `detail`,
        which may hold a part of a message, is null where the source shows no values.
    """
    days = [day for day in parsed.days if parsed.figures[day].written.get("quarantine")]
    if not days:
        return {}
    shows = parsed.settings.shows_values
    detail = F.col("detail") if shows else F.lit(None).cast("string").alias("detail")
    order = Window.partitionBy("landing_date", "reason").orderBy("topic", "partition", "offset")
    shown = ("reason", "table_name", "topic", "partition", "offset")
    rows = (
        parsed.lake.stage_days(parsed.source, "quarantine", days)
        .select("landing_date", *shown, detail)
        .withColumn("n", F.row_number().over(order))
        .where(F.col("n") <= _EXAMPLES)
        .orderBy("landing_date", "reason", "n")
        .collect()
    )
    return _by_day(rows)


def _by_day(rows: Iterable[Row]) -> dict[date, list[Row]]:
    found: dict[date, list[Row]] = {}
    for row in rows:
        found.setdefault(row.landing_date, []).append(row)
    return found


def _tables_configured(settings: SourceConfig, tables: Mapping[str | None, int]) -> Finding:
    extra = {t: n for t, n in tables.items() if t is not None and not settings.knows(t)}
    events = {"events": largest(extra)} if extra else {}
    return Finding("tables_configured", not extra, {"tables": len(extra), **events})


def _days_with_statements(parsed: ParsedDays) -> list[date]:
    """The days whose `control` may have DDL: they count some, or not all of their records."""

    def may_have(figures: ChangesFigures) -> bool:
        control = figures.control
        is_counted = sum(control.values()) == figures.written.get("control", 0)
        return not is_counted or "ddl" in control

    return [day for day in parsed.days if may_have(parsed.figures[day])]


def _no_hidden_changes(statements: Sequence[Statement]) -> Finding:
    """D21, W2: a dropped table whose rows stay is an error."""
    found = fault_finding("no_hidden_changes", [str(statement) for statement in statements])
    if not any(statement.leaves_rows for statement in statements):
        return found
    return replace(
        found,
        severity=Severity.ERROR,
        description="A table was dropped; its rows stay until they are deleted or truncated.",
    )


def _columns_protected(settings: SourceConfig, missing: Mapping[str, Sequence[str]]) -> Finding:
    """A wrong name protects nothing: the values leave the landing in the clear."""
    faults = [
        f"{table}: no row of the day has {', '.join(columns)}; see whether the column has another "
        "name, whose values are not protected, and correct exclude or hash"
        for table, columns in missing.items()
    ]
    found = fault_finding("columns_protected", faults)
    # With `keep` a row only has the columns that were sent.
    return replace(found, severity=_WARN) if settings.missing_columns == "keep" else found


def _tables_on_their_topics(counts: Counts, before: Mapping[str, Iterable[str]]) -> Finding:
    strays = stray_tables(counts, before)
    found = fault_finding("tables_on_their_topics", [str(stray) for stray in strays])
    changes = sum(stray.changes for stray in strays)
    return replace(found, values={**found.values, "changes": changes})


def newest_records(parsed: ParsedDays) -> dict[date, int]:
    """When the newest event or heartbeat of each day arrived in Kafka, in ms.

    One job for days of earlier versions, whose facts do not have it.
    """
    sent = ("changes", "control")
    facts = _by_day(fact for fact in parsed.facts if fact.destination in sent)
    newest, unknown = {}, []
    for day in parsed.days:
        found, written = facts.get(day, []), parsed.figures[day].written
        times = [fact.newest_ms for fact in found]
        is_counted = sum(f.records for f in found) == sum(written.get(t, 0) for t in sent)
        if None in times or not is_counted:
            unknown.append(day)
        elif times:
            newest[day] = max(times)
    return {**newest, **_read_newest(parsed, unknown)} if unknown else newest


def _read_newest(parsed: ParsedDays, days: Sequence[date]) -> dict[date, int]:
    changes, control = (
        parsed.lake.stage_days(parsed.source, table, days).selectExpr(
            "landing_date", f"{arrival_ms()} AS ms"
        )
        for table in ("changes", "control")
    )
    rows = changes.unionByName(control).groupBy("landing_date").agg(F.max("ms").alias("ms"))
    return {row.landing_date: row.ms for row in rows.collect() if row.ms is not None}


def _source_alive(config: Config, settings: SourceConfig, day: date, newest: int | None) -> Finding:
    until = min(config.end_of(day), datetime.now(timezone.utc))
    limit = settings.max_silence_minutes
    values: dict[str, Any] = {"max_silence_minutes": "none" if limit is None else limit}
    if newest is None:
        return Finding("source_alive", limit is None, {**values, "newest": "no record"})
    silent = round(max(0.0, until.timestamp() - newest / 1000) / 60, 1)
    arrival = datetime.fromtimestamp(newest / 1000, timezone.utc)
    values |= {"newest": arrival, "silent_minutes": silent}
    return Finding("source_alive", limit is None or silent <= limit, values)
