"""Apache Flink's own Debezium logs reach the final state that its tests expect (shared cases)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.lake import Lake
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import DAY

CASES = (
    Path(os.environ.get("CDC_CASES") or Path(__file__).parents[2] / "shared" / "cases") / "flink"
)
TABLE = "inventory.products"
LOGS = {
    "mysql_without_schema": "debezium-data-schema-exclude",
    "mysql_with_schema": "debezium-data-schema-include",
    "postgres_without_schema": "debezium-postgres-data-schema-exclude",
    "postgres_with_schema": "debezium-postgres-data-schema-include",
}
IDENTITY = "debezium-postgres-data-replica-identity"
KEYED, KEYLESS = "cases_keyed", "cases_keyless"

pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(not CASES.is_dir(), reason=f"no cases at {CASES}; set CDC_CASES"),
]


def _landed(log: str, with_key: bool = False) -> dict[Any, list[ev.Record]]:
    records = []
    for offset, line in enumerate((CASES / f"{log}.txt").read_bytes().splitlines()):
        event = json.loads(line)
        payload = event.get("payload", event)
        row = payload["after"] or payload["before"] or {"id": 111}
        key = ev.to_json({"id": row["id"]}).encode() if with_key else None
        records.append(ev.raw(line, topic="products", key=key, offset=offset))
    return {DAY: records}


@pytest.fixture(scope="module")
def lake(lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory) -> Lake:
    folder = tmp_path_factory.mktemp("cases")
    full = {TABLE: {"key": ["id"], "replica_identity": "full"}}
    sources = {
        f"cases_{name}": lakes.write_source(folder / name, _landed(log), tables=full)
        for name, log in LOGS.items()
    }
    unknown = {TABLE: {"key": ["id"]}}
    for name, with_key in ((KEYED, True), (KEYLESS, False)):
        landed = _landed(IDENTITY, with_key)
        sources[name] = lakes.write_source(folder / name, landed, tables=unknown)
    made = lake_of(sources)
    for name in sources:
        lakes.run_all(made, name, [DAY])
    return made


def _rows(lake: Lake, source: str) -> dict[int, dict[str, Any]]:
    return {row["id"]: row for row in lakes.rows_of(lake, source, TABLE, DAY)}


def _assert_expected(rows: dict[int, dict[str, Any]], name: str) -> None:
    expected = json.loads((CASES / name).read_text("utf-8"))
    assert sorted(rows) == [row["id"] for row in expected]
    for row in expected:
        assert rows[row["id"]] == {**row, "weight": pytest.approx(row["weight"], rel=1e-6)}


@pytest.mark.parametrize("name", LOGS)
def test_a_log_of_flink_reaches_its_final_state(lake: Lake, name: str) -> None:
    _assert_expected(_rows(lake, f"cases_{name}"), f"{LOGS[name]}.txt.expected.json")


def test_a_delete_without_images_takes_its_key_from_the_message_key(lake: Lake) -> None:  # D8
    expected = f"{IDENTITY}.txt.expected-with-message-key.json"
    _assert_expected(_rows(lake, KEYED), expected)


def test_a_delete_without_images_and_key_is_quarantined_and_changes_nothing(
    lake: Lake,
) -> None:  # D8
    assert sorted(_rows(lake, KEYLESS)) == list(range(101, 112))
    quarantined = lakes.stage_rows(lake, KEYLESS, "quarantine")
    assert [(row["offset"], row["reason"]) for row in quarantined] == [(15, "missing_key")]
