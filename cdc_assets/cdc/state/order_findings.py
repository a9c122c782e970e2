"""The checks of a day's positions: whether they are complete, and whether they tell the order."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import date, timedelta

from pyspark.sql import functions as F

from cdc_assets.cdc.changes.facts import lacks_part
from cdc_assets.cdc.changes.findings import ParsedDays
from cdc_assets.cdc.changes.order_facts import Scattered, scattered_keys
from cdc_assets.cdc.config import LandingConfig
from cdc_assets.cdc.earlier_positions import is_earlier, is_earlier_sql
from cdc_assets.cdc.findings import Finding, Severity, fault_finding
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
    epoch_sql,
    epochs_until,
    has_several_streams,
    overtaken,
    unexplained_falls,
)


@dataclass(frozen=True)
class Positions:
    """A table's positions of one basis on a day; positions of different bases can't be compared.

    `highest` has its epoch in front, `incomplete` are events whose position lacks a part.
    """

    day: date
    table: str
    basis: str | None
    highest: list[int] | None
    incomplete: int


@dataclass(frozen=True)
class _Falls:
    """What was found on a day beside the highest positions."""

    unexplained: Sequence[OutOfOrder] = ()
    begins: Sequence[str] = ()  # of new servers, in words
    starts: Sequence[int] = field(default_factory=tuple)  # of all known epochs


def order_findings(parsed: ParsedDays) -> dict[date, list[Finding]]:
    """`positions_complete` and `positions_in_order` of some days.

    Jobs only where a position fell, an epoch may begin, or keys are scattered, and for days of
    earlier versions, whose facts do not say all.
    """
    lake, settings, figures = parsed.lake, parsed.settings, parsed.figures
    positions = _positions_of_facts(parsed)
    if positions is None:
        positions = _read_positions(parsed, SourceEpochs())
    fallen = _fallen(positions)
    falls: dict[date, _Falls] = {}
    if settings.finds_epochs and (fallen or _may_begin(parsed)):
        epochs = epochs_until(lake, parsed.source, parsed.days[-1])
        fallen = _fallen(_read_positions(parsed, epochs))
        falls = {day: _falls_of(parsed, day, epochs) for day in parsed.days}
    scattered = scattered_keys(
        lake.spark.table(lake.stage(parsed.source, "changes")),
        {day: figures[day].scattered for day in parsed.days if figures[day].scattered},
        settings.shows_values,
    )
    incomplete = _incomplete(positions)
    return {
        day: [
            fault_finding("positions_complete", incomplete.get(day, [])),
            _in_order(
                [*fallen.get(day, []), *_unordered(settings.landing, figures[day].placed)],
                scattered.get(day, []),
                falls.get(day, _Falls()),
                _placed_values(settings.landing, figures[day].placed),
            ),
        ]
        for day in parsed.days
    }


def _positions_of_facts(parsed: ParsedDays) -> list[Positions] | None:
    """As :func:`_read_positions` without named or found epochs; None where facts do not tell."""
    facts = [fact for fact in parsed.facts if fact.destination == "changes"]
    # Facts may have been counted when other instants were named.
    is_of_epochs = any(fact.epoch and not is_earlier(fact.basis) for fact in facts)
    if parsed.settings.resets or is_of_epochs or any(f.incomplete is None for f in facts):
        return None
    found: dict[tuple[str, str, date], Positions] = {}
    for fact in facts:
        highest = fact.highest and [*([] if is_earlier(fact.basis) else [0]), *fact.highest]
        place = (fact.table_name, fact.basis or "", fact.landing_date)
        known = found.get(place)
        if known is not None:
            highest = max(filter(None, (known.highest, highest)), default=None)
        incomplete = fact.incomplete + (known.incomplete if known else 0)
        found[place] = Positions(
            fact.landing_date, fact.table_name, fact.basis, highest, incomplete
        )
    return [found[place] for place in sorted(found)]


def _read_positions(parsed: ParsedDays, epochs: SourceEpochs) -> list[Positions]:
    """The positions of the days and of the one before: a job.

    O11: a new server starts its positions afresh; without a reset old rows beat new ones.
    O4: what an event does not say of its place counts as 0.
    """
    lake, settings = parsed.lake, parsed.settings
    named = epoch_of("kafka_ts_ms", settings.resets)
    found = epoch_sql(epochs, time_in_day(lake.config.timezone))
    epoch = found if settings.finds_epochs else named
    # Positions of the earlier form have their epoch in front.
    ranked = F.expr(
        case((is_earlier_sql("position_basis"), "position"), otherwise=in_epoch("position", epoch))
    )
    rows = (
        lake.stage_days(parsed.source, "changes", parsed.days_and_before)
        .groupBy("table_name", "landing_date", "position_basis")
        .agg(F.max(ranked).alias("highest"), F.count_if(F.expr(lacks_part())).alias("incomplete"))
        .orderBy("table_name", "position_basis")
        .collect()
    )
    return [
        Positions(r.landing_date, r.table_name, r.position_basis, r.highest, r.incomplete)
        for r in rows
    ]


def _fallen(positions: Iterable[Positions]) -> dict[date, list[str]]:
    """By day, highest positions that are below those of the day before."""
    highest = {(p.table, p.basis, p.day): p.highest for p in positions if p.highest}
    faults: dict[date, list[str]] = {}
    for (table, basis, day), position in highest.items():
        before = highest.get((table, basis, day - timedelta(days=1)))
        if before is not None and position < before:
            faults.setdefault(day, []).append(
                f"{table}: {position} after {before}; if the server is new or restored, say when "
                "in position_reset"
            )
    return faults


def _incomplete(positions: Iterable[Positions]) -> dict[date, list[str]]:
    faults: dict[date, list[str]] = {}
    for found in positions:
        if found.incomplete:
            faults.setdefault(found.day, []).append(
                f"{found.table}: {found.incomplete} events lack a part of their position"
            )
    return faults


def _may_begin(parsed: ParsedDays) -> bool:
    """May an epoch begin on some days, or what a former stream sends land there?"""
    streams: dict[str, set[str]] = {}
    for figures in parsed.figures.values():
        if figures.falls:
            return True
        for table, names in figures.streams.items():
            streams.setdefault(table, set()).update(names)
    has_several = any(len(names) > 1 for names in streams.values())
    return has_several or has_several_streams(parsed.lake, parsed.source)


def _falls_of(parsed: ParsedDays, day: date, epochs: SourceEpochs) -> _Falls:
    lake, source = parsed.lake, parsed.source
    has_falls = parsed.figures[day].falls
    unexplained = unexplained_falls(lake, source, day, epochs) if has_falls else []
    return _Falls(
        [*unexplained, *overtaken(lake, source, day, epochs)],
        [begin_in_words(begin) for begin in epochs.begins if begin.day == day],
        epochs.starts,
    )


def _in_order(
    fallen: Sequence[str],
    scattered: Sequence[Scattered],
    falls: _Falls,
    placed: Mapping[str, int],
) -> Finding:
    """`positions_in_order`: an error where nothing tells the order of events (O8, O11)."""
    faults = [
        *fallen,
        *map(_out_of_order_text, falls.unexplained),
        *map(_scattered_text, scattered),
    ]
    finding = fault_finding("positions_in_order", faults)
    values = {
        **finding.values,
        "keys_in_several_partitions": sum(f.keys for f in scattered),
        **placed,
    }
    if falls.begins:
        values["new_servers"] = falls.begins
    if falls.unexplained:
        # What is written overrules what was found.
        starts = [*falls.starts, *(found.since_ms for found in falls.unexplained)]
        values["if_a_new_server_sent_them"] = f"position_reset: {named_instants(starts)}"
    is_untold = any(found.keys and not found.by_kafka for found in scattered)
    is_error = is_untold or any(found.is_overtaken for found in falls.unexplained)
    return replace(finding, values=values, severity=Severity.ERROR if is_error else None)


def _placed_values(landing: LandingConfig, placed: Mapping[str, tuple[int, int]]) -> dict[str, int]:
    """What only the place of records in files decided, where offsets are derived (O4, O6)."""
    if not landing.derives_offsets:
        return {}
    ties, reads = (sum(counts[n] for counts in placed.values()) for n in (0, 1))
    return {"ties_decided_by_place": ties, "snapshot_reads_decided_by_place": reads}


def _unordered(landing: LandingConfig, placed: Mapping[str, tuple[int, int]]) -> list[str]:
    """Faults of files whose names and lines promise no order, where these decided."""
    layout = landing.file_layout
    if layout is None or layout.orders_records(landing.fields):
        return []
    return [
        f"{table}: {ties} keys have events of equal positions, and {reads} snapshot reads stand "
        "beside other events of their key; the names and lines of files decided, which promise no "
        "order"
        for table, (ties, reads) in sorted(placed.items())
    ]


def _out_of_order_text(found: OutOfOrder) -> str:
    events = f"{stream_in_words(found.stream)}: {found.events} events of {found.table}"
    since = f"from {instant_text(found.since_ms)} on"
    if found.is_overtaken:
        return f"{events} {since} count as older, as another connector has followed it"
    return f"{events} {since} lie below earlier ones and repeat none"


def _scattered_text(found: Scattered) -> str:
    cure = "; send all events of a key to one partition: make the table's key the message key"
    return (
        f"{found.table}: {found.keys} keys have events of equal positions in several "
        f"partitions, such as {found.example or 'one'} in {found.lanes}"
        + ("" if found.by_kafka else cure)
    )
