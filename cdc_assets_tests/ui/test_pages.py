"""What a person does in Dagster's pages: looks at the graph, makes days, looks at what came of it.

Each test asks of the pages what is to be seen, and of Dagster's records whether it is so.
"""

from __future__ import annotations

import re
from collections import Counter
from datetime import date
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Locator, Page, expect

from cdc_assets import reads
from cdc_assets.cdc.config import load_config
from cdc_assets_tests.ui.dagster_dev import DAYS, SOURCES, DagsterDev

pytestmark = [pytest.mark.ui, pytest.mark.slow]

CUSTOMERS = ["inventory", "public", "customers"]
A_RUN_MS = 300_000


# -- going about ---------------------------------------------------------------------------------


def open_graph(page: Page) -> None:
    page.get_by_text("Lineage", exact=True).first.click()
    expect(page.get_by_text("Global asset lineage")).to_be_visible()


def open_asset(page: Page, key: list[str], tab: str) -> None:
    """A tab of an asset's page, by way of the catalog."""
    page.get_by_text("Catalog", exact=True).first.click()
    page.locator(f'a[href="/assets/{"/".join(key)}"]').first.click()
    page.get_by_role("tab", name=tab).click()


def materialize_all(page: Page, days: str) -> Locator:
    """Fill the dialog of "Materialize all…" in the graph; returns the button that launches it."""
    open_graph(page)
    page.get_by_role("button", name="Materialize all").click()
    dialog = page.get_by_role("dialog")
    partitions = dialog.get_by_role("textbox").first
    partitions.fill(days)
    partitions.press("Enter")
    return dialog.get_by_role("button", name="Launch")


def follow_notice(page: Page, text: str) -> None:
    """Go where the notice of what was launched leads."""
    expect(page.get_by_text(text)).to_be_visible()
    page.get_by_text("View", exact=True).click()


# -- asking --------------------------------------------------------------------------------------

MATERIALIZATIONS = """
query($key: AssetKeyInput!) { assetNodeOrError(assetKey: $key) { ... on AssetNode {
  assetMaterializations(limit: 100) {
    partition runId metadataEntries { label ... on IntMetadataEntry { intValue } } } } } }
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


def materializations(dagster: DagsterDev, key: list[str]) -> list[dict[str, Any]]:
    found = dagster.ask(MATERIALIZATIONS, key={"path": key})
    return list(found["assetNodeOrError"]["assetMaterializations"])


def days_made(dagster: DagsterDev) -> dict[str, Counter[str]]:
    """Asset → how often each of its days was materialized."""
    return {
        "/".join(key): Counter(m["partition"] for m in materializations(dagster, key))
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
    table = next(t for t in reads.known_tables(config) if str(t) == ".".join(key))
    return reads.day_rows(config, table)


# -- what is done once ---------------------------------------------------------------------------


@pytest.fixture(scope="module")
def first_day(page: Page, dagster: DagsterDev) -> str:
    """The first day of all assets, launched in the graph and seen to succeed."""
    launch = materialize_all(page, DAYS[0])
    expect(launch).to_have_text("Launch 1 run")
    launch.click()
    follow_notice(page, "Launched run")
    expect(page.get_by_text("Success", exact=True)).to_be_visible(timeout=A_RUN_MS)
    return DAYS[0]


@pytest.fixture(scope="module")
def three_days(page: Page, first_day: str) -> list[str]:
    """A backfill of the days behind it, launched in the graph and seen to complete."""
    launch = materialize_all(page, f"[{DAYS[1]}...{DAYS[3]}]")
    expect(launch).to_have_text("Launch backfill")
    launch.click()
    follow_notice(page, "Created backfill")
    expect(page.get_by_text(f"{DAYS[1]}...{DAYS[3]}")).to_be_visible()
    # "Completed", or what went wrong
    expect(page.get_by_text(re.compile("^(Completed|Failed|Cancel)"))).to_be_visible(
        timeout=2 * A_RUN_MS
    )
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
    assert len({materializations(dagster, key)[0]["runId"] for key in dagster.asset_keys}) == 1


def test_a_day_of_a_table_tells_its_rows_its_query_and_a_sample(
    page: Page, dagster: DagsterDev, first_day: str, screenshots: Path
) -> None:
    rows = rows_in_lake(dagster, CUSTOMERS)[date.fromisoformat(first_day)]
    open_asset(page, CUSTOMERS, "Partitions")
    page.get_by_title(first_day, exact=True).click()
    expect(page.get_by_text("Materialized", exact=True)).to_be_visible()
    row = page.get_by_role("row").filter(has=page.get_by_text("dagster/row_count", exact=True))
    expect(row).to_contain_text(str(rows))
    expect(page.get_by_text(f"VERSION AS OF '{first_day}'")).to_be_visible()
    page.screenshot(path=screenshots / "day.png")
    sample = page.get_by_role("row").filter(has=page.get_by_text("sample", exact=True))
    sample.get_by_text("Show Markdown").click()
    expect(page.get_by_role("dialog").get_by_text("first_name")).to_be_visible()
    page.keyboard.press("Escape")


def test_the_checks_of_a_day_have_passed(
    page: Page, dagster: DagsterDev, first_day: str, screenshots: Path
) -> None:
    open_asset(page, CUSTOMERS, "Checks")
    checks = checks_of(dagster, CUSTOMERS)
    expect(page.get_by_text("Succeeded", exact=True)).to_have_count(len(checks))
    page.get_by_text("keys_unique", exact=True).click()
    expect(page.get_by_text("Passed", exact=True)).to_be_visible()
    expect(page.get_by_text(first_day, exact=True).first).to_be_visible()
    page.screenshot(path=screenshots / "checks.png")
    assert {c: evaluations(dagster, CUSTOMERS, c) for c in checks} == {
        c: {first_day: True} for c in checks
    }


def test_three_days_are_backfilled(page: Page, dagster: DagsterDev, three_days: list[str]) -> None:
    expect(page.get_by_text("Completed", exact=True)).to_be_visible()
    made = dict.fromkeys(DAYS, 1)
    assert days_made(dagster) == {"/".join(key): made for key in dagster.asset_keys}
    for key in dagster.asset_keys:
        for check in checks_of(dagster, key):
            assert list(evaluations(dagster, key, check)) == DAYS[::-1], f"{key} {check}"


def test_the_numbers_of_a_table_plot_over_its_days(
    page: Page, dagster: DagsterDev, three_days: list[str], screenshots: Path
) -> None:
    open_asset(page, CUSTOMERS, "Overview")
    page.get_by_role("button", name="Plots").click()
    for number in ("dagster/row_count", "events", "bytes_added"):
        expect(page.get_by_text(number, exact=True)).to_be_visible()
    expect(page.locator("canvas").first).to_be_visible()
    page.screenshot(path=screenshots / "plots.png")
    recorded = {
        date.fromisoformat(m["partition"]): next(
            e["intValue"] for e in m["metadataEntries"] if e["label"] == "dagster/row_count"
        )
        for m in materializations(dagster, CUSTOMERS)
    }
    assert recorded == rows_in_lake(dagster, CUSTOMERS)
