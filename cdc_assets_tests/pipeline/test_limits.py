"""What data may ask for has bounds: the excess is quarantined as `over_limit`, and counted."""

from __future__ import annotations

import gzip
import json
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.rows import read_all_rows
from cdc_assets.cdc.lake.tables import find_table
from cdc_assets.cdc.landing.lines import KEPT_BYTES, LINE_BYTES
from cdc_assets.cdc.registry import client
from cdc_assets.cdc.registry.avro import (
    DEEPEST,
    MOST_REFERENCES,
    OverLimitError,
    SchemaError,
    read_avro,
)
from cdc_assets.cdc.registry.json_schema import read_json_schema
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.registries import Schemas, framed, serving

DAY = ev.DAY
MB = 1 << 20
TABLES: dict[str, Any] = {"public.t": {"key": ["id"]}}


def made(lake_of: LakeOf, folder: Path, name: str, **options: Any) -> Lake:
    lake = lake_of({name: lakes.source_config(folder, tables=TABLES, **options)})
    lakes.run_all(lake, name, [DAY], lag=True)
    return lake


def write_parquet(folder: Path, records: list[Any]) -> None:
    """Records as Spark's Kafka source has them: of lines, each is no longer than a record."""
    folder.mkdir()
    names = ("topic", "partition", "offset", "key", "value")
    columns = {name: [getattr(record, name) for record in records] for name in names}
    sent = [record.timestamp_ms for record in records]
    columns["timestamp"] = pa.array(sent, pa.timestamp("ms", "UTC"))
    pq.write_table(pa.table(columns), folder / "part-0.parquet")


def quarantined(lake: Lake, name: str) -> list[tuple[Any, ...]]:
    rows = lakes.stage_rows(lake, name, "quarantine")
    return sorted((row["offset"], row["reason"], row["detail"]) for row in rows)


def test_a_record_beyond_the_size_is_counted_once_and_its_beginning_kept(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = ev.PgLog("shop", "public", "t", types={"id": "int32", "v": "string"})
    log.create(id=1, v="a")
    log.create(id=2, v="b" * (2 * MB))
    log.landing.put(ev.raw(b"x" * (MB + 1), topic="shop.public.t", key=b'{"id":3}'))
    write_parquet(tmp_path / str(DAY), log.landed[DAY])
    source = lakes.source_config(tmp_path, tables=TABLES, max_record_mb=1)
    lake = lake_of({name: source})
    lakes.run_all(lake, name, [DAY], lag=True)
    assert lakes.rows_of(lake, name, "public.t", DAY) == [{"id": 1, "v": "a"}]
    found = quarantined(lake, name)
    assert [reason for _, reason, _ in found] == ["over_limit", "over_limit"]
    assert all(detail.endswith("max_record_mb is 1") for *_, detail in found)
    kept = lakes.stage_rows(lake, name, "quarantine")
    assert {len(row["value"]) for row in kept} == {KEPT_BYTES}
    landed = lakes.stage_rows(lake, name, "landing")
    assert max(len(row["value"]) for row in landed) > 2 * MB
    lakes.assert_as_model(lake, name, source, log.landed)


@pytest.mark.parametrize("ending", [".jsonl", ".jsonl.gz"])
def test_a_line_that_does_not_end_is_one_bad_line(
    lake_of: LakeOf, tmp_path: Path, name: str, ending: str
) -> None:
    good = [ev.kcat_line(ev.created({"id": n}, offset=n, table=("public", "t"))) for n in range(3)]
    endless = "y" * (3 * MB)
    text = "\n".join([good[0], endless, good[1], "", good[2]]).encode()
    file = tmp_path / str(DAY) / f"a{ending}"
    file.parent.mkdir()
    file.write_bytes(gzip.compress(text) if ending.endswith("gz") else text)
    lake = made(lake_of, tmp_path, name, max_record_mb=1)
    assert sorted(row["id"] for row in lakes.rows_of(lake, name, "public.t", DAY)) == [0, 1, 2]
    ((offset, reason, detail),) = quarantined(lake, name)
    assert (offset, reason) == (None, "over_limit")
    assert detail == f"has {3 * MB} bytes; max_record_mb is 1"
    (line,) = (r for r in lakes.stage_rows(lake, name, "landing") if r["offset"] is None)
    assert line["value"] == b"y" * KEPT_BYTES
    assert line["headers"] == [{"key": LINE_BYTES, "value": str(3 * MB).encode()}]
    assert line["file"] == file.name


def test_a_row_with_too_many_columns_leaves_none_of_them(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = ev.PgLog("shop", "public", "t")
    log.create(id=1, v="a")
    log.create(id=2, **{f"c{n}": n for n in range(12)})
    ev.write_landing(tmp_path, log.landed)
    source = lakes.source_config(tmp_path, tables=TABLES, max_columns=10)
    lake = lake_of({name: source})
    lakes.run_all(lake, name, [DAY], lag=True)
    assert lakes.rows_of(lake, name, "public.t", DAY) == [{"id": 1, "v": "a"}]
    ((_, reason, detail),) = quarantined(lake, name)
    assert (reason, detail) == (
        "over_limit",
        "the row has more than 10 columns, which is max_columns",
    )
    lakes.assert_as_model(lake, name, source, log.landed)


def test_kinds_beyond_the_limit_are_quarantined_the_first_ones_read(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = ev.PgLog("shop", "public", "t")
    log.create(id=1)
    for number in range(8):
        other = ev.PgLog("shop", "public", f"o{number}", landing=log.landing)
        other.create(id=number)
    log.create(id=2)
    ev.write_landing(tmp_path, log.landed)
    lake = made(lake_of, tmp_path, name, max_kinds=4)
    found = quarantined(lake, name)
    # By their topics: o0 to o3 are read.
    assert [reason for _, reason, _ in found] == ["over_limit"] * 6
    assert {detail for *_, detail in found} == {
        "one of more than 4 kinds of records of the day, which is max_kinds"
    }
    tables = {row["table_name"] for row in lakes.stage_rows(lake, name, "changes")}
    assert tables == {f"public.o{n}" for n in range(4)}
    # The same rows where days are made one by one, and made again.
    again = made(lake_of, tmp_path, f"{name}_again", max_kinds=4)
    assert quarantined(again, f"{name}_again") == found


def test_what_can_not_be_read_is_one_fact_whatever_it_says(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    log = ev.PgLog("shop", "public", "t")
    for number in range(30):
        log.create(id=number, _extra={"op": f"op {number}"})
    ev.write_landing(tmp_path, log.landed)
    lake = made(lake_of, tmp_path, name)
    assert len(quarantined(lake, name)) == 30
    facts = [f for f in lakes.stage_rows(lake, name, "facts") if f["destination"] == "quarantine"]
    assert [(fact["reason"], fact["records"]) for fact in facts] == [("unknown_op", 30)]


def test_a_table_that_is_shown_whole_is_read_a_part_at_a_time(
    lake_of: LakeOf, tmp_path: Path, name: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    log = ev.PgLog("shop", "public", "t")
    for number in range(5):
        log.create(id=number)
    ev.write_landing(tmp_path, log.landed)
    lake = made(lake_of, tmp_path, name)
    table = find_table(lake.config, "public.t", name)
    whole = list(read_all_rows(lake.config, table))
    monkeypatch.setattr("cdc_assets.cdc.lake.rows.SORTED_ROWS", 2)
    first, *parts = read_all_rows(lake.config, table)
    assert first.num_rows == 0
    assert parts
    assert all(part.column_names == whole[0].column_names for part in (first, *parts))
    rows = [row for part in parts for row in part.to_pylist()]
    assert sorted(row["id"] for row in rows) == [row["id"] for row in whole[0].to_pylist()]


# -- schemas of registries -----------------------------------------------------------------------


def doubling(levels: int) -> str:
    """A schema that names a type twice in each of the types above it."""
    inner: Any = {"type": "record", "name": "R0", "fields": [{"name": "v", "type": "int"}]}
    for level in range(1, levels):
        fields = [{"name": "a", "type": inner}, {"name": "b", "type": f"R{level - 1}"}]
        inner = {"type": "record", "name": f"R{level}", "fields": fields}
    return json.dumps(inner)


def nested(levels: int) -> str:
    return '{"type":"array","items":' * levels + '"int"' + "}" * levels


@pytest.mark.parametrize("text", [doubling(16), nested(DEEPEST + 1), nested(5_000)])
def test_an_avro_schema_beyond_the_bounds_is_over_the_limit(text: str) -> None:
    with pytest.raises(OverLimitError):
        read_avro(text)


@pytest.mark.parametrize("text", [doubling(8), nested(100)])
def test_an_avro_schema_within_the_bounds_is_read(text: str) -> None:
    assert read_avro(text)


@pytest.mark.parametrize("fields", ["5", '"x"', "{}"])
def test_an_avro_schema_of_a_wrong_form_is_none(fields: str) -> None:
    text = f'{{"type":"record","name":"R","fields":{fields}}}'
    if fields == "{}":
        assert read_avro(text).reader["fields"] == []
        return
    with pytest.raises(SchemaError, match="expected a list"):
        read_avro(text)


@pytest.mark.parametrize("levels", [DEEPEST + 2, 5_000])
def test_a_json_schema_beyond_the_bounds_is_over_the_limit(levels: int) -> None:
    with pytest.raises(OverLimitError):
        read_json_schema('{"type":"array","items":' * levels + "{}" + "}" * levels)


class Asked:
    """A registry whose schemas refer to the two of the next level, and what was asked of it."""

    def __init__(self, levels: int, at_once: int = 2) -> None:
        self.levels, self.at_once = levels, at_once
        self.paths: list[tuple[str, ...]] = []

    def ask(self, *path: str) -> dict[str, Any]:
        self.paths.append(path)
        level = int(path[1].split("-")[0]) if path[0] == "subjects" else 0
        names = [f"{level + 1}-{n}" for n in range(self.at_once)] if level < self.levels else []
        references = [{"subject": name, "version": 1} for name in names]
        return {"schema": f'"{"-".join(path)}"', "references": references}

    def inventory(self) -> None:
        return None

    def error(self, path: Any, what: str) -> Exception:
        return ValueError(f"{path} {what}")


def test_each_reference_is_asked_for_once() -> None:
    registry = Asked(16)
    found = client._References(registry).resolve(registry.ask("schemas", "ids", "7"))
    assert found is not None
    assert len(found) == len(registry.paths) - 1 == 32
    assert found.index('"subjects-16-0-versions-1"') < found.index('"subjects-1-0-versions-1"')


@pytest.mark.parametrize("registry", [Asked(1, MOST_REFERENCES + 1), Asked(DEEPEST + 5, 1)])
def test_too_many_references_are_none(registry: Asked) -> None:
    assert client._References(registry).resolve(registry.ask("schemas", "ids", "7")) is None
    assert len(registry.paths) <= MOST_REFERENCES + DEEPEST


def test_of_a_registry_no_more_ids_are_asked_for_than_a_run_may(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    landing = ev.Landing(DAY)
    for number in range(1, 7):
        landing.put(ev.raw(framed(number, b"x"), topic="shop.public.t"))
    ev.write_landing(tmp_path, landing.landed)
    schemas = Schemas()
    with serving(schemas) as url:
        landed = {"files": str(tmp_path), "registry": {"url": url}}
        lake = made(lake_of, tmp_path, name, max_kinds=2, landing=landed)
    assert len(schemas.asked) == 2
    found = quarantined(lake, name)
    assert [reason for _, reason, _ in found] == ["registry_encoded"] * 2 + ["over_limit"] * 4
    assert all("max_kinds" in detail for _, reason, detail in found if reason == "over_limit")
