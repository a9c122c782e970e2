"""One Dagster and one browser page for all of these tests; a screenshot after each."""

from __future__ import annotations

import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from cdc_assets_tests.paths import REPOSITORY
from cdc_assets_tests.ui.dagster_dev import DagsterDev, dagster_dev

SCREENSHOTS = REPOSITORY / ".ui"
STAND_STILL = """
addEventListener("DOMContentLoaded", () => {
  const style = document.createElement("style");
  style.textContent = "*, *::before, *::after { animation: none !important; }";
  document.head.append(style);
});
"""


@pytest.fixture(scope="session")
def screenshots() -> Path:
    """An empty folder for them; `make screenshots` takes those of the documents from it."""
    shutil.rmtree(SCREENSHOTS, ignore_errors=True)
    SCREENSHOTS.mkdir()
    return SCREENSHOTS


@pytest.fixture(scope="session")
def dagster(tmp_path_factory: pytest.TempPathFactory) -> Iterator[DagsterDev]:
    with dagster_dev(tmp_path_factory.mktemp("dagster")) as running:
        yield running


@pytest.fixture(scope="session")
def browser() -> Iterator[Browser]:
    """The system's Chromium: Playwright's own would be a download."""
    browser_path = shutil.which("chromium") or shutil.which("google-chrome")
    assert browser_path, "there is no Chromium: make ui-test installs it, or says how to"
    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path=browser_path, args=["--disable-gpu", "--disable-quic", "--disable-sync"]
        )
        # A page waits for a busy machine, not for people.
        expect.set_options(timeout=60_000)
        yield browser
        browser.close()


def new_page(browser: Browser, url: str) -> Page:
    """A page of Dagster's."""
    page = browser.new_page(viewport={"width": 1400, "height": 900})
    # Without a graphics card a spinner alone takes half a core from the run it stands for.
    page.add_init_script(STAND_STILL)
    page.set_default_timeout(60_000)
    page.goto(url)
    return page


@pytest.fixture(scope="session")
def page(browser: Browser, dagster: DagsterDev) -> Iterator[Page]:
    """Dagster's first page, which leads on to the timeline: a click before that is lost."""
    page = new_page(browser, dagster.url)
    page.wait_for_url("**/timeline**")
    expect(page.get_by_role("tab", name="Timeline")).to_be_visible()
    yield page
    page.close()


@pytest.fixture(autouse=True)
def screenshot(page: Page, screenshots: Path, request: pytest.FixtureRequest) -> Iterator[None]:
    """What the page shows at a test's end, however it ends."""
    yield
    page.screenshot(path=screenshots / f"{request.node.name.removeprefix('test_')}.png")
