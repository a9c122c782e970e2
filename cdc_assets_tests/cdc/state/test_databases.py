"""One connector, several databases with tables of the same names (D4)."""

from __future__ import annotations

from datetime import timedelta
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.config import Config, parse_config
from cdc_assets.cdc.errors import AuditError, ConfigError
from cdc_assets.cdc.findings import Finding
from cdc_assets.cdc.lake.tables import find_table
from cdc_assets.cdc.state.findings import table_findings
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, PgLog

DAYS = [ev.DAY + timedelta(days=n) for n in range(3)]
ORDERS = "dbo.orders"
EU, US = "shop_eu__dbo.orders", "shop_us__dbo.orders"
FLAT = ("op", "db", "schema", "table", "source.ts_ms", "source.connector", "source.commit_lsn")


class SqlServerLog(PgLog):
    """SQL Server's events of one table; `_db=` says another database than the log's."""

    def __init__(self, server: str, database: str, landing: Landing, *, flat: bool = False) -> None:
        super().__init__(server, "dbo", "orders", landing=landing)
        self.database, self.flat = database, flat

    def _put(self, build: Any, *images: Any, **options: Any) -> Any:
        at = f"0000002a:{options.pop('lsn'):08x}:0001"
        source = {**ev.sqlserver_source(at, at), "db": self.database}
        topic = f"{self.defaults['server']}.{self.database}.dbo.orders"
        given = {**self.defaults, **options, "topic": topic, "source": source}
        record = build(*images, **given)
        return self.landing.put(ev.flattened(record, FLAT) if self.flat else record)


def two_databases(server: str, *, flat: bool = False) -> Landing:
    """Two days of two databases, whose tables have the same names and keys."""
    landing = Landing(DAYS[0])
    eu, us = (SqlServerLog(server, db, landing, flat=flat) for db in ("shop_eu", "shop_us"))
    eu.create(id=1, v="eu")
    us.create(id=1, v="us")
    us.create(id=2, v="us")
    landing.next_day()
    us.update(id=1, v="us again")
    eu.delete(id=1)
    return landing


def rows(*pairs: tuple[int, str]) -> list[dict[str, Any]]:
    return [{"id": row_id, "v": v} for row_id, v in pairs]


@pytest.mark.parametrize("format", ["debezium", "debezium-flat"])
def test_names_of_three_parts_tell_the_tables_of_databases_apart(
    format: str, lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    landing = two_databases(name, flat=format != "debezium")
    own = {"key": ["id"], "columns": {"v": "string"}}
    tables = {"shop_eu.dbo.orders": own, "shop_us.dbo.orders": own}
    settings = {"format": format, "tables": tables}
    lake = lake_of({name: lakes.write_source(tmp_path, landing.landed, **settings)})
    assert list(lake.config.source(name).tables) == [EU, US]
    lakes.run_all(lake, name, DAYS[:2])
    lakes.assert_as_model(lake, name, settings, landing.landed)
    found = [[lakes.rows_of(lake, name, table, day) for table in (EU, US)] for day in DAYS[:2]]
    assert found == [
        [rows((1, "eu")), rows((1, "us"), (2, "us"))],
        [[], rows((1, "us again"), (2, "us"))],
    ]


def test_several_databases_at_once_are_never_one_table(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    landing = two_databases(name)
    tables: dict[str, Any] = {ORDERS: {"key": ["id"]}, "dbo.others": {"key": ["id"]}}
    lake = lake_of({name: lakes.write_source(tmp_path, landing.landed, tables=tables)})
    lakes.run_stages(lake, name, DAYS[:1])
    made, errors = lakes.run_tables(lake, name, DAYS[:1])
    assert list(made) == [("dbo.others", DAYS[0])]
    (error,) = errors.values()
    assert isinstance(error, AuditError)
    for said in (f"sources.{name}.tables", "shop_eu.dbo.orders, shop_us.dbo.orders"):
        assert said in str(error)


def finding(lake: Any, name: str, report: Any) -> Finding:
    state = lake.read_state(f"lake.{name}.dbo.orders")
    (found,) = (f for f in table_findings(state, DAYS[0], report) if f.name == "one_database")
    return found


def test_a_second_database_waits_for_a_table_of_its_own(
    lake_of: LakeOf, tmp_path: Path, name: str
) -> None:
    landing = Landing(DAYS[0])
    eu, us = (SqlServerLog(name, db, landing) for db in ("shop_eu", "shop_us"))
    eu.create(id=1, v="eu")
    landing.next_day(2)
    us.create(id=1, v="us")
    us.create(id=2, v="us")
    eu.update(id=1, v="eu again")
    table = {ORDERS: {"key": ["id"]}}
    lake = lake_of({name: lakes.write_source(tmp_path, landing.landed, tables=table)})
    reports = lakes.run_all(lake, name, DAYS)
    assert lakes.rows_of(lake, name, ORDERS, DAYS[2]) == rows((1, "eu again"))
    assert len(lakes.stage_rows(lake, name, "changes")) == 4
    first, last = (finding(lake, name, reports[ORDERS, day]) for day in (DAYS[0], DAYS[2]))
    assert first.passed
    assert first.values["database"] == "shop_eu"
    assert not last.passed
    assert last.values["events_of_other_databases"] == 2
    assert "shop_eu.dbo.orders, shop_us.dbo.orders" in str(last.description)


def config_of(*names: str, format: str = "debezium") -> Config:
    source = lakes.source_config("landing", format, tables={name: {} for name in names})
    return parse_config({"start_date": DAYS[0], "sources": {"s": source}}, Path("/"))


def test_a_pattern_of_three_parts_adopts_tables_of_databases() -> None:
    source = config_of("shop_*.dbo.*", "shop_eu.dbo.orders").sources["s"]
    assert source.has_databases
    assert source.pattern_of(US) == "shop_*.dbo.*"
    assert source.pattern_of("other__dbo.orders") is None


@pytest.mark.parametrize(
    "text", ["shop_eu.dbo.orders", "s.shop_eu.dbo.orders", EU, f"s.{EU}", f"lake.s.{EU}"]
)
def test_a_table_is_found_by_its_name_in_cdc_yaml_and_in_the_lake(text: str) -> None:
    found = find_table(config_of("shop_eu.dbo.orders", "shop_us.dbo.orders"), text)
    assert (found.source, found.name) == ("s", EU)


@pytest.mark.parametrize(
    ("names", "format", "says"),
    [
        (("dbo.orders", "shop.dbo.orders"), "debezium", "'dbo.orders' has two parts and"),
        (("shop.dbo.orders",), "canal", "three parts, which are for the formats debezium"),
        (("a.b.c.d",), "debezium", "is not <namespace>.<table>"),
        (("a.b__c.t", "a__b.c.t"), "debezium", "two spellings of one table"),
    ],
)
def test_names_that_can_not_be_are_refused(names: tuple[str, ...], format: str, says: str) -> None:
    with pytest.raises(ConfigError) as raised:
        config_of(*names, format=format)
    assert says in str(raised.value)
    assert "sources.s.tables" in str(raised.value)
