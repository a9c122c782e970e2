"""What a person does in Dagster's pages: looks at the graph, makes days, looks at what came of it.

Each test asks of the pages what is to be seen, and of Dagster's records whether it is so.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from datetime import date
from pathlib import Path

import pytest
from playwright.sync_api import Locator, Page, expect

from cdc_assets.cdc.config import load_config
from cdc_assets.cdc.lake.figures import day_rows
from cdc_assets.cdc.lake.tables import known_tables
from cdc_assets.orchestration.automation import health
from cdc_assets_tests.e2e.stack import wait_for
from cdc_assets_tests.ui.dagster_dev import DAYS, SOURCES, DagsterDev

pytestmark = [pytest.mark.ui, pytest.mark.slow]

SOURCE = "telemetry"  # the smaller one, whose graph fits on a page
READINGS = [SOURCE, "default", "readings"]


# -- going about ---------------------------------------------------------------------------------


def open_graph(page: Page) -> None:
    page.get_by_text("Lineage", exact=True).first.click()
    expect(page.get_by_text("Global asset lineage")).to_be_visible()


def open_source(page: Page, dagster: DagsterDev, source: str) -> None:
    """The graph of a source's group; the catalog would lead to it with an asset chosen."""
    page.goto(f"{dagster.url}/locations/{dagster.location}/asset-groups/{source}")
    expect(page.get_by_text("Asset Group in")).to_be_visible()


def open_asset(page: Page, key: list[str], tab: str) -> None:
    """A tab of an asset's page, by way of the catalog."""
    page.get_by_text("Catalog", exact=True).first.click()
    page.locator(f'a[href="/assets/{"/".join(key)}"]').first.click()
    page.get_by_role("tab", name=tab).click()


def open_day(page: Page, key: list[str], day: str) -> None:
    """A day on the partitions page of an asset."""
    open_asset(page, key, "Partitions")
    page.get_by_title(day, exact=True).click()
    expect(page.get_by_text("Materialized", exact=True)).to_be_visible()


def materialize_all(page: Page, days: str) -> Locator:
    """Fill the dialog of "Materialize all…" in a graph; returns the button that launches it."""
    page.get_by_role("button", name="Materialize all").click()
    dialog = page.get_by_role("dialog")
    partitions = dialog.get_by_role("textbox").first
    partitions.fill(days)
    partitions.press("Enter")
    return dialog.get_by_role("button", name="Launch")


def follow_notice(page: Page, text: str) -> str:
    """Go where the notice of what was launched leads; returns its id."""
    expect(page.get_by_text(text)).to_be_visible()
    page.get_by_text("View", exact=True).click()
    page.wait_for_url("**/runs/**")
    return page.url.partition("?")[0].rsplit("/", 1)[-1]


def come_back_when(page: Page, is_over: Callable[[], bool]) -> None:
    """Leave a page while what it shows goes on: redrawing it takes half a core from the run."""
    here = page.url
    page.goto("about:blank")
    wait_for(f"the end of {here}", is_over, seconds=600, every=1)
    page.goto(here)


# -- asking --------------------------------------------------------------------------------------

RUN = "query($id: ID!) { runOrError(runId: $id) { ... on Run { status } } }"
BACKFILL = """
query($id: String!) { partitionBackfillOrError(backfillId: $id) {
  ... on PartitionBackfill { status } } }
"""
CHECKS = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  assetChecksOrError { ... on AssetChecks { checks { name } } } } } }
"""
EVALUATIONS = """
query($key: AssetKeyInput!, $check: String!) {
  assetCheckExecutions(assetKey: $key, checkName: $check, limit: 100) {
    evaluation { partition success } } }
"""


def run_is_over(dagster: DagsterDev, run: str) -> bool:
    status = dagster.ask(RUN, id=run)["runOrError"]["status"]
    return status in ("SUCCESS", "FAILURE", "CANCELED")


def backfill_is_over(dagster: DagsterDev, backfill: str) -> bool:
    status = dagster.ask(BACKFILL, id=backfill)["partitionBackfillOrError"]["status"]
    return status not in ("REQUESTED", "CANCELING", "FAILING")


def days_made(dagster: DagsterDev) -> dict[str, Counter[str]]:
    """Asset → how often each of its days was materialized."""
    return {
        "/".join(key): Counter(m.day for m in dagster.materializations(key))
        for key in dagster.asset_keys
    }


def checks_of(dagster: DagsterDev, key: list[str]) -> list[str]:
    found = dagster.ask(CHECKS, key={"path": key})["assetNodeOrError"]["assetChecksOrError"]
    return [check["name"] for check in found["checks"]]


def evaluations(dagster: DagsterDev, key: list[str], check: str) -> dict[str, bool]:
    """Day → whether the check passed."""
    found = dagster.ask(EVALUATIONS, key={"path": key}, check=check)["assetCheckExecutions"]
    return {e["evaluation"]["partition"]: e["evaluation"]["success"] for e in found}


def rows_in_lake(dagster: DagsterDev, key: list[str]) -> dict[date, int]:
    """Rows at the end of each made day, as the lake itself has them."""
    config = load_config(dagster.folder / "cdc.yaml")
    table = next(t for t in known_tables(config) if str(t) == ".".join(key))
    return day_rows(config, table)


# -- what is done once ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def first_day(page: Page, dagster: DagsterDev) -> str:
    """The first day of all assets, launched in the graph and seen to succeed."""
    open_graph(page)
    launch = materialize_all(page, DAYS[0])
    expect(launch).to_have_text("Launch 1 run")
    launch.click()
    run = follow_notice(page, "Launched run")
    come_back_when(page, lambda: run_is_over(dagster, run))
    expect(page.get_by_text("Success", exact=True)).to_be_visible()
    return DAYS[0]


@pytest.fixture(scope="module")
def three_days(page: Page, dagster: DagsterDev, first_day: str) -> list[str]:
    """A backfill of a source's days behind it, launched in its graph and seen to complete."""
    open_source(page, dagster, SOURCE)
    launch = materialize_all(page, f"[{DAYS[1]}...{DAYS[3]}]")
    expect(launch).to_have_text("Launch backfill")
    launch.click()
    backfill = follow_notice(page, "Created backfill")
    expect(page.get_by_text(f"{DAYS[1]}...{DAYS[3]}")).to_be_visible()
    status = page.get_by_text("Status", exact=True).locator("..")
    expect(status).to_contain_text("In progress")
    come_back_when(page, lambda: backfill_is_over(dagster, backfill))
    expect(status).to_contain_text("Succeeded")
    return DAYS[1:]


# -- the tests -----------------------------------------------------------------------------------


def test_the_graph_shows_all_assets_in_a_group_per_source(page: Page, dagster: DagsterDev) -> None:
    open_graph(page)
    for source in SOURCES:
        expect(page.locator("foreignObject").get_by_text(source, exact=True)).to_be_visible()
        arrow = page.get_by_role("img", name="arrow_drop_down")
        line = page.locator("div").filter(has=page.get_by_title(source, exact=True))
        line.filter(has=arrow).last.locator(arrow).click()
    names = Counter(key[-1] for key in dagster.asset_keys)
    for name, count in names.items():
        expect(page.get_by_title(name, exact=True)).to_have_count(count)


def test_a_day_of_all_assets_is_made_by_one_run(
    page: Page, dagster: DagsterDev, first_day: str
) -> None:
    for source in SOURCES:
        expect(page.get_by_text(f"{source}__tables", exact=True).first).to_be_visible()
    assert days_made(dagster) == {"/".join(key): {first_day: 1} for key in dagster.asset_keys}
    assert len({dagster.materializations(key)[0].run_id for key in dagster.asset_keys}) == 1


def test_a_day_of_a_table_tells_its_rows_its_query_and_a_sample(
    page: Page, dagster: DagsterDev, first_day: str
) -> None:
    rows = rows_in_lake(dagster, READINGS)[date.fromisoformat(first_day)]
    open_day(page, READINGS, first_day)
    row = page.get_by_role("row").filter(has=page.get_by_text("dagster/row_count", exact=True))
    expect(row).to_contain_text(str(rows))
    expect(page.get_by_text(f"VERSION AS OF '{first_day}'")).to_be_visible()
    sample = page.get_by_role("row").filter(has=page.get_by_text("sample", exact=True))
    expect(sample).to_contain_text("celsius")


def test_a_day_of_lag_shows_its_picture_first(
    page: Page, first_day: str, screenshots: Path
) -> None:
    open_day(page, [SOURCE, "lag"], first_day)
    metadata = page.locator("table").filter(has=page.get_by_text("by_hour", exact=True))
    first = metadata.locator("tbody tr").first
    expect(first).to_contain_text("by_hour")
    first.get_by_text("[Show Markdown]").click()
    dialog = page.get_by_role("dialog")
    picture = dialog.get_by_role("img", name="lag by source hour")
    expect(picture).to_be_visible()
    said = picture.get_attribute("alt") or ""
    assert all(kind in said for kind in ("capture", "delivery", "end_to_end"))
    frame, drawn = dialog.bounding_box(), picture.bounding_box()
    assert frame is not None
    assert drawn is not None
    assert drawn["x"] + drawn["width"] <= frame["x"] + frame["width"], "it fits Dagster's dialog"
    page.screenshot(path=screenshots / "lag.png")
    dialog.get_by_role("button", name="Close").last.click()


def test_the_checks_of_a_day_have_passed(page: Page, dagster: DagsterDev, first_day: str) -> None:
    open_asset(page, READINGS, "Checks")
    checks = checks_of(dagster, READINGS)
    expect(page.get_by_text("Succeeded", exact=True)).to_have_count(len(checks))
    page.get_by_text("keys_unique", exact=True).first.click()
    expect(page.get_by_text("Each key written on this day exists exactly once")).to_be_visible()
    expect(page.get_by_text("Passed", exact=True)).to_be_visible()
    expect(page.get_by_text(first_day, exact=True)).to_be_visible()
    assert {c: evaluations(dagster, READINGS, c) for c in checks} == {
        c: {first_day: True} for c in checks
    }


def test_three_days_are_backfilled(page: Page, dagster: DagsterDev, three_days: list[str]) -> None:
    made = {"/".join(key): DAYS[:1] if key[0] != SOURCE else DAYS for key in dagster.asset_keys}
    assert days_made(dagster) == {key: Counter(days) for key, days in made.items()}
    for key in dagster.asset_keys:
        for check in checks_of(dagster, key):
            if check in health.NAMES:
                continue  # of no day
            evaluated = evaluations(dagster, key, check)
            assert sorted(evaluated) == made["/".join(key)], f"{key} {check}"


def test_the_graph_of_a_source_tells_how_far_each_asset_is(
    page: Page, dagster: DagsterDev, three_days: list[str], screenshots: Path
) -> None:
    open_source(page, dagster, SOURCE)
    for _ in range(2):
        page.get_by_role("img", name="zoom_out").click()
    # The open day is not made yet.
    share = f"{100 * len(DAYS) // (len(DAYS) + 1)}% filled"
    assets = [key for key in dagster.asset_keys if key[0] == SOURCE]
    expect(page.locator("foreignObject").get_by_text(share)).to_have_count(len(assets))
    page.screenshot(path=screenshots / "graph.png")


def test_the_numbers_of_a_table_plot_over_its_days(
    page: Page, dagster: DagsterDev, three_days: list[str]
) -> None:
    open_asset(page, READINGS, "Overview")
    page.get_by_role("button", name="Plots").click()
    for number in ("dagster/row_count", "events", "bytes_added"):
        expect(page.get_by_text(number, exact=True)).to_be_visible()
    expect(page.locator("canvas").first).to_be_visible()
    recorded = {
        date.fromisoformat(made.day): made.metadata["dagster/row_count"]
        for made in dagster.materializations(READINGS)
    }
    assert recorded == rows_in_lake(dagster, READINGS)


def test_the_newest_day_is_shown_with_its_checks(
    page: Page, three_days: list[str], screenshots: Path
) -> None:
    newest = three_days[-1]
    open_day(page, READINGS, newest)
    expect(page.get_by_text(f"Materialized ({len(DAYS)})")).to_be_visible()
    page.screenshot(path=screenshots / "day.png")
    open_asset(page, READINGS, "Checks")
    page.get_by_text("keys_unique", exact=True).first.click()
    expect(page.get_by_text("Each key written on this day exists exactly once")).to_be_visible()
    expect(page.get_by_text(newest, exact=True)).to_be_visible()
    expect(page.locator("canvas").first).to_be_visible()
    page.screenshot(path=screenshots / "checks.png")
