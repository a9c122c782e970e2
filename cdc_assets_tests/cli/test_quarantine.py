"""`cdc-assets quarantine`, and `show` of messages, on lakes that PyIceberg writes: no Spark."""

from __future__ import annotations

import base64
import csv
import io
import json
from collections.abc import Mapping, Sequence
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from pyiceberg.catalog.sql import SqlCatalog
from typer.testing import CliRunner, Result

from cdc_assets.cdc.changes import quarantine_rows
from cdc_assets.cdc.changes.reasons import REASONS, remedy
from cdc_assets.cdc.lake.commits import INPUTS
from cdc_assets.cli import output
from cdc_assets.cli.app import app

DAYS = [date(2026, 11, n) for n in range(1, 7)]
NOON = datetime(2026, 11, 1, 12, tzinfo=timezone.utc)
OF_NO_PYTHON = -70_000_000_000_000_000  # µs: in the year 249 before our era
LANDING = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestamp_type": pa.int32(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
        "landing_date": pa.date32(),
        "file": pa.string(),
    }
)
QUARANTINE = pa.schema(
    [*LANDING, ("reason", pa.string()), ("detail", pa.string()), ("table_name", pa.string())]
)
# PyIceberg reads years that Python does not know, but can't write their statistics.
NO_STATISTICS = {"write.metadata.metrics.default": "none"}
Row = dict[str, Any]


@pytest.fixture(autouse=True)
def project(project: Path) -> Path:
    configure(project)
    return project


def configure(project: Path, sources: Sequence[str] = ("shop",), **options: Any) -> None:
    """Write cdc.yaml: these sources with the same settings."""
    settings = {"format": "debezium", "landing": {"files": "landing"}, **options}
    raw = {"lake": {"warehouse": "warehouse"}, "start_date": str(DAYS[0])}
    whole = {**raw, "sources": dict.fromkeys(sources, settings)}
    (project / "cdc.yaml").write_text(json.dumps(whole), "utf-8")


def call(*arguments: str) -> Result:
    return CliRunner().invoke(app, list(arguments))


def flat(text: str) -> str:
    """Words of a text, without the frame and the line breaks of an error."""
    return " ".join(text.replace("│", " ").split())


def said(result: Any) -> str:
    """What a command says on stderr behind its first words."""
    first, _, rest = result.stderr.partition("\n")
    assert first == "reading the quarantine"
    return str(rest)


def bad(value: bytes | None = b"{", **changes: Any) -> Row:
    """A row of quarantine."""
    return {
        "topic": "shop.orders", "partition": 0, "offset": 7, "timestamp": NOON,
        "timestamp_type": 0, "key": b'{"id":1}', "value": value, "headers": None,
        "landing_date": DAYS[0], "file": "part-0.jsonl", "reason": "malformed_json",
        "detail": "not exactly one strict JSON document: {", "table_name": None, **changes,
    }  # fmt: skip


def make_lake(
    rows: Sequence[Row],
    source: str = "shop",
    landed: Sequence[Row] | None = None,
    days: Sequence[date] = DAYS,
    files: int = 1,
) -> None:
    """A lake with these rows in quarantine, made of a landing of these, or of the same rows.

    The rows of a table are in so many files.
    """
    warehouse = Path("warehouse").absolute()
    warehouse.mkdir(exist_ok=True)
    catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    landing = [{n: row[n] for n in LANDING.names} for row in (rows if landed is None else landed)]
    try:
        catalog.create_namespace_if_not_exists(source)
        made_of: Mapping[str, Any] = {"files": "0"}
        for name, schema, of in (("landing", LANDING, landing), ("quarantine", QUARANTINE, rows)):
            table = catalog.create_table((source, name), schema, properties=NO_STATISTICS)
            inputs = json.dumps({str(day): made_of for day in days})
            for number in range(files):
                rows_of_file = pa.Table.from_pylist(list(of[number::files]), schema)
                table.append(rows_of_file, snapshot_properties={INPUTS: inputs})
            snapshot = table.current_snapshot()
            assert snapshot is not None
            made_of = {"landing": snapshot.snapshot_id}
    finally:
        catalog.engine.dispose()


# -- usage, and nothing to show ------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--reason", "malformed_jsn"), "did you mean malformed_json"),
        (("--reason", "nonsense"), f"is not a reason; the reasons are {', '.join(REASONS)}"),
        (("--source", "nope"), "no source 'nope'"),
        (("--day", "2026-13-01"), "is not a day"),
        (("--day", "2026-11-01", "--from", "2026-11-01"), "give --day, or --from and --to"),
        (("--from", "2026-11-02", "--to", "2026-11-01"), "before"),
        (("--export", "bad.jsonl", "--format", "json"), "give --export or --format, not both"),
        (("--export", "bad.json"), "got 'bad.json'; a file of landed lines is named *.jsonl"),
        (("--export", ""), "a file of landed lines is named *.jsonl"),
    ],
)
def test_wrong_usage_exits_2_with_one_message(arguments: tuple[str, ...], says: str) -> None:
    result = call("quarantine", *arguments)
    assert result.exit_code == 2, result.output
    assert says in flat(result.stderr)
    assert result.stdout == ""


def test_an_export_is_of_one_source(project: Path) -> None:
    configure(project, ["shop", "other"])
    result = call("quarantine", "--export", "bad.jsonl")
    assert result.exit_code == 2
    assert "give --source shop | other" in flat(result.stderr)


def test_without_a_lake_it_says_what_to_run() -> None:
    result = call("quarantine")
    assert (result.exit_code, result.stdout) == (1, "")
    assert said(result).startswith("error: there is no lake in ")


def test_a_source_that_is_not_made_hides_no_other(project: Path) -> None:
    configure(project, ["not_made", "shop"])
    make_lake([bad()])
    assert call("quarantine", "--format", "json").stdout.count("\n") == 1
    result = call("quarantine", "--source", "not_made")
    assert result.exit_code == 1
    assert "cdc-assets run --source not_made" in result.stderr


def test_days_that_are_not_made_are_no_days_without_a_bad_record() -> None:
    make_lake([], days=DAYS[:2])
    made = call("quarantine", "--day", "2026-11-02")
    assert (made.exit_code, made.stdout) == (0, "")
    assert said(made) == "shop: these days are made, and no record of them is in quarantine\n"
    not_made = call("quarantine", "--from", "2026-11-03", "--to", "2026-11-04")
    assert (not_made.exit_code, not_made.stdout) == (1, "")
    assert said(not_made) == (
        "error: no quarantine for 2026-11-03 to 2026-11-04: shop.quarantine has 2026-11-01 to "
        "2026-11-02. Make the days first: cdc-assets run --source shop --from 2026-11-03 --to "
        "2026-11-04\n"
    )


def test_a_reason_that_does_not_occur_names_those_that_do() -> None:
    make_lake([bad(), bad(reason="missing_op"), bad(reason="missing_op", offset=8)])
    result = call("quarantine", "--reason", "unknown_op")
    assert (result.exit_code, result.stdout) == (0, "")
    assert said(result) == (
        "shop: no record of these days is in quarantine as unknown_op; there are missing_op 2, "
        "malformed_json 1\n"
    )
    assert not call("quarantine", "--reason", "unknown_op", "--export", "a.jsonl").exit_code
    assert not Path("a.jsonl").exists()


# -- printed -------------------------------------------------------------------------------------

ANSI = "\x1b[2J\x1b]0;owned\x07\x9b31m\u202edlrow [red]é漢😀\x00".encode()


def test_counts_come_first_then_the_records_then_what_to_do(project: Path) -> None:
    configure(project, ["shop", "other"])
    make_lake(
        [
            bad(offset=3, landing_date=DAYS[1]),
            bad(offset=2, landing_date=DAYS[1], reason="missing_op", table_name="public.orders"),
            bad(offset=1, landing_date=DAYS[1]),
            bad(offset=9),
        ]
    )
    other = bad(b"null", key=None, reason="missing_table", landing_date=DAYS[1])
    make_lake([other], source="other")
    result = call("quarantine")
    assert result.exit_code == 0, result.output
    lines = [line.split() for line in result.stdout.splitlines()]
    counts, shown = lines.index(["source", "day", "reason", "records"]), result.stdout
    assert lines[counts + 1 : counts + 5] == [
        ["shop", "2026-11-02", "malformed_json", "2"],
        ["shop", "2026-11-02", "missing_op", "1"],
        ["other", "2026-11-02", "missing_table", "1"],
        ["shop", "2026-11-01", "malformed_json", "1"],
    ]
    records = [line for line in lines[counts + 5 :] if line[:1] in (["shop"], ["other"])]
    assert [(r[0], r[1], r[2]) for r in records] == [
        ("shop", "2026-11-02", "malformed_json"),
        ("shop", "2026-11-02", "missing_op"),
        ("shop", "2026-11-02", "malformed_json"),
        ("other", "2026-11-02", "missing_table"),
        ("shop", "2026-11-01", "malformed_json"),
    ], "the newest day first, whatever the source"
    assert [r[r.index("shop.orders") + 2] for r in records] == ["1", "2", "3", "7", "9"]
    assert records[1][-4:] == ["2", "part-0.jsonl", '{"id":1}', "{"]
    assert records[3][-2:] == ["(null)", "null"]
    for reason in ("malformed_json (3)", "missing_op (1)", "missing_table (1)"):
        assert f"  {reason}: {remedy(reason.split()[0])}\n" in shown
    assert "unknown_op" not in shown
    assert "cdc-assets run --source shop --from 2026-11-01 --to 2026-11-06" in shown
    assert "cdc-assets quarantine --source other --export FILE.jsonl" in shown


def test_counts_of_many_days_are_summed_up() -> None:
    days = [DAYS[0] + timedelta(days=n) for n in range(100)]
    make_lake([bad(landing_date=day) for day in days], days=days)
    head, _, _ = call("quarantine", "--limit", "1").stdout.partition("\n\n")
    rows = head.splitlines()[2:]
    assert len(rows) == 31
    assert rows[0].split()[:2] == ["shop", str(days[-1])]
    assert rows[-1].split() == ["shop", "up", "to", str(days[69]), "malformed_json", "70"]


def test_a_table_shows_twenty_records_unless_it_is_told_how_many() -> None:
    make_lake([bad(offset=n) for n in range(30)])
    result = call("quarantine")
    assert result.stdout.count("part-0.jsonl") == 20
    assert said(result) == "20 of 30 records; --limit N for more\n"
    assert said(call("quarantine", "--limit", "30")) == ""
    assert call("quarantine", "--format", "csv").stdout.count("part-0.jsonl") == 30
    assert said(call("quarantine", "--format", "csv", "--limit", "2")).startswith("2 of 30 ")


@pytest.mark.parametrize("is_terminal", [True, False])
def test_no_table_sends_a_control_character_or_a_megabyte(
    is_terminal: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COLUMNS", "100")
    monkeypatch.setenv("TERM", "dumb")  # Rich itself sends no escapes
    monkeypatch.setattr(output.Console, "is_terminal", is_terminal)
    make_lake(
        [
            bad(ANSI, key=ANSI, offset=1, topic=ANSI.decode(), detail=ANSI.decode()),
            bad(b"\xff" + ANSI * 50_000, offset=2, file=ANSI.decode()),
            bad("漢[b]".encode() * 200_000, offset=3, table_name=ANSI.decode()),
            bad(b"x" * 500, offset=4),
        ]
    )
    result = call("quarantine")
    assert result.exit_code == 0, result.output
    shown = result.stdout
    assert shown.replace("\n", "").isprintable()
    assert len(shown) < 20_000
    assert "\\x1b[2J" in shown
    assert "[red]é漢😀\\x00" in shown, "markup is text"
    assert "… (1,200,000 bytes)" in shown
    if is_terminal:
        assert max(len(line) for line in shown.partition("what to do")[0].splitlines()) <= 100
        assert "(base64) /xtb" in shown
    else:
        assert "x" * 500 in shown, "not cut where nothing is too narrow"


def test_null_empty_and_text_differ_in_a_table() -> None:
    make_lake([bad(None, key=b""), bad(b"null", key=b"\x00\x80", offset=8)])
    result = call("quarantine")
    rows = [line.split() for line in result.stdout.splitlines() if "part-0" in line]
    assert [row[-2:] for row in rows] == [["(empty)", "(null)"], ["AIA=", "null"]]


def test_json_and_csv_have_whole_messages_as_text_or_base64() -> None:
    huge = "漢".encode() * 100_000
    make_lake(
        [
            bad(huge, headers=[{"key": "h", "value": b"\xff"}, {"key": "n", "value": None}]),
            bad(b"\xff", key=None, offset=8, timestamp=None, table_name="public.orders"),
            bad(b"", key=b"\x1b[2J", offset=9),
        ]
    )
    rows = [json.loads(line) for line in call("quarantine", "--format", "json").stdout.splitlines()]
    first, second, third = rows
    assert first["value"] == huge.decode()
    assert first["headers"] == [{"key": "h", "value_base64": "/w=="}, {"key": "n", "value": None}]
    assert (second["value"], second["value_base64"], second["key"]) == (None, "/w==", None)
    assert (third["value"], third["key"], third["key_base64"]) == ("", "\x1b[2J", None)
    assert (first["timestamp"], second["timestamp"]) == ("2026-11-01T12:00:00Z", None)
    assert first["remedy"] == remedy("malformed_json")
    assert (first["is_gone"], first["source"]) == (False, "shop")

    text = call("quarantine", "--format", "csv").stdout
    table = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["value"] for row in table] == [huge.decode(), "", ""]
    assert [row["value_base64"] for row in table] == ["", "/w==", ""]
    assert list(table[0]) == list(first)


def test_a_reason_of_a_newer_version_is_shown() -> None:
    make_lake([bad(reason="of_tomorrow\x1b")])
    result = call("quarantine")
    assert f"  of_tomorrow\\x1b (1): {remedy('of_tomorrow')}\n" in result.stdout


@pytest.mark.parametrize("code", list(REASONS))
def test_a_remedy_is_a_sentence(code: str) -> None:
    assert remedy(code).lower() == f"{REASONS[code].remedy}.".lower()
    assert remedy(code)[0].isupper()


# -- exported ------------------------------------------------------------------------------------


def test_an_export_writes_what_is_selected_and_says_what_to_do_next(project: Path) -> None:
    make_lake(
        [
            bad(offset=1),
            bad(offset=2, landing_date=DAYS[2], file="b.parquet"),
            bad(offset=3, landing_date=DAYS[2], file="b.parquet", key=b"\xff"),
            bad(offset=4, landing_date=DAYS[2], reason="missing_op"),
        ]
    )
    result = call("quarantine", "--reason", "malformed_json", "--export", "bad.jsonl")
    assert (result.exit_code, result.stdout) == (0, ""), result.output
    lines = [json.loads(line) for line in Path("bad.jsonl").read_text("utf-8").splitlines()]
    assert [line["offset"] for line in lines] == [2, 3, 1]
    assert lines[1]["key_base64"] == "/w=="
    assert lines[2] == {
        "topic": "shop.orders",
        "partition": 0,
        "offset": 1,
        "timestamp": 1_793_534_400_000,
        "timestampType": 0,
        "key": '{"id":1}',
        "value": "{",
        "headers": None,
        "quarantined": {
            "reason": "malformed_json",
            "detail": "not exactly one strict JSON document: {",
            "table": None,
            "day": "2026-11-01",
            "file": "part-0.jsonl",
        },
    }
    says = said(result)
    assert says.startswith("3 records of shop written to bad.jsonl\n")
    landing = project / "landing"
    assert f"     {landing}/2026-11-01/part-0.jsonl: 1\n" in says
    assert f"     {landing}/2026-11-03/b.parquet: 2\n" in says
    assert "   Show how they are read: cdc-assets inspect bad.jsonl --source shop\n" in says
    assert "3. cdc-assets run --source shop --from 2026-11-01 --to 2026-11-06\n" in says
    assert "are not records" not in says
    assert call("quarantine", "--limit", "1", "--export", "one.jsonl").exit_code == 0
    assert Path("one.jsonl").read_text("utf-8").count("\n") == 1


def test_an_export_overwrites_no_file() -> None:
    make_lake([bad()])
    Path("bad.jsonl").write_text("mended with much work", "utf-8")
    result = call("quarantine", "--export", "bad.jsonl")
    assert (result.exit_code, result.stdout) == (1, "")
    assert said(result) == (
        "error: bad.jsonl is there already, and is not overwritten; name another file\n"
    )
    assert Path("bad.jsonl").read_text("utf-8") == "mended with much work"
    nowhere = call("quarantine", "--export", "nowhere/bad.jsonl")
    assert nowhere.exit_code == 1
    assert said(nowhere).startswith("error: nowhere/bad.jsonl can't be written: No such file")


def test_an_export_to_standard_output_is_the_lines_alone() -> None:
    line = b"\xff[red]\x1b[2J no record"
    make_lake([bad(), bad(line, topic=None, partition=None, offset=None, key=None)])
    result = call("quarantine", "--export", "-")
    assert result.exit_code == 0
    assert result.stdout_bytes.splitlines()[1] == line
    assert json.loads(result.stdout_bytes.splitlines()[0])["offset"] == 7
    assert "2 records of shop written to standard output" in result.stderr
    assert "1 of the lines are not records" in result.stderr


def test_a_source_that_lands_from_kafka_is_told_to_send_the_messages_again(project: Path) -> None:
    kafka = {"bootstrap_servers": "localhost:9092", "topics": ["t"]}
    configure(project, landing={"kafka": kafka}, on_quarantine="block", late_days=9)
    make_lake([bad(file=None)])
    result = call("quarantine", "--export", "bad.jsonl")
    assert result.exit_code == 0, result.output
    said = flat(result.stderr)
    assert "Send each message to its topic again" in said
    assert "does not land files" in said
    assert "position in the message decides" in said
    assert "more than 9 days before" in said
    assert "on_quarantine: block" in said
    assert "/2026-11-01/" not in said


# -- bytes that only the landing has -------------------------------------------------------------

BARE: Row = {"key": None, "value": None, "headers": None}


def exported() -> list[Any]:
    """What an export writes: key, value and headers of each line."""
    lines = call("quarantine", "--export", "-").stdout_bytes.splitlines()
    return [
        (line["offset"], line.get("key"), line.get("value"), line["headers"])
        for line in map(json.loads, lines)
    ]


def test_bytes_that_quarantine_lacks_are_read_from_the_landing() -> None:
    landed = [
        *(bad(b"value %d" % n, offset=n, headers=[{"key": "h", "value": b"v"}]) for n in range(9)),
        bad(b"of another day", offset=1, landing_date=DAYS[1]),
        bad(b"of another partition", offset=1, partition=1),
        bad(b"of another topic", offset=1, topic="other"),
        bad(b"of another file", offset=1, file="other.jsonl"),
        bad(None, key=None, offset=20),
    ]
    make_lake([bad(offset=n, **BARE) for n in (1, 3, 20)] + [bad(b"own", offset=4)], landed=landed)
    headers = [{"key": "h", "value": "v"}]
    assert exported() == [
        (1, '{"id":1}', "value 1", headers),
        (3, '{"id":1}', "value 3", headers),
        (4, '{"id":1}', "own", None),
        (20, None, None, None),
    ]
    shown = call("quarantine").stdout
    assert shown.count('{"id":1}') == 3
    assert all(text in shown for text in ("value 1", "value 3", "own", "(null)"))


@pytest.mark.parametrize("few", [0, 200])
def test_many_bytes_are_looked_up_in_one_scan(few: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(quarantine_rows, "_FEW_OFFSETS", few)
    landed = [bad(b"%d" % n, offset=n, key=None) for n in range(50)]
    make_lake([bad(offset=n, **BARE) for n in range(10, 40)], landed=landed)
    assert [value for _, _, value, _ in exported()] == [str(n) for n in range(10, 40)]


def test_files_of_the_landing_without_a_wanted_record_are_passed_over() -> None:
    landed = [bad(b"wanted"), bad(b"of another topic", topic="other")]
    make_lake([bad(**BARE)], landed=landed, files=2)
    assert [value for _, _, value, _ in exported()] == ["wanted"]


def test_lines_that_are_no_record_are_looked_up_by_their_file() -> None:
    no_record = {"topic": None, "partition": None, "offset": None, "key": None, "timestamp": None}
    landed = [
        bad(b"first", **no_record),
        bad(b"second", **no_record),
        bad(b"third", **no_record, file="other.jsonl"),
        bad(b"good"),
    ]
    rows = [{**row, "value": None} for row in landed[:3]]
    make_lake(rows, landed=landed)
    lines = call("quarantine", "--export", "-").stdout_bytes.splitlines()
    assert sorted(lines) == [b"first", b"second", b"third"]


def gone() -> str:
    """What an export says that leaves the only record out."""
    result = call("quarantine", "--export", "bad.jsonl")
    assert result.exit_code == 0, result.output
    assert Path("bad.jsonl").read_bytes() == b""
    assert "(gone)" in call("quarantine").stdout
    row = json.loads(call("quarantine", "--format", "json").stdout)
    assert (row["is_gone"], row["value"]) == (True, None)
    return said(result)


def test_a_record_whose_bytes_are_gone_is_not_exported_as_a_tombstone() -> None:
    make_lake([bad(**BARE)], landed=[bad(offset=8)])
    assert gone().startswith("0 records of shop written to bad.jsonl\n1 left out: neither ")


def test_of_several_landed_records_at_one_place_none_is_taken_for_the_bad_one() -> None:
    make_lake([bad(**BARE)], landed=[bad(b"good"), bad(b"bad")])
    assert "1 left out" in gone()


def test_bytes_that_landed_anew_since_are_not_those_of_the_record() -> None:
    make_lake([bad(**BARE)], landed=[bad(b"before")])
    warehouse = Path("warehouse").absolute()
    catalog = SqlCatalog("lake", uri=f"sqlite:///{warehouse}/catalog.db", warehouse=str(warehouse))
    try:
        landing = catalog.load_table(("shop", "landing"))
        row = {name: bad(b"mended")[name] for name in LANDING.names}
        inputs = json.dumps({str(DAYS[0]): {"files": "1"}})
        landing.overwrite(
            pa.Table.from_pylist([row], LANDING), snapshot_properties={INPUTS: inputs}
        )
    finally:
        catalog.engine.dispose()
    assert "1 left out" in gone()


# -- show ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("table", ["shop.quarantine", "shop.landing"])
def test_show_has_messages_as_text_and_in_json_as_base64_too(table: str) -> None:
    headers = [{"key": "h", "value": b"text"}, {"key": "b", "value": b"\xff"}]
    make_lake(
        [bad(ANSI, headers=headers), bad(b"\xff", key=None, offset=8), bad(None, key=b"", offset=9)]
    )
    lines = call("show", table, "--format", "json").stdout.splitlines()
    first, second, third = map(json.loads, lines)
    assert (first["value"], first["value_text"]) == (
        base64.b64encode(ANSI).decode(),
        ANSI.decode(),
    )
    assert first["headers"] == [
        {"key": "h", "value": "dGV4dA==", "value_text": "text"},
        {"key": "b", "value": "/w==", "value_text": None},
    ]
    assert (second["value"], second["value_text"]) == ("/w==", None)
    assert (second["key"], second["key_text"]) == (None, None)
    assert (third["key"], third["key_text"], third["value"]) == ("", "", None)

    text = call("show", table, "--format", "csv").stdout
    rows = list(csv.DictReader(io.StringIO(text, newline="")))
    assert [row["value"] for row in rows] == [ANSI.decode(), "base64:/w==", ""]
    assert json.loads(rows[0]["headers"]) == [
        {"key": "h", "value": "text"},
        {"key": "b", "value": "base64:/w=="},
    ]
    assert "key_text" not in rows[0]

    shown = call("show", table)
    assert shown.stdout.replace("\n", "").isprintable()
    assert '{"id":1}' in shown.stdout
    assert "[red]é漢😀" in shown.stdout
    assert "base64:/w==" in shown.stdout


def test_an_instant_in_a_year_that_python_does_not_know_is_shown() -> None:
    make_lake([bad(timestamp=OF_NO_PYTHON), bad(offset=8), bad(offset=9, timestamp=None)])
    expected = ["-0249-10-15T19:33:20.000000Z", "2026-11-01T12:00:00Z", None]
    for command in (("quarantine",), ("show", "shop.landing"), ("show", "shop.quarantine")):
        lines = call(*command, "--format", "json").stdout.splitlines()
        assert [json.loads(line)["timestamp"] for line in lines] == expected
