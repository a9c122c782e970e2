"""Values from data in Dagster's pages: shown as they are, whatever they would mean to a browser."""

from __future__ import annotations

import os
import re
import shutil
import sys
import urllib.request
from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import date
from pathlib import Path

import dagster as dg
import pytest
from playwright.sync_api import Browser, Locator, Page, expect

from cdc_assets.cdc import markdown
from cdc_assets.cdc.findings import fault_finding
from cdc_assets.cdc.lake.tables import STATE
from cdc_assets.cdc.metadata import query
from cdc_assets.orchestration.metadata import dagster_values
from cdc_assets_tests import loopback
from cdc_assets_tests.e2e.stack import Process, free_port, wait_for
from cdc_assets_tests.paths import REPOSITORY
from cdc_assets_tests.ui.conftest import new_page

pytestmark = [pytest.mark.ui, pytest.mark.slow]

KEY = ["shop", "quarantine"]
LONG = "W" * 5_000


@dataclass
class Outside:
    """A server that a page has no reason to ask, and what it was asked for."""

    url: str
    asked: list[str] = field(default_factory=list)

    @property
    def values(self) -> list[str]:
        """What someone may write into a row or a name, so that a browser comes here."""
        return [
            f"![x]({self.url}/image)",
            f"[![x]({self.url}/nested)](javascript:alert(1))",
            f'<img src="{self.url}/tag">',
            f"<script>fetch('{self.url}/script')</script>",
            "[a](javascript:alert(1))",
            f"{self.url}/bare",
            f"<{self.url}/angle>",
            "www.example.org/x ann@example.org mailto:ann@example.org",
            "**bold** _slanted_ ~~struck~~ &amp; &#60;b&#62;",
            "`one` ``two``",
            "`",
            "# 1. - [ ] > a",
            "a|b | c",
            "a\\|b\\\\|c\\",
            f"```\n![x]({self.url}/fence)\n```",
            f"|\n\n![x]({self.url}/break)",
        ]


@pytest.fixture(scope="module")
def outside() -> Iterator[Outside]:
    class Handler(loopback.Handler):
        def do_GET(self) -> None:  # noqa: N802  (the name is the library's)
            found.asked.append(self.path)
            self.send_response(404)
            self.end_headers()

    with loopback.serving(Handler) as url:
        found = Outside(url)
        yield found


@pytest.fixture(scope="module")
def page(
    browser: Browser, outside: Outside, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Page]:
    """The newest materialization of an asset whose metadata holds all these values."""
    home = tmp_path_factory.mktemp("dagster")
    shutil.copy(REPOSITORY / "dagster.yaml", home)
    here = Path.cwd()
    os.chdir(home)  # dagster.yaml's folders are relative
    values = [*outside.values, LONG]
    faults = fault_finding("positions_complete", values)
    metadata = {
        "cells": dg.MetadataValue.md(markdown.table(["value"], [[v] for v in values])),
        "names": dg.MetadataValue.md(markdown.table(values, [["x"] * len(values)])),
        "faults": dagster_values(faults.values)["examples"],
        "query": dg.MetadataValue.md(
            query("lake.`s`.`a```\n![x](" + outside.url + "/query)`", date(2026, 11, 4), STATE)
        ),
        "control": dg.MetadataValue.md(f"![x]({outside.url}/control) www.example.com"),
    }
    try:
        with dg.DagsterInstance.from_config(str(home)) as instance:
            instance.report_runless_asset_event(dg.AssetMaterialization(KEY, metadata=metadata))
    finally:
        os.chdir(here)
    port = free_port()
    server = Process.start(
        "the web server",
        [
            *(sys.executable, "-m", "dagster_webserver", "--empty-workspace"),
            *("-h", "127.0.0.1", "-p", str(port)),
        ],
        home / "server.log",
        env={**os.environ, "DAGSTER_HOME": str(home)},
        cwd=home,
    )
    try:
        url = f"http://127.0.0.1:{port}"
        wait_for("the web server", lambda: server.check() and _answers(url), 180)
        opened = new_page(browser, f"{url}/assets/{'/'.join(KEY)}?view=events")
        yield opened
        opened.close()
    finally:
        server.stop()


def _answers(url: str) -> bool:
    with urllib.request.urlopen(url, timeout=10) as response:
        return bool(response.status == 200)


def shown(page: Page, label: str) -> Locator:
    """What the page shows of a metadata entry."""
    name = page.get_by_role("cell", name=label, exact=True)
    return page.get_by_role("row").filter(has=name).get_by_role("cell").nth(1)


@pytest.mark.parametrize("label", ["cells", "names", "faults"])
def test_a_value_is_shown_as_it_is(page: Page, outside: Outside, label: str) -> None:
    # The page draws its Markdown a moment after the row around it.
    expect(shown(page, label)).to_contain_text(outside.url)
    text = shown(page, label).inner_text()
    for value in outside.values:
        assert re.sub(r"\s+", " ", value) in text, value
    expect(shown(page, label).locator("a, img, script, strong, em, del, input")).to_have_count(0)


@pytest.mark.parametrize("label", ["cells", "names", "faults"])
def test_a_very_long_word_is_cut(page: Page, label: str) -> None:
    expect(shown(page, label)).to_contain_text("…")
    (word,) = re.findall("W{10,}…", shown(page, label).inner_text())
    assert len(word) <= 300


def test_a_table_name_does_not_end_the_block_of_a_query(page: Page) -> None:
    expect(shown(page, "query")).to_contain_text("VERSION AS OF")
    expect(shown(page, "query").locator("pre")).to_have_count(1)
    expect(shown(page, "query").locator("a, img")).to_have_count(0)


def test_nothing_is_requested_and_nothing_becomes_a_link(page: Page, outside: Outside) -> None:
    """Dagster's own Markdown does both, as the entry without our escape shows."""
    control = shown(page, "control")
    expect(control.locator("a")).to_have_text("www.example.com")
    expect(control.locator("img")).to_have_count(1)
    expect(page.locator("td a[href*=':'], td img")).to_have_count(2)
    assert outside.asked == ["/control"]
