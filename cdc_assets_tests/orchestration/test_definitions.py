"""The Dagster floor: what is defined, and what a run records a day each."""

from __future__ import annotations

import base64
from collections.abc import Iterator, Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
from pyspark.sql import SparkSession

from cdc_assets import definitions
from cdc_assets.cdc.changes.figures import ChangesFigures
from cdc_assets.cdc.changes.findings import quarantine_findings
from cdc_assets.cdc.changes.reasons import REASONS
from cdc_assets.cdc.config import Config, TableConfig, load_config, parse_config
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.findings import Severity
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.names import TableName
from cdc_assets.cdc.state.contracts import broken_of_table
from cdc_assets.cdc.state.day_types import OWN_COLUMNS
from cdc_assets.cdc.values.column_types import columns_of_config
from cdc_assets.orchestration.assets.build import build_assets
from cdc_assets.orchestration.assets.keys import table_key
from cdc_assets_tests import events as ev
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.lakes import changes_found, make_lag, run_stages, source_config
from cdc_assets_tests.paths import REPOSITORY
from cdc_assets_tests.shared_spark import SharedSpark

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]


def run(
    lake: Lake,
    source: str,
    first: date,
    last: date,
    instance: dg.DagsterInstance,
    chosen: Sequence[dg.AssetKey] | None = None,
) -> Any:
    SharedSpark.shared = lake
    return dg.materialize(
        build_assets(source, lake.config),
        instance=instance,
        selection=chosen,
        resources={"spark": SharedSpark()},
        tags={
            "dagster/asset_partition_range_start": str(first),
            "dagster/asset_partition_range_end": str(last),
        },
        raise_on_error=False,
    )


def materialized(instance: dg.DagsterInstance, key: dg.AssetKey) -> dict[str, Any]:
    """Metadata by partition; each partition once."""
    records = instance.fetch_materializations(key, limit=50).records
    events = [record.asset_materialization for record in records]
    partitions = [event.partition for event in events if event]
    assert len(partitions) == len(set(partitions))
    return {e.partition: e.metadata for e in events if e and e.partition}


def evaluations(result: Any, key: dg.AssetKey) -> dict[tuple[str, str | None], bool]:
    return {
        (e.check_name, e.partition): e.passed
        for e in result.get_asset_check_evaluations()
        if e.asset_key == key
    }


@pytest.fixture(scope="module")
def sample() -> Config:
    return load_config(REPOSITORY / "cdc.yaml")


@pytest.fixture(scope="module")
def instance() -> Iterator[dg.DagsterInstance]:
    with dg.DagsterInstance.ephemeral() as found:
        yield found


def test_the_sample_configuration_gives_the_assets_of_every_source(sample: Config) -> None:
    defs = definitions.build_definitions(sample)
    keys = {key.to_user_string() for key in defs.resolve_asset_graph().get_all_asset_keys()}
    for source, config in sample.sources.items():
        stages = {f"{source}/{s}" for s in ("landing", "changes", "control", "quarantine", "lag")}
        tables = {table_key(source, t).to_user_string() for t in config.tables}
        assert stages | tables <= keys
    assert len(keys) == sum(5 + len(c.tables) for c in sample.sources.values())


def test_a_table_depends_on_its_own_day_before(sample: Config) -> None:
    graph = definitions.build_definitions(sample).resolve_asset_graph()
    key = table_key("inventory", "public.customers")
    mapping = graph.get_partition_mapping(key, key)
    assert isinstance(mapping, dg.TimeWindowPartitionMapping)
    assert (mapping.start_offset, mapping.end_offset) == (-1, -1)


def test_all_assets_fill_a_range_in_one_run(sample: Config) -> None:
    graph = definitions.build_definitions(sample).resolve_asset_graph()
    for node in graph.asset_nodes:
        assert node.backfill_policy == dg.BackfillPolicy.single_run(), node.key


def test_names_that_dagster_can_not_hold_are_coded() -> None:
    assert table_key("s", 'public."price.list"').path == ["s", "public", "price_x2E_list"]
    assert table_key("s", "public.a b").path == ["s", "public", "a_x20_b"]


@pytest.fixture(scope="module")
def ran(
    spark: SparkSession,
    lake_of: LakeOf,
    tmp_path_factory: pytest.TempPathFactory,
    instance: dg.DagsterInstance,
) -> tuple[Any, Lake]:
    """Three days of two tables; the second day of `bad` can't be made."""
    types: dict[str, Any] = {"id": "int32", "api_token": "string", "phone": "string"}
    types |= {"name": {"type": "string", "optional": True, "doc": "as in the *passport*"}}
    types |= {"opens": "io.debezium.time.Time"}
    log = ev.PgLog("shop", "public", "good", types=types)
    bad = ev.PgLog("shop", "public", "bad", types={"id": "int32"}, landing=log.landing)
    log.create(id=1, name="Ann")
    log.create(id=2, name="Bo")
    bad.create(id=1)
    log.next_day()
    log.delete(id=2)
    log.landing.put(ev.raw(b"{'no': 'json'}", topic="shop.public.good"))
    other = ev.PgLog(
        "shop", "public", "bad", types={"_cdc_mine": "string", "id": "int32"}, landing=log.landing
    )
    other._event(ev.created, {"id": 3, "_cdc_mine": "x"})
    log.next_day()
    log.update(id=1, name="Anna", api_token="t0p-s3cret", phone="0123")
    bad.create(id=2)
    folder = tmp_path_factory.mktemp("definitions")
    ev.write_landing(folder, log.landed)
    derived = {"key": ["id"], "history": True, "feed": True}
    good = {**derived, "sensitive": ["phone"], "columns": {"id": "int"}}
    tables = {"public.good": good, "public.bad": derived}
    settings = {"lag_slo_ms": 60_000, "max_silence_minutes": 60}
    lake = lake_of({"defs": source_config(folder, tables=tables, **settings)})
    return run(lake, "defs", DAYS[0], DAYS[-1], instance), lake


def test_each_day_is_materialized_once_with_its_own_figures(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance
) -> None:
    good = materialized(instance, dg.AssetKey(["defs", "public", "good"]))
    assert {day: m["dagster/row_count"].value for day, m in good.items()} == {
        str(DAYS[0]): 2,
        str(DAYS[1]): 1,
        str(DAYS[2]): 1,
    }
    assert good[str(DAYS[1])]["op_d"].value == 1
    quarantine = materialized(instance, dg.AssetKey(["defs", "quarantine"]))
    assert quarantine[str(DAYS[1])]["reason_malformed_json"].value == 1
    assert quarantine[str(DAYS[0])]["reason_malformed_json"].value == 0


def test_what_did_not_occur_is_counted_as_none(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance
) -> None:
    """So that a plot over the days has its good days."""
    first = str(DAYS[0])

    def counts(asset: str, prefix: str) -> dict[str, Any]:
        of_day = materialized(instance, dg.AssetKey(["defs", *asset.split("/")]))[first]
        return {n.removeprefix(prefix): v.value for n, v in of_day.items() if n.startswith(prefix)}

    assert counts("changes", "op_") == {"c": 3, "u": 0, "d": 0, "r": 0, "t": 0}
    assert counts("public/good", "op_") == {"c": 2, "u": 0, "d": 0, "r": 0, "t": 0}
    ops = ("message", "heartbeat", "transaction", "ddl", "tombstone", "other")
    assert counts("control", "op_") == dict.fromkeys(ops, 0)
    assert counts("quarantine", "reason_") == dict.fromkeys(REASONS, 0)


def test_a_quarantined_record_is_a_warning_that_says_what_to_do(
    ran: tuple[Any, Lake],
) -> None:
    result, _ = ran
    found = {
        e.partition: e
        for e in result.get_asset_check_evaluations()
        if e.check_name == "records_readable"
    }
    assert [found[str(day)].passed for day in DAYS] == [True, False, True]
    bad = found[str(DAYS[1])]
    assert bad.severity == dg.AssetCheckSeverity.WARN, "one record alone"
    assert bad.metadata["percent"].value == pytest.approx(100 / 3, abs=0.001)
    assert bad.metadata["reason_malformed_json"].value == 1
    assert "fix the producer" in bad.metadata["what_to_do"].value


@pytest.mark.parametrize(
    ("quarantined", "settings", "severity"),
    [
        ({}, {"quarantine_error_percent": 0}, None),
        ({"missing_op": 1}, {}, "WARN"),
        ({"missing_op": 50}, {}, "WARN"),
        ({"missing_op": 51}, {}, "ERROR"),
        ({"missing_op": 26, "malformed_json": 25}, {}, "ERROR"),
        ({"missing_op": 11}, {"quarantine_error_percent": 1.1}, "WARN"),
        ({"missing_op": 1}, {"quarantine_error_percent": 0}, "ERROR"),
        ({"missing_op": 3}, {"quarantine_error_count": 3}, "WARN"),
        ({"missing_op": 4}, {"quarantine_error_count": 3}, "ERROR"),
        ({"missing_op": 1}, {"quarantine_error_count": 0}, "ERROR"),
        ({"missing_op": 1000}, {"quarantine_error_percent": 100}, "WARN"),
    ],
)
def test_the_share_of_quarantined_records_decides_how_bad_they_are(
    tmp_path: Path, quarantined: dict[str, int], settings: dict[str, Any], severity: str | None
) -> None:
    raw = {"start_date": DAYS[0], "sources": {"s": source_config(tmp_path, **settings)}}
    source = parse_config(raw, tmp_path).source("s")
    figures = {DAYS[0]: ChangesFigures(landed=1000, quarantine=quarantined)}
    (finding,) = quarantine_findings(source, figures)[DAYS[0]]
    assert finding.passed == (severity is None)
    if severity is not None:
        assert finding.severity == Severity[severity]
        count = sum(quarantined.values())
        assert f"{count} of 1000 landed records ({count / 10:.3g} %)" in (finding.description or "")


def test_one_bad_message_is_no_error_however_few_landed_beside_it(tmp_path: Path) -> None:
    raw = {"start_date": DAYS[0], "sources": {"s": source_config(tmp_path)}}
    source = parse_config(raw, tmp_path).source("s")

    def severity(count: int) -> Severity | None:
        figures = {DAYS[0]: ChangesFigures(landed=3, quarantine={"malformed_json": count})}
        return quarantine_findings(source, figures)[DAYS[0]][0].severity

    assert severity(1) == Severity.WARN
    assert severity(2) == Severity.ERROR


def test_a_check_of_some_reasons_is_as_bad_as_their_share(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    good = [ev.created({"id": n}, offset=n) for n in range(60)]
    no_op = [ev.change(None, None, {"id": n}, offset=n) for n in range(60, 62)]
    no_json = [ev.raw(b"{", offset=62)]
    no_key = [ev.created({"id": 63}, offset=63, key=None)]
    ev.write_landing(tmp_path, {DAYS[0]: [*good, *no_op, *no_json, *no_key]})
    tables = {"public.customers": {}}
    limits = {"quarantine_error_percent": 2}
    lake = lake_of({name: source_config(tmp_path, tables=tables, **limits)})
    run_stages(lake, name, DAYS[:1], lag=True)
    found = {f.name: f for f in changes_found(lake, name, DAYS[:1])[DAYS[0]]}
    severities = {n: found[n].severity for n in ("op_codes_known", "keys_present")}
    assert not any(found[n].passed for n in severities)
    assert severities["op_codes_known"] == Severity.ERROR
    assert severities["keys_present"] == Severity.WARN
    assert found["keys_present"].values["missing_key"] == 1
    assert found["keys_present"].values["malformed_key"] == 0


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"quarantine_error_percent": 101}, "quarantine_error_percent: got 101; expected 100.0 or"),
        (
            {"quarantine_error_percent": -1},
            "quarantine_error_percent: got -1; expected 0.0 or more",
        ),
        ({"quarantine_error_count": 0.5}, "quarantine_error_count: got 0.5; expected a whole num"),
    ],
)
def test_a_wrong_limit_is_named(tmp_path: Path, setting: dict[str, Any], says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(
            {"start_date": DAYS[0], "sources": {"s": source_config(tmp_path, **setting)}}, tmp_path
        )
    assert says in str(raised.value)


def test_a_failed_day_stops_those_behind_it_and_the_other_tables_finish(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance
) -> None:
    result, _ = ran
    assert not result.success
    (failure,) = [e for e in result.all_events if e.is_step_failure]
    data = failure.step_failure_data.user_failure_data
    assert "rename" in data.description
    assert "_cdc_mine" in data.description
    assert f"days behind it were not made: {DAYS[2]}" in data.description
    bad = materialized(instance, dg.AssetKey(["defs", "public", "bad"]))
    assert sorted(bad) == [str(DAYS[0])]


@pytest.mark.parametrize("kind", ["history", "feed"])
def test_what_is_derived_from_a_table_has_its_days_although_another_table_failed(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance, kind: str
) -> None:
    result, _ = ran
    good = dg.AssetKey(["defs", "public", f"good__{kind}"])
    assert sorted(materialized(instance, good)) == [str(day) for day in DAYS]
    assert all(evaluations(result, good).values())
    bad = materialized(instance, dg.AssetKey(["defs", "public", f"bad__{kind}"]))
    assert sorted(bad) == [str(DAYS[0])]
    (failure,) = [e for e in result.all_events if e.is_step_failure]
    figures = failure.step_failure_data.user_failure_data.metadata
    assert (figures["tables_failed"].value, figures["tables_made"].value) == (1, 3)


def test_what_is_derived_says_what_it_is_derived_from_and_its_figures(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance
) -> None:
    _, lake = ran
    graph = definitions.build_definitions(lake.config).resolve_asset_graph()
    table = dg.AssetKey(["defs", "public", "good"])
    for kind, rows in (("history", "versions"), ("feed", "changes")):
        key = dg.AssetKey(["defs", "public", f"good__{kind}"])
        assert graph.get(key).parent_keys == {table, key}
        shown = materialized(instance, key)[str(DAYS[1])]
        assert shown[rows].value == {"versions": 2, "changes": 3}[rows]
        assert shown["dagster/row_count"].value == shown[rows].value
        assert "`id`" in shown["sample"].value or "| id |" in shown["sample"].value


def test_a_day_is_recorded_before_the_next_one_is_made(ran: tuple[Any, Lake]) -> None:
    result, _ = ran
    good = dg.AssetKey(["defs", "public", "good"])
    seen = [e for e in result.all_events if e.asset_key == good and e.is_step_materialization]
    assert [e.partition for e in seen] == [str(day) for day in DAYS]
    says = [e for e in result.all_events if e.step_key == "defs__tables"]
    (ended,) = [n for n, e in enumerate(says) if e.is_step_failure]
    assert all(says.index(e) < ended for e in seen)
    judged = [e for e in says if e.event_type == dg.DagsterEventType.ASSET_CHECK_EVALUATION]
    first = next(e for e in judged if e.asset_check_evaluation_data.asset_key == good)
    assert says.index(seen[0]) < says.index(first) < says.index(seen[1])


def test_the_log_has_a_line_a_day_and_no_complaint_about_outputs(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance
) -> None:
    result, _ = ran
    logged = [entry.user_message for entry in instance.all_logs(result.run_id)]
    assert f"defs/public/good {DAYS[0]}: 2 rows (+2), 2 events (c 2), " in "\n".join(logged)
    for path in ("landing", "changes", "control", "quarantine", "lag", "public/good"):
        for day in DAYS:
            assert sum(line.startswith(f"defs/{path} {day}: ") for line in logged) == 1, path
    assert not [line for line in logged if "expected outputs" in line]


def test_a_day_that_is_as_recorded_keeps_its_metadata_and_the_last_day_is_checked_again(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance
) -> None:
    _, lake = ran
    keys = [dg.AssetKey(["defs", *path]) for path in (["changes"], ["lag"], ["public", "good"])]
    with dg.DagsterInstance.ephemeral() as another:
        run(lake, "defs", DAYS[0], DAYS[-1], another)
        before = {key: materialized(another, key) for key in keys}
        again = run(lake, "defs", DAYS[0], DAYS[-1], another)
        for key in keys:
            newest = another.fetch_materializations(key, limit=len(DAYS)).records
            events = [e for r in newest if (e := r.asset_materialization)]
            of_runs = {r.event_log_entry.run_id for r in newest}
            assert of_runs == {again.run_id}
            found = {e.partition: dict(e.metadata) for e in events}
            assert all(m.pop("unchanged_since_last_made").value for m in found.values())
            expected = {day: dict(m) for day, m in before[key].items()}
            for of_day in expected.values():
                del of_day["unchanged_since_last_made"]
            assert found == expected
            assert {day for _, day in evaluations(again, key)} == {str(DAYS[-1])}


def test_a_day_that_was_made_elsewhere_is_recorded_as_it_is_now(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance
) -> None:
    _, lake = ran
    key = dg.AssetKey(["defs", "lag"])
    with dg.DagsterInstance.ephemeral() as another:
        run(lake, "defs", DAYS[0], DAYS[0], another)
        before = materialized(another, key)[str(DAYS[0])]["iceberg_snapshot"].value
        make_lag(lake, "defs", [DAYS[0]], force=True)
        run(lake, "defs", DAYS[0], DAYS[0], another)
        (newest,) = another.fetch_materializations(key, limit=1).records
        assert newest.asset_materialization is not None
        found = newest.asset_materialization.metadata
        assert found["iceberg_snapshot"].value != before
        assert not found["unchanged_since_last_made"].value


def test_checks_are_evaluated_a_day_each(ran: tuple[Any, Lake]) -> None:
    result, _ = ran
    found = evaluations(result, dg.AssetKey(["defs", "changes"]))
    for day in map(str, DAYS):
        assert found["nothing_lost", day]
        assert found["contract", day]
        assert found["keys_present", day]
    table = evaluations(result, dg.AssetKey(["defs", "public", "good"]))
    assert {(name, day) for name, day in table} == {
        (check, str(day))
        for day in DAYS
        for check in (
            "keys_unique",
            "keys_readable",
            "keys_agree",
            "positions_comparable",
            "one_database",
            "built_on_day_before",
            "late_within_window",
            "values_representable",
            "rows_missing_from_snapshot",
            "schema_compatible",
            "contract",
        )
    }
    assert all(table.values())


def test_the_asset_names_a_query_of_its_day(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance
) -> None:
    good = materialized(instance, dg.AssetKey(["defs", "public", "good"]))
    assert f"VERSION AS OF '{DAYS[0]}'" in good[str(DAYS[0])]["query"].value


def test_the_asset_names_the_command_that_leads_from_a_row_to_its_messages(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance
) -> None:
    good = materialized(instance, dg.AssetKey(["defs", "public", "good"]))
    command = f'cdc-assets trace defs.public.good --key \'{{"id": "…"}}\' --as-of {DAYS[0]}'
    assert command in good[str(DAYS[0])]["trace"].value


def test_a_sample_shows_rows_and_no_secret(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance
) -> None:
    good = materialized(instance, dg.AssetKey(["defs", "public", "good"]))
    assert "| Bo |" in good[str(DAYS[0])]["sample"].value
    assert "| Ann |" in good[str(DAYS[1])]["sample"].value
    assert "| Bo |" not in good[str(DAYS[1])]["sample"].value
    sample = good[str(DAYS[2])]["sample"].value
    assert "| Anna |" in sample
    assert "•••" in sample
    assert "t0p-s3cret" not in sample
    assert "0123" not in sample


def test_columns_say_what_they_hold(ran: tuple[Any, Lake], instance: dg.DagsterInstance) -> None:
    good = materialized(instance, dg.AssetKey(["defs", "public", "good"]))[str(DAYS[0])]
    columns = good["dagster/column_schema"].value.columns
    said = {column.name: column.description for column in columns}
    assert said == {
        "id": "key",
        "api_token": None,
        "phone": None,
        # No markup comes of a text from data.
        "name": "`as in the *passport*`",
        "opens": "time of day, microseconds since midnight, sent in milliseconds "
        "(io.debezium.time.Time)",
        **{field.name: field.metadata["comment"] for field in OWN_COLUMNS.fields},
    }
    assert [column.name for column in columns] == list(said)


def test_columns_have_their_lineage(ran: tuple[Any, Lake], instance: dg.DagsterInstance) -> None:
    def deps(asset: str, column: str, metadata: Any) -> list[tuple[str, str]]:
        lineage = metadata["dagster/column_lineage"]
        found = getattr(lineage, "value", lineage).deps_by_column[column]
        assert all(dep.asset_key.path[0] == "defs" for dep in found), asset
        return [(dep.asset_key.path[-1], dep.column_name) for dep in found]

    good = materialized(instance, dg.AssetKey(["defs", "public", "good"]))[str(DAYS[0])]
    assert deps("good", "name", good) == [("changes", "after")]
    assert deps("good", "id", good) == [("changes", "after"), ("changes", "key")]
    assert deps("good", "_cdc_position", good) == [("changes", "position")]
    specs = {
        spec.key.path[-1]: spec for d in build_assets("defs", ran[1].config) for spec in d.specs
    }
    assert deps("changes", "after", specs["changes"].metadata) == [("landing", "value")]
    assert deps("changes", "offset", specs["changes"].metadata) == [("landing", "offset")]
    assert deps("lag", "hour", specs["lag"].metadata) == [("changes", "source_ts_ms")]


def test_lag_is_drawn_over_the_hours_and_plots_over_the_days(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance
) -> None:
    lag = materialized(instance, dg.AssetKey(["defs", "lag"]))
    assert sorted(lag) == [str(day) for day in DAYS]
    for metadata in lag.values():
        assert isinstance(metadata["capture_p95_ms"].value, int)
        picture = metadata["by_hour"].value.partition("base64,")[2].removesuffix(")")
        assert base64.b64decode(picture).startswith(b"\x89PNG")


def test_each_stage_says_its_size_its_seconds_and_where_it_is(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance
) -> None:
    for stage in ("landing", "changes", "control", "quarantine", "lag"):
        of_days = materialized(instance, dg.AssetKey(["defs", stage]))
        for day, metadata in of_days.items():
            assert metadata["seconds"].value >= 0
            assert metadata["location"].value.endswith(f"defs/{stage}")
            assert f"landing_date = DATE '{day}'" in metadata["query"].value
    landing = materialized(instance, dg.AssetKey(["defs", "landing"]))
    assert all(m["bytes"].value > 0 for m in landing.values())
    quarantine = materialized(instance, dg.AssetKey(["defs", "quarantine"]))
    assert quarantine[str(DAYS[2])]["bytes"].value == 0
    assert "malformed_json" in quarantine[str(DAYS[1])]["examples"].value


def test_a_source_that_went_silent_is_told(ran: tuple[Any, Lake]) -> None:
    result, _ = ran
    found = [e for e in result.get_asset_check_evaluations() if e.check_name == "source_alive"]
    assert {e.partition: e.passed for e in found} == dict.fromkeys(map(str, DAYS), False)
    assert all(e.metadata["silent_minutes"].value > 60 for e in found)
    assert {e.severity for e in found} == {dg.AssetCheckSeverity.WARN}


def test_heartbeats_keep_a_quiet_source_alive(lake_of: LakeOf, tmp_path: Path, name: str) -> None:
    def beat(day: date, hours: float) -> Any:
        midnight = datetime.combine(day, datetime.min.time(), timezone.utc)
        ms = int((midnight + timedelta(hours=hours)).timestamp() * 1000)
        return ev.heartbeat(ms, timestamp_ms=ms + 5, offset=DAYS.index(day))

    landed = {DAYS[0]: [beat(DAYS[0], 23.5)], DAYS[1]: [beat(DAYS[1], 12)], DAYS[2]: []}
    ev.write_landing(tmp_path, landed)
    lake = lake_of({name: source_config(tmp_path, max_silence_minutes=60)})
    run_stages(lake, name, DAYS, lag=True)
    findings = changes_found(lake, name, DAYS)
    alive = {day: f for day in DAYS for f in findings[day] if f.name == "source_alive"}
    assert [alive[day].passed for day in DAYS] == [True, False, False]
    assert alive[DAYS[1]].values["silent_minutes"] == pytest.approx(720, abs=0.2)
    assert alive[DAYS[2]].values["newest"] == "no record"


def test_a_table_that_differs_from_its_configuration_and_messages_breaks_its_contract(
    spark: SparkSession,
) -> None:
    config = TableConfig(columns={"n": "int", "d": "date"})
    of_messages = columns_of_config({"id": "bigint", "x": "string", "gone": "string"})
    own = ", ".join(f"{f.name} {f.dataType.simpleString()}" for f in OWN_COLUMNS)
    good = spark.createDataFrame([], f"id bigint, x string, gone string, n bigint, d date, {own}")
    assert broken_of_table(good, config, of_messages, ["id"]) == []
    bad = spark.createDataFrame([], f"id bigint, n bigint, d string, x string, {own}")
    faults = broken_of_table(bad, config, of_messages, ["id"])
    assert len(faults) == 2
    assert any("gone: column is missing" in fault for fault in faults)
    assert any(fault.startswith("d: ") for fault in faults)


def test_owners_tags_and_descriptions_are_those_of_the_configuration(tmp_path: Path) -> None:
    table = {"owners": ["ann@example.org"], "tags": {"pii": "yes"}, "description": "Who buys."}
    source = source_config(
        tmp_path, owners=["team:data"], tags={"domain": "shop"}, tables={"public.good": table}
    )
    config = parse_config({"start_date": DAYS[0], "sources": {"s": source}}, tmp_path)
    specs = {s.key.path[-1]: s for d in build_assets("s", config) for s in d.specs}
    good = specs["good"]
    assert list(good.owners) == ["team:data", "ann@example.org"]
    assert good.tags.items() >= {("domain", "shop"), ("pii", "yes")}
    assert good.description is not None
    assert good.description.startswith("Who buys.")
    assert list(specs["landing"].owners) == ["team:data"]
    assert {spec.group_name for spec in specs.values()} == {"s"}
    assert all(spec.description for spec in specs.values())


@pytest.mark.parametrize(
    ("setting", "says"),
    [
        ({"owners": ["data"]}, "sources.s.owners: got 'data'; expected team:<name> or an e-mail"),
        ({"tags": {"a b": "x"}}, "sources.s.tags: got a b: 'x'"),
    ],
)
def test_an_owner_or_tag_that_dagster_can_not_take_is_named(
    tmp_path: Path, setting: dict[str, Any], says: str
) -> None:
    with pytest.raises(ConfigError) as raised:
        parse_config(
            {"start_date": DAYS[0], "sources": {"s": source_config(tmp_path, **setting)}}, tmp_path
        )
    assert says in str(raised.value)


def test_a_second_run_of_the_range_makes_nothing_anew(
    ran: tuple[Any, Lake], instance: dg.DagsterInstance
) -> None:
    _, lake = ran
    table = lake.state("defs", TableName("public", "good"))
    before = lake.day_commits("defs", "changes"), lake.read_state(table)
    with dg.DagsterInstance.ephemeral() as another:
        run(lake, "defs", DAYS[0], DAYS[-1], another)
    assert (lake.day_commits("defs", "changes"), lake.read_state(table)) == before


@pytest.mark.parametrize(
    "path", [["landing"], ["changes"], ["control"], ["quarantine"], ["lag"], ["public", "good"]]
)
def test_each_asset_can_be_made_alone(ran: tuple[Any, Lake], path: list[str]) -> None:
    """Also one that is made in one step with others: these then get no record."""
    _, lake = ran
    key = dg.AssetKey(["defs", *path])
    with dg.DagsterInstance.ephemeral() as another:
        result = run(lake, "defs", DAYS[0], DAYS[1], another, chosen=[key])
        assert result.success
        assert sorted(materialized(another, key)) == [str(day) for day in DAYS[:2]]
        events = result.get_asset_materialization_events()
        assert {e.asset_key for e in events} == {key}
        assert {e.asset_key for e in result.get_asset_check_evaluations()} <= {key}
