"""Driving the Spark floor in tests: run all stages, read tables back as plain Python.

What comes back has the Python types of the model's rows: DATE is a date, TIMESTAMP_NTZ a naive
and TIMESTAMP an aware UTC datetime, DECIMAL a Decimal, BINARY bytes, a struct a dict.
"""

from __future__ import annotations

import json
import math
import re
from collections import Counter
from collections.abc import Iterable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal
from itertools import pairwise
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
import pytest
from py4j.java_gateway import GatewayClient
from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.changes.figures import day_figures
from cdc_assets.cdc.changes.findings import ParsedDays, changes_findings, quarantine_examples
from cdc_assets.cdc.config import is_reserved, parse_config
from cdc_assets.cdc.derived.stage import DerivedKind, DerivedReport
from cdc_assets.cdc.feed.kind import FEED
from cdc_assets.cdc.findings import Finding
from cdc_assets.cdc.history.kind import HISTORY
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.commits import TableState
from cdc_assets.cdc.lake.diff import read_diff
from cdc_assets.cdc.lake.json_values import json_rows
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.rows import read_table
from cdc_assets.cdc.lake.tables import state_table
from cdc_assets.cdc.landing.figures import count_landed
from cdc_assets.cdc.landing.files import LandedDay
from cdc_assets.cdc.landing.findings import landing_findings
from cdc_assets.cdc.landing.kafka_plan import KafkaDay
from cdc_assets.cdc.names import TableName, derived_name
from cdc_assets.cdc.stages.changes import ChangesStage
from cdc_assets.cdc.stages.contract import MakeOptions
from cdc_assets.cdc.stages.lag import LagStage
from cdc_assets.cdc.stages.landing import LandingStage
from cdc_assets.cdc.state import stage as table_days
from cdc_assets.cdc.state.order_findings import order_findings
from cdc_assets.cdc.state.stage import DayReport
from cdc_assets_tests import events as ev
from cdc_assets_tests.model import (
    Classified,
    Landed,
    classify,
    deep_recursion,
    json_text,
    parse_json,
    tables,
)

Row = dict[str, Any]
Reports = dict[tuple[str, date], DayReport]
KINDS: Mapping[str, DerivedKind[Any]] = {kind.name: kind for kind in (HISTORY, FEED)}


def days_of(landed: Iterable[date]) -> list[date]:
    """Every day from the first to the last."""
    known = sorted(landed)
    return [known[0] + timedelta(days=n) for n in range((known[-1] - known[0]).days + 1)]


# -- running -------------------------------------------------------------------------------------


def land(
    lake: Lake, source: str, days: Sequence[date], force: bool = False, allow_loss: bool = False
) -> list[LandedDay | KafkaDay]:
    """Land some days; what each was made of."""
    options = MakeOptions(force, allow_loss)
    made = LandingStage(lake.config, source).make(lake, days, options)
    return [day.details for day in made.values()]


def make_changes(lake: Lake, source: str, days: Sequence[date], force: bool = False) -> list[date]:
    """The changes of some days; those that were made."""
    made = ChangesStage(lake.config, source).make(lake, days, MakeOptions(force))
    return [day for day, of in made.items() if of.is_new]


def make_lag(lake: Lake, source: str, days: Sequence[date], force: bool = False) -> list[date]:
    """The lag of some days; those that were made."""
    made = LagStage(lake.config, source).make(lake, days, MakeOptions(force))
    return [day for day, of in made.items() if of.is_new]


def run_stages(
    lake: Lake, source: str, days: Sequence[date], force: bool = False, lag: bool = False
) -> None:
    """landing and changes of some days, and lag where a test asks for it."""
    land(lake, source, days, force)
    make_changes(lake, source, days, force)
    if lag:
        make_lag(lake, source, days, force)


def landing_found(lake: Lake, source: str, days: Sequence[date]) -> dict[date, list[Finding]]:
    """What the check of the landing finds on some days."""
    return landing_findings(lake, source, days, count_landed(lake, source, days))


def changes_found(lake: Lake, source: str, days: Sequence[date]) -> dict[date, list[Finding]]:
    """What the checks of `changes` find on some days."""
    parsed = ParsedDays(lake, source, day_figures(lake, source, days))
    return changes_findings(parsed, quarantine_examples(parsed), order_findings(parsed))


def run_tables(
    lake: Lake,
    source: str,
    days: Sequence[date],
    tables: Sequence[str] | None = None,
    force: bool = False,
) -> tuple[Reports, dict[tuple[str, date], Exception]]:
    """The days of tables in order; a table stops at its first error, the others go on."""
    names = list(lake.config.source(source).tables if tables is None else tables)
    facts = table_days.gather(lake, source, names, days)

    def make(name: str) -> tuple[Reports, dict[tuple[str, date], Exception]]:
        reports: Reports = {}
        for day in days:
            if day < lake.config.start_of(source, name):
                continue
            try:
                made = table_days.make_table_day(lake, source, name, day, facts, force)
            except Exception as error:
                return reports, {(name, day): error}
            reports[name, day] = made
        return reports, {}

    reports: Reports = {}
    errors: dict[tuple[str, date], Exception] = {}
    with ThreadPoolExecutor(max_workers=2) as pool:
        for made, failed in pool.map(make, names):
            reports.update(made)
            errors.update(failed)
    return reports, errors


def run_derived(
    lake: Lake, source: str, days: Sequence[date], force: bool = False
) -> dict[tuple[str, str, date], DerivedReport]:
    """The days of the histories and feeds of a source, which stand on those of its tables."""
    derived = lake.config.source(source).derived
    if not derived:
        return {}
    facts = table_days.gather(lake, source, sorted({name for name, _ in derived}), days)
    return {
        (name, kind, day): KINDS[kind].make_day(lake, source, name, day, facts, force)
        for name, kind in derived
        for day in days
        if day >= lake.config.start_of(source, name)
    }


def try_derived(lake: Lake, source: str, days: Sequence[date]) -> dict[tuple[str, date], Exception]:
    """The days of the histories and feeds of a source; what failed, by table and day."""
    derived = lake.config.source(source).derived
    facts = table_days.gather(lake, source, sorted({name for name, _ in derived}), days)

    def make(of: tuple[str, str]) -> dict[tuple[str, date], Exception]:
        name, kind = of
        for day in days:
            if day < lake.config.start_of(source, name):
                continue
            if day not in (lake.table_state(source, name) or TableState({}, {}, {}, "")).tags:
                return {}  # its table has failed
            try:
                KINDS[kind].make_day(lake, source, name, day, facts)
            except Exception as error:
                return {(name, day): error}
        return {}

    with ThreadPoolExecutor(max_workers=2) as pool:
        return {
            place: error for failed in pool.map(make, derived) for place, error in failed.items()
        }


def run_all(
    lake: Lake,
    source: str,
    days: Sequence[date],
    tables: Sequence[str] | None = None,
    force: bool = False,
    lag: bool = False,
) -> Reports:
    """All stages of some days, lag where a test asks for it. Raises a table's first error."""
    run_stages(lake, source, days, force, lag)
    reports, errors = run_tables(lake, source, days, tables, force)
    for error in errors.values():
        raise error
    return reports


# -- stories -------------------------------------------------------------------------------------


def source_config(folder: Path | str, format: str = "debezium", **options: Any) -> dict[str, Any]:
    """A source as cdc.yaml writes it."""
    return {"format": format, "landing": {"files": str(folder)}, **options}


def write_source(
    folder: Path, landed: Landed, format: str = "debezium", **options: Any
) -> dict[str, Any]:
    """Land records as files and return the source that reads them."""
    ev.write_landing(folder, landed)
    return source_config(folder, format, **options)


def config_of(
    sources: Mapping[str, Any], warehouse: Path | str, start: date = ev.DAY, **top: Any
) -> Any:
    """A parsed configuration whose lake is this warehouse."""
    raw = {"lake": {"warehouse": str(warehouse)}, "start_date": start, "sources": dict(sources)}
    return parse_config({**raw, **top}, Path(warehouse))


# -- reading -------------------------------------------------------------------------------------


def plain(frame: DataFrame) -> list[Row]:
    """The rows as plain Python; through Arrow, which keeps instants in UTC."""
    rows = frame.toArrow().to_pylist(maps_as_pydicts="strict")
    return [{name: _plain(value) for name, value in row.items()} for row in rows]


def _plain(value: Any) -> Any:
    if isinstance(value, datetime) and value.tzinfo is not None:
        return value.astimezone(timezone.utc)
    return value


def table_at(lake: Lake, source: str, table: str, version: date | str) -> DataFrame:
    """A table as of a day's tag, or of another reference."""
    identifier = lake.state(source, TableName.parse(table))
    return lake.spark.read.option("versionAsOf", str(version)).table(identifier)


def rows_of(lake: Lake, source: str, table: str, day: date | str) -> list[Row]:
    """A table's rows at the end of a day, without the columns that cdc-assets adds to them."""
    frame = table_at(lake, source, table, day)
    own = [name for name in frame.columns if not is_reserved(name)]
    return plain(frame.select(*(F.col(f"`{name.replace('`', '``')}`") for name in own)))


def versions_at(lake: Lake, source: str, table: str, day: date) -> list[Row]:
    """The versions of a table's rows at the end of a day, by key and position."""
    rows = plain(table_at(lake, source, str(derived_name(table, HISTORY.name)), day))
    return sorted(rows, key=lambda row: row["_cdc_from_position"])


_TOLD = ("_cdc_valid_from", "_cdc_valid_to", "_cdc_op", "_cdc_closed_by")


def versions_read(lake: Lake, source: str, table: str, day: date) -> list[Row]:
    """A day's versions with times in ms, as :func:`cdc_assets_tests.model.histories` has them.

    Read without Spark: a job for each would take most of the time.
    """
    name = str(derived_name(table, HISTORY.name))
    opened = open_table(lake.config, state_table(lake.config, source, name))
    snapshot = opened.snapshot_by_name(str(day))
    assert snapshot is not None, f"{name} has no tag {day}"
    rows = opened.scan(snapshot_id=snapshot.snapshot_id).to_arrow()
    for time in _TOLD[:2]:
        in_ms = pc.divide(rows[time].cast(pa.int64()), 1000)
        rows = rows.set_column(rows.column_names.index(time), time, in_ms)
    kept = [n for n in rows.column_names if n in _TOLD or not is_reserved(n)]
    return versions_shown(rows.select(kept).to_pylist())


def versions_shown(versions: Iterable[Row]) -> list[Row]:
    """Versions as they are compared: without nulls, and those of no length once each.

    A version of an earlier day may have a column that its table got later. A change that is
    delivered again on a later day may stand behind its first delivery, which then ends with it.
    """
    every = [{n: v for n, v in version.items() if v is not None} for version in versions]
    others = {_beginning(version) for version in every if not _is_overtaken(version)}
    found: list[Row] = []
    for shown in every:
        is_repeated = _is_overtaken(shown) and _beginning(shown) in others
        if not _has_no_length(shown) or not (is_repeated or shown in found):
            found.append(shown)
    return found


def _has_no_length(version: Row) -> bool:
    return version["_cdc_valid_from"] == version.get("_cdc_valid_to")


def _is_overtaken(version: Row) -> bool:
    return _has_no_length(version) and version.get("_cdc_closed_by") == "u"


def _beginning(version: Row) -> str:
    told = {n: v for n, v in version.items() if n not in ("_cdc_valid_to", "_cdc_closed_by")}
    return repr(sorted(told.items()))


def assert_diff_leads_on(lake: Lake, source: str, table: str, first: date, last: date) -> None:
    """The changes between two days, made to the rows of the first, give those of the last."""
    changes = list(json_rows(read_diff(lake.config, source, table, first, last)))
    rows = _texts_at(lake, source, table, first)
    rows.subtract(_text_of_known(c["before"]) for c in changes if c["before"] is not None)
    assert min(rows.values(), default=0) >= 0, f"{table} on {first} has no such row"
    rows.update(_text_of_known(c["after"]) for c in changes if c["after"] is not None)
    assert +rows == _texts_at(lake, source, table, last), f"{table} from {first} to {last}"


def changes_fed(lake: Lake, source: str, table: str, day: date) -> list[Row]:
    """The changes of a day in a table's feed, in the order of each key; read without Spark."""
    name = f"{derived_name(table, FEED.name)}"
    rows = json_rows(read_table(lake.config, source, name, day))
    own = (row for row in rows if row["_cdc_landing_date"] == str(day))
    return sorted(own, key=lambda row: row["_cdc_sequence"])


def assert_feed_leads_on(lake: Lake, source: str, table: str, day: date) -> None:
    """The changes of a day, made to the rows of the day before, give those of the day."""
    state = lake.table_state(source, table)
    assert state is not None
    before = day - timedelta(days=1)
    is_there = before in state.tags
    rows: dict[str, str] = {}

    def key_of(row: Row) -> str:
        return json.dumps([row.get(name) for name in keys])

    rename = lake.config.source(source).tables[table].rename
    keys = [rename.get(name, name) for name in state.key_columns]
    for row in json_rows(read_table(lake.config, source, table, before)) if is_there else ():
        rows[key_of(row)] = _text_of_own(row)
    for change in changes_fed(lake, source, table, day):
        what, key = change["_cdc_change"], key_of(change)
        told = f"{table} on {day}: {change}"
        assert (key in rows) == (what != "insert"), told
        if what == "delete":
            assert rows.pop(key) == _text_of_own(change), told
        else:
            rows[key] = _text_of_own(change)
    assert Counter(rows.values()) == _texts_at(lake, source, table, day), f"{table} on {day}"


def _text_of_own(row: Row) -> str:
    return _text_of_known({n: v for n, v in row.items() if not is_reserved(n)})


def _texts_at(lake: Lake, source: str, table: str, day: date) -> Counter[str]:
    rows = json_rows(read_table(lake.config, source, table, day))
    own = ({n: v for n, v in row.items() if not is_reserved(n)} for row in rows)
    return Counter(map(_text_of_known, own))


def _text_of_known(row: Mapping[str, Any]) -> str:
    """A row without nulls: one of an earlier day may lack a column, or have it in another type."""
    texts = {n: v if isinstance(v, str) else json.dumps(v) for n, v in row.items() if v is not None}
    return json.dumps(texts, sort_keys=True)


def stage_rows(lake: Lake, source: str, table: str, days: Iterable[date] = ()) -> list[Row]:
    """Rows of landing, changes, control, quarantine, lag or schemas."""
    frame = lake.spark.table(lake.stage(source, table))
    wanted = list(days)
    if wanted:
        frame = frame.where(F.col("landing_date").isin([F.lit(day) for day in wanted]))
    return plain(frame)


def refs_of(lake: Lake, source: str, table: str) -> dict[str, int]:
    """Tags and branches of a table, and the snapshot of each."""
    state = lake.read_state(lake.state(source, TableName.parse(table)))
    return dict(state.refs) if state else {}


# -- comparing -----------------------------------------------------------------------------------


def row_text(row: Mapping[str, Any]) -> str:
    """A row as one line, the same for equal rows whatever the order of their columns."""
    return "{" + ", ".join(f"{name}: {_text(row[name])}" for name in sorted(row)) + "}"


def _text(value: Any) -> str:
    if isinstance(value, dict):
        return row_text(value)
    if isinstance(value, (list, tuple)):
        return "[" + ", ".join(_text(v) for v in value) + "]"
    return repr(value)


def assert_same_rows(
    got: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]], what: str = ""
) -> None:
    """Equal as multisets, with the rows that are only on one side as message."""
    difference = difference_of(got, expected)
    assert not difference, f"{what}\n{difference}"


def difference_of(got: Iterable[Mapping[str, Any]], expected: Iterable[Mapping[str, Any]]) -> str:
    """Rows that are only on one side, a line each; empty where both sides are the same."""
    found = Counter(row_text(row) for row in got)
    wanted = Counter(row_text(row) for row in expected)
    lines = [f"only got      {text}" for text in sorted((found - wanted).elements())]
    lines += [f"only expected {text}" for text in sorted((wanted - found).elements())]
    return "\n".join(lines[:40])


# -- the lake and the model side by side ---------------------------------------------------------

CHANGE_FIELDS = (
    "op",
    "source_op",
    "table_name",
    "key",
    "old_key",
    "new_key",
    "source_ts_ms",
    "processed_ts_ms",
    "is_snapshot",
    "position",
    "stream_element",
)


def destinations_read(lake: Lake, source: str) -> list[Row]:
    """Where each landed record of a source went, and why."""
    tables = ("changes", "control", "quarantine")
    return destinations_in({table: stage_rows(lake, source, table) for table in tables})


def destinations_in(rows: Mapping[str, Iterable[Row]]) -> list[Row]:
    """As :func:`destinations_read`, of the rows of each table."""
    names = ("landing_date", "topic", "partition", "offset", "reason")
    return [
        {"destination": destination, **{name: row.get(name) for name in names}}
        for destination, of_table in rows.items()
        for row in of_table
    ]


def destinations_expected(classified: Mapping[date, Iterable[Classified]]) -> list[Row]:
    """As :func:`destinations_read`, by the model."""
    return [
        {"destination": found.destination, "reason": found.reason, **_place(day, found)}
        for day, of_day in classified.items()
        for found in of_day
    ]


def changes_read(lake: Lake, source: str) -> list[Row]:
    """The changes of a source, images in canonical JSON."""
    return changes_in(stage_rows(lake, source, "changes"))


@deep_recursion()
def changes_in(rows: Iterable[Row]) -> list[Row]:
    """As :func:`changes_read`, of rows of `changes`."""
    names = ("landing_date", "topic", "partition", "offset", *CHANGE_FIELDS)
    return [
        {
            **{name: row[name] for name in names},
            **{name: _key(row[name]) for name in ("key", "old_key", "new_key")},
            **{name: _image(json_value(row[name])) for name in ("before", "after")},
        }
        for row in rows
    ]


@deep_recursion()
def changes_expected(classified: Mapping[date, Iterable[Classified]]) -> list[Row]:
    """As :func:`changes_read`, by the model."""
    return [
        {
            **_place(day, found),
            **{name: getattr(found, name) for name in CHANGE_FIELDS},
            **{name: _key(getattr(found, name)) for name in ("key", "old_key", "new_key")},
            **{name: _image(getattr(found, name)) for name in ("before", "after")},
        }
        for day, of_day in classified.items()
        for found in of_day
        if found.destination == "changes"
    ]


def assert_as_model(lake: Lake, source: str, options: Mapping[str, Any], landed: Landed) -> None:
    """Every record is where the model has it, and read as the model reads it."""
    classified = classify(dict(options), landed)
    for got, expected in (
        (destinations_read(lake, source), destinations_expected(classified)),
        (changes_read(lake, source), changes_expected(classified)),
    ):
        difference = difference_of(got, expected)
        assert not difference, difference


def assert_tables_as_model(
    lake: Lake, source: str, options: Mapping[str, Any], landed: Landed
) -> None:
    """Every day of every configured table has the model's rows, and leads to the next."""
    by_day = tables(dict(options), landed)
    for day, expected in by_day.items():
        for table in options["tables"]:
            assert_same_rows(rows_of(lake, source, table, day), expected[table], f"{table} {day}")
    for first, last in pairwise(sorted(by_day)):
        for table in options["tables"]:
            assert_diff_leads_on(lake, source, table, first, last)


def _place(day: date, found: Classified) -> Row:
    record = found.record
    names = ("topic", "partition", "offset")
    return {"landing_date": day, **{name: getattr(record, name) for name in names}}


def lag_read(lake: Lake, source: str) -> list[Row]:
    """Lag rows, `hour` in ms UTC, without `complete`: the model has no clock."""
    # Source clocks may say years that Python's datetime can't hold.
    frame = lake.spark.table(lake.stage(source, "lag"))
    rows = plain(frame.withColumn("hour", F.unix_millis("hour")))
    return [{name: row[name] for name in row if name != "complete"} for row in rows]


def lag_expected(lag: Mapping[date, Iterable[Row]]) -> list[Row]:
    """As :func:`lag_read`, by the model."""
    rows = [row for of_day in lag.values() for row in of_day]
    return [{name: row[name] for name in row if name != "complete"} for row in rows]


def json_value(text: str | None) -> Any:
    """Parsed JSON whose numbers are exact."""
    return None if text is None else parse_json(text.encode())


def _image(row: Row | None) -> str | None:
    """The row as canonical JSON: 1.0 and 1 are one number, exact to 38 digits (section 4).

    Wider integers, and what no double holds either, are texts of their digits.
    """
    return None if row is None else json_text(double_if_wide(row))


def _key(text: str | None) -> str | None:
    """A key as it is; the digits of what VARIANT can't hold have several spellings."""
    wide = any(map(_has_spellings, re.findall(f'"({_NUMBER})"', text or "")))
    return _image(json_value(text)) if wide else text


_NUMBER = r"-?\d+(?:\.\d+)?(?:[eE][+-]?\d+)?"


def _has_spellings(number: str) -> bool:
    is_plain = number.lstrip("-").isdigit() or (len(number) < 40 and "e" not in number.lower())
    return not is_plain or math.isinf(float(number))


def with_doubles(row: Mapping[str, Any]) -> dict[str, Any]:
    """A table's row; a number with more digits than VARIANT holds is a double, in texts too."""
    return {n: double_if_wide(v) if isinstance(v, str) else v for n, v in row.items()}


def double_if_wide(value: Any) -> Any:
    if isinstance(value, dict):
        return {name: double_if_wide(member) for name, member in value.items()}
    if isinstance(value, list):
        return [double_if_wide(member) for member in value]
    if isinstance(value, str) and re.fullmatch(_NUMBER, value):
        value = parse_json(value.encode()) if _has_spellings(value) else value
    if isinstance(value, bool) or not isinstance(value, (int, Decimal)):
        return value
    number = Decimal(value)
    if isinstance(value, int) and abs(value) >= 10**38:
        return str(value)
    if number.is_finite() and abs(number.adjusted()) < 38 and len(number.as_tuple().digits) <= 38:
        return value
    try:
        double = float(number)
    except OverflowError:
        double = math.inf
    return Decimal(repr(double)) if math.isfinite(double) else str(number.normalize())


# -- costs ---------------------------------------------------------------------------------------


@contextmanager
def counted_calls() -> Iterator[Counter[str]]:
    """Counts the calls from Python to the JVM, but not the forgetting of objects."""
    calls: Counter[str] = Counter()
    send = GatewayClient.send_command

    def counting(self: GatewayClient, command: str, *args: Any, **options: Any) -> Any:
        calls[command.partition("\n")[0]] += 1
        return send(self, command, *args, **options)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(GatewayClient, "send_command", counting)
        yield calls
    calls.pop("m", None)


def jobs_run(lake: Lake) -> int:
    """How many jobs Spark has run so far."""
    count: int = lake.spark._jsc.sc().dagScheduler().numTotalJobs()  # type: ignore[attr-defined]
    return count
