"""The Spark pipeline against the plain-Python model, over many small worlds (worlds).

What is compared, of every world: the destination and reason of each record, all changes, every day
of the table, lag. Spark reads all worlds in one run, each as a table of a source with its settings.
Of a world with a schema registry, the model reads the same records as JSON with schemas.

``CDC_WORLDS=200 CDC_SEED=7 pytest -m long cdc_assets_tests/pipeline/test_worlds.py`` hunts
longer and elsewhere, with ``CDC_WORLD_DAYS=40`` over more days; the run is the same for the same
numbers. Of what differs, the first world is made smaller in ``CDC_SHRINK`` more runs (default 8)
and printed: make a golden case of it (test_golden.py).
"""

from __future__ import annotations

import os
from collections import defaultdict
from collections.abc import Callable, Iterable
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack
from dataclasses import dataclass, replace
from datetime import date
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import hypothesis
import hypothesis.strategies as st
import pytest
from hypothesis.internal.conjecture.providers import AVAILABLE_PROVIDERS, HypothesisProvider

from cdc_assets.cdc.config import is_reserved
from cdc_assets.cdc.lake.catalog import Lake
from cdc_assets.cdc.lake.pyiceberg_catalog import open_table
from cdc_assets.cdc.lake.tables import find_table
from cdc_assets_tests import lakes, model
from cdc_assets_tests.conftest import LakeOf
from cdc_assets_tests.registries import Schemas, serving
from cdc_assets_tests.worlds import (
    DAYS,
    Settings,
    World,
    family_of,
    landing_lines,
    settings_of,
    worlds,
)

pytestmark = [pytest.mark.slow, pytest.mark.long]

WORLDS = int(os.environ.get("CDC_WORLDS", "10"))
# Who does not hunt waits for each third one alone, of six formats.
CHOSEN = slice(None) if "CDC_WORLDS" in os.environ else slice(2, None, 3)
SEED = int(os.environ.get("CDC_SEED", "1"))
SHRINK = int(os.environ.get("CDC_SHRINK", "8"))
SHARES = (  # of ten worlds
    ("debezium", 3),
    ("debezium", 2),
    ("lindorm", 1),
    ("dataworks", 2),
    ("maxwell", 1),
    ("ogg", 1),
    ("canal", 2),
    ("debezium-mongodb", 1),
    ("debezium-cassandra", 1),
)
# Of ten worlds, too; drawn by their names, so that what the others draw stays as it was.
NAMED_SHARES = (("debezium-flat", 1),)
# Of Debezium's connectors that say in ways of their own what a row or a table is.
CONNECTOR_SHARES = (("vitess", 1), ("spanner", 1))
# Other servers and connectors take over, or one reads two databases (O11, D4).
_TAKEN_OVER = {"position_reset": (), "servers": True}
SERVER_SHARES: tuple[tuple[str, int, dict[str, Any]], ...] = (
    ("mysql", 1, {}),
    ("postgresql", 1, {}),
    ("sqlserver", 1, {"several_databases": True}),
    ("sqlserver", 1, {"several_databases": True, "in_three_parts": True}),
)
# Tables are dropped (D21), and values come as few sources have them (C1, D22, M1).
OWN_SHARES: tuple[tuple[str, dict[str, Any]], ...] = (
    ("debezium", {"connector": "mysql", "on_drop": "empty"}),
    ("debezium", {"connector": "postgresql", "own_values": True}),
    ("debezium-mongodb", {"own_values": True}),
    ("canal", {"own_values": True}),
)
# A column of integers becomes text (R5).
RETYPED_CONNECTORS = ("postgresql", "mysql", "sqlserver")
# Tables are snapshotted again (R7).
REREAD_CONNECTORS = ("postgresql", "mysql", "sqlserver")
# Tables come as two leaves that go into one (R8).
LEAF_CONNECTORS = ("postgresql", "oracle")
# And of Debezium's events that are written with a schema registry.
REGISTRY_SHARES = (("AVRO", 1), ("JSON", 1))
CANDIDATES = 8  # how many smaller worlds a round tries, or more where it leaves out shorter parts

T = TypeVar("T")


class OwnDraws(HypothesisProvider):
    """Draws by the seed alone: hypothesis would mix in constants of whatever code is loaded."""

    def _maybe_draw_constant(self, *args: Any, **options: Any) -> None:
        return None


AVAILABLE_PROVIDERS["own-draws"] = f"{__name__}.OwnDraws"

Differences = dict[str, list[str]]  # world → what differs
Run = Callable[[Iterable[World]], Differences]


def examples(strategy: st.SearchStrategy[T], count: int, seed: int | str) -> list[T]:
    """The same values for the same seed; without the first, which is always the simplest."""
    found: list[T] = []

    @hypothesis.seed(seed)
    @hypothesis.settings(
        backend="own-draws",
        max_examples=count + 1,
        database=None,
        deadline=None,
        phases=[hypothesis.Phase.generate],
        suppress_health_check=list(hypothesis.HealthCheck),
    )
    @hypothesis.given(strategy)
    def collect(value: T) -> None:
        found.append(value)

    collect()
    return found[1 : count + 1]


def draw(
    count: int,
    seed: int,
    registries: Iterable[tuple[str, int]] = REGISTRY_SHARES,
    own_shares: Iterable[tuple[str, dict[str, Any]]] = OWN_SHARES,
) -> list[World]:
    """Worlds of some sources, whose settings are drawn too."""
    drawn: list[World] = []

    def add(format: str, share: int, own_seed: int | str, **same: Any) -> None:
        settings = replace(examples(settings_of(format), 3, own_seed)[-1], **same)
        drawn.extend(examples(worlds(settings, "w0000"), -(-count * share // 10), own_seed))

    for number, (format, share) in enumerate(SHARES):
        add(format, share, seed * len(SHARES) + number)
    for format, share in NAMED_SHARES:
        add(format, share, f"{format} {seed}")
    for connector, share in CONNECTOR_SHARES:
        add("debezium", share, f"{connector} {seed}", connector=connector)
    for n, (connector, share, own) in enumerate(SERVER_SHARES):
        add("debezium", share, f"servers {n} {seed}", connector=connector, **_TAKEN_OVER, **own)
    for kind, share in registries:
        add("debezium", share, f"{kind} {seed}", registry=kind)
    for n, (format, own) in enumerate(own_shares):
        add(format, 1, f"own {n} {seed}", position_reset=(), **own)
    for connector in RETYPED_CONNECTORS:
        same = {"connector": connector, "retyped": True}
        add("debezium", 1, f"retyped {connector} {seed}", position_reset=(), **same)
    for connector in REREAD_CONNECTORS:
        same = {"connector": connector, "reread": True}
        add("debezium", 1, f"reread {connector} {seed}", position_reset=(), **same)
    for connector in LEAF_CONNECTORS:
        same = {"connector": connector, "leaves": True}
        add("debezium", 1, f"leaves {connector} {seed}", position_reset=(), **same)
    return [world.of(world.records, f"w{n:04}") for n, world in enumerate(drawn)]


# -- running -------------------------------------------------------------------------------------


@dataclass
class Runner:
    """Runs worlds side by side, and says of each what differs."""

    lake_of: LakeOf
    folder: Path
    runs: int = 0

    def __call__(self, together: Iterable[World]) -> Differences:
        self.runs += 1
        by_settings: dict[Settings, list[World]] = defaultdict(list)
        for world in together:
            by_settings[world.settings].append(world)
        sources: dict[str, tuple[dict[str, Any], list[World]]] = {}
        differences: Differences = defaultdict(list)
        with ExitStack() as registries:
            for settings, own in by_settings.items():
                name = f"{self.folder.name}_{self.runs}_{len(sources)}"
                sources[name] = (self._landed(name, settings, own, registries), own)
            configs = {name: config for name, (config, _) in sources.items()}
            lake = self.lake_of(configs, DAYS[0])
            for name, (config, own) in sources.items():
                lakes.run_stages(lake, name, DAYS, lag=True)
                _, errors = lakes.run_tables(lake, name, DAYS)
                errors |= lakes.try_derived(lake, name, DAYS)
                for what, found in _of_source(lake, name, config, own, errors):
                    differences[what].append(found)
        return dict(differences)

    def _landed(
        self, name: str, settings: Settings, own: list[World], registries: ExitStack
    ) -> dict[str, Any]:
        """Land what the worlds of a source send; the source as cdc.yaml has it."""
        landed: model.Landed = {
            day: [r for w in own for r in w.landed.get(day, ())] for day in DAYS
        }
        url = None
        if settings.registry is not None:
            # No low ids: those of records that no registry knows.
            schemas = Schemas(kind=settings.registry, first=100)
            landed = schemas.all_sent(landed)
            url = registries.enter_context(serving(schemas))
        options = {**settings.options(), "tables": entries_of(own)}
        config = lakes.write_source(self.folder / name, landed, settings.format, **options)
        if url is not None:
            config["landing"]["registry"] = {"url": url}
        return config


def _of_source(
    lake: Lake,
    name: str,
    config: dict[str, Any],
    own: list[World],
    errors: dict[tuple[str, date], Exception],
) -> list[tuple[str, str]]:
    """(world, what differs) for all worlds of a source."""
    found: list[tuple[str, str]] = []
    alone = {w.name: {**config, "tables": entries_of([w])} for w in own}
    classified = {w.name: model.classify(alone[w.name], w.landing()) for w in own}
    lags = {w.name: model.lag(alone[w.name], w.landing()) for w in own}
    sides: list[tuple[str, list[Any], Callable[[World], list[Any]]]] = [
        (
            "destinations",
            lakes.destinations_read(lake, name),
            lambda w: lakes.destinations_expected(classified[w.name]),
        ),
        (
            "changes",
            lakes.changes_read(lake, name),
            lambda w: lakes.changes_expected(classified[w.name]),
        ),
        ("lag", lakes.lag_read(lake, name), lambda w: lakes.lag_expected(lags[w.name])),
    ]
    for what, rows, expected_of in sides:
        by_world: dict[str | None, list[Any]] = defaultdict(list)
        for row in rows:
            by_world[_world_of(row, own)].append(row)
        unplaced = [row for w in own for row in expected_of(w) if _world_of(row, own) is None]
        if text := lakes.difference_of(by_world[None], unplaced):
            found.append((own[0].name, f"{what} of records without a topic\n{text}"))
        for w in own:
            expected = [row for row in expected_of(w) if _world_of(row, own) is not None]
            if text := lakes.difference_of(by_world[w.name], expected):
                found.append((w.name, f"{what}\n{text}"))
    with ThreadPoolExecutor(max_workers=2) as pool:
        for of_tables in pool.map(lambda w: _of_tables(lake, name, alone[w.name], w, errors), own):
            found += of_tables
    return found


def entries_of(worlds: Iterable[World]) -> dict[str, Any]:
    """The tables of worlds in cdc.yaml, and the leaves that go into them."""
    own = {world.configured: with_derived(world) for world in worlds}
    leaves = {f"{w.configured}_*": {"into": w.configured} for w in worlds if w.settings.leaves}
    return {**own, **leaves}


def with_derived(world: World) -> dict[str, Any]:
    """The configuration of a world's table, with a history and a feed where it has a key."""
    is_keyed = world.config.get("key") not in ("none", "row")
    return {**world.config, **({"history": True, "feed": True} if is_keyed else {})}


def _world_of(row: dict[str, Any], own: list[World]) -> str | None:
    place = row.get("topic") or row.get("table_name")
    return next((w.name for w in own if place and w.name in place), None)


def _of_tables(
    lake: Lake,
    name: str,
    config: dict[str, Any],
    world: World,
    errors: dict[tuple[str, date], Exception],
) -> list[tuple[str, str]]:
    """What differs on the first day that differs."""
    failed = {day: error for (table, day), error in errors.items() if table == world.table}
    try:
        by_model = model.tables(config, world.landing())
    except model.TableError as error:
        same = [day for day in failed if day == error.day]
        return [] if same else [(world.name, f"the model refuses, got {failed}: {error}")]
    for day, error in failed.items():
        return [(world.name, f"{day} failed: {type(error).__name__}: {error}")]
    days = DAYS[DAYS.index(world.start) :]
    for day in days:
        text = lakes.difference_of(_rows(lake, name, world.table, day), by_model[day][world.table])
        if text:
            return [(world.name, f"{world.table} on {day}\n{text}")]
    if "history" in config["tables"][world.configured]:
        kept = model.histories(config, world.landing())
        for day in days:
            versions = lakes.versions_read(lake, name, world.table, day)
            expected = lakes.versions_shown(kept[day][world.table])
            if world.settings.retyped:  # a history that is made later has the newest types
                versions, expected = (
                    [_as_text(v, "n") for v in side] for side in (versions, expected)
                )
            text = lakes.difference_of(versions, expected)
            if text:
                return [(world.name, f"the history of {world.table} on {day}\n{text}")]
        for day in days:
            try:
                lakes.assert_feed_leads_on(lake, name, world.table, day)
            except AssertionError as error:
                return [(world.name, f"the feed: {error}")]
    for first, last in pairwise(days):
        try:
            lakes.assert_diff_leads_on(lake, name, world.table, first, last)
        except AssertionError as error:
            return [(world.name, f"what cdc-assets diff says: {error}")]
    return []


def _as_text(row: dict[str, Any], name: str) -> dict[str, Any]:
    value = row.get(name)
    return row if value is None else {**row, name: str(value)}


def _rows(lake: Lake, name: str, table: str, day: date) -> list[dict[str, Any]]:
    """A day's rows, read without Spark: a job for each would take most of the time."""
    state = open_table(lake.config, find_table(lake.config, table, name))
    snapshot = state.snapshot_by_name(str(day))
    assert snapshot is not None, f"{table} has no tag {day}"
    rows = state.scan(snapshot_id=snapshot.snapshot_id).to_arrow().to_pylist()
    return [{n: v for n, v in row.items() if not is_reserved(n)} for row in rows]


# -- making smaller ------------------------------------------------------------------------------


def shrink(run: Run, world: World, rounds: int) -> tuple[World, list[str]]:
    """Keep one family of keys, then leave out ever shorter stretches, while something differs."""
    texts: list[str] = []
    size = 0
    for number in range(rounds):
        families, records = world.families, world.records
        if size == 0 and len(families) > 1:
            share = -(-len(families) // CANDIDATES)
            groups = [{None, *families[n : n + share]} for n in range(0, len(families), share)]
            kept = [[(d, r) for d, r in records if family_of(r) in group] for group in groups]
        else:
            size = size or max(1, len(records) // CANDIDATES)
            starts = range(0, len(records), size)
            kept = [[*records[:n], *records[n + size :]] for n in starts]
        named = [world.of(some, f"s{number:02}{n:02}") for n, some in enumerate(kept[:100])]
        differing = run(named)
        smaller = [candidate for candidate in named if candidate.name in differing]
        if smaller:
            world = min(smaller, key=lambda candidate: len(candidate.records))
            texts = differing[world.name]
        elif size == 1:
            break
        else:
            size = max(1, (size or len(records)) // 2)
    return world, texts


def test_worlds_are_what_the_model_says(
    lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory
) -> None:
    compare(Runner(lake_of, tmp_path_factory.mktemp("worlds")), draw(WORLDS, SEED)[CHOSEN])


def test_worlds_are_the_same_where_plans_are_compiled_and_adaptive(
    large_lake_of: LakeOf, tmp_path_factory: pytest.TempPathFactory
) -> None:
    """As they are on large days; of registries Avro's, whose records alone are not JSON.

    Each seventh of the worlds: to compile takes most of the time.
    """
    drawn = draw(WORLDS // 2, SEED, REGISTRY_SHARES[:1], own_shares=())
    compare(Runner(large_lake_of, tmp_path_factory.mktemp("large")), drawn[1::7])


def compare(run: Runner, drawn: list[World]) -> None:
    """Run the worlds; where one differs from the model, fail with a smaller one that does.

    Raises:
        Failed: some differ.
    """
    differing = run(drawn)
    if not differing:
        return
    known = {w.name: w for w in drawn}
    lines = [f"{name}: {text}" for name, texts in differing.items() for text in texts]
    first = known[next(iter(differing))]
    small, texts = shrink(run, first, SHRINK)
    lines += ["", "made smaller:", str(small), *(texts or differing[first.name]), ""]
    listed = "\n".join([*lines, "as landing.jsonl:", *landing_lines(small.landed)])
    pytest.fail(f"{len(differing)} of {len(drawn)} worlds differ (CDC_SEED={SEED})\n{listed}")
