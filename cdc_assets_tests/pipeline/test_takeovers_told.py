"""What is said of a new server, or another connector (O11): check, doctor, inspect, errors."""

from __future__ import annotations

import re
from datetime import timedelta
from functools import partial
from pathlib import Path
from typing import Any

import dagster as dg
from pyspark.sql import SparkSession

from cdc_assets.cdc import markdown
from cdc_assets.cdc.discovery import inspection
from cdc_assets.cdc.discovery.rules import rules_of_format
from cdc_assets.cdc.errors import MissingDayError
from cdc_assets.cdc.findings import Finding, Severity
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cli.doctor.findings import Context, Status
from cdc_assets.cli.doctor.lake import epochs
from cdc_assets.orchestration.assets.build import build_assets
from cdc_assets.orchestration.assets.keys import table_key
from cdc_assets.orchestration.assets.records import SNAPSHOT
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing
from cdc_assets_tests.pipeline.test_takeovers import DAYS, HOUR, ServerLog, rows, source_of
from cdc_assets_tests.shared_spark import SharedSpark

INSTANT = r"2026-11-0\d\w[\d:.]+Z"


def log_of(name: str, connector: str = "mysql") -> ServerLog:
    """A connector of one table, `shop.<name>`."""
    return ServerLog(connector, name, Landing(DAYS[0]))


def lake_with(lake_of: LakeOf, folder: Path, log: ServerLog) -> Lake:
    """A lake whose source has the table's name."""
    settings = source_of(log.table)
    landed = {day: log.landed.get(day, []) for day in DAYS}
    return lake_of({log.table: lakes.write_source(folder, landed, tables=settings["tables"])})


def in_order(lake: Lake, name: str, number: int) -> Finding:
    """`positions_in_order` of a day."""
    of_day = lakes.changes_found(lake, name, [DAYS[number]])[DAYS[number]]
    (found,) = (finding for finding in of_day if finding.name == "positions_in_order")
    return found


def examples(found: Finding) -> str:
    return markdown.plain(found.values["examples"])


def named(text: str) -> list[str]:
    """The instants that a text says to write."""
    (listed,) = re.findall(r"position_reset: \[(.*?)\]", text)
    assert re.fullmatch(rf"{INSTANT}(, {INSTANT})*", listed)
    return listed.split(", ")


def takeover(log: ServerLog) -> ServerLog:
    log.write(1, "old", at=1000)
    log.write(2, "old", at=1010)
    log.write(1, "new", at=10)
    log.next_day()
    log.write(1, "newer", at=20)
    return log


def test_the_check_names_a_new_server_on_the_day_that_shows_it(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    lake = lake_with(lake_of, tmp_path, takeover(log_of(name)))
    lakes.run_all(lake, name, DAYS[:2])
    found = in_order(lake, name, 0)
    assert found.passed
    (said,) = found.values["new_servers"]
    assert re.fullmatch(
        rf"a new server of mysql {name} sends from {INSTANT} on: .*\b10 comes after .*\b1010 and "
        "is later at the source",
        said,
    )
    assert "new_servers" not in in_order(lake, name, 1).values


def test_the_doctor_says_which_servers_took_over(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = takeover(log_of(name))
    log.next_day()
    log.write(1, "newest", at=5, name="second")
    lake = lake_with(lake_of, tmp_path, log)
    context = Context(config=lake.config)
    (before,) = epochs(context)
    assert before.found == "no other one has taken over so far"
    lakes.run_all(lake, name, DAYS)
    found = [finding for finding in epochs(context) if finding.status is Status.ok]
    assert [finding.check for finding in found] == [f"servers of {name}"] * 2
    assert f"a new server of mysql {name} sends from" in found[0].found
    assert re.fullmatch(
        rf"mysql second sends instead of mysql {name} from {INSTANT} on: shop.{name}",
        found[1].found,
    )


def test_the_doctor_says_where_instants_are_named(lake_of: LakeOf, tmp_path: Path) -> None:
    source = lakes.source_config(tmp_path, position_reset=["2026-11-05T12:30:00Z"])
    (found,) = epochs(Context(config=lake_of({"s": source}).config))
    assert found.found == "position_reset names 1 takeovers; none is looked for"


def test_inspect_says_at_which_record_another_server_begins(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    log = takeover(log_of(name))
    log.write(1, "newest", at=5, name="second")
    records = [record for of_day in log.landed.values() for record in of_day]
    ev.write_landing(tmp_path, {DAYS[0]: records})
    file = tmp_path / str(DAYS[0]) / "part-0.jsonl"
    found = inspection.inspect_file(spark, file, rules_of_format("debezium", file))
    said = [row["explanation"].partition("goes to changes")[2] for row in found]
    assert [bool(of_row) for of_row in said] == [False, False, True, False, True]
    assert f". a new server of mysql {name} sends from" in said[2]
    assert said[4] == f". mysql second sends instead of mysql {name}"


def test_a_restart_is_no_new_server_for_inspect(
    spark: SparkSession, tmp_path: Path, name: str
) -> None:
    log = log_of(name)
    first = log.write(1, "first", at=1000)
    log.write(1, "second", at=1010)
    log.again(first)
    ev.write_landing(tmp_path, log.landed)
    file = tmp_path / str(DAYS[0]) / "part-0.jsonl"
    found = inspection.inspect_file(spark, file, rules_of_format("debezium", file))
    assert not [row for row in found if "new server" in row["explanation"]]


def test_what_falls_and_is_not_later_comes_with_the_line_to_write(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = log_of(name)
    log.write(1, "old", at=1000, clock=HOUR)
    log.write(1, "new", at=10)
    log.write(1, "newer", at=20)
    lake = lake_with(lake_of, tmp_path, log)
    lakes.run_all(lake, name, DAYS[:1])
    found = in_order(lake, name, 0)
    assert not found.passed
    assert found.severity is not Severity.ERROR
    said = found.values["if_a_new_server_sent_them"]
    assert re.search(
        rf"mysql {name}: 2 events of shop.{name} from {INSTANT} on lie below earlier ones and "
        "repeat none",
        examples(found),
    )
    assert lakes.rows_of(lake, name, f"shop.{name}", DAYS[0]) == rows(a="old")
    as_said = model.tables(source_of(name, position_reset=named(said)), log.landed)
    assert as_said[DAYS[0]][f"shop.{name}"] == rows(a="newer")


def test_what_a_former_connector_sends_on_is_an_error_with_the_line_to_write(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = log_of(name)
    log.write(1, "old", at=1000)
    log.next_day()
    log.write(1, "new", at=10, name="second")
    log.next_day()
    log.write(1, "comes back", at=1010)
    log.write(1, "stays", at=1020)
    lake = lake_with(lake_of, tmp_path, log)
    for day in DAYS:
        lakes.run_all(lake, name, [day])
    assert in_order(lake, name, 1).passed
    found = in_order(lake, name, 2)
    assert not found.passed
    assert found.severity is Severity.ERROR
    said = found.values["if_a_new_server_sent_them"]
    assert re.search(
        rf"mysql {name}: 2 events of shop.{name} from {INSTANT} on count as older", examples(found)
    )
    assert lakes.rows_of(lake, name, f"shop.{name}", DAYS[2]) == rows(a="new")
    as_said = model.tables(source_of(name, position_reset=named(said)), log.landed)
    assert [of[f"shop.{name}"] for of in as_said.values()] == [
        rows(a="old"),
        rows(a="new"),
        rows(a="stays"),
    ]


def found_a_day_later(log: ServerLog) -> ServerLog:
    """The new server's first event waited for a lock."""
    log.write(1, "old", at=1000)
    log.write(1, "new", at=10, clock=-HOUR)
    log.next_day()
    log.write(1, "newer", at=20)
    return log


def test_a_day_that_can_not_be_made_again_is_an_error_with_instant_and_command(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = log_of(name)
    log.write(2, "old", at=990)
    log.next_day()
    found_a_day_later(log)
    lake = lake_with(lake_of, tmp_path, log)
    lakes.run_all(lake, name, DAYS[:2])
    lakes.run_stages(lake, name, DAYS[2:])
    lake.spark.sql(f"ALTER TABLE lake.{name}.shop.{name} DROP TAG `{DAYS[0]}`")
    made, errors = lakes.run_tables(lake, name, DAYS[2:])
    assert not made
    (error,) = errors.values()
    assert isinstance(error, MissingDayError)
    said = str(error)
    assert f"{DAYS[1]} was made before it was found that a new server of mysql {name}" in said
    assert "cdc-assets run" in said or "--from" in said
    settings = source_of(name, position_reset=named(said))
    again = lake_of({name: lakes.source_config(tmp_path, **_without_format(settings))})
    lakes.run_all(again, name, DAYS[2:])
    assert lakes.rows_of(again, name, f"shop.{name}", DAYS[2]) == rows(a="newer", b="old")


def _without_format(settings: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in settings.items() if key != "format"}


def test_days_made_again_are_recorded_in_dagster(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    lake = lake_with(lake_of, tmp_path, found_a_day_later(log_of(name)))
    SharedSpark.shared = lake
    key = table_key(name, f"shop.{name}")
    with dg.DagsterInstance.ephemeral() as instance:
        run = partial(
            dg.materialize,
            build_assets(name, lake.config),
            instance=instance,
            resources={"spark": SharedSpark()},
        )
        for day in DAYS[:2]:
            assert run(partition_key=str(day)).success
        found = [
            event
            for record in instance.fetch_materializations(key, limit=9, ascending=True).records
            if (event := record.asset_materialization)
        ]
    assert [event.partition for event in found] == [str(DAYS[0]), str(DAYS[0]), str(DAYS[1])]
    first, again, _ = (event.metadata[SNAPSHOT].value for event in found)
    assert first != again
    assert lakes.rows_of(lake, name, f"shop.{name}", DAYS[0]) == rows(a="new")
    assert DAYS[1] - DAYS[0] == timedelta(days=1)
