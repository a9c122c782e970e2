"""Canal's messages: many rows a record, texts for values, the old values of changed columns alone.

Each table is a story; the model judges every day of it.
"""

from __future__ import annotations

from collections.abc import Callable
from datetime import date, datetime, timedelta
from decimal import Decimal
from pathlib import Path
from typing import Any

import pytest

from cdc_assets.cdc.changes.figures import day_figures
from cdc_assets.cdc.envelopes.canal import type_of
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.orchestration import checks
from cdc_assets_tests import events as ev
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.events import Landing, canal_message

D1, D2 = DAYS = [ev.DAY, ev.DAY + timedelta(days=1)]
SOURCE = "canal_stories"
TYPES = {"id": "int(11)", "name": "varchar(20)"}


class Teller:
    """Lands messages of one table, a second apart."""

    def __init__(self, name: str, landing: Landing) -> None:
        self.name, self.landing = name, landing

    def says(self, kind: Any, rows: Any = None, old: Any = None, **options: Any) -> model.Record:
        now = self.landing.tick()
        defaults: dict[str, Any] = {
            "table": ("shop", self.name),
            "types": TYPES,
            "es": now,
            "ts": now + 200,
            "timestamp_ms": now + 500,
        }
        return self.landing.put(canal_message(kind, rows, old, **{**defaults, **options}))


STORIES: dict[str, tuple[dict[str, Any], Callable[[Teller], None], list[list[Any]]]] = {}


def story(*expected: Any, **config: Any) -> Callable[[Callable[[Teller], None]], None]:
    """Registers a story: the rows (id, name) at the end of each day."""

    def register(tell: Callable[[Teller], None]) -> None:
        STORIES[tell.__name__] = (config, tell, list(expected))

    return register


@story([(1, "a"), (2, "b"), (3, "c")])
def a_message_inserts_many_rows(t: Teller) -> None:
    t.says("INSERT", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}])


@story([(1, "x"), (2, "y")])
def a_message_updates_many_rows_and_says_old_values_of_what_changed(t: Teller) -> None:
    t.says("INSERT", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    rows = [{"id": 1, "name": "x"}, {"id": 2, "name": "y"}]
    t.says("UPDATE", rows, [{"name": "a"}, {"name": "b"}])


@story([(2, "b")])
def a_message_deletes_many_rows(t: Teller) -> None:
    t.says("INSERT", [{"id": n, "name": "b"} for n in (1, 2, 3)])
    t.says("DELETE", [{"id": 1, "name": "b"}, {"id": 3, "name": "b"}])


@story([(2, "a"), (3, "b"), (4, "c")])
def one_statement_moves_each_row_to_the_key_of_the_next(t: Teller) -> None:
    """UPDATE … SET id = id + 1 ORDER BY id DESC: each row's new key is the old one of another."""
    t.says("INSERT", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}, {"id": 3, "name": "c"}])
    rows = [{"id": 4, "name": "c"}, {"id": 3, "name": "b"}, {"id": 2, "name": "a"}]
    t.says("UPDATE", rows, [{"id": 3}, {"id": 2}, {"id": 1}])


@story([(1, "third")])
def the_last_of_the_rows_of_one_key_in_a_message_counts(t: Teller) -> None:
    t.says("INSERT", [{"id": 1, "name": "first"}])
    rows = [{"id": 1, "name": "second"}, {"id": 1, "name": "third"}]
    t.says("UPDATE", rows, [{"name": "first"}, {"name": "second"}])


@story([(1, "b")])
def messages_of_one_instant_follow_their_offsets_not_their_rows_in_them(t: Teller) -> None:
    es = t.landing.now_ms
    others = [{"id": 9, "name": "-"}, {"id": 8, "name": "-"}]
    t.says("INSERT", [*others, {"id": 1, "name": "a"}], es=es)
    t.says("UPDATE", [{"id": 1, "name": "b"}], [{"name": "a"}], es=es)
    t.says("DELETE", others, es=es)


@story([(1, "a")], [(1, "a")])
def a_message_that_is_sent_again_counts_until_the_rest_has_landed(t: Teller) -> None:  # O15
    first = t.says("INSERT", [{"id": 1, "name": "a"}])
    t.landing.on(D2)
    t.says("UPDATE", [{"id": 1, "name": "b"}], [{"name": "a"}])
    t.landing.again(first)


@story([(1, "a")], [(1, "b")])
def messages_that_are_all_sent_again_undo_nothing(t: Teller) -> None:  # O5, O15
    first = t.says("INSERT", [{"id": 1, "name": "a"}])
    t.landing.on(D2)
    t.landing.again(first, t.says("UPDATE", [{"id": 1, "name": "b"}], [{"name": "a"}]))


@story([(3, "c")])
def a_truncate_removes_what_stands_before_it(t: Teller) -> None:
    t.says("INSERT", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}])
    t.says("TRUNCATE", types=None, keys=None, sql="truncate table t", is_ddl=True)
    t.says("INSERT", [{"id": 3, "name": "c"}])


@story([(1, "a"), (2, "b"), (2, "b")], key="none")
def rows_of_a_table_without_key_are_all_kept_also_equal_ones_of_one_message(t: Teller) -> None:
    both = [{"id": 2, "name": "b"}, {"id": 2, "name": "b"}]
    t.says("INSERT", [{"id": 1, "name": "a"}, *both], keys=None)


@story([(1, "a"), (1, "a"), (2, "b"), (2, "b"), (3, "c"), (3, "c")], key="none")
def messages_without_key_that_are_sent_again_are_rows_again(t: Teller) -> None:  # O14
    first = t.says("INSERT", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], keys=None)
    t.landing.again(first, t.says("INSERT", [{"id": 3, "name": "c"}], keys=None))


@story([(1, "a"), (3, "c")])
def a_row_that_is_none_is_quarantined_and_the_others_of_its_message_are_read(t: Teller) -> None:
    t.says("INSERT", [{"id": 1, "name": "a"}, None, {"id": 3, "name": "c"}, {"name": "no key"}])


@story([(1, "b")])
def the_commit_decides_where_tidb_says_it(t: Teller) -> None:
    t.says("UPDATE", [{"id": 1, "name": "b"}], [{"name": "a"}], commit_ts=12)
    t.says("INSERT", [{"id": 1, "name": "a"}], commit_ts=11)


@story([(1, "a"), (2, "b")], [(1, "a"), (3, "c")])
def a_message_with_keys_alone_changes_no_row_but_its_deletes_stand(t: Teller) -> None:  # D20
    t.says("INSERT", [{"id": 1, "name": "a"}, {"id": 2, "name": "b"}], commit_ts=10)
    key = {"types": {"id": "int(11)"}}
    alone = key | {"tidb": {"onlyHandleKey": True}}
    t.says("UPDATE", [{"id": 1}], [{"id": 1}], commit_ts=11, **alone)
    stored = key | {"tidb": {"claimCheckLocation": "s3:/claims/f5.json"}}
    t.says("INSERT", [{"id": 4}], commit_ts=12, **stored)
    t.landing.next_day()
    t.says("DELETE", [{"id": 2}], commit_ts=13, **alone)
    whole = {"tidb": {"onlyHandleKey": False}}
    t.says("INSERT", [{"id": 3, "name": "c"}], commit_ts=14, **whole)


@story([(1, "changed"), (2, "read"), (3, "read again")])
def a_first_load_reads_rows_and_changes_none(t: Teller) -> None:  # C3
    t.says("INIT", [{"id": 1, "name": "read"}, {"id": 2, "name": "read"}])
    t.says("UPDATE", [{"id": 1, "name": "changed"}], [{"name": "read"}])
    t.says("INIT", [{"id": 3, "name": "read"}])
    t.says("INIT", [{"id": 3, "name": "read again"}])


@story([(1, "a")])
def the_message_key_is_the_key_where_the_message_names_none(t: Teller) -> None:
    t.says("INSERT", [{"id": 1, "name": "a"}], keys=None, key={"id": "1"})


@pytest.fixture(scope="module")
def landing() -> Landing:
    landed = Landing()
    for name, (_, tell, _) in STORIES.items():
        landed.on(D1)
        tell(Teller(name, landed))
    return landed


@pytest.fixture(scope="module")
def source(landing: Landing, tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    landing.landed.setdefault(D2, [])
    tables = {f"shop.{name}": config for name, (config, _, _) in STORIES.items()}
    return lakes.write_source(
        tmp_path_factory.mktemp("canal"), landing.landed, "canal", tables=tables
    )


@pytest.fixture(scope="module")
def lake(source: dict[str, Any], lake_of: LakeOf) -> Lake:
    made = lake_of({SOURCE: source})
    lakes.run_all(made, SOURCE, DAYS)
    return made


@pytest.mark.slow
@pytest.mark.parametrize("name", STORIES)
def test_a_table_is_what_its_messages_say(lake: Lake, name: str) -> None:
    for day, expected in zip(DAYS, STORIES[name][2], strict=False):
        rows = lakes.rows_of(lake, SOURCE, f"shop.{name}", day)
        assert sorted((row["id"], row["name"]) for row in rows) == sorted(expected)


@pytest.mark.slow
def test_the_lake_and_the_model_agree(lake: Lake, source: dict[str, Any], landing: Landing) -> None:
    classified = model.classify(source, landing.landed)
    lakes.assert_same_rows(
        lakes.destinations_read(lake, SOURCE), lakes.destinations_expected(classified)
    )
    lakes.assert_same_rows(lakes.changes_read(lake, SOURCE), lakes.changes_expected(classified))


@pytest.mark.slow
def test_no_row_of_a_message_is_lost(lake: Lake, landing: Landing) -> None:
    figures = day_figures(lake, SOURCE, DAYS)
    findings = checks.changes_findings(lake, SOURCE, figures, {})
    of_day = next(f for f in findings[D1] if f.name == "nothing_lost")
    assert of_day.passed
    assert of_day.metadata["landed"] == len(landing.landed[D1])
    assert of_day.metadata["reached"] > of_day.metadata["landed"]


@pytest.mark.slow
def test_the_detail_names_the_row_that_can_not_be_read(lake: Lake) -> None:
    details = {row["detail"] for row in lakes.stage_rows(lake, SOURCE, "quarantine")}
    assert "row 2 of its record: type INSERT without its row in data" in details
    assert any(detail.startswith("row 4 of its record: neither") for detail in details)
    (stored,) = (detail for detail in details if "claims/f5" in detail)
    assert "type INSERT with the key of its row alone" in stored
    assert "(the row is in s3:/claims/f5.json)" in stored


# -- types ---------------------------------------------------------------------------------------

VALUES: dict[str, tuple[str, str, Any]] = {  # column: MySQL's type, what is sent, what is held
    "i": ("int(11)", "-5", -5),
    "u": ("int(10) unsigned", "4294967295", 4_294_967_295),
    "b": ("bigint(20) unsigned", "18446744073709551615", Decimal("18446744073709551615")),
    "t": ("tinyint(1)", "1", 1),
    "n": ("decimal(10,2)", "12.30", Decimal("12.30")),
    "w": ("decimal(65,30)", "0.1", "0.1"),
    "f": ("double", "1.5", 1.5),
    "d": ("date", "2026-11-05", date(2026, 11, 5)),
    "dt": ("datetime(3)", "2026-11-05 12:33:00.120", datetime(2026, 11, 5, 12, 33, 0, 120_000)),
    "ts": ("timestamp", "2026-11-05 12:33:00", datetime(2026, 11, 5, 12, 33)),
    "zero": ("date", "0000-00-00", None),
    "x": ("blob", "\u00ff\u0000a", b"\xff\x00a"),
    "j": ("json", '{"a": 1}', '{"a": 1}'),
    "e": ("enum('a','b')", "a", "a"),  # C1
    "e2": ("enum('a','B, (x)','it''s')", "3", "it's"),
    "e3": ("enum('a','b')", "2", "b"),
    "e4": ("ENUM('a','b')", "0", ""),
    "e5": ("enum('a','b')", "7", "7"),
    "e6": ("enum('3','2')", "2", "2"),  # the index
    "e7": ("enum('3','2')", "1", "3"),
    "s": ("set('a','b','c')", "5", "a,c"),
    "s2": ("set('a','b','c')", "a,b", "a,b"),
    "s3": ("set('a','b','c')", "0", ""),
    "s4": ("set('a','b','c')", "8", "8"),
    "s5": (f"set({','.join(repr(f'l{n}') for n in range(64))})", str(2**63 + 1), "l0,l63"),
    "h": ("time", "12:30:00", "12:30:00"),
}


@pytest.mark.slow
def test_columns_have_the_types_of_mysql(lake_of: LakeOf, tmp_path: Path, name: str) -> None:
    types = {"id": "int", **{column: kind for column, (kind, _, _) in VALUES.items()}}
    row = {"id": 1, **{column: sent for column, (_, sent, _) in VALUES.items()}}
    landed = {D1: [canal_message("INSERT", [row], types=types)]}
    source = lakes.write_source(tmp_path, landed, "canal", tables={"shop.customers": {}})
    lake = lake_of({name: source})
    lakes.run_all(lake, name, [D1])
    (got,) = lakes.rows_of(lake, name, "shop.customers", D1)
    assert got == {"id": 1, **{column: held for column, (_, _, held) in VALUES.items()}}


@pytest.mark.parametrize(
    ("sent", "spark"),
    [
        ("INT", "int"),
        ("bigint", "bigint"),
        ("BIGINT UNSIGNED", "decimal(20,0)"),
        ("decimal", "string"),  # C2
        ("decimal unsigned", "string"),
        ("DECIMAL(38, 10)", "decimal(38,10)"),
        ("decimal(39,1)", "string"),
        ("double precision", "double"),
        ("varchar(20) character set utf8", "string"),
        ("varbinary(16)", "binary"),
        ("geometry", "string"),
        ("", "string"),
    ],
)
def test_a_type_of_mysql_has_a_column_type(sent: str, spark: str) -> None:
    assert type_of(sent).spark == spark
