"""`cdc-assets doctor`: each problem comes with a remedy; no secret is shown."""

from __future__ import annotations

import gzip
import json
import os
import socket
import subprocess
import sys
from datetime import date
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyiceberg.catalog.sql import SqlCatalog
from typer.testing import CliRunner

from cdc_assets.cdc.lake import adopted_tables
from cdc_assets.cdc.landing import files
from cdc_assets.cli.app import app
from cdc_assets.cli.doctor import Finding, Status, run_checks
from cdc_assets_tests.paths import REPOSITORY
from cdc_assets_tests.registries import Schemas, serving

SHOP: dict[str, Any] = {
    "format": "debezium",
    "landing": {"files": "landing"},
    "tables": {"public.customers": {"key": ["id"]}},
}


@pytest.fixture(autouse=True)
def project(project: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A folder without problems: cdc.yaml, dagster.yaml, a landed day."""
    write_config(project)
    storage = {"sqlite": {"base_dir": str(project / ".dagster")}}
    (project / "dagster.yaml").write_text(
        yaml.safe_dump({"storage": storage, "telemetry": {"enabled": False}})
    )
    day = project / "landing" / "2026-11-01"
    day.mkdir(parents=True)
    (day / "events.jsonl").write_text("{}\n")
    for name in ("CDC_SPARK_JARS", "JAVA_HOME"):
        monkeypatch.delenv(name, raising=False)
    return project


def write_config(folder: Path, source: dict[str, Any] | None = None, **top: Any) -> None:
    """cdc.yaml of one source."""
    raw = {
        "lake": {"warehouse": "warehouse"},
        "start_date": "2026-11-01",
        "sources": {"shop": SHOP | (source or {})},
    }
    (folder / "cdc.yaml").write_text(yaml.safe_dump({**raw, **top}), "utf-8")


def findings(check: str, status: Status | None = None) -> list[Finding]:
    """The findings of one check."""
    found = list(run_checks(quick=True, only=("configuration", check)))
    own = [finding for finding in found if finding.check.startswith(check)]
    return [finding for finding in own if status in (None, finding.status)]


def test_a_project_in_order_has_no_problem() -> None:
    found = list(run_checks(quick=True))
    assert [finding for finding in found if finding.status is Status.problem] == []
    checks = {finding.check for finding in found}
    assert {"java", "jars", "packages", "catalog", "landing of shop", "dagster"} <= checks
    (landing,) = [finding for finding in found if finding.check == "landing of shop"]
    assert "1 days, the newest 2026-11-01" in landing.found


def test_problems_exit_1_and_have_a_remedy(project: Path) -> None:
    write_config(project, {"landing": {"files": "nowhere"}})
    result = CliRunner().invoke(app, ["doctor", "--quick", "--format", "json"])
    assert result.exit_code == 1
    rows = [json.loads(line) for line in result.stdout.splitlines()]
    (bad,) = [row for row in rows if row["status"] == "problem"]
    assert bad["check"] == "landing of shop"
    assert "nowhere is not a folder" in bad["found"]
    assert "sources.shop.landing.files" in bad["remedy"]


def test_every_fault_of_the_configuration_is_a_line_and_the_machine_is_checked_too(
    project: Path,
) -> None:
    write_config(project, {"late_days": -1, "colour": "red"}, maintenance={"orphan_hours": 1})
    found = list(run_checks(quick=True))
    faults = [finding.found for finding in found if finding.check == "configuration"]
    for path in ("sources.shop.late_days", "sources.shop.colour", "maintenance.orphan_hours"):
        assert [text for text in faults if f"{path}:" in text], path
    assert {"java", "jars", "dagster"} <= {finding.check for finding in found}


def test_a_missing_or_old_java_is_a_problem(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("JAVA_HOME", str(project / "no-java"))
    (missing,) = findings("java")
    assert (missing.status, "JAVA_HOME" in missing.remedy) == (Status.problem, True)
    java = project / "old" / "bin" / "java"
    java.parent.mkdir(parents=True)
    java.write_text("#!/bin/sh\necho 'openjdk version \"1.8.0_392\"' >&2\n")
    java.chmod(0o755)
    monkeypatch.setenv("JAVA_HOME", str(project / "old"))
    (old,) = findings("java")
    assert old.status is Status.problem
    assert "1.8.0_392" in old.found
    assert "17 or 21" in old.remedy


def test_a_folder_without_the_jars_is_a_problem(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "some-1.0.jar").touch()
    monkeypatch.setenv("CDC_SPARK_JARS", str(project))
    (found,) = findings("jars")
    assert found.status is Status.problem
    assert "iceberg-spark-runtime" in found.found


def test_entries_that_are_not_days_and_files_that_nothing_reads_are_reported(project: Path) -> None:
    (project / "landing" / "2026-13-01").mkdir()
    (project / "landing" / "_done").mkdir()
    (warning,) = findings("landing", Status.warning)
    assert "not days: 2026-13-01" in warning.found
    (project / "landing" / "2026-11-01" / "events.avro").touch()
    (problem,) = findings("landing", Status.problem)
    assert "events.avro" in problem.found


def test_a_folder_with_entries_and_no_day_is_a_problem_that_shows_them(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = project / "topics" / "shop.public.customers" / "year=2026"
    sink.mkdir(parents=True)
    (sink / "part.jsonl").write_text("{}\n")
    write_config(project, {"landing": {"files": "topics"}})
    (local,) = findings("landing")
    # A store of objects that is listed as one.
    monkeypatch.setattr(files, "as_uri", lambda _: (project / "topics").as_uri())
    write_config(project, {"landing": {"files": "s3://bucket/topics"}})
    (remote,) = findings("landing")
    for found in (local, remote):
        assert found.status is Status.problem
        assert "no folder of a day, but shop.public.customers" in found.found
    monkeypatch.setattr(files, "as_uri", lambda _: (project / "landing").as_uri())
    (good,) = findings("landing")
    assert (good.status, "1 days, the newest 2026-11-01" in good.found) == (Status.ok, True)


def test_a_login_that_goes_over_the_network_in_the_clear_is_a_warning(project: Path) -> None:
    registry = {"url": "http://registry.example/", "username": "u", "password": "s3cret-pass"}
    landing = {"files": "landing", "registry": registry}
    write_config(project, {"landing": landing}, spark={"spark.master": "spark://h:7077"})
    login, ports = findings("configuration", Status.warning)
    assert "sources.shop.landing.registry.url" in login.found
    assert "over http:// to registry.example" in login.found
    assert "s3cret" not in login.found
    assert "spark.authenticate is not true" in ports.found
    registry["url"] = "http://127.0.0.1:8081/"
    write_config(project, {"landing": landing}, spark={"spark.authenticate": "true"})
    assert findings("configuration", Status.warning) == []


def test_a_jar_that_is_not_the_released_one_is_a_problem(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (project / "sqlite-jdbc-3.53.2.0.jar").write_bytes(b"another")
    monkeypatch.setenv("CDC_SPARK_JARS", str(project))
    (found,) = findings("jars")
    assert found.status is Status.problem
    assert "it is not the released sqlite-jdbc-3.53.2.0.jar" in found.found


def test_a_broker_that_does_not_answer_is_a_problem(project: Path) -> None:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        server = f"127.0.0.1:{free.getsockname()[1]}"
    kafka = {"bootstrap_servers": server, "topics": ["t"]}
    write_config(project, {"landing": {"kafka": kafka}})
    (found,) = findings("landing")
    assert found.status is Status.problem
    assert f"no broker answers: {server}" in found.found
    with socket.create_server(("127.0.0.1", 0)) as open_port:
        kafka["bootstrap_servers"] = f"{server},127.0.0.1:{open_port.getsockname()[1]}"
        write_config(project, {"landing": {"kafka": kafka}})
        (found,) = findings("landing")
    assert found.status is Status.ok
    assert "1 of 2 brokers answer" in found.found


def test_a_schema_registry_is_asked_for_its_subjects(project: Path) -> None:
    schemas = Schemas()
    with serving(schemas) as url:
        write_config(project, {"landing": {"files": "landing", "registry": {"url": url}}})
        _, empty = findings("landing")
        schemas.registered('"string"')
        _, found = findings("landing")
    _, gone = findings("landing")
    assert (empty.status, empty.found) == (Status.warning, f"{url} has no subject")
    assert "sources.shop.landing.registry.url" in empty.remedy
    assert (found.status, found.found) == (Status.ok, f"{url}: 1 subjects")
    assert gone.status is Status.problem
    assert "the schema registry does not answer" in gone.found


def test_saved_answers_of_a_registry_are_read(project: Path) -> None:
    write_config(project, {"landing": {"files": "landing", "registry": {"files": "registry"}}})
    _, missing = findings("landing")
    folder = project / "registry" / "schemas" / "ids"
    folder.mkdir(parents=True)
    _, empty = findings("landing")
    (folder / "7.json").write_text('{"schema": "\\"string\\""}')
    _, found = findings("landing")
    (folder / "8.json").write_text("{")
    _, wrong = findings("landing")
    place = project / "registry"
    assert missing.status is Status.problem
    assert "is no folder of saved answers" in missing.found
    assert (empty.status, empty.found) == (Status.warning, f"{place} has no schema")
    assert "sources.shop.landing.registry.files" in empty.remedy
    assert (found.status, found.found) == (Status.ok, f"{place}: 1 schemas")
    assert wrong.status is Status.problem
    assert "8.json" in wrong.found


def test_a_lake_that_contradicts_the_configuration_is_a_problem(project: Path) -> None:
    warehouse = project / "warehouse"
    warehouse.mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    try:
        rows = pa.table({"id": [1]})
        for space, name, properties in (
            (("shop",), "landing", {"cdc.timezone": "Asia/Shanghai"}),
            (("shop", "public"), "customers", {}),
        ):
            catalog.create_namespace(space)
            table = catalog.create_table((*space, name), rows.schema, properties=properties)
            table.append(rows)
        snapshot = table.current_snapshot()
        assert snapshot is not None
        table.manage_snapshots().create_tag(snapshot.snapshot_id, "2026-10-30").commit()
    finally:
        catalog.engine.dispose()
    start, zone = findings("catalog", Status.problem)
    assert "days of shop.landing are cut in Asia/Shanghai" in zone.found
    assert "set timezone: Asia/Shanghai" in zone.remedy
    assert "start_date 2026-11-01 is later than 2026-10-30" in start.found


SOURCE = {"schema": "public", "table": "customers", "namespace": "public"}
ROW = {"id": 1, "name": "a"}
EVENTS: dict[str, dict[str, Any]] = {
    "debezium": {"op": "c", "after": ROW, "source": SOURCE},
    "debezium-flat": {**ROW, "__op": "c", "__table": "customers", "__source_schema": "public"},
    "lindorm": {"payload": {"op": "c", "after": ROW, "source": SOURCE}, "schema": {}},
    "dataworks": {
        "schema": {"source": {"dbName": "public", "tableName": "customers"}},
        "payload": {"op": "INSERT", "after": {"dataColumn": ROW}},
    },
    "maxwell": {"database": "public", "table": "customers", "type": "insert", "data": ROW},
    "ogg": {"table": "public.customers", "op_type": "I", "after": ROW},
}


def land(project: Path, event: dict[str, Any], name: str = "events.jsonl") -> None:
    """A record that is landed in place of the empty one."""
    record = {"topic": "t", "partition": 0, "offset": 0, "key": None, "payload": json.dumps(event)}
    line = json.dumps(record).encode() + b"\n"
    (project / "landing" / "2026-11-01" / "events.jsonl").unlink()
    file = project / "landing" / "2026-11-01" / name
    if name.endswith(".parquet"):
        pq.write_table(pa.table({"key": [None], "value": [json.dumps(event).encode()]}), file)
    else:
        file.write_bytes(gzip.compress(line) if name.endswith(".gz") else line)


@pytest.mark.parametrize("format_name", EVENTS)
def test_a_key_column_that_no_landed_row_has_is_a_problem(project: Path, format_name: str) -> None:
    land(project, EVENTS[format_name])
    tables: dict[str, Any] = {"public.customers": {"key": ["id"]}}
    write_config(project, {"format": format_name, "tables": tables})
    (right,) = findings("keys")
    assert (right.status, right.found[:6]) == (Status.ok, "1 of 1")
    tables["public.customers"]["key"] = ["nam"]
    write_config(project, {"format": format_name, "tables": tables})
    (wrong,) = findings("keys", Status.problem)
    assert wrong.found == "public.customers has no column nam; it has id, name"
    assert "sources.shop.tables.public.customers.key (did you mean name?)" in wrong.remedy


def test_tables_by_pattern_are_counted_and_their_columns_no_problem(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    land(project, EVENTS["debezium"])
    patterns: dict[str, Any] = {"public.*": {"key": ["uid"]}, "public.tmp_*": False, "x.*": {}}
    write_config(project, {"tables": patterns})
    of_patterns = [f.found for f in findings("configuration") if " adopts " in f.found]
    assert of_patterns == [
        "sources.shop.tables.public.* adopts 0 tables",
        "sources.shop.tables.x.* adopts 0 tables",
    ]
    names = frozenset({"public.customers", "public.orders", "public.tmp_1"})
    monkeypatch.setattr(adopted_tables, "seen_tables", lambda *_: names)
    found = findings("configuration")
    assert "sources.shop.tables.public.* adopts 2 tables" in [f.found for f in found]
    assert {f.status for f in [*found, *findings("keys")]} == {Status.ok}


def test_an_excluded_column_that_no_landed_row_has_is_a_problem(project: Path) -> None:
    """A name that is misspelt would protect nothing."""
    land(project, EVENTS["debezium"])
    write_config(project, {"tables": {"public.customers": {"exclude": ["nmae"]}}})
    (wrong,) = findings("keys", Status.problem)
    assert wrong.found == "public.customers has no column nmae; it has id, name"
    assert "sources.shop.tables.public.customers.exclude (did you mean name?)" in wrong.remedy


@pytest.mark.parametrize("name", ["events.jsonl.gz", "events.parquet"])
def test_key_columns_are_looked_up_in_landed_files_of_each_kind(project: Path, name: str) -> None:
    land(project, EVENTS["debezium"], name)
    write_config(project, {"tables": {"public.customers": {"key": ["uid"]}}})
    assert [finding.found for finding in findings("keys", Status.problem)] == [
        "public.customers has no column uid; it has id, name"
    ]


def test_a_key_column_that_only_the_message_key_has_is_right(project: Path) -> None:
    file = project / "landing" / "2026-11-01" / "events.jsonl"
    record = {"key": json.dumps({"schema": {}, "payload": {"uid": 7}})}
    file.write_text(json.dumps({**record, "value": json.dumps(EVENTS["debezium"])}) + "\n")
    write_config(project, {"tables": {"public.customers": {"key": ["uid"]}}})
    assert findings("keys", Status.problem) == []


def test_a_key_column_that_no_known_schema_has_is_a_problem(project: Path) -> None:
    """Of Kafka nothing lies in a folder; the lake knows the schemas that have landed."""
    fields = [{"field": "id", "type": "int32"}, {"field": "name", "type": "string"}]
    schema = {"type": "struct", "fields": [{"field": "after", "type": "struct", "fields": fields}]}
    warehouse = project / "warehouse"
    warehouse.mkdir()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    try:
        catalog.create_namespace("shop")
        known = {"table_name": "public.customers", "schema": json.dumps(schema)}
        rows = pa.Table.from_pylist([{**known, "first_landed": date(2026, 11, 1)}])
        catalog.create_table(("shop", "schemas"), rows.schema).append(rows)
    finally:
        catalog.engine.dispose()
    with socket.create_server(("127.0.0.1", 0)) as broker:
        server = f"127.0.0.1:{broker.getsockname()[1]}"
        kafka = {"bootstrap_servers": server, "topics": ["t"]}
        tables = {"public.customers": {"key": ["uid"]}}
        write_config(project, {"landing": {"kafka": kafka}, "tables": tables})
        assert [finding.found for finding in findings("keys", Status.problem)] == [
            "public.customers has no column uid; it has id, name"
        ]


def test_a_check_that_raises_is_a_problem_and_the_others_go_on(project: Path) -> None:
    (project / "warehouse").mkdir()
    (project / "warehouse" / "catalog.db").write_text("no database, but long enough to be one")
    (project / "dagster.yaml").write_text("storage: {no_such: thing}\n")
    (catalog,) = findings("catalog")
    assert catalog.status is Status.problem
    assert "can't be read" in catalog.found
    (instance,) = findings("dagster")
    assert instance.status is Status.problem
    assert findings("landing")[0].status is Status.ok


def test_no_line_holds_a_secret(project: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CATALOG_PASSWORD", "hunter2-of-the-lake")
    catalog = {
        "type": "rest",
        "uri": "http://me:hunter3-in-the-uri@127.0.0.1:1/hunter2-of-the-lake",
    }
    lake = {"warehouse": "warehouse", "catalog": {**catalog, "credential": "${CATALOG_PASSWORD}"}}
    write_config(project, lake=lake)
    found = list(run_checks(quick=True))
    assert [
        finding
        for finding in found
        if finding.check == "catalog" and finding.status is Status.problem
    ]
    assert "hunter" not in repr(found)


@pytest.mark.slow
def test_without_quick_spark_and_the_catalog_are_tried(project: Path) -> None:
    """In a process of its own: a process has one Spark session."""
    done = subprocess.run(
        [sys.executable, "-m", "cdc_assets.cli.app", "doctor", "--format", "json"],
        env={**os.environ, "PYTHONPATH": str(REPOSITORY)},
        capture_output=True,
        text=True,
        timeout=600,
        check=False,
    )
    rows = [json.loads(line) for line in done.stdout.splitlines()]
    (spark,) = [row for row in rows if row["check"] == "spark"]
    assert spark["status"] == "ok", spark
    assert "namespaces of the catalog" in spark["found"]
    assert done.returncode == 0
