"""Values that are not to be shown, and secrets, are in nothing that a run writes: whole runs of the
command line, whose every file is searched for markers."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from datetime import timedelta
from pathlib import Path
from typing import Any

import dagster as dg
import pytest
import yaml

from cdc_assets.cdc.config import parse_config
from cdc_assets.cdc.errors import LakeError, first_line
from cdc_assets.cdc.redaction import without_logins, without_secrets
from cdc_assets.cdc.spark import SHORT_RUN
from cdc_assets.definitions import build_definitions
from cdc_assets.orchestration.execution.failures import failure
from cdc_assets_tests import events as ev
from cdc_assets_tests.lakes import source_config
from cdc_assets_tests.orchestration.receivers import web_server
from cdc_assets_tests.paths import REPOSITORY

DAYS = [ev.DAY, ev.DAY + timedelta(days=1)]
MARK = "M4rkerValue"
OPTIMIZER = "org.apache.spark.sql.catalyst.optimizer"


# -- sentences -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("text", "shown"),
    [
        ("can't reach http://ann:s3cret@host/x", "can't reach http://***@host/x"),
        ("jdbc:postgresql://h/db?user=a&password=s3cret&x=1", "password=***&x=1"),
        ("https://hooks/?token=s3cret", "https://hooks/?token=***"),
        ("Server=h; Password = s3cret", "Password = ***"),
    ],
)
def test_logins_in_addresses_are_not_shown(text: str, shown: str) -> None:
    found = without_logins(text)
    assert found.endswith(shown)
    assert "s3cret" not in found
    assert "s3cret" not in first_line(OSError(text))


def test_a_name_that_was_not_found_is_no_sentence() -> None:
    assert first_line(KeyError("a_table")) == "KeyError: 'a_table'"


def test_every_secret_of_a_configuration_is_known(tmp_path: Path) -> None:
    secrets = {name: f"{name}-of-tests-s3cret" for name in "abcdefghij"}
    kafka = {
        "bootstrap_servers": "h:9",
        "topics": ["t"],
        "options": {"kafka.sasl.jaas.config": f'x username="u" password="{secrets["a"]}";'},
    }
    registry = {"url": "http://h", "username": "u", "password": secrets["b"]}
    config = parse_config(
        {
            "start_date": "2026-11-01",
            "hash_salt": secrets["c"],
            "spark": {"spark.hadoop.fs.s3a.access.key": secrets["d"]},
            "lake": {
                "warehouse": "s3://w",
                "catalog": {
                    "type": "rest",
                    "uri": f"https://u:{secrets['e']}@h",
                    "credential": secrets["f"],
                },
            },
            "alerts": {
                "webhook": {"url": f"https://h/{secrets['g']}", "headers": {"X": secrets["h"]}},
                "slack": {"token": secrets["i"], "channel": "c"},
                "email": {
                    "host": "h",
                    "from": "a@b.org",
                    "to": ["a@b.org"],
                    "user": "u",
                    "password": secrets["j"],
                },
            },
            "sources": {
                "s": {
                    "format": "debezium",
                    "landing": {"kafka": kafka, "registry": registry},
                    "tables": {"a.b": {"key": ["id"], "hash": ["v"]}},
                }
            },
        },
        tmp_path,
    )
    said = " ".join(secrets.values())
    shown = without_secrets(said, config.secrets)
    assert [name for name, secret in secrets.items() if secret in shown] == []


def test_a_failure_keeps_neither_its_cause_nor_what_that_says(tmp_path: Path) -> None:
    config = parse_config(
        {"start_date": "2026-11-01", "sources": {"s": source_config("landed")}}, tmp_path
    )

    def fails() -> None:
        try:
            raise ValueError(f"row {MARK}")
        except ValueError as error:
            raise LakeError("the lake is away") from error

    def body() -> None:
        try:
            fails()
        except LakeError as error:
            raise failure(str(error), error, config) from None

    with pytest.raises(dg.Failure) as raised:
        body()
    assert raised.value.__cause__ is None
    trace = raised.value.metadata["trace"].value
    assert "LakeError" in str(trace)
    assert "ValueError" in str(trace)
    assert "in fails" in str(trace)
    assert MARK not in str(trace)


# -- whole runs ----------------------------------------------------------------------------------


class Project:
    """A folder as a user has it; what runs write is all in it, the landing aside."""

    def __init__(self, folder: Path, **top: Any) -> None:
        self.folder = folder
        (folder / "dagster.yaml").write_text((REPOSITORY / "dagster.yaml").read_text("utf-8"))
        raw = {
            "lake": {"warehouse": "lake"},
            "start_date": DAYS[0],
            **top,
            "spark": {
                **SHORT_RUN,
                "spark.master": "local[2]",
                "spark.driver.memory": "1g",
                **top.get("spark", {}),
            },
        }
        (folder / "cdc.yaml").write_text(yaml.safe_dump(raw), "utf-8")

    def cli(self, *arguments: str, **more: str) -> subprocess.CompletedProcess[str]:
        outside = {k: v for k, v in os.environ.items() if not k.startswith(("CDC_", "DAGSTER_"))}
        return subprocess.run(
            [sys.executable, "-m", "cdc_assets.cli.app", *arguments],
            cwd=self.folder,
            env={
                **outside,
                "DAGSTER_HOME": str(self.folder),
                "PYTHONPATH": str(REPOSITORY),
                **more,
            },
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )

    def files_with(self, *texts: str) -> list[tuple[str, str]]:
        """The files that hold one of the texts; rows of the lake and what landed are left out."""
        found = []
        for file in sorted(self.folder.rglob("*")):
            place = str(file.relative_to(self.folder))
            if not file.is_file() or place.startswith(("landed", "cdc.yaml")):
                continue
            if file.suffix == ".parquet" or file.name.endswith((".parquet.crc", ".avro")):
                continue
            content = file.read_bytes()
            forms = (
                (text, form) for text in texts for form in (text.encode(), text.encode("utf-16-le"))
            )
            found += [(place, text) for text, form in forms if form in content]
        return found


def values_in_all_places(folder: Path, mark: str) -> None:
    """Two days on which values stand where checks, failures and reports would show them."""
    types = {"id": "int32", "name": "string", "at": "string"}
    log = ev.PgLog("shop", "public", "customers", types=types)
    log.create(id=1, name=f"{mark}1.", at="x")
    log.create(id=2, name="b", at=f"{mark}2.")
    landing = log.landing
    # Statements and documents that can't be read.
    landing.put(ev.raw(f'{{"a": {mark}3.'.encode(), topic="shop.public.customers"))
    drop = f"DROP TABLE public.customers /* {mark}4. */"
    landing.put(ev.statement(drop, table=("public", "customers")))
    log.create(id=3, _extra={"op": f"{mark}5."}, name="b")
    # A value that its column can't hold, as inferred: that table stops.
    other = ev.PgLog("shop", "public", "guessed", landing=landing)
    other.create(id=1, v=5)
    log.next_day()
    other.create(id=2, v=f"{mark}6.")
    log.update(id=1, name="c", at="y")
    ev.write_landing(folder, landing.landed)


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.long
def test_values_that_are_not_to_be_shown_are_in_nothing_that_a_run_writes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden: dict[str, dict[str, list[str]]] = {
        "public.customers": {"sensitive": ["name", "at"]},
        "public.guessed": {"sensitive": ["v"]},
    }
    columns: dict[str, dict[str, Any]] = {
        "public.customers": {"columns": {"at": "timestamp"}},
        "public.guessed": {},
    }
    marks = {"open": "OpenV4lue", "samples": "S4mplesValue", "sensitive": "S3nsitiveValue"}
    sources = {}
    for name, mark in marks.items():
        values_in_all_places(tmp_path / "landed" / name, mark)
        of_columns = hidden if name == "sensitive" else {}
        tables = {t: {"key": ["id"], **own, **of_columns.get(t, {})} for t, own in columns.items()}
        options = {"samples": False} if name == "samples" else {}
        landed = str(tmp_path / "landed" / name)
        sources[name] = source_config(landed, tables=tables, **options)
    project = Project(tmp_path, sources=sources)
    monkeypatch.chdir(tmp_path)  # dagster.yaml's folders are relative
    with web_server() as web:
        alerts = {"webhook": {"url": web.address}}
        raw = {"start_date": DAYS[0], "sources": sources, "alerts": alerts}
        sensor = build_definitions(parse_config(raw, tmp_path)).resolve_sensor_def("alerts")

        def tick(cursor: str | None) -> str | None:
            with (
                dg.DagsterInstance.from_config(str(tmp_path)) as instance,
                dg.build_sensor_context(instance, cursor=cursor) as context,
            ):
                return sensor.evaluate_tick(context).cursor

        begun = tick(None)
        done = project.cli("run", "--from", str(DAYS[0]), "--to", str(DAYS[1]))
        tick(begun)
    assert "Traceback" not in done.stdout + done.stderr
    report = project.cli("report", "--out", "report.html")
    assert report.returncode == 0, report.stderr
    alerted = b" ".join(posted.body for posted in web.posted).decode()
    said = done.stdout + done.stderr + report.stdout + report.stderr + alerted
    for name in ("samples", "sensitive"):
        assert marks[name] not in said
        assert project.files_with(marks[name]) == []
    # Of a source that shows its values each one is found, in Dagster's records and the report.
    found = project.files_with(*(f"{marks['open']}{n}." for n in range(1, 7)))
    assert {text for _, text in found} == {f"{marks['open']}{n}." for n in range(1, 7)}
    assert {place.split("/")[0] for place, _ in found} >= {".dagster", "report.html"}
    assert marks["open"] in alerted
    # What a run writes for itself, others can't read.
    for own in ("lake/catalog.db", ".dagster/spark.log"):
        assert (tmp_path / own).stat().st_mode & 0o007 == 0, own


def cmdlines() -> Iterator[str]:
    for process in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            yield process.read_bytes().replace(b"\0", b" ").decode(errors="replace")
        except OSError:
            continue


@pytest.mark.slow
@pytest.mark.process
@pytest.mark.long
@pytest.mark.skipif(not Path("/proc/self/cmdline").exists(), reason="needs Linux's /proc")
def test_secrets_are_in_no_command_line_log_plan_or_record(tmp_path: Path) -> None:
    names = ("S3", "JDBC", "URL", "SALT", "OTHER")
    secrets = {f"T_{name}": f"s3cret-{name}-0123456789" for name in names}
    log = ev.PgLog("shop", "public", "customers", types={"id": "int32", "name": "string"})
    log.create(id=1, name="Ann")
    ev.write_landing(tmp_path / "landed", log.landed)
    tables = {"public.customers": {"key": ["id"], "hash": ["name"]}}
    (tmp_path / "lake").mkdir()
    uri = f"jdbc:sqlite:{tmp_path}/lake/catalog.db?busy_timeout=60000&password=${{T_URL}}"
    project = Project(
        tmp_path,
        sources={"shop": source_config(str(tmp_path / "landed"), tables=tables)},
        hash_salt="${T_SALT}",
        spark={
            "spark.hadoop.fs.s3a.secret.key": "${T_S3}",
            "spark.hadoop.some.credential": "${T_OTHER}",
            "spark.log.level": "INFO",
            # Of the optimizer alone: Spark can't write all plans of the analyzer.
            "spark.sql.planChangeLog.level": "WARN",
            "spark.sql.planChangeLog.rules": f"{OPTIMIZER}.ColumnPruning",
            "spark.sql.planChangeLog.batches": "none",
        },
        lake={
            "warehouse": str(tmp_path / "lake"),
            "catalog": {
                "type": "jdbc",
                "uri": uri,
                "jdbc.user": "keeper",
                "jdbc.password": "${T_JDBC}",
            },
        },
    )
    seen: set[str] = set()
    is_over = threading.Event()

    def watch() -> None:
        while not is_over.is_set():
            for line in cmdlines():
                seen.update(secret for secret in secrets.values() if secret in line)
                seen.update(re.findall(r"org\.apache\.spark\.deploy\.SparkSubmit", line))
            time.sleep(0.05)

    watcher = threading.Thread(target=watch)
    watcher.start()
    try:
        done = project.cli("run", "--from", str(DAYS[0]), **secrets)
    finally:
        is_over.set()
        watcher.join()
    assert done.returncode == 0, done.stderr
    assert seen == {"org.apache.spark.deploy.SparkSubmit"}, "the JVM was not looked at, or leaks"
    said = done.stdout + done.stderr
    assert [secret for secret in secrets.values() if secret in said] == []
    assert project.files_with(*secrets.values()) == []
    # A failure that repeats the address and the settings.
    (tmp_path / "lake" / "catalog.db").write_bytes(b"no database" * 200)
    failed = project.cli("run", "--from", str(DAYS[0]), "--force", **secrets)
    assert failed.returncode != 0
    said = failed.stdout + failed.stderr
    assert [secret for secret in secrets.values() if secret in said] == []
    assert project.files_with(*secrets.values()) == []
