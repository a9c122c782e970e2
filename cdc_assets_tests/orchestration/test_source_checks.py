"""The check `matches_source`: which tables have it, what runs it, and how `verify` records it."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import dagster as dg
import pytest

from cdc_assets import definitions
from cdc_assets.cdc.config import Config, parse_config
from cdc_assets.cdc.errors import ConfigError
from cdc_assets.cdc.verification.findings import Verification
from cdc_assets.orchestration.assets.build import build_assets
from cdc_assets.orchestration.automation.source_checks import build_source_checks, record
from cdc_assets.orchestration.execution.jobs import daily
from cdc_assets_tests import events as ev
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.lakes import source_config
from cdc_assets_tests.shared_spark import SharedSpark

URL = "postgresql://reader:long-password@127.0.0.1:1/shop"
TABLES = {"public.orders": {}, "public.visits": {"key": "none"}, "public.kept": {"history": True}}
CHECK = dg.AssetCheckKey(dg.AssetKey(["shop", "public", "orders"]), "matches_source")
KEPT = dg.AssetCheckKey(dg.AssetKey(["shop", "public", "kept"]), "matches_source")


def config_of(folder: Path, **settings: Any) -> Config:
    source = source_config(folder, tables=TABLES, **settings)
    return parse_config({"start_date": str(ev.DAY), "sources": {"shop": source}}, folder)


def result(**figures: Any) -> Verification:
    known = {"table": "shop.public.orders", "day": str(ev.DAY), "against": "postgresql://db/shop"}
    return Verification(**known, lsn=(3 << 32) + 0x2A, taken_ms=1_700_000_000_000, **figures)


def test_tables_with_a_key_have_the_check_where_the_source_names_its_database(
    tmp_path: Path,
) -> None:
    def found(**settings: Any) -> set[dg.AssetCheckKey]:
        built = build_source_checks(config_of(tmp_path, **settings))
        return {key for check in built for key in check.check_keys}

    assert found() == set()
    assert found(database=URL) == {CHECK, KEPT}


def test_the_job_of_a_day_does_not_run_it_and_its_page_does(tmp_path: Path) -> None:
    defs = definitions.build_definitions(config_of(tmp_path, database=URL))
    of_day = defs.resolve_job_def(daily.name).asset_layer.asset_graph.asset_check_keys
    assert CHECK not in of_day
    assert dg.AssetCheckKey(CHECK.asset_key, "keys_unique") in of_day
    assert dg.AssetCheckKey(dg.AssetKey(["shop", "changes"]), "made_of_landing") in of_day
    everything = defs.resolve_implicit_global_asset_job_def()
    assert CHECK in everything.asset_layer.asset_graph.asset_check_keys


@pytest.mark.parametrize(
    ("url", "said"),
    [
        ("mysql://ann:secret@db/shop", "got the scheme 'mysql'"),
        ("postgresql://ann:secret@db", "the host or the database is missing"),
    ],
)
def test_a_wrong_address_fails_early_with_its_path(tmp_path: Path, url: str, said: str) -> None:
    with pytest.raises(ConfigError, match=rf"sources\.shop\.database.*{said}") as error:
        config_of(tmp_path, database=url)
    assert "secret" not in str(error.value)


def test_the_password_of_the_database_is_a_secret(tmp_path: Path) -> None:
    config = config_of(tmp_path, database="postgresql://ann:p%40ss-word@db/shop")
    assert {"p@ss-word", "p%40ss-word"} <= config.secrets
    assert "ss-word" not in repr(config)


def test_a_verification_is_recorded_with_its_position(tmp_path: Path) -> None:
    config = config_of(tmp_path, database=URL)
    pair = {"what": "differs", "key": {"id": 7}, "columns": {"note": ("new", "old")}}
    hidden = {"what": "differs", "key": None, "columns": {"note": None}}
    told = result(equal=5, differs=2, columns={"note": 2}, examples=(pair, hidden))
    with dg.DagsterInstance.ephemeral() as instance:
        assert record(instance, config, "shop", "public.orders", told)
        assert not record(instance, config, "shop", "public.visits", told)
        found = instance.get_latest_asset_check_evaluation_record(CHECK)
        assert found is not None
        assert found.evaluation is not None
    assert not found.evaluation.passed
    assert found.evaluation.severity == dg.AssetCheckSeverity.ERROR
    values = {name: value.value for name, value in found.evaluation.metadata.items()}
    assert (values["position"], values["equal"], values["differs"]) == ("3/2A", 5, 2)
    assert values["columns"] == {"note": 2}
    assert "'new' in the source, 'old' here" in values["examples"]
    assert "a key that is not shown; note not shown" in values["examples"]
    said = (
        "shop.public.orders of 2026-11-02 against postgresql://db/shop at 3/2A: 5 equal, 2 differ"
    )
    assert (found.evaluation.description or "").startswith(said.replace("2026-11-02", str(ev.DAY)))


def test_what_can_t_be_compared_has_no_result(lake_of: LakeOf, tmp_path: Path) -> None:
    lake = lake_of({"shop": source_config(tmp_path, tables=TABLES, database=URL)})
    SharedSpark.shared = lake
    defs = dg.Definitions(
        assets=build_assets("shop", lake.config),
        asset_checks=build_source_checks(lake.config),
        jobs=[dg.define_asset_job("asked", selection=dg.AssetSelection.checks(CHECK))],
        resources={"spark": SharedSpark()},
    )
    with dg.DagsterInstance.ephemeral() as instance:
        job = defs.resolve_job_def("asked")
        ran = job.execute_in_process(instance=instance, raise_on_error=False)
        assert not ran.success
        assert ran.get_asset_check_evaluations() == []
        (failed,) = ran.get_step_failure_events()
        text = str(failed.step_failure_data.error)
        assert "public.orders" in text
        assert "long-password" not in text
