"""Debezium's Avro with a real schema registry. The truth is `SELECT * FROM`."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.e2e import stack as st
from cdc_assets_tests.e2e import tables as t
from cdc_assets_tests.e2e.test_live import compare, source_of, today, unread
from cdc_assets_tests.e2e.world import Variant, World, world
from cdc_assets_tests.lakes import run_all, stage_rows

pytestmark = [pytest.mark.e2e, pytest.mark.slow]

SEED = 20260302
# Without those whose rows have no key: their order in the topic is not that of the table.
TABLES = (t.TYPES, t.ORDERS, t.FULL, t.INDEXED, t.TOASTED, t.SHAPED, t.MARKER)


@pytest.fixture(scope="module")
def registry(tmp_path_factory: pytest.TempPathFactory) -> Iterator[st.Registry]:
    with st.Registry(tmp_path_factory.mktemp("registry")) as running:
        yield running


@pytest.fixture(scope="module")
def variants(registry: st.Registry) -> tuple[Variant, ...]:
    return (
        Variant("avro", st.avro_converters(registry), TABLES, registry=registry.url),
        Variant(
            "headed",
            st.avro_converters(registry, ids_in_headers=True),
            (t.ORDERS, t.MARKER),
            registry=registry.url,
        ),
    )


@pytest.fixture(scope="module")
def live(
    variants: tuple[Variant, ...], tmp_path_factory: pytest.TempPathFactory
) -> Iterator[World]:
    with world(variants, SEED, tmp_path_factory.mktemp("live")) as running:
        yield running


def test_tables_of_avro_equal_the_database(
    live: World, variants: tuple[Variant, ...], registry: st.Registry, lake_of: LakeOf
) -> None:
    day = today()
    sources = {v.prefix: source_of(live.stack.broker, v) for v in variants}
    for source in sources.values():
        source["landing"]["registry"] = {"url": registry.url}
    lake = lake_of(sources, day)
    live.workload.run(60)
    live.workload.run_rare()
    truth = live.cut()
    for variant in variants:
        run_all(lake, variant.prefix, [day], lag=True)
        compare(lake, variant.prefix, variant, day, truth[variant.prefix], "Avro")
        assert unread(stage_rows(lake, variant.prefix, "quarantine")) == []
    bare = [r for r in live.records("headed.public.orders") if r.value is not None]
    assert {name for r in bare for name, _ in r.headers} >= {"apicurio.value.contentId"}
