"""A day of a table's history: made on a branch of its own, audited, published as a tag."""

from __future__ import annotations

import json
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from datetime import date, timedelta
from functools import reduce
from itertools import chain
from typing import Any

from pyspark.sql import DataFrame

from cdc_assets.cdc.errors import ConcurrentRunError, ConfigError
from cdc_assets.cdc.history.columns import prepare
from cdc_assets.cdc.history.entries import keys_of
from cdc_assets.cdc.history.inputs import HistoryInputs
from cdc_assets.cdc.history.versions import versions_of
from cdc_assets.cdc.history.writes import Versions, audit, write
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.checkpoints import local_checkpoints
from cdc_assets.cdc.lake.commits import (
    INPUTS,
    KEY,
    REPORT,
    BranchFigures,
    DayBranch,
    branch_figures,
)
from cdc_assets.cdc.lake.retry import with_retry
from cdc_assets.cdc.names import TableName, history_of
from cdc_assets.cdc.state.apply import keyed_day
from cdc_assets.cdc.state.day_types import OwnColumn, TableColumns, with_types_of
from cdc_assets.cdc.state.evolution import prepare_columns
from cdc_assets.cdc.state.source_context import SourceContext
from cdc_assets.cdc.state.table_day import REWRITTEN_BYTES, TableDay


@dataclass(frozen=True)
class HistoryReport:
    """What a day of a history came to.

    `rows` are its versions, `current` those that stand, of the keys that were looked at
    (`versions_audited`): of a small table all.
    """

    table: str
    day: str
    rows: int = 0
    rows_before: int = 0
    current: int = 0
    versions_audited: int = 0
    latest_ms: int | None = None  # the last time at which a version began or ended
    events: int = 0
    written: int = 0
    removed: int = 0
    bytes_added: int = 0
    files_added: int = 0
    seconds: float = 0.0
    made: bool = True


def make_history_day(
    lake: Lake,
    source: str,
    table: str,
    day: date,
    context: SourceContext,
    force: bool = False,
) -> HistoryReport:
    """Make and publish one day of a table's history, unless it was made of the same inputs.

    Raises:
        MissingDayError: the day of the table, or the day before, is not there yet.
        AuditError: the day's audit failed; nothing is published.
        ConfigError: the table has none of the columns whose changes are to begin versions.
        ConcurrentRunError: another run published the day meanwhile, made of something else.
    """
    began = time.monotonic()
    inputs = read_inputs(lake, source, table, day)
    if inputs.state and not force and inputs.is_up_to_date:
        if inputs.state.refs.get("main") != inputs.state.tags[max(inputs.state.tags)]:
            lake.mend_main(lake.state(source, history_of(table)))
        return _report_of(inputs.summary)
    return _publish(lake, inputs, context, began)


def read_inputs(lake: Lake, source: str, table: str, day: date) -> HistoryInputs:
    """The inputs of a day, by the metadata as it is now."""
    of_table = lake.read_state(lake.state(source, TableName.parse(table)))
    state = lake.read_state(lake.state(source, history_of(table)))
    return HistoryInputs(lake.config, source, table, day, of_table, state)


def _publish(
    lake: Lake, inputs: HistoryInputs, context: SourceContext, began: float
) -> HistoryReport:
    text = inputs.text  # raises where a day is missing
    day = TableDay(lake, inputs.source, inputs.table, inputs.day, context, inputs.of_table)
    columns = prepare_columns(day)
    name = history_of(inputs.table)
    identifier = prepare(
        lake, inputs.source, name, day.identifier, day.label, inputs.day == inputs.start
    )
    _record_key(lake, identifier, inputs)
    before = inputs.day - timedelta(days=1)
    base = inputs.state.tags.get(before) if inputs.state and inputs.day > inputs.start else None
    replaces = inputs.state.tags.get(inputs.day) if inputs.state else None
    branch = lake.branch(identifier, inputs.day, base, replaces)
    has_rows = bool(day.day_facts.events) and columns.are_keys_known
    try:
        if has_rows:
            lake.start(branch)
        report = _build(day, inputs, branch if has_rows else None, columns, began)
        summary = {INPUTS: text, REPORT: json.dumps(asdict(report), ensure_ascii=False)}
        lake.publish(branch, summary, is_started=has_rows)
    except Exception as error:
        lake.drop_branch(branch)
        if made := _made_meanwhile(lake, inputs, branch, error):
            return made
        raise
    except BaseException:
        lake.drop_branch(branch)
        raise
    return report


def _record_key(lake: Lake, identifier: str, inputs: HistoryInputs) -> None:
    """Record the table's key: what reads the history without Spark asks for it."""
    assert inputs.of_table is not None  # its day is made
    key = inputs.of_table.properties.get(KEY)
    if key is None or (inputs.state and inputs.state.properties.get(KEY) == key):
        return
    with_retry(lambda: lake.handle(identifier).updateProperties().set(KEY, key).commit())


def _build(
    day: TableDay,
    inputs: HistoryInputs,
    branch: DayBranch | None,
    columns: TableColumns,
    began: float,
) -> HistoryReport:
    before = _report_before(inputs)
    rows_before = before.get("rows", 0)
    found, added = Versions(), BranchFigures()
    if branch is not None:
        found = _write_versions(day, inputs, branch, columns)
        state = day.lake.read_state(branch.table)
        assert state is not None
        added = branch_figures(state, branch)
    return HistoryReport(
        table=day.table,
        day=str(day.day),
        rows=rows_before + added.net,
        rows_before=rows_before,
        current=found.current,
        versions_audited=found.audited,
        latest_ms=max([t for t in (found.latest_ms, before.get("latest_ms")) if t], default=None),
        events=day.day_facts.events,
        written=added.written,
        removed=added.removed,
        bytes_added=added.bytes_added,
        files_added=added.files_added,
        seconds=round(time.monotonic() - began, 2),
    )


def _report_before(inputs: HistoryInputs) -> dict[str, Any]:
    """The report of the day before; empty where there is none."""
    if inputs.state is None or inputs.day <= inputs.start:
        return {}
    summary = inputs.state.day_summary(inputs.day - timedelta(days=1))
    found: dict[str, Any] = json.loads(summary.get(REPORT, "{}"))
    return found


def _write_versions(
    day: TableDay, inputs: HistoryInputs, branch: DayBranch, columns: TableColumns
) -> Versions:
    is_small = day.is_rewritten and _bytes_before(inputs) <= REWRITTEN_BYTES
    first = min([day.day, *day.open_transactions.values()])
    columns = with_types_of(day, columns, day.days_from(first))
    with local_checkpoints() as checkpoints:
        keyed = keyed_day(day, columns, checkpoints)

        def before(start: date) -> DataFrame | None:
            return _versions_before(day.lake, inputs, branch.table, start)

        groups, unsent = keys_of(keyed, before, _may_fall(day, inputs), checkpoints)
        tracked = _tracked(inputs, columns)
        rows = reduce(
            DataFrame.unionByName, (versions_of(keys, unsent, tracked) for keys in groups)
        )
        replaced = reduce(DataFrame.unionByName, (keys.replaced for keys in chain(*groups)))
        if branch.base is not None and not is_small:
            rows = checkpoints.add(rows)
        write(day.lake, branch, rows, replaced, columns, is_small)
        looked_at = None if is_small or branch.base is None else replaced.select("k")
        return audit(day, branch, looked_at, columns)


def _bytes_before(inputs: HistoryInputs) -> int:
    if inputs.state is None:
        return 0
    summary = inputs.state.day_summary(inputs.day - timedelta(days=1))
    return int(summary.get("total-files-size", 0))


def _versions_before(
    lake: Lake, inputs: HistoryInputs, identifier: str, start: date
) -> DataFrame | None:
    """The history as it was before a day.

    Raises:
        MissingDayError: that day has expired.
    """
    before = start - timedelta(days=1)
    if before < inputs.start or inputs.state is None:
        return None
    if before not in inputs.state.tags:
        raise inputs.missing(before)
    if inputs.state.day_summary(before).get("total-records") in (None, "0"):
        return None
    return lake.at(identifier, inputs.state.tags[before])


def _may_fall(day: TableDay, inputs: HistoryInputs) -> bool:
    """May an event of the day have a time before that at which a version ended?"""
    latest, own = _report_before(inputs).get("latest_ms"), day.day_facts.source_times
    return own is None or latest is None or own[0] < latest


def _tracked(inputs: HistoryInputs, columns: TableColumns) -> list[OwnColumn] | None:
    """The columns whose changes begin a version; None: each event does.

    Raises:
        ConfigError: the table has none of the columns that are named.
    """
    settings = inputs.settings
    if settings.columns:
        found = [c for c in columns.values if c.name in settings.columns]
        if not found:
            got, known = (
                ", ".join(n) for n in (settings.columns, (c.name for c in columns.values))
            )
            raise ConfigError(
                [
                    f"sources.{inputs.source}.tables.{inputs.table}.history.columns: got {got}; "
                    f"the table has {known or 'none'}"
                ]
            )
        return found
    if settings.except_:
        return [c for c in columns.values if c.name not in settings.except_]
    return None


def _made_meanwhile(
    lake: Lake, inputs: HistoryInputs, branch: DayBranch, error: Exception
) -> HistoryReport | None:
    """The report of another run that published the day, where it made it of the same.

    Raises:
        ConcurrentRunError: it made the day of something else.
    """
    now = read_inputs(lake, inputs.source, inputs.table, inputs.day)
    if now.state is None or now.state.tags.get(inputs.day) == branch.replaces:
        return None
    if now.summary.get(INPUTS) == inputs.text:
        return _report_of(now.summary)
    raise ConcurrentRunError(
        f"the history of {inputs.source}.{inputs.table}", [inputs.day]
    ) from error


def _report_of(summary: Mapping[str, str]) -> HistoryReport:
    recorded: dict[str, Any] = {**json.loads(summary[REPORT]), "made": False}
    return HistoryReport(**recorded)
