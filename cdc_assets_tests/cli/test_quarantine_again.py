"""What `cdc-assets quarantine --export` writes lands again: as it was, and mended."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping
from dataclasses import replace
from datetime import date, datetime, timedelta, timezone
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest
from typer.testing import CliRunner, Result

from cdc_assets.cdc.errors import LandingError
from cdc_assets.cli.app import app
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import DAY, PgLog
from cdc_assets_tests.lakes import land

NEXT, LATER = DAY + timedelta(days=1), DAY + timedelta(days=2)
LANDED = ("topic", "partition", "offset", "timestamp", "timestamp_type", "key", "value", "headers")
WHY = ("reason", "detail", "table_name")
PARQUET = pa.schema(
    {
        "topic": pa.string(),
        "partition": pa.int32(),
        "offset": pa.int64(),
        "timestamp": pa.timestamp("us", "UTC"),
        "timestampType": pa.int32(),
        "key": pa.binary(),
        "value": pa.binary(),
        "headers": pa.list_(pa.struct([("key", pa.string()), ("value", pa.binary())])),
    }
)


def call(folder: Path, monkeypatch: pytest.MonkeyPatch, lake: Any, *arguments: str) -> Result:
    """The command with the lake's configuration as cdc.yaml."""
    file = folder / "cdc.yaml"
    sources = {
        name: {"format": s.format, "landing": {"files": s.landing.files}, "tables": {}}
        for name, s in lake.config.sources.items()
    }
    raw = {"lake": {"warehouse": lake.config.lake.warehouse}, "start_date": str(DAY)}
    file.write_text(json.dumps({**raw, "sources": sources}), "utf-8")
    monkeypatch.setenv("CDC_CONFIG", str(file))
    return CliRunner().invoke(app, ["quarantine", *arguments])


# -- as it was -----------------------------------------------------------------------------------

NOON = datetime(2026, 11, 4, 12, tzinfo=timezone.utc)
EVENT = b'{"op":"c","source":{"schema":"public","table":"odd"},"after":'
HOSTILE = (
    "\x1b[2J\x1b]0;owned\x07\x00\x9b31m \u202edlrow\u202c [red]é漢😀[/red] \u2028\r\n\t\\\"'"
).encode()


def _odd_rows() -> Iterable[dict[str, Any]]:
    """Rows of a landed Parquet file, of which nothing can be read."""
    values: list[tuple[bytes | None, bytes | None]] = [
        (b'{"id":1}', HOSTILE),
        (HOSTILE, b"\xff\xfe" + HOSTILE),
        (b"\x00\x00\x00\x01\x2a\xff", b"\x00\x00\x00\x01\x2a\xfe"),
        (b"", b"{}"),
        (None, b"5"),
        (b"null", b'"null"'),
        (b'{"id":2}', EVENT + b'{"id":2,"v":"' + "漢[b]".encode() * 200_000 + b'"},"op":"c"}'),
        (None, EVENT.replace(b'"c"', b'"C"') + b'{"id":3}}'),
        (b'{"id":4}', EVENT + b'{"id":4}'),
        (b"123", b"123"),
        (b"[1]", b"[1]"),
        (b"true", b"true"),
    ]
    for offset, (key, value) in enumerate(values):
        yield {"topic": "odd.[red]\x1b[2J é", "offset": offset, "key": key, "value": value}
    lone: list[tuple[bytes | None, bytes | None]] = [
        (None, None),
        (b"", None),
        (None, b""),
        (b'{"id":1}', b""),
        (b'{"id":1}', b"null"),
        (b"\xff", None),
    ]
    for offset, (key, value) in enumerate(lone):
        yield {"topic": "of no table", "offset": offset, "key": key, "value": value}
    times = [
        None,
        NOON,
        NOON + timedelta(microseconds=1),
        datetime(1969, 12, 31, 23, 59, 59, 999_000, timezone.utc),
        datetime(9999, 12, 31, 23, 59, 59, 999_999, timezone.utc),
    ]
    for offset, time in enumerate(times):
        yield {
            "topic": "times",
            "offset": 2**63 - 1 - offset,
            "value": b"{",
            "timestamp": time,
            "timestampType": [0, 1, None][offset % 3],
            "partition": 2**31 - 1,
        }
    headers: list[list[tuple[str, bytes | None]]] = [
        [],
        [("h", b"text")],
        [("h", None), ("h", b""), ("", b"\xff\x00"), (HOSTILE.decode(), HOSTILE)],
        [("n", b"1"), ("n", b"null"), ("n", b"[1]"), ("n", b'{"a":1.0}')],
    ]
    for offset, pairs in enumerate(headers):
        yield {
            "topic": "headers",
            "offset": offset,
            "value": b"{",
            "headers": [{"key": k, "value": v} for k, v in pairs],
        }
    for value in (b"{first", b"{second", b"{second"):
        yield {"topic": "landed twice", "offset": 0, "value": value}


NO_RECORDS = [
    b"\xef\xbb\xbf" + ev.kcat_line(ev.raw(b"{}")).encode(),
    b'{"topic": "cut',
    b"[]",
    b'""',
    b"\xff\xfe\x00 \x1b[2J [red]",
    b"% Reached end of topic\r",
    b'{"topic":"t","partition":0,"offset":1,"payload":{"an":"object"}}',
    b'{"topic":"t","partition":0,"offset":1,"headers":[{"key":"h","value_base64":"no base64!"}]}',
]


def _normal(row: Mapping[str, Any], names: Iterable[str]) -> dict[str, Any]:
    # Kafka does not tell no headers from an empty list of them.
    return {name: row[name] or None if name == "headers" else row[name] for name in names}


@pytest.mark.slow
def test_what_is_exported_lands_again_as_it_was_and_is_quarantined_for_the_same_reasons(
    lake_of: LakeOf, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    first, again = tmp_path / "first", tmp_path / "again"
    (first / str(DAY)).mkdir(parents=True)
    (first / str(NEXT)).mkdir()
    (again / str(DAY)).mkdir(parents=True)
    bare = {**dict.fromkeys(PARQUET.names), "partition": 0, "timestamp": NOON}
    rows = [{**bare, **row} for row in _odd_rows()]
    pq.write_table(pa.Table.from_pylist(rows, PARQUET), first / str(DAY) / "odd.parquet")
    good = ev.kcat_line(ev.created({"id": 1}, topic="good")).encode()
    # The second mark of two stays: Hadoop takes only the first off a file.
    lines = [b"\xef\xbb\xbf" + NO_RECORDS[0], good, *NO_RECORDS[1:]]
    (first / str(NEXT) / "lines.jsonl").write_bytes(b"\n".join(lines))
    lake = lake_of({name: lakes.source_config(first), f"{name}_2": lakes.source_config(again)})
    lakes.run_stages(lake, name, [DAY, NEXT])
    quarantined = lakes.stage_rows(lake, name, "quarantine")
    assert len(quarantined) == len(rows) + len(NO_RECORDS)

    file = tmp_path / "bad.jsonl"
    result = call(tmp_path, monkeypatch, lake, "--source", name, "--export", str(file))
    assert result.exit_code == 0, result.output
    assert result.stdout == ""
    assert f"{len(quarantined)} records of {name} written to {file}" in result.stderr
    assert f"{len(NO_RECORDS)} of the lines are not records" in result.stderr
    file.rename(again / str(DAY) / file.name)
    lakes.run_stages(lake, f"{name}_2", [DAY])

    landed = lakes.stage_rows(lake, f"{name}_2", "landing")
    lakes.assert_same_rows(
        [_normal(row, LANDED) for row in landed], [_normal(row, LANDED) for row in quarantined]
    )
    relanded = lakes.stage_rows(lake, f"{name}_2", "quarantine")
    names = (*LANDED, *WHY)
    lakes.assert_same_rows(
        [_normal(row, names) for row in relanded], [_normal(row, names) for row in quarantined]
    )
    assert len({row["reason"] for row in relanded}) >= 6


# -- mended --------------------------------------------------------------------------------------


def _customers(lake: Any, source: str, day: date) -> dict[int, str]:
    return {row["id"]: row["v"] for row in lakes.rows_of(lake, source, "public.customers", day)}


def _reasons(lake: Any, source: str) -> dict[date, list[str]]:
    found: dict[date, list[str]] = {}
    for row in lakes.stage_rows(lake, source, "quarantine"):
        found.setdefault(row["landing_date"], []).append(row["reason"])
    return found


def _offset_faults(lake: Any, source: str, days: list[date]) -> list[date]:
    """The days on which the check offsets_contiguous fails."""
    findings = lakes.landing_found(lake, source, days)
    return [day for day in days if not all(f.passed for f in findings[day])]


def _bad_customers() -> dict[date, list[ev.Record]]:
    """Offsets 0 to 3 on DAY and 4, 5 on NEXT; of 1, 2 and 3 the value can't be read."""
    log = PgLog()
    log.create(id=1, v="first")
    log.create(id=2, v="mended")
    log.update(id=1, v="mended, and older")
    log.read(id=3, v="mended read")
    log.next_day()
    log.update(id=1, v="newest")
    log.create(id=3, v="newest")
    of_day = log.landed[DAY]
    assert [record.offset for record in of_day] == [0, 1, 2, 3]
    of_day[1:] = [replace(r, value=(r.value or b"")[:-1]) for r in of_day[1:]]
    return dict(log.landed)


def _mended(exported: Path) -> list[str]:
    """The exported lines with their values mended as one does it with an editor."""
    lines = [json.loads(line) for line in exported.read_text("utf-8").splitlines()]
    return [json.dumps({**line, "value": line["value"] + "}"}) for line in lines]


@pytest.mark.slow
def test_mended_records_reach_the_table_in_place_beside_and_on_a_later_day(
    lake_of: LakeOf, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    folders = {source: tmp_path / source for source in (name, f"{name}_2")}
    tables = {"public.customers": {"key": ["id"]}}
    sources = {
        source: lakes.write_source(folder, _bad_customers(), tables=tables)
        for source, folder in folders.items()
    }
    lake, days = lake_of(sources), [DAY, NEXT]
    for source in sources:
        lakes.run_all(lake, source, days)
        assert _reasons(lake, source) == {DAY: ["malformed_json"] * 3}
        assert _customers(lake, source, NEXT) == {1: "newest", 3: "newest"}

    exported = tmp_path / "bad.jsonl"
    result = call(tmp_path, monkeypatch, lake, "--source", name, "--export", str(exported))
    assert f"{folders[name]}/{DAY}/part-0.jsonl: 3" in result.stderr
    assert f"cdc-assets run --source {name} --from {DAY} --to {NEXT}" in result.stderr
    mended = _mended(exported)

    # Beside the bad ones: the table is right, but the offsets land twice.
    landed = folders[name] / str(DAY) / "part-0.jsonl"
    beside = landed.with_name("mended.jsonl")
    beside.write_text("\n".join(mended) + "\n", "utf-8")
    lakes.run_all(lake, name, days)
    in_place = {DAY: {1: "mended, and older", 2: "mended", 3: "mended read"}}
    in_place[NEXT] = {1: "newest", 2: "mended", 3: "newest"}
    assert {day: _customers(lake, name, day) for day in days} == in_place
    assert _reasons(lake, name) == {DAY: ["malformed_json"] * 3}
    assert _offset_faults(lake, name, days) == [DAY]

    # The bad ones taken out.
    landed.write_text(landed.read_text("utf-8").splitlines()[0] + "\n", "utf-8")
    with pytest.raises(LandingError, match=r"part-0\.jsonl: 4 landed, 1 left"):
        land(lake, name, days)
    # Each of their offsets has landed from the other file: nothing is given up.
    land(lake, name, days, allow_loss=True)
    lakes.run_all(lake, name, days)
    assert {day: _customers(lake, name, day) for day in days} == in_place
    assert _reasons(lake, name) == {}
    assert _offset_faults(lake, name, days) == []

    # On a later day: position decides, and what has none takes effect last.
    later, source = folders[f"{name}_2"] / str(LATER), f"{name}_2"
    later.mkdir()
    (later / "mended.jsonl").write_text("\n".join(mended) + "\n", "utf-8")
    lakes.run_all(lake, source, [LATER])
    assert _customers(lake, source, NEXT) == {1: "newest", 3: "newest"}
    assert _customers(lake, source, LATER) == {1: "newest", 2: "mended", 3: "mended read"}
    assert _reasons(lake, source) == {DAY: ["malformed_json"] * 3}
    assert _offset_faults(lake, source, [*days, LATER]) == [LATER]
