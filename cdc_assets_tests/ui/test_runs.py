"""What Dagster shows of the command line's runs, and of a backfill of days that are made."""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterator
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from cdc_assets_tests.e2e.stack import wait_for
from cdc_assets_tests.ui.conftest import new_page
from cdc_assets_tests.ui.dagster_dev import DAYS, DagsterDev, dagster_dev

pytestmark = [pytest.mark.ui, pytest.mark.slow]

SOURCE, TABLE = "telemetry", ["telemetry", "default", "readings"]
MADE = DAYS[:2]
RUNS = "{ runsOrError { ... on Runs { results { id status jobName tags { key value } } } } }"
BACKFILL = "{ partitionBackfillsOrError { ... on PartitionBackfills { results { status } } } }"


@pytest.fixture(scope="module")
def ran(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterDev]:
    """A Dagster of its own, beside which `cdc-assets run` made two days."""
    with dagster_dev(tmp_path_factory.mktemp("runs")) as dagster:
        command = ["run", "--from", MADE[0], "--to", MADE[1], "--source", SOURCE]
        home = {"DAGSTER_HOME": str(dagster.folder), "CDC_CONFIG": str(dagster.folder / "cdc.yaml")}
        done = subprocess.run(
            [sys.executable, "-m", "cdc_assets.cli.app", *command],
            cwd=dagster.folder,
            env={**os.environ, **home},
            capture_output=True,
            text=True,
            timeout=600,
            check=False,
        )
        assert done.returncode == 0, done.stderr
        yield dagster


@pytest.fixture(scope="module")
def page(browser: Browser, ran: DagsterDev) -> Iterator[Page]:
    page = new_page(browser, ran.url)
    yield page
    page.close()


def metadata(dagster: DagsterDev) -> dict[str, list[dict[str, Any]]]:
    """Day → the metadata of the table's materializations, the newest first."""
    of_days: dict[str, list[dict[str, Any]]] = {}
    for made in dagster.materializations(TABLE):
        of_days.setdefault(made.day, []).append(made.metadata)
    return of_days


def test_a_run_of_the_command_line_is_in_the_timeline(page: Page, ran: DagsterDev) -> None:
    page.goto(f"{ran.url}/timeline?view=jobs")
    expect(page.get_by_role("link", name="daily")).to_be_visible()
    expect(page.get_by_text("No runs or scheduled ticks")).to_have_count(0)


def test_a_run_of_the_command_line_has_its_days_and_sources_as_tags(
    page: Page, ran: DagsterDev
) -> None:
    (run,) = ran.ask(RUNS)["runsOrError"]["results"]
    assert (run["jobName"], run["status"]) == ("daily", "SUCCESS")
    tags = {tag["key"]: tag["value"] for tag in run["tags"]}
    assert tags["cdc/days"] == f"{MADE[0]}…{MADE[1]}"
    assert tags["cdc/sources"] == SOURCE
    page.goto(f"{ran.url}/runs/{run['id']}")
    expect(page.get_by_text("Success", exact=True)).to_be_visible()
    expect(page.get_by_text(f"{SOURCE}/default/readings {MADE[1]}: ")).to_be_visible()
    expect(page.get_by_text("did not yield or return expected outputs")).to_have_count(0)


def test_a_backfill_of_days_that_are_made_records_them_as_they_are(
    page: Page, ran: DagsterDev
) -> None:
    before = metadata(ran)
    page.goto(f"{ran.url}/locations/{ran.location}/asset-groups/{SOURCE}")
    expect(page.get_by_text("Asset Group in")).to_be_visible()
    page.get_by_role("button", name="Materialize all").click()
    dialog = page.get_by_role("dialog")
    partitions = dialog.get_by_role("textbox").first
    partitions.fill(f"[{MADE[0]}...{MADE[1]}]")
    partitions.press("Enter")
    launch = dialog.get_by_role("button", name="Launch")
    expect(launch).to_have_text("Launch backfill")
    launch.click()
    expect(page.get_by_text("Created backfill")).to_be_visible()

    def is_over() -> bool:
        found = ran.ask(BACKFILL)["partitionBackfillsOrError"]["results"]
        return bool(found) and found[0]["status"].startswith("COMPLETED")

    wait_for("the backfill", is_over, seconds=600, every=1)
    after = metadata(ran)
    assert sorted(after) == sorted(before) == MADE
    for day, (newest, *older) in after.items():
        assert len(older) == 1, day
        assert newest.pop("unchanged_since_last_made") is True
        assert older[0].pop("unchanged_since_last_made") is False
        assert newest == older[0]
    assert all("celsius" in of_day[0]["sample"] for of_day in after.values())
    page.goto(f"{ran.url}/runs?view=backfills")
    expect(page.get_by_text("Success").first).to_be_visible()
