"""`cdc-assets discover`: formats, keys, types and what could not be told, from landings alone."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from contextlib import nullcontext
from datetime import timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st
from pyspark.sql import SparkSession
from typer.testing import CliRunner, Result

from cdc_assets.cdc.config import load_config, parse_config
from cdc_assets.cdc.discovery import landing_place, sources_block
from cdc_assets.cdc.discovery.evidence import Findings, Table, Tried, best_format
from cdc_assets.cdc.discovery.landing_place import Place
from cdc_assets.cdc.errors import LandingError
from cdc_assets.cli import landing_session
from cdc_assets.cli.app import app
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import (
    TOAST,
    DataWorksLog,
    FlatLog,
    Landing,
    LindormLog,
    MaxwellLog,
    OggLog,
    PgLog,
)
from cdc_assets_tests.paths import REPOSITORY
from cdc_assets_tests.registries import Schemas, serving


def discovered(
    spark: SparkSession, folder: Path, landing: Landing, **options: Any
) -> tuple[Findings, dict[str, Any], str]:
    """(findings, the source proposed, the YAML) of what has landed."""
    ev.write_landing(folder, landing.landed)
    return _discovered(spark, folder, **options)


def _discovered(
    spark: SparkSession, folder: Path, **options: Any
) -> tuple[Findings, dict[str, Any], str]:
    place = Place("shop", str(folder), str(folder))
    found = landing_place.discover(spark, place, **options)
    text = sources_block.as_yaml(found, place)
    block = yaml.safe_load(text)
    assert block == sources_block.proposed(found, place)
    return found, block["sources"]["shop"], text


# -- format


@pytest.mark.parametrize(
    ("rows", "best"),
    [
        ({"debezium": 90, "lindorm": 0, "dataworks": 0}, "debezium"),
        ({"debezium": 90, "lindorm": 86, "dataworks": 0}, "lindorm"),
        ({"debezium": 90, "lindorm": 10, "dataworks": 0}, "debezium"),
        ({"debezium": 1, "lindorm": 1, "dataworks": 40}, "dataworks"),
        ({"debezium": 2, "lindorm": 0, "dataworks": 0, "debezium-flat": 50}, "debezium-flat"),
    ],
)
def test_the_format_is_the_one_that_explains_most_rows(rows: dict[str, int], best: str) -> None:
    assert best_format([Tried(name, n, 0, {}) for name, n in rows.items()]) == best


def test_a_landing_of_no_known_format_is_an_error_that_says_why(
    spark: SparkSession, tmp_path: Path
) -> None:
    landing = Landing()
    landing.put(ev.raw(b'{"hello":1}'))
    with pytest.raises(LandingError, match="debezium: not_an_envelope 1"):
        discovered(spark, tmp_path, landing)


# -- Debezium


def debezium_landing() -> Landing:
    """A table a case; two days."""
    landing = Landing()

    def log(table: str, **options: Any) -> PgLog:
        return PgLog("shop", "public", table, landing=landing, **options)

    types = {"id": "int32", "name": "string"}
    plain, full, partial = log("plain", types=types), log("full"), log("partial")
    lines, bare, raw_text = log("lines", key=None), log("bare"), log("raw_text")
    lacking, two_keys, unknown = log("lacking"), log("two_keys"), log("unknown", key=None)
    for n in range(1, 4):
        plain.create(id=n, name="a")
        full.create(id=n, name="a", at="2026-11-04T10:00:00Z", n=n, f=n / 4, ok=True)
        partial.create(id=n, name="a")
        lines.create(text="a", seen=None)
        bare.create(id=n, name="a", _key=str(n).encode())
        raw_text.create(code=f"c-{n}", n=1, _key=f"c-{n}".encode())
        lacking.create(id=n, name="a", **({"_key": None} if n == 1 else {}))
        unknown.create(id=n, name="a")
        row = {"id": n, "a: b #": n, "_cdc_position": 1}
        landing.put(ev.created(row, table=("public", 'odd.na"me\n# x')))
    two_keys.create(id=1, region="eu")
    two_keys.create(id=2, region="eu", _key=("id", "region"))
    landing.next_day()
    plain.update(id=1, name="b")
    plain.delete(id=1, _tombstone=True)
    full.update(
        id=2, name=TOAST, at="2026-11-05T10:00:00Z", n=2, f=7, ok=False,
        _before={"id": 2, "name": "a", "at": "2026-11-04T10:00:00Z", "n": 2, "f": 0.5, "ok": True},
    )  # fmt: skip
    full.delete(id=3, name="a", at="2026-11-04T10:00:00Z", n=3, f=0.75, ok=True)
    # Replica identity DEFAULT: other columns than the key are null or made up (D8).
    partial.delete(id=1, name="")
    unknown.delete(id=1, name=None)
    plain.heartbeat()
    landing.put(ev.raw(b"{", topic="shop.public.plain"))
    return landing


@pytest.fixture(scope="module")
def debezium(
    spark: SparkSession, tmp_path_factory: pytest.TempPathFactory
) -> tuple[Findings, dict[str, Any], str]:
    return discovered(spark, tmp_path_factory.mktemp("debezium"), debezium_landing())


def test_keys_types_and_images_are_proposed_by_what_landed(
    debezium: tuple[Findings, dict[str, Any], str],
) -> None:
    found, source, _ = debezium
    text_and_id = {"id": "bigint", "name": "string"}
    assert source["format"] == "debezium"
    assert source["tables"] == {
        "public.bare": {"key": ["id"], "columns": text_and_id},
        "public.full": {
            "replica_identity": "full",
            "columns": {
                "at": "string", "f": "double", "id": "bigint", "n": "bigint", "name": "string",
                "ok": "boolean",
            },
        },
        "public.lacking": {"key": ["id"], "columns": text_and_id},
        "public.lines": {"key": "none", "columns": {"text": "string"}},
        'public."odd.na""me\n# x"': {
            "columns": {"_cdc_position": "bigint", "a: b #": "bigint", "id": "bigint"},
            "rename": {"_cdc_position": "position"},
        },
        "public.partial": {"columns": text_and_id},
        "public.plain": {},  # the messages bring key and schema
        "public.raw_text": {"key": ["code"], "columns": {"code": "string", "n": "bigint"}},
        "public.two_keys": {"columns": {"id": "bigint", "region": "string"}},
        "public.unknown": {"columns": text_and_id},
    }  # fmt: skip
    assert found.records == sum(len(records) for records in debezium_landing().landed.values())


def test_each_judgement_is_a_comment_and_so_is_what_could_not_be_told(
    debezium: tuple[Findings, dict[str, Any], str],
) -> None:
    _, _, text = debezium
    comments = "\n".join(line.strip() for line in text.splitlines() if "#" in line)
    for said in (
        "# shop: 2026-11-04 to 2026-11-05 in ",
        "start_date: 2026-11-04",
        "control (heartbeat 1), 1 tombstones, 1 that can't be read",
        "# malformed_json 1: is not exactly one strict JSON document. Next: fix the producer",
        "# 5 records (c 3, u 1, d 1), 2026-11-04 to 2026-11-05, topic shop.public.plain",
        "# the message key is [id] in 5 of 5 records",
        "# key [id]: the message key is [id] in 2 of 3 records; the others have no message key (1)",
        "# key [id]: the message keys are bare values, equal to this column in 3 rows",
        "# replica_identity full: judged by 2 before images of 2 u and d, all of them whole rows",
        "# at: all 4 texts look like times; `timestamp` would read them as such",
        "# seen: no value seen",
        "# no message key (3), and only c 3: rows are appended",
        "# TO DECIDE: no message key (4), and c 3, d 1: name the columns that are the key",
        "# TO DECIDE: the messages name different keys ([id] 1, [id, region] 1): say which it is",
    ):
        assert said in comments, said


def test_json_is_an_object_a_table(debezium: tuple[Findings, dict[str, Any], str]) -> None:
    found, source, _ = debezium
    rows = list(sources_block.as_rows(found, Place("shop", "landing", "landing")))
    assert {row["table"]: row["config"] for row in rows} == source["tables"]
    plain = next(row for row in rows if row["table"] == "public.plain")
    assert (plain["records"], plain["ops"], plain["topics"]) == (
        5,
        {"c": 3, "d": 1, "u": 1},
        ["shop.public.plain"],
    )
    assert (plain["first_day"], plain["last_day"]) == ("2026-11-04", "2026-11-05")
    json.dumps(rows)


def test_what_is_read_can_be_bounded(
    debezium: tuple[Findings, dict[str, Any], str], spark: SparkSession
) -> None:
    folder = Path(debezium[1]["landing"]["files"])
    found, source, _ = _discovered(spark, folder, days=1)
    assert set(source["tables"]) == {
        f"public.{name}" for name in ("full", "partial", "plain", "unknown")
    }
    assert found.first == found.last == ev.DAY + timedelta(days=1)
    assert _discovered(spark, folder, limit=3)[0].records == 3


# -- values without schema


def test_types_hold_all_values_that_landed(spark: SparkSession, tmp_path: Path) -> None:
    log = LindormLog()
    wide = "12345678901234567890"
    rows = [
        ("1", "1", wide, "1.5", "1.5", '"a"', "true", "null", '{"a":1}', '"2026-11-04"'),
        ("2", "0.25", "7", "12345678901234567.89", "7", "7", "true", "null", "[1]", '"2026-11-05"'),
        ("null", "1e3", "8", "1", "0.1", '"b"', "false", "null", '{"b":2}', '"2026-11-06"'),
    ]
    for n, values in enumerate(rows):
        members = ",".join(f'"c{i}":{value}' for i, value in enumerate(values))
        after = f'{{"id":{n},{members}}}'
        source = '{"namespace":"default","table":"t","ts_ms":1}'
        value = f'{{"payload":{{"op":"c","after":{after},"source":{source}}},"schema":{{}}}}'
        log.landing.put(ev.raw(value.encode(), topic="lindorm", key=f'{{"id":{n}}}'.encode()))
    found, source_config, text = discovered(spark, tmp_path, log.landing)
    assert found.format == "lindorm"
    assert source_config["tables"] == {
        "default.t": {
            "columns": {
                "c0": "bigint",
                "c1": "double",
                "c2": "decimal(38,0)",
                "c3": "decimal(38,2)",
                "c4": "double",
                "c5": "string",
                "c6": "boolean",
                "c8": "string",
                "c9": "string",
                "id": "bigint",
            }
        }
    }
    assert "# c5: holds numbers, texts: text keeps them all" in text
    assert "# c9: all 3 texts look like times; `date` would read them as such" in text


def test_decimals_whose_schema_is_gone_are_told_by_their_base64(
    spark: SparkSession, tmp_path: Path
) -> None:
    log = PgLog()
    for row_id, amount in enumerate(("BNI=", "/w==", "AQID"), 1):
        log.create(id=row_id, amount=amount, word="abcd", mixed="BNI=" if row_id < 3 else "BNI")
    _, _, text = discovered(spark, tmp_path, log.landing)
    assert "# amount: all 3 texts look like base64 of whole numbers" in text
    assert "`decimal(38,2,base64)`" in text
    assert "# word:" not in text
    assert "# mixed:" not in text


def test_flattened_records_are_a_format_of_their_own(  # D18
    spark: SparkSession, tmp_path: Path
) -> None:
    log = FlatLog(types={"id": "int32", "v": "string"})
    log.create(id=1, v="a")
    log.update(id=1, v="b")
    log.delete(id=1, v="b", _tombstone=True)
    log.heartbeat()
    source = ev.vitess_source("commerce", "orders", number=1)
    of_vitess = ev.created({"id": 1}, source=source, topic="shop.commerce.orders")
    log.landing.put(ev.flattened(of_vitess, ("op", "keyspace", "table")))
    found, config, _ = discovered(spark, tmp_path, log.landing)
    assert found.format == config["format"] == "debezium-flat"
    assert list(config["tables"]) == ["commerce.orders", "public.customers"]


def test_several_databases_are_told_apart_by_names_of_three_parts(  # D4
    spark: SparkSession, tmp_path: Path
) -> None:
    landing = Landing()
    for database in ("shop_eu", "shop_us"):
        at = "0000002a:00000001:0001"
        source = {**ev.sqlserver_source(at, at), "db": database, "name": "erp"}
        options = {"table": ("dbo", "orders"), "topic": f"erp.{database}.orders", "source": source}
        landing.put(ev.created({"id": 1, "v": database}, types={"id": "int32"}, **options))
    _, source, text = discovered(spark, tmp_path, landing)
    assert list(source["tables"]) == ["shop_eu.dbo.orders", "shop_us.dbo.orders"]
    assert "several databases (shop_eu, shop_us)" in text
    (again,) = parse_config(
        {"start_date": ev.DAY, "sources": {"shop": source}}, tmp_path
    ).sources.values()
    assert list(again.tables) == ["shop_eu__dbo.orders", "shop_us__dbo.orders"]


def test_dataworks_names_the_key_in_each_message(spark: SparkSession, tmp_path: Path) -> None:
    log = DataWorksLog()
    log.insert(id=1, name="a")
    log.update_pair({"id": 1, "name": "a"}, id=1, name="b")
    other = DataWorksLog(table="plain", primary_key=None, landing=log.landing)
    other.insert(**{"#alibaba_rds_row_id#": 7, "name": "a"})
    found, source, text = discovered(spark, tmp_path, log.landing)
    assert found.format == "dataworks"
    assert source["tables"] == {"shop.customers": {}, "shop.plain": {}}
    assert "# 2 records (c 1, u 1), " in text
    assert "# the messages name the key [id] in 3 of 3 records" in text


@pytest.mark.parametrize("form", [MaxwellLog, OggLog])
def test_maxwell_and_goldengate_name_the_key_in_each_message(
    spark: SparkSession, tmp_path: Path, form: Any
) -> None:
    log = form()
    log.create(id=1, name="a")
    log.update({"id": 1, "name": "a"}, id=1, name="b")
    log.delete(id=1, name="b")
    found, source, text = discovered(spark, tmp_path, log.landing)
    assert found.format == source["format"] == ("maxwell" if form is MaxwellLog else "ogg")
    (columns,) = source["tables"].values()
    assert columns == {"columns": {"id": "bigint", "name": "string"}}
    assert "# 3 records (c 1, u 1, d 1), " in text
    assert "# the messages name the key [id] in 3 of 3 records" in text


# -- names from data


@settings(max_examples=50)
@given(
    table=st.text(min_size=1, max_size=20),
    column=st.text(min_size=1, max_size=150),
    topic=st.text(max_size=20),
)
def test_no_name_breaks_the_yaml(table: str, column: str, topic: str) -> None:
    from cdc_assets.cdc.names import TableName

    name = str(TableName("public", table))
    seen = Table(name, topics={topic})
    seen.ops["c"], seen.keys[(column,)], seen.unkeyed["none"] = 2, 1, 1
    seen.members[column].kinds["BIGINT"] = seen.members[column].without_schema = 1
    found = Findings("debezium", [], tables={name: seen})
    place = Place("on", "landing", "landing")
    text = sources_block.as_yaml(found, place)
    assert yaml.safe_load(text) == sources_block.proposed(found, place)


def seen_tables(namespace: str, count: int) -> dict[str, Table]:
    tables = {}
    for n in range(count):
        table = Table(f"{namespace}.t{n:02}")
        table.ops["c"], table.keys[("id",)] = 3, 3
        tables[table.name] = table
    return tables


def test_a_namespace_of_many_tables_is_a_pattern_and_what_needs_settings() -> None:
    tables = seen_tables("public", 20) | seen_tables("few", 19)
    tables["public.t03"].keys.clear()
    tables["public.t03"].unkeyed["none"] = 3
    found = Findings("debezium", [], tables=tables)
    place = Place("shop", "landing", "landing")
    text = sources_block.as_yaml(found, place)
    block = yaml.safe_load(text)
    assert block == sources_block.proposed(found, place)
    proposed = block["sources"]["shop"]["tables"]
    assert proposed.pop("public.*") == {}
    assert proposed.pop("public.t03") == {"key": "none"}
    assert list(proposed) == [f"few.t{n:02}" for n in range(19)]
    assert (
        "# 20 tables, 60 records: adopts these and each that lands later; "
        "1 with settings of their own follow"
    ) in text
    as_config(block["sources"]["shop"], ev.DAY)


def test_a_name_that_holds_a_wildcard_is_proposed_in_quotes() -> None:
    table = Table("public.a*b")
    table.ops["c"], table.keys[("id",)] = 1, 1
    found = Findings("debezium", [], tables={table.name: table})
    block = sources_block.proposed(found, Place("shop", "landing", "landing"))
    assert list(block["sources"]["shop"]["tables"]) == ['public."a*b"']
    assert (
        yaml.safe_load(sources_block.as_yaml(found, Place("shop", "landing", "landing"))) == block
    )


def test_a_table_that_the_lake_could_not_hold_is_a_comment() -> None:
    found = Findings("debezium", [], tables={"changes.a": Table("changes.a")})
    text = sources_block.as_yaml(found, Place("shop", "landing", "landing"))
    assert yaml.safe_load(text)["sources"]["shop"]["tables"] == {}
    assert "# changes.a: its namespace is the name of one of the source's own tables" in text


# -- the block in a cdc.yaml


def as_config(source: dict[str, Any], start: Any) -> None:
    """Raises where cdc.yaml would not take it."""
    parse_config({"start_date": start, "sources": {"shop": source}}, REPOSITORY)


@pytest.mark.slow
def test_the_block_makes_the_tables_that_a_hand_written_one_makes(
    spark: SparkSession, lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    days = [ev.DAY, ev.DAY + timedelta(days=1)]
    _, source, _ = discovered(spark, tmp_path, debezium_landing())
    as_config(source, ev.DAY)
    by_hand = {
        "public.full": {"key": ["id"], "replica_identity": "full"},
        "public.lines": {"key": "none"},
        "public.bare": {"key": ["id"]},
    }
    own = {table: config for table, config in source["tables"].items() if table in by_hand}
    sources = {
        f"{name}_hand": {**source, "tables": by_hand},
        f"{name}_found": {**source, "tables": own},
    }
    lake = lake_of(sources)
    for each in sources:
        lakes.run_all(lake, each, days)
    for table in by_hand:
        rows = [lakes.rows_of(lake, each, table, days[-1]) for each in sources]
        assert rows[0], table
        without_empty = [{k: v for k, v in row.items() if v is not None} for row in rows[1]]
        hand = [{k: v for k, v in row.items() if v is not None} for row in rows[0]]
        lakes.assert_same_rows(without_empty, hand, table)


@pytest.mark.slow
def test_the_sample_is_discovered_as_its_configuration_says(spark: SparkSession) -> None:
    config = load_config(REPOSITORY / "cdc.yaml")
    configured = yaml.safe_load((REPOSITORY / "cdc.yaml").read_text("utf-8"))["sources"]
    for name, expected in configured.items():
        folder = expected["landing"]["files"]
        registry = config.source(name).landing.registry
        place = Place(name, folder, str(REPOSITORY / folder), named_registry=registry)
        found = landing_place.discover(spark, place)
        source = sources_block.proposed(found, place)["sources"][name]
        as_config(source, "2026-11-01")
        assert source["format"] == expected["format"]
        assert set(source["tables"]) >= set(expected["tables"])
        for table, by_hand in expected["tables"].items():
            assert_same_settings(table, source["tables"][table], by_hand or {})


def assert_same_settings(table: str, got: dict[str, Any], by_hand: dict[str, Any]) -> None:
    """Equal where nothing has to be decided; what values need is `bigint` where a hand said int."""
    if table == "public.audit_log":  # an update without a key is in it: left to decide
        assert "key" not in got
    elif "key" in by_hand and "key" in got:
        assert sorted(got["key"]) == sorted(by_hand["key"])
    assert got.get("replica_identity") == by_hand.get("replica_identity"), table
    types = {name: kind.replace("bigint", "int") for name, kind in got.get("columns", {}).items()}
    for name, kind in by_hand.get("columns", {}).items():
        assert types[name] == kind.replace("bigint", "int"), name


# -- the command


def test_wrong_usage_exits_2_with_one_message(project: Path) -> None:
    for arguments, says in (
        (["nowhere"], "nowhere is no file or folder, and no source"),
        ([str(project), "--name", "a b"], "a source's name is letters, digits and _"),
        ([str(project), "--format", "xml"], "xml"),
        ([str(project), "--registry", "http://me:secret@registry"], "expected a URL such as"),
    ):
        result = CliRunner().invoke(app, ["discover", *arguments])
        assert result.exit_code == 2, result.output
        assert says in " ".join(result.stderr.replace("│", " ").split())
        assert result.stdout == ""


def test_a_place_is_a_source_a_folder_a_day_or_a_file(project: Path) -> None:
    ev.write_landing(project / "my landing", {ev.DAY: []})
    raw = {"format": "debezium", "landing": {"files": "my landing"}}
    config = {"start_date": "2026-11-04", "sources": {"shop": raw}}
    day = project / "my landing" / str(ev.DAY)

    def place(text: str) -> Place:
        return landing_place.resolve(text, None, None)[0]

    assert place("my landing") == Place("my_landing", "my landing", str(day.parent))
    assert place(str(day)) == Place("my_landing", "my landing", str(day.parent), day=ev.DAY)
    file = day / "part-0.jsonl"
    assert place(str(file)) == Place("my_landing", "my landing", None, file=file)
    (project / "cdc.yaml").write_text(json.dumps(config), encoding="utf-8")
    assert place("shop").source is not None
    assert place("shop").landing == "my landing"


def test_an_empty_folder_is_an_error_that_says_what_is_expected(
    spark: SparkSession, tmp_path: Path
) -> None:
    with pytest.raises(LandingError, match=r"<folder>/<YYYY-MM-DD>/\*.jsonl"):
        landing_place.discover(spark, Place("shop", str(tmp_path), str(tmp_path)))


def test_rows_go_to_stdout_and_the_rest_to_stderr(
    spark: SparkSession, project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # The session of all tests in place of one of the command's own, which would stop this one.
    monkeypatch.setattr(landing_session, "session", lambda _, is_small: nullcontext(spark))
    log = PgLog()
    log.create(id=1)
    log.tombstone(id=1)
    ev.write_landing(project / "landing", log.landed)
    (file,) = (project / "landing" / str(ev.DAY)).iterdir()
    found = CliRunner().invoke(app, ["discover", "landing", "--verbose", "--format", "json"])
    assert found.exit_code == 0, found.output
    (row,) = [json.loads(line) for line in found.stdout.splitlines()]
    assert (row["source"], row["table"]) == ("landing", "public.customers")
    assert "1 tombstones, all can be read" in found.stderr

    arguments = ["inspect", str(file), "--format-of", "debezium", "--format", "json", "--verbose"]
    inspected = CliRunner().invoke(app, arguments)
    assert inspected.exit_code == 0, inspected.output
    rows = [json.loads(line) for line in inspected.stdout.splitlines()]
    assert [row["explanation"] for row in rows] == [
        'an insert of row {"id":1} of public.customers: goes to changes',
        'value is null: a lone tombstone: deletes row {"id":1} of public.customers, '
        "goes to changes",
    ]

    (project / "odd").mkdir()
    failed = CliRunner().invoke(app, ["discover", "odd", "--verbose"])
    assert (failed.exit_code, failed.stdout) == (1, "")
    assert failed.stderr.splitlines()[-1].startswith("error: odd: ")


# -- records that were written with a schema registry


@pytest.fixture
def invoke(
    spark: SparkSession, project: Path, monkeypatch: pytest.MonkeyPatch
) -> Callable[..., Result]:
    """`invoke("discover", …)` in a project's folder, with the session of all tests."""
    monkeypatch.setattr(landing_session, "session", lambda _, is_small: nullcontext(spark))
    return lambda *arguments: CliRunner().invoke(app, [*arguments, "--verbose"])


def write_source(project: Path, registry: dict[str, str]) -> dict[str, Any]:
    """A cdc.yaml whose source `shop` has this registry; returns its `landing:`."""
    landing = {"files": "landing", "registry": registry}
    config = {
        "start_date": str(ev.DAY),
        "sources": {"shop": {"format": "debezium", "landing": landing}},
    }
    (project / "cdc.yaml").write_text(json.dumps(config), encoding="utf-8")
    return landing


def typed_log() -> PgLog:
    log = PgLog(types={"id": "int32", "name": "string", "price": (ev.DECIMAL, 2, 10)})
    log.create(id=1, name="a", price=Decimal("1.50"))
    log.update(id=1, name=None, price=Decimal("2"))
    log.delete(id=1, _tombstone=True)
    log.heartbeat()
    return log


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_a_registry_s_records_are_discovered_as_json_with_schemas_is(
    invoke: Callable[..., Result], project: Path, kind: str
) -> None:
    landed, schemas = typed_log().landed, Schemas(kind=kind)
    ev.write_landing(project / "plain", landed)
    ev.write_landing(project / "landing", schemas.all_sent(landed))
    with serving(schemas) as url:
        result = invoke("discover", "landing", "--registry", url)
    plain = invoke("discover", "plain")
    assert result.exit_code == plain.exit_code == 0, result.output
    source, of_json = (yaml.safe_load(r.stdout)["sources"] for r in (result, plain))
    assert source["landing"].pop("landing") == {"files": "landing", "registry": {"url": url}}
    assert source["landing"] == {"format": "debezium", "tables": {"public.customers": {}}}
    assert source["landing"]["tables"] == of_json["plain"]["tables"]
    assert "# the message key is [id] in 3 of 3 records" in result.stdout
    assert "5 records: 3 changes, 1 control (heartbeat 1), 1 tombstones, all can be read" in (
        result.stdout
    )


@pytest.mark.parametrize("kind", ["AVRO", "JSON"])
def test_bare_message_keys_of_a_registry_are_compared_with_columns(
    invoke: Callable[..., Result], project: Path, kind: str
) -> None:
    log = PgLog(types={"id": "int32", "name": "string"})
    for n in range(3):
        key = {"schema": {"type": "int32", "optional": False}, "payload": n}
        log.create(id=n, name="a", _key=json.dumps(key).encode())
    schemas = Schemas(kind=kind)
    ev.write_landing(project / "landing", schemas.all_sent(log.landed))
    with serving(schemas) as url:
        result = invoke("discover", "landing", "--registry", url)
    assert result.exit_code == 0, result.output
    tables = yaml.safe_load(result.stdout)["sources"]["landing"]["tables"]
    assert tables == {"public.customers": {"key": ["id"]}}
    assert "the message keys are bare values, equal to this column in 3 rows" in result.stdout


def test_a_source_s_registry_is_asked_and_its_login_is_not_printed(
    invoke: Callable[..., Result], project: Path
) -> None:
    schemas = Schemas()
    ev.write_landing(project / "landing", schemas.all_sent(typed_log().landed))
    with serving(schemas) as url:
        login = {"username": "the-name", "password": "the-secret"}
        write_source(project, {"url": url, **login})
        result = invoke("discover", "shop")
    assert result.exit_code == 0, result.output
    [(name, source)] = yaml.safe_load(result.stdout)["sources"].items()
    assert (name, source["tables"]) == ("shop", {"public.customers": {}})
    assert source["landing"] == {"files": "landing", "registry": {"url": url}}
    assert "# the login of landing.registry is not printed: keep it" in result.stdout
    assert not re.search("the-name|the-secret", result.output)


def test_a_source_s_saved_answers_are_read_and_proposed_again(
    invoke: Callable[..., Result], project: Path
) -> None:
    schemas = Schemas()
    ev.write_landing(project / "landing", schemas.all_sent(typed_log().landed))
    saved = project / "registry" / "schemas" / "ids"
    saved.mkdir(parents=True)
    for number, answer in schemas.by_id.items():
        (saved / f"{number}.json").write_text(json.dumps(answer), encoding="utf-8")
    landing = write_source(project, {"files": "registry"})
    result = invoke("discover", "shop")
    assert result.exit_code == 0, result.output
    source = yaml.safe_load(result.stdout)["sources"]["shop"]
    assert source == {"format": "debezium", "landing": landing, "tables": {"public.customers": {}}}


def test_what_a_registry_encoded_says_how_to_name_it(
    invoke: Callable[..., Result], project: Path
) -> None:
    log, schemas = typed_log(), Schemas()
    ev.write_landing(project / "all", schemas.all_sent(log.landed))
    nothing = invoke("discover", "all")
    assert (nothing.exit_code, nothing.stdout) == (1, "")
    assert (
        "4 of 5 records were written with a schema registry: "
        "name it with --registry https://registry:8081"
    ) in nothing.stderr
    # Beside records that are read it is a comment.
    some = Landing()
    some.put(typed_log().landed[ev.DAY][0])
    some.put(schemas.sent(log.landed[ev.DAY][0]))
    ev.write_landing(project / "some", some.landed)
    result = invoke("discover", "some")
    assert result.exit_code == 0, result.output
    assert list(yaml.safe_load(result.stdout)["sources"]["some"]["tables"]) == ["public.customers"]
    assert "# 1 of 2 records were written with a schema registry: name it with" in result.stdout


def test_a_registry_that_does_not_have_the_schemas_or_does_not_answer_is_an_error(
    invoke: Callable[..., Result], project: Path
) -> None:
    schemas = Schemas()
    ev.write_landing(project / "landing", schemas.all_sent(typed_log().landed))
    with serving(Schemas()) as url:
        other = invoke("discover", "landing", "--registry", url)
    gone = invoke("discover", "landing", "--registry", url)
    for result, says in (
        (other, "4 of 5 records were written with a schema registry and can't be decoded, such as"),
        (other, "the registry has no schema of this id"),
        (gone, "error: landing: the schema registry does not answer"),
        (gone, "Try the address, or correct --registry"),
    ):
        assert (result.exit_code, result.stdout) == (1, "")
        assert says in result.stderr


def envelope_of(connector: str, **source: str) -> dict[str, Any]:
    return {"ts_ms": 2, "source": {"connector": connector, "name": "srv", "ts_ms": 1, **source}}


def test_collections_of_mongodb_are_tables_of_documents(
    spark: SparkSession, tmp_path: Path
) -> None:
    landing = Landing()
    event = envelope_of("mongodb", db="shop", collection="people")
    for n in range(1, 4):
        after = f'{{"_id": {{"$numberLong": "{n}"}}, "name": "a", "at": "2026-11-04T10:00:00Z"}}'
        value = json.dumps({**event, "op": "c", "after": after}).encode()
        landing.put(ev.raw(value, topic="srv.shop.people", key=f'{{"id":"{n}"}}'.encode()))
    value = json.dumps({**event, "op": "d", "after": None}).encode()
    landing.put(ev.raw(value, topic="srv.shop.people", key=b'{"id":"1"}'))
    found, source, _ = discovered(spark, tmp_path, landing)
    assert found.format == source["format"] == "debezium-mongodb"
    # `columns` would say which members of the documents are columns.
    assert source["tables"] == {"shop.people": {}}


def test_tables_of_cassandra_are_found(spark: SparkSession, tmp_path: Path) -> None:
    landing = Landing()
    event = envelope_of("cassandra", cluster="c", keyspace="shop", table="people")
    for n in range(1, 4):
        row = {"id": n, "name": "a"}
        after = {name: {"value": v, "deletion_ts": None, "set": True} for name, v in row.items()}
        value = json.dumps({**event, "op": "i", "after": after}).encode()
        landing.put(ev.raw(value, topic="srv.shop.people", key=f'{{"id":{n}}}'.encode()))
    found, source, _ = discovered(spark, tmp_path, landing)
    assert found.format == source["format"] == "debezium-cassandra"
    assert list(source["tables"]) == ["shop.people"]
    assert source["tables"]["shop.people"].get("key", ["id"]) == ["id"]
