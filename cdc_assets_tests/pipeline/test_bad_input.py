"""What goes wrong: configurations, files, values and names that nobody should write."""

from __future__ import annotations

import gzip
import re
from dataclasses import dataclass
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
import yaml
from pyspark.sql import SparkSession

from cdc_assets.cdc.config import AutomationConfig, SourceConfig, TableConfig, load_config
from cdc_assets.cdc.errors import AuditError, ConfigError, LandingError, MissingDayError
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.landing.files import LandedDay, from_lines, read_days
from cdc_assets.cdc.names import TableName
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import DAY, Landing, PgLog
from cdc_assets_tests.lakes import land, make_changes

DAYS = [DAY + timedelta(days=n) for n in range(3)]

# -- configurations ------------------------------------------------------------------------------

GOOD = """
start_date: 2026-11-04
sources:
  shop:
    format: debezium
    landing: {files: files}
    tables:
      public.customers: {key: [id]}
"""
WRONG: dict[str, tuple[str, str, list[str]]] = {
    "no_yaml": ("sources:", "sources: [", ["line ", "not YAML"]),
    "no_mapping": (GOOD, "5", ["not a mapping"]),
    "a_key_twice": (
        "sources:",
        "timezone: UTC\ntimezone: UTC\nsources:",
        ["the key 'timezone' is defined twice, in lines 3 and 4; keep one"],
    ),
    "a_key_twice_below": (
        "format: debezium",
        "format: debezium\n    format: lindorm",
        ["sources.shop: the key 'format' is defined twice, in lines 5 and 6"],
    ),
    "a_key_column_that_is_a_boolean": (
        "[id]",
        "[id, no]",
        [
            "sources.shop.tables.public.customers.key[1]: got no, which YAML reads as a boolean; "
            'expected a text. Write it in quotes: "no"'
        ],
    ),
    "a_key_column_that_is_a_date": ("[id]", "[2026-11-04]", ["key[0]: got 2026-11-04, which YAML"]),
    "a_key_that_is_a_boolean": ("[id]", "no", ["key: got no, which YAML reads as a boolean"]),
    "a_column_called_on": (
        "{key: [id]}",
        "{columns: {on: int}}",
        ["customers.columns: line 8: got the key on, which YAML reads as a boolean", '"on"'],
    ),
    "a_table_called_yes": ("public.customers", "yes", ["shop.tables: line 8: got the key yes"]),
    "a_source_called_as_a_date": (
        "  shop:",
        "  2026-11-04:",
        ["sources: line 4: got the key 2026-11-04, which YAML reads as a date"],
    ),
    "a_type_that_a_comma_ends": (
        "{key: [id]}",
        "{columns: {price: decimal(10,2), id: int}}",
        [
            "customers.columns.price: got decimal(10; a comma ends a value inside {…}. "
            'Write it in quotes: price: "decimal(10,2)"'
        ],
    ),
    "a_map_that_a_comma_ends": (
        "{key: [id]}",
        "{columns: {m: map<string,int>}}",
        ["columns.m: got map<string;", 'm: "map<string,int>"'],
    ),
    "a_tag_that_is_a_boolean": (
        "format:",
        "tags: {pii: yes}\n    format:",
        ["sources.shop.tags.pii: got yes, which YAML reads as a boolean", '"yes"'],
    ),
    "a_number_that_is_a_boolean": (
        "format:",
        "lag_slo_ms: yes\n    format:",
        ["sources.shop.lag_slo_ms: got yes; expected a whole number"],
    ),
    "a_choice_that_is_a_boolean": (
        "format:",
        "on_quarantine: no\n    format:",
        ["on_quarantine: got no, which YAML reads as a boolean; expected 'publish' or 'block'"],
    ),
    "a_tab": ("    format:", "\tformat:", ["line 5: not YAML: a tab where YAML allows", "spaces"]),
    "a_day_of_no_calendar": ("2026-11-04", "2026-11-31", ["start_date: got '2026-11-31'; expec"]),
    "a_template": (
        "debezium",
        "{{ format }}",
        ["format: line 5: got a list or a mapping as a key"],
    ),
    "an_alias_in_itself": ("{key: [id]}", "&x {key: [*x]}", ["is nested more than 20 levels"]),
    "landing_is_text": (
        "{files: files}",
        "files",
        ["sources.shop.landing: got 'files'; expected a mapping", "{files: <folder>}"],
    ),
    "tables_are_a_list": (
        "tables:\n      public.customers: {key: [id]}",
        "tables: [public.customers]",
        ["sources.shop.tables: got a list; expected a mapping (lines of `name: value`)"],
    ),
    "owners_are_text": (
        "format:",
        "owners: team:data\n    format:",
        ["owners: got 'team:data'; expected a list. Write [team:data]"],
    ),
    "unknown_key": ("start_date:", "start_dat: 1\nstart_date:", ["start_dat: unknown key"]),
    "unknown_key_of_a_table": (
        "{key: [id]}",
        "{keys: [id]}",
        ["customers.keys: unknown key; did you mean "],
    ),
    "no_start": ("start_date: 2026-11-04", "", ["start_date: is missing"]),
    "no_date": ("2026-11-04", "yesterday", ["start_date: ", "yesterday"]),
    "no_files": (
        "{files: files}",
        "{}",
        ["sources.shop.landing: got none of files, kafka and table"],
    ),
    "unknown_format": ("debezium", "bottledwater", ["sources.shop.format: ", "bottledwater"]),
    "key_no_list": ("[id]", "id", ["public.customers.key: got 'id'; expected a list"]),
    "key_empty": ("[id]", "[]", ["public.customers.key: got []"]),
    "key_twice": ("[id]", "[id, id]", ["a key column is named twice"]),
    "no_namespace": ("public.customers", "customers", ["'customers' is not <namespace>.<table>"]),
    "unknown_type": ("{key: [id]}", "{columns: {id: serial}}", ["id: got type 'serial'"]),
    "zone": ("sources:", "timezone: Mars/Olympus\nsources:", ["timezone: got 'Mars/Olympus'"]),
    "late_days": ("format:", "late_days: -1\n    format:", ["sources.shop.late_days: ", "-1"]),
    "reset": (
        "format:",
        "position_reset: ['2026-11-05T12:00:00']\n    format:",
        ["sources.shop.position_reset: ", "write the zone"],
    ),
    "placeholder": (
        "format:",
        "unavailable_value: 'hex:5f5'\n    format:",
        ["sources.shop.unavailable_value: got 'hex:5f5'; expected hex: and the bytes of a text"],
    ),
    "two_spellings": (
        "public.customers: {key: [id]}",
        "public.customers: {}\n      '\"public\".customers': {}",
        ["are two spellings of one table, public.customers"],
    ),
    "own_name": ("public.customers", "landing.x", ["tables.landing.x", "lake.namespaces: flat"]),
    "reserved_rename": (
        "{key: [id]}",
        "{rename: {a: _cdc_a}}",
        ["public.customers.rename: a: '_cdc_a' starts with _cdc_"],
    ),
    "source_name": ("  shop:", "  sh-op:", ["'sh-op': a source's name is letters"]),
    "environment": (
        "{files: files}",
        "{files: '${CDC_NO_SUCH}/x'}",
        ["landing.files", "CDC_NO_SUCH"],
    ),
}


@pytest.mark.parametrize("fault", WRONG)
def test_a_wrong_configuration_says_what_and_where(tmp_path: Path, fault: str) -> None:
    old, new, says = WRONG[fault]
    file = tmp_path / "cdc.yaml"
    file.write_text(GOOD.replace(old, new) if old != GOOD else new, "utf-8")
    with pytest.raises(ConfigError) as raised:
        load_config(file)
    assert str(file) in str(raised.value)
    for part in says:
        assert part in str(raised.value)


@pytest.mark.parametrize(
    "value", ["", "x", "5", "1.5", "yes", "2026-11-04", "[a]", "[[a]]", "{a: b}", "{a: {b: c}}"]
)
@pytest.mark.parametrize(
    "setting",
    [
        *("lake", "spark", "start_date", "timezone", "automation", "maintenance", "sources"),
        *("sources.s", "sources.s.landing", "sources.s.landing.kafka", "sources.s.tables"),
        *("sources.s.landing.files", "sources.s.landing.kafka.topics", "sources.s.tables.a.b"),
        *(f"sources.s.{name}" for name in SourceConfig.model_fields),
        *(f"sources.s.tables.public|t.{name}" for name in TableConfig.model_fields),
        *(f"automation.{name}" for name in AutomationConfig.model_fields),
    ],
)
def test_no_fault_is_told_in_the_words_of_the_library(
    tmp_path: Path, setting: str, value: str
) -> None:
    file = tmp_path / "cdc.yaml"
    source = {"format": "debezium", "landing": {"files": "files"}}
    raw: dict[str, Any] = {"start_date": DAY, "sources": {"s": source}}
    *above, last = [part.replace("|", ".") for part in setting.split(".")]
    inner = raw
    for part in above:
        inner = inner.setdefault(part, {})
    inner[last] = "THE VALUE"
    file.write_text(yaml.safe_dump(raw).replace("THE VALUE", value), "utf-8")
    try:
        load_config(file)
    except ConfigError as error:
        for fault in error.faults:
            assert not re.search(
                r"Input|should|valid|instance|Config\b|Error|dict|tuple|datetime\.", fault
            ), fault
            assert ": " in fault


def test_a_placeholder_may_be_said_in_hexadecimal(tmp_path: Path) -> None:
    file = tmp_path / "cdc.yaml"
    said = f"unavailable_value: 'hex:{b'not sent'.hex()}'"
    file.write_text(GOOD.replace("format:", f"{said}\n    format:"), "utf-8")
    assert load_config(file).source("shop").unavailable_value == "not sent"


def test_a_secret_is_in_no_fault(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CDC_SECRET", "t0p-s3cret")
    file = tmp_path / "cdc.yaml"
    file.write_text(GOOD.replace("format:", "late_days: ${CDC_SECRET}\n    format:"), "utf-8")
    with pytest.raises(ConfigError) as raised:
        load_config(file)
    assert "late_days: got '${CDC_SECRET}'; expected a whole number" in str(raised.value)
    assert "t0p" not in str(raised.value)


def test_every_fault_of_a_configuration_is_a_line(tmp_path: Path) -> None:
    file = tmp_path / "cdc.yaml"
    file.write_text(GOOD.replace("debezium", "x").replace("[id]", "3") + "extra: 1\n", "utf-8")
    with pytest.raises(ConfigError) as raised:
        load_config(file)
    assert len(raised.value.faults) == 3
    assert str(raised.value).count("\n  - ") == 3


def test_a_missing_configuration_says_where_it_was_looked_for(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"nowhere\.yaml.*CDC_CONFIG"):
        load_config(tmp_path / "nowhere.yaml")


# -- files that can't be landed ------------------------------------------------------------------

GOOD_LINE = ev.kcat_line(ev.created({"id": 1}, offset=1))


def _truncated() -> bytes:
    whole = gzip.compress("".join(f"{GOOD_LINE}{n}\n" for n in range(2000)).encode())
    return whole[: len(whole) // 2]


def _parquet_without_offset() -> bytes:
    sink = pa.BufferOutputStream()
    pq.write_table(pa.table({"topic": ["t"], "value": [b"{}"]}), sink)
    return bytes(sink.getvalue())


UNREADABLE = {
    "truncated.jsonl.gz": _truncated(),
    "no-gzip.jsonl.gz": b"this is no gzip at all",
    "garbage.parquet": b"PAR1 and then nothing of use PAR1",
    "lacking.parquet": _parquet_without_offset(),
    "notes.csv": b"a,b\n",
}


@pytest.mark.parametrize("file", UNREADABLE)
def test_a_file_that_cannot_be_read_whole_lands_nothing_of_its_day(
    lake_of: LakeOf, tmp_path: Path, name: str, file: str
) -> None:
    for day in DAYS[:2]:
        ev.write_landing(tmp_path, {day: [ev.created({"id": 1}, offset=1)]})
    lake = lake_of({name: lakes.source_config(tmp_path, tables={"public.customers": None})})
    land(lake, name, DAYS[:1])
    (tmp_path / str(DAYS[1]) / file).write_bytes(UNREADABLE[file])
    with pytest.raises(LandingError) as raised:
        land(lake, name, DAYS[:2])
    assert file in str(raised.value)
    assert str(raised.value).startswith(f"{name}: ")
    assert {row["landing_date"] for row in lakes.stage_rows(lake, name, "landing")} == {DAYS[0]}
    with pytest.raises(MissingDayError):
        make_changes(lake, name, [DAYS[1]])
    (tmp_path / str(DAYS[1]) / file).unlink()
    land(lake, name, DAYS[:2])
    assert len(lakes.stage_rows(lake, name, "landing")) == 2


def test_a_missing_landing_folder_names_the_setting(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    lake = lake_of({name: lakes.source_config(tmp_path / "nowhere")})
    with pytest.raises(LandingError, match=f"sources.{name}.landing.files"):
        land(lake, name, [DAY])


# -- odd records and names -----------------------------------------------------------------------

ODD_ROW = {"id": 1, "value": "v", "order": 2, "a.b": "dot", "a`b": "tick", "q\"q'q": "both"}
DEEP = b'{"op":"c","source":{"schema":"public","table":"big"},"after":{"id":1,"v":'
BIG = "x" * (10 * 1024 * 1024)
NUMBERS = (
    b'{"op":"c","ts_ms":1,"source":{"connector":"postgresql","lsn":9,"schema":"public",'
    b'"table":"numbers"},"after":{"id":7,"big":9223372036854775808,'
    b'"wide":123456789012345678901234567890123456789012,"fine":0.1234567890123456789012345678}}'
)


@dataclass
class Odd:
    """A lake with all odd things of one source, run over three days."""

    lake: Lake
    name: str
    reports: lakes.Reports
    errors: dict[tuple[str, date], Exception]
    lines: list[bytes]


@pytest.fixture(scope="module")
def odd(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Odd:
    folder = tmp_path_factory.mktemp("odd")
    landing = Landing(DAY)

    def log(table: str, **options: Any) -> PgLog:
        return PgLog("odd", "public", table, landing=landing, **options)

    log("odd").create(**ODD_ROW)
    log("big").create(id=5, v=BIG)
    for value in (b"[" * 10_000 + b"]" * 10_000, b'{"op":"c","op":"c"}', b'{"v":"\xff"}'):
        landing.put(ev.raw(DEEP + value + b"}}", topic="odd.public.big", key=b'{"id":1}'))
    landing.put(ev.raw(NUMBERS, topic="odd.public.numbers", key=b'{"id":7}'))
    log("unknown").create(id=1)
    reserved = {"id": 1, "_cdc_position": "mine"}
    for table in ("reserved", "renamed"):
        record = ev.created(reserved, table=("public", table), server="odd", offset=9, lsn=9)
        landing.add(record)
    ev.write_landing(folder, {DAY: landing.landed[DAY]})
    lines = [
        b'{"topic":"t","partition":0,"offset":1,"payload":"a\rb"}',
        b'{"topic":"t","partition":0,"offset":2,"payload":"\xff\xfe"}',
        b"\x00\x01\x02",
        b'{"topic":"t","partition":0,"payload":"no offset"}',
        b'{"topic":"t","partition":0,"offset":4,"payload":{"an":"object"}}',
        b'{"topic":"t","partition":0,"offset":5,"payload":"x"} and more',
    ]
    good = ev.kcat_line(ev.created({"id": 8}, table=("public", "crlf"), server="odd", lsn=1))
    text = b"\n".join([*lines, b"", b"  ", good.encode() + b"\r"])
    (folder / str(DAY) / "lines.jsonl").write_bytes(text)
    empty = folder / str(DAYS[2])
    empty.mkdir()
    (empty / "empty.jsonl").write_bytes(b"")
    (empty / "empty.jsonl.gz").write_bytes(gzip.compress(b""))
    (empty / "nothing.jsonl.gz").write_bytes(b"")
    (empty / "_SUCCESS").write_bytes(b"")
    tables = {
        **{f"public.{table}": {"key": ["id"]} for table in ("odd", "big", "reserved", "crlf")},
        "public.numbers": {
            "key": ["id"],
            "columns": {"wide": "string", "big": "decimal(38,0)", "fine": "decimal(38,28)"},
        },
        "public.renamed": {"key": ["id"], "rename": {"_cdc_position": "position"}},
        "public.absent": {"key": ["id"], "columns": {"id": "bigint", "v": "string"}},
    }
    name = "bad_odd"
    lake = lake_of({name: lakes.source_config(folder, tables=tables)})
    lakes.run_stages(lake, name, DAYS, lag=True)
    reports, errors = lakes.run_tables(lake, name, DAYS)
    return Odd(lake, name, reports, errors, lines)


@pytest.mark.slow
def test_a_line_that_is_no_record_is_quarantined_with_its_bytes(odd: Odd) -> None:
    quarantine = lakes.stage_rows(odd.lake, odd.name, "quarantine")
    found = [row for row in quarantine if row["reason"] == "malformed_landing_line"]
    assert sorted(row["value"] for row in found) == sorted(odd.lines)
    assert all(row["file"] == "lines.jsonl" and row["offset"] is None for row in found)
    assert all(row["detail"] for row in found)


PLAIN_LINE: dict[str, Any] = {"topic": "t", "partition": 0, "offset": 1, "payload": "{}"}
IMPOSSIBLE: tuple[dict[str, Any], ...] = (
    {"ts": 1_700_000_000_000_000_000},  # nanoseconds
    {"ts": 1_700_000_000_000_000},  # microseconds: the year 55840
    {"ts": 2**63},
    {"ts": 1.5},
    {"ts": -2},
    {"ts": "soon"},
    {"ts": None, "timestamp": "9999999999999999"},
    {"ts": None, "timestamp": "+20000-01-01T00:00:00Z"},
    {"partition": 2**31},
    {"partition": -1},
    {"partition": 0.5},
    {"partition": True},
    {"offset": 2**63},
    {"offset": -1},
    {"offset": 1.5},
    {"offset": "1.5"},
    {"offset": "one"},
)
POSSIBLE: tuple[tuple[dict[str, Any], datetime | None], ...] = (
    ({"ts": 1_700_000_000_000}, datetime(2023, 11, 14, 22, 13, 20)),
    ({"ts": "1700000000000"}, datetime(2023, 11, 14, 22, 13, 20)),
    ({"ts": 253_402_300_799_999}, datetime(9999, 12, 31, 23, 59, 59, 999_000)),
    ({"ts": -1}, None),  # Kafka has none
    ({"ts": None}, None),
    ({"timestamp": "2023-11-14T22:13:20Z"}, datetime(2023, 11, 14, 22, 13, 20)),
    # How Spark's Kafka source spells a record without a timestamp.
    ({"timestamp": "1969-12-31T23:59:59.999Z"}, datetime(1969, 12, 31, 23, 59, 59, 999_000)),
    ({"partition": "0", "offset": "1"}, None),
)


def test_a_line_with_a_number_that_kafka_cannot_have_is_no_record(spark: SparkSession) -> None:
    lines = [ev.to_json({**PLAIN_LINE, **change}) for change in IMPOSSIBLE]
    lines += [ev.to_json({**PLAIN_LINE, **change}) for change, _ in POSSIBLE]
    frame = spark.createDataFrame(
        [(line, DAY, "lines.jsonl") for line in lines],
        "value string, landing_date date, file string",
    )
    rows = lakes.plain(from_lines(frame))
    refused, landed = rows[: len(IMPOSSIBLE)], rows[len(IMPOSSIBLE) :]
    for row, line in zip(refused, lines, strict=False):
        assert {name: value for name, value in row.items() if value is not None} == {
            "value": line.encode(),
            "landing_date": DAY,
            "file": "lines.jsonl",
        }
    for row, (change, expected) in zip(landed, POSSIBLE, strict=True):
        time = expected and expected.replace(tzinfo=timezone.utc)
        assert (row["offset"], row["partition"], row["timestamp"]) == (1, 0, time), change


def test_a_parquet_row_with_a_number_that_kafka_cannot_have_is_no_record(
    spark: SparkSession, tmp_path: Path
) -> None:
    impossible = [(10**18, 0, 1), (1, 2**31, 1), (1, 0, -1), (1, -1, 1)]
    rows = [*impossible, (1_700_000_000_000, 0, 1), (-1, 0, 2)]
    times, partitions, offsets = zip(*rows, strict=True)
    numbers = {"timestamp": times, "partition": partitions, "offset": offsets}
    table = {name: pa.array(values, pa.int64()) for name, values in numbers.items()}
    bytes_ = {name: [b"{}"] * len(rows) for name in ("key", "value")}
    file = tmp_path / str(DAY) / "rows.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table({"topic": ["t"] * len(rows), **table, **bytes_}), file)
    landed = read_days(spark, "shop", [LandedDay(DAY, (), (str(file),), "")])
    found = [(row["topic"], row["offset"], row["value"]) for row in lakes.plain(landed)]
    assert found == [(None, None, b"{}")] * len(impossible) + [("t", 1, b"{}"), ("t", 2, b"{}")]


def test_a_parquet_column_that_is_called_as_spark_s_hidden_one_hides_no_row(
    spark: SparkSession, tmp_path: Path
) -> None:
    columns = {
        "topic": ["t"],
        "partition": pa.array([0], pa.int32()),
        "offset": pa.array([7], pa.int64()),
        "timestamp": pa.array([1_700_000_000_000], pa.int64()),
        "key": [b"{}"],
        "value": [b"{}"],
        "_metadata": ["of the writer"],
    }
    file = tmp_path / str(DAY) / "rows.parquet"
    file.parent.mkdir()
    pq.write_table(pa.table(columns), file)
    (row,) = lakes.plain(read_days(spark, "shop", [LandedDay(DAY, (), (str(file),), "")]))
    assert (row["landing_date"], row["file"], row["offset"]) == (DAY, "rows.parquet", 7)


@pytest.mark.slow
def test_values_that_are_no_strict_json_are_quarantined(odd: Odd) -> None:
    quarantine = lakes.stage_rows(odd.lake, odd.name, "quarantine")
    reasons = [row["reason"] for row in quarantine if row["topic"] == "odd.public.big"]
    assert reasons == ["malformed_json"] * 3


@pytest.mark.slow
def test_every_landed_record_reaches_exactly_one_destination(odd: Odd) -> None:
    landed = lakes.stage_rows(odd.lake, odd.name, "landing")
    others = [lakes.stage_rows(odd.lake, odd.name, t) for t in ("changes", "control", "quarantine")]
    assert len(landed) == sum(map(len, others))


@pytest.mark.slow
def test_a_value_of_ten_megabytes_reaches_its_table(odd: Odd) -> None:
    rows = lakes.rows_of(odd.lake, odd.name, "public.big", DAY)
    assert [(row["id"], len(row["v"])) for row in rows] == [(5, len(BIG))]


@pytest.mark.slow
def test_columns_may_have_any_name(odd: Odd) -> None:
    assert lakes.rows_of(odd.lake, odd.name, "public.odd", DAY) == [ODD_ROW]


@pytest.mark.slow
def test_numbers_are_exact_to_38_digits(odd: Odd) -> None:
    rows = lakes.rows_of(odd.lake, odd.name, "public.numbers", DAY)
    assert [str(rows[0]["big"]), str(rows[0]["fine"])] == [
        "9223372036854775808",
        "0.1234567890123456789012345678",
    ]
    assert float(rows[0]["wide"]) == 1.2345678901234568e41


@pytest.mark.slow
def test_a_line_may_end_as_windows_ends_it(odd: Odd) -> None:
    assert lakes.rows_of(odd.lake, odd.name, "public.crlf", DAY) == [{"id": 8}]


@pytest.mark.slow
def test_a_column_with_a_reserved_name_is_an_error_that_says_how_to_rename_it(odd: Odd) -> None:
    error = odd.errors["public.reserved", DAY]
    assert isinstance(error, ConfigError)
    says = "sources.bad_odd.tables.public.reserved.rename: {_cdc_position: position}"
    assert says in str(error)
    rows = lakes.rows_of(odd.lake, odd.name, "public.renamed", DAY)
    assert rows == [{"id": 1, "position": "mine"}]


@pytest.mark.slow
def test_a_table_that_is_not_configured_stays_in_changes(odd: Odd) -> None:
    changes = lakes.stage_rows(odd.lake, odd.name, "changes")
    assert [row["op"] for row in changes if row["table_name"] == "public.unknown"] == ["c"]
    assert not odd.lake.exists(odd.lake.state(odd.name, TableName.parse("public.unknown")))


@pytest.mark.slow
@pytest.mark.parametrize("table", ["public.odd", "public.absent"])
def test_days_without_records_carry_the_state_over(odd: Odd, table: str) -> None:
    first = lakes.rows_of(odd.lake, odd.name, table, DAY)
    for day in DAYS:
        assert lakes.rows_of(odd.lake, odd.name, table, day) == first
        assert odd.reports[table, day].rows == len(first)
    refs = lakes.refs_of(odd.lake, odd.name, table)
    assert {str(day) for day in DAYS} <= set(refs)


@pytest.mark.slow
def test_a_table_that_never_appears_is_empty_and_has_its_configured_columns(odd: Odd) -> None:
    frame = lakes.table_at(odd.lake, odd.name, "public.absent", DAYS[-1])
    assert frame.columns[:2] == ["id", "v"]
    assert frame.count() == 0


# -- days that are not there ---------------------------------------------------------------------


def test_a_stage_without_its_inputs_says_what_to_run(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    ev.write_landing(tmp_path, {day: [ev.created({"id": 1}, offset=1)] for day in DAYS})
    tables = {"public.customers": {"key": ["id"]}}
    lake = lake_of({name: lakes.source_config(tmp_path, tables=tables)})
    land(lake, name, DAYS[1:])
    with pytest.raises(MissingDayError) as raised:
        make_changes(lake, name, DAYS)
    for part in (f"{name}.landing", str(DAY), f"--from {DAY} --to {DAY}"):
        assert part in str(raised.value)
    make_changes(lake, name, DAYS[1:])
    _, errors = lakes.run_tables(lake, name, [DAYS[1]])
    says = str(errors["public.customers", DAYS[1]])
    assert says == (
        f"{name}.public.customers: no state for {DAY}. Materialize it first, or run --from {DAY}."
    )
    land(lake, name, DAYS)
    _, errors = lakes.run_tables(lake, name, [DAY])
    assert f"{name}.quarantine: no state for {DAY}" in str(errors["public.customers", DAY])


def test_a_day_that_landed_anew_must_be_read_before_its_tables(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    ev.write_landing(tmp_path, {DAY: [ev.created({"id": 1}, offset=1)]})
    tables = {"public.customers": {"key": ["id"]}}
    lake = lake_of({name: lakes.source_config(tmp_path, tables=tables)})
    lakes.run_stages(lake, name, [DAY], lag=True)
    land(lake, name, [DAY], force=True)
    _, errors = lakes.run_tables(lake, name, [DAY])
    assert isinstance(errors["public.customers", DAY], MissingDayError)
    assert "older than its landing" in str(errors["public.customers", DAY])


# -- on_quarantine: block ------------------------------------------------------------------------


@pytest.mark.slow
def test_block_holds_back_the_tables_that_the_quarantine_names_or_all(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    landing = Landing(DAY)
    good = PgLog("block", "public", "good", landing=landing)
    bad = PgLog("block", "public", "bad", landing=landing)
    good.create(id=1)
    bad.create(id=1)
    landing.put(ev.change("c", table=("public", "bad"), server="block", key={"id": 2}))
    landing.next_day()
    good.create(id=2)
    landing.put(ev.raw(b"no json", topic="block.public.good"))
    ev.write_landing(tmp_path, landing.landed)
    tables = {"public.good": {"key": ["id"]}, "public.bad": {"key": ["id"]}}
    options = {"on_quarantine": "block", "tables": tables}
    lake = lake_of({name: lakes.source_config(tmp_path, **options)})
    lakes.run_stages(lake, name, DAYS[:2], lag=True)
    reports, errors = lakes.run_tables(lake, name, DAYS[:2])
    assert set(reports) == {("public.good", DAY)}
    assert set(errors) == {("public.bad", DAY), ("public.good", DAYS[1])}
    assert all(isinstance(error, AuditError) for error in errors.values())
    assert "1 missing_image" in str(errors["public.bad", DAY])
    assert "1 malformed_json" in str(errors["public.good", DAYS[1]])
    assert lakes.refs_of(lake, name, "public.bad") == {}
