"""The report's page in a real browser: large and small, on a phone, in the dark, by keyboard.

It is opened from a file, with the network off; whatever it asks for fails the test.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
from playwright.sync_api import Browser, Page, expect

from cdc_assets.cli.report.page import page as page_of
from cdc_assets_tests.figures import HOSTILE, empty_figures, figures_of

pytestmark = [pytest.mark.ui, pytest.mark.slow]

DESKTOP, PHONE = (1280, 900), (390, 844)
CHARTS = ("lag", "changes", "quarantine", "sizes", "seconds")
Open = Callable[..., Page]


@dataclass
class Heard:
    """What a page asked for, and what it complained of."""

    requests: list[str] = field(default_factory=list)
    complaints: list[str] = field(default_factory=list)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Path]:
    """Reports of no, 3 and 200 tables."""
    folder = tmp_path_factory.mktemp("reports")
    made = {"0": empty_figures(3), "3": figures_of(3, 6), "200": figures_of(200, 30)}
    for name, figures in made.items():
        (folder / f"{name}.html").write_text(page_of(figures), "utf-8")
    return {name: folder / f"{name}.html" for name in made}


@pytest.fixture
def heard() -> Heard:
    return Heard()


@pytest.fixture
def page(browser: Browser, files: dict[str, Path], heard: Heard, request: Any) -> Iterator[Page]:
    """A report; a test's parameters say `tables, (width, height), scheme`."""
    tables, (width, height), scheme = getattr(request, "param", ("3", DESKTOP, "light"))
    context = browser.new_context(
        viewport={"width": width, "height": height},
        color_scheme=scheme,
        reduced_motion="reduce",
        offline=True,
    )
    opened = context.new_page()
    opened.set_default_timeout(60_000)
    opened.on("request", lambda asked: heard.requests.append(asked.url))
    opened.on("console", lambda said: heard.complaints.append(f"{said.type}: {said.text}"))
    opened.on("pageerror", lambda error: heard.complaints.append(str(error)))
    opened.on("dialog", lambda dialog: heard.complaints.append(f"dialog: {dialog.message}"))
    opened.goto(files[tables].as_uri())
    opened.wait_for_selector("html[data-drawn]", state="attached")
    yield opened
    context.close()


def shown_as(tables: str, size: tuple[int, int] = DESKTOP, scheme: str = "light") -> Any:
    kind = "phone" if size == PHONE else "desktop"
    return pytest.param((tables, size, scheme), id=f"{tables}-{kind}-{scheme}")


EVERY = [
    shown_as(tables, size, scheme)
    for tables in ("3", "200")
    for size in (DESKTOP, PHONE)
    for scheme in ("light", "dark")
]


def open_all(page: Page) -> None:
    """Open each folded part; its table is made then."""
    for summary in page.locator("summary").all():
        summary.click()


# -- seen


@pytest.mark.parametrize("page", EVERY, indirect=True)
def test_all_charts_and_tables_are_drawn_without_the_network(
    page: Page, heard: Heard, files: dict[str, Path], screenshots: Path, request: Any
) -> None:
    for name in CHARTS:
        drawn = page.locator(f"#{name}-chart svg.main-svg").first
        expect(drawn).to_be_visible()
    page.screenshot(path=screenshots / f"report-{request.node.callspec.id}.png", full_page=True)
    open_all(page)
    for table in page.locator("div.table").all():
        expect(table.locator("tbody tr").first).to_be_visible()
        expect(table.locator("caption")).not_to_be_empty()
    assert heard.complaints == []
    assert len(heard.requests) == 1
    assert Path(heard.requests[0]).parent.name == next(iter(files.values())).parent.name


@pytest.mark.parametrize("page", [shown_as(t, PHONE) for t in ("0", "3", "200")], indirect=True)
def test_a_phone_scrolls_the_page_up_and_down_alone(page: Page) -> None:
    open_all(page)
    page.mouse.wheel(500, 0)
    width = page.evaluate(
        "[document.documentElement.scrollWidth, document.body.scrollWidth, scrollX]"
    )
    assert width[0] <= PHONE[0], width
    assert width[1] <= PHONE[0], width
    assert width[2] == 0
    for box in page.locator("input, select, button, .chart, .scroll, summary").all():
        bounds = box.bounding_box()
        # A table's own headings scroll inside its frame.
        if bounds is not None and not box.evaluate("node => !!node.closest('table')"):
            assert 0 <= bounds["x"] <= bounds["x"] + bounds["width"] <= PHONE[0], box


TEXTS = """
() => {
  const parse = (text) => text.match(/[0-9.]+/g).map(Number);
  const behind = (node) => {
    for (let at = node; at; at = at.parentElement) {
      const [r, g, b, a = 1] = parse(getComputedStyle(at).backgroundColor);
      if (a > 0.99) return [r, g, b];
    }
    return [255, 255, 255];
  };
  const light = ([r, g, b]) => [r, g, b]
    .map((v) => v / 255).map((v) => (v <= 0.04045 ? v / 12.92 : ((v + 0.055) / 1.055) ** 2.4))
    .reduce((sum, v, n) => sum + v * [0.2126, 0.7152, 0.0722][n], 0);
  const ratio = (a, b) => {
    const [low, high] = [light(a), light(b)].sort((x, y) => x - y);
    return (high + 0.05) / (low + 0.05);
  };
  const found = [];
  for (const node of document.querySelectorAll("body *")) {
    const says = [...node.childNodes].some((n) => n.nodeType === 3 && n.data.trim());
    if (!says || !node.checkVisibility() || node.disabled) continue;
    if (node.closest("script, noscript")) continue;
    const style = getComputedStyle(node);
    const inSvg = node.ownerSVGElement !== undefined;
    if (inSvg && node.tagName !== "text" && node.tagName !== "tspan") continue;
    const color = parse(inSvg ? style.fill : style.color);
    const of = ratio(color.slice(0, 3), behind(inSvg ? node.closest(".chart") : node));
    found.push([of, node.textContent.trim().slice(0, 60), style.color]);
  }
  return found.sort((a, b) => a[0] - b[0]);
}
"""


@pytest.mark.parametrize(
    "page", [shown_as("200", DESKTOP, "light"), shown_as("200", DESKTOP, "dark")], indirect=True
)
def test_every_text_stands_out_from_what_is_behind_it(page: Page) -> None:
    found = page.evaluate(TEXTS)
    assert len(found) > 200
    assert found[0][0] >= 4.5, found[:5]  # WCAG 2, level AA


def test_the_charts_follow_a_change_to_the_dark(page: Page) -> None:
    paper = page.locator("#sizes-chart .main-svg").first
    before = paper.evaluate("node => getComputedStyle(node).backgroundColor")
    page.emulate_media(color_scheme="dark")
    expect(paper).not_to_have_css("background-color", before)
    body = page.evaluate("getComputedStyle(document.body).backgroundColor")
    expect(paper).to_have_css("background-color", body)


# -- asked


@pytest.mark.parametrize("page", [shown_as("200")], indirect=True)
def test_two_hundred_tables_begin_with_the_twenty_worst(page: Page) -> None:
    caption = page.locator("#lag-caption")
    expect(caption).to_contain_text("The 20 largest of 200 tables (capture, p95), largest first.")
    expect(page.locator("#lag-chart .ytick text")).to_have_count(20)
    page.locator("#lag-limit").select_option("all")
    expect(page.locator("#lag-chart .ytick text")).to_have_count(200)
    expect(page.locator("#changes-chart .legend .traces")).to_have_count(4)
    page.locator("#sizes-view").select_option("lines")
    expect(page.locator("#sizes-chart .legend .traces")).to_have_count(8)


@pytest.mark.parametrize("page", [shown_as("200")], indirect=True)
def test_the_filter_chooses_the_tables_of_all_charts_and_tables(
    page: Page, screenshots: Path
) -> None:
    open_all(page)
    page.get_by_label("Filter tables and stages").fill("TABLE_17")
    expect(page.locator("#matches")).to_have_text("10 of 200 names match")
    expect(page.locator("#lag-chart .ytick text")).to_have_count(10)
    expect(page.locator("#changes-caption")).to_have_text("The sum of 10 tables.")
    names = page.locator("#sizes tbody th").all_inner_texts()
    assert names
    assert all("table_17" in name for name in names)
    page.screenshot(path=screenshots / "report-filtered.png", full_page=True)
    page.get_by_label("Filter tables and stages").fill("no such table")
    expect(page.locator("#lag-caption")).to_contain_text("Nothing to draw")
    expect(page.locator("#checks caption").first).to_contain_text(": 0 rows")


def test_kind_and_figure_of_the_lag_are_chosen(page: Page) -> None:
    page.locator("#lag summary").first.click()
    rows = page.locator("#lag tbody").first.locator("tr")
    largest = {}
    for kind in ("capture", "delivery", "end_to_end"):
        page.get_by_label("Kind").select_option(kind)
        page.locator("#lag").get_by_label("Figure").select_option("max")
        expect(page.locator("#lag-caption")).to_contain_text(f"({kind}, max)")
        largest[kind] = rows.first.locator("td.number").last.inner_text()
    figures = figures_of(3, 6)
    assert largest == {
        kind: f"{max(r['max_ms'] for r in figures.lag_hours if r['kind'] == kind):,}"
        for kind in largest
    }


def test_lags_below_zero_have_a_color_of_their_own(page: Page, files: dict[str, Path]) -> None:
    page.goto(files["200"].as_uri())
    page.wait_for_selector("html[data-drawn]", state="attached")
    page.get_by_label("Filter tables and stages").fill("table_049")
    expect(page.locator("#matches")).to_have_text("1 of 200 names match")
    expect(page.locator("#lag-chart .cbaxis")).to_contain_text("below 0")
    expect(page.locator("#lag .note").last).to_contain_text("are below zero")


@pytest.mark.parametrize("page", [shown_as("200")], indirect=True)
def test_hostile_names_are_shown_as_they_are(page: Page, heard: Heard) -> None:
    open_all(page)
    shown = HOSTILE[1].replace("\u202e", "\\u202e")
    for name in (HOSTILE[0], shown, *HOSTILE[2:]):
        page.get_by_label("Filter tables and stages").fill(name)
        expect(page.locator("#matches")).to_have_text("1 of 200 names match")
        expect(page.locator("#sizes tbody th").first).to_have_text(name)
        assert set(page.locator("#sizes tbody th").all_inner_texts()) == {name}
        label = page.locator("#lag-chart .ytick text").text_content() or ""
        assert label.removeprefix("…")
        assert name.endswith(label.removeprefix("…"))
        page.locator("#lag-chart .nsewdrag").hover()
        expect(page.locator("#lag-chart .hoverlayer")).to_contain_text(name)
    expect(page.locator("main a, main img, .chart b")).to_have_count(0)
    assert heard.complaints == []
    assert len(heard.requests) == 1


# -- by keyboard


FOCUSED = """
() => {
  const node = document.activeElement, style = getComputedStyle(node);
  if (node === document.body) return ["", true];
  const seen = style.outlineStyle !== "none" && parseFloat(style.outlineWidth) >= 2;
  if (node.tagName === "SUMMARY") return ["SUMMARY", seen];
  return [node.id || node.textContent.trim().slice(0, 40) || node.tagName, seen];
}
"""


def test_the_keyboard_reaches_every_control_in_order_and_shows_where_it_is(page: Page) -> None:
    met = []
    for _ in range(200):
        page.keyboard.press("Tab")
        name, is_seen = page.evaluate(FOCUSED)
        if not name:  # past the last
            break
        assert is_seen, f"nothing shows that {name!r} has the focus"
        met.append(name)
    assert met[0] == "Skip to the figures"
    controls = [f"{p}-{c}" for p in CHARTS for c in ("group", "view", "figure", "limit")]
    there = [c for c in ("filter", *controls) if page.locator(f"#{c}").count()]
    enabled = [c for c in there if page.locator(f"#{c}").is_enabled()]
    assert [name for name in met if name in there] == enabled
    assert met.count("SUMMARY") == page.locator("summary").count() > len(CHARTS)


def test_the_skip_link_leads_past_the_head(page: Page) -> None:
    page.keyboard.press("Tab")
    expect(page.get_by_role("link", name="Skip to the figures")).to_be_in_viewport()
    page.keyboard.press("Enter")
    assert page.evaluate("document.activeElement.id") == "main"
    page.keyboard.press("Tab")
    first = "document.activeElement.closest('section') === document.querySelector('main section')"
    assert page.evaluate(first)


def test_charts_and_tables_are_worked_by_keys_alone(page: Page) -> None:
    page.locator("#changes-view").focus()
    page.keyboard.press("ArrowDown")
    expect(page.locator("#changes-chart .hm")).to_have_count(1)
    page.locator("#changes summary").first.focus()
    page.keyboard.press("Enter")
    heading = page.locator("#changes thead").get_by_role("button", name="u update")
    heading.focus()
    page.keyboard.press("Enter")
    sorted_by = page.locator("#changes th[aria-sort]")
    expect(sorted_by).to_have_attribute("aria-sort", "descending")
    first = page.locator("#changes tbody tr").first.locator("td.number").nth(1)
    updates = [c.records for c in figures_of(3, 6).changes if c.what == "u"]
    expect(first).to_have_text(f"{max(updates):,}")
    page.keyboard.press("Enter")
    expect(sorted_by).to_have_attribute("aria-sort", "ascending")
    expect(first).to_have_text(f"{min(updates):,}")


@pytest.mark.parametrize("page", [shown_as("200")], indirect=True)
def test_a_long_table_shows_more_rows_when_asked(page: Page) -> None:
    page.locator("#sizes summary").first.click()
    table = page.locator("#sizes div.table")
    expect(table.locator("tbody tr")).to_have_count(50)
    expect(table).to_contain_text("50 of 6,000 are shown")
    table.get_by_role("button", name="Show 500 more rows").press("Enter")
    expect(table.locator("tbody tr")).to_have_count(550)
    assert page.evaluate("document.activeElement.rowIndex") == 51


def test_structure_and_names_are_there_for_a_screen_reader(page: Page) -> None:
    open_all(page)
    expect(page.get_by_role("heading", level=1)).to_have_count(1)
    for section in page.locator("section").all():
        expect(section.get_by_role("heading", level=2)).to_have_count(1)
    for chart in page.locator(".chart").all():
        assert len(chart.get_attribute("aria-label") or "") > 60
    unnamed = page.evaluate(
        "[...document.querySelectorAll('select, input')].filter((one) => !one.labels.length).length"
    )
    assert unnamed == 0
    for table in page.locator("table").all():
        expect(table.locator("caption")).to_have_count(1)
        assert table.locator("thead th[scope=col]").count() >= 3
        rows = table.locator("tbody tr").count()
        assert table.locator("tbody th[scope=row]").count() == rows > 0


@pytest.mark.parametrize("page", [shown_as("0")], indirect=True)
def test_days_without_a_change_say_so_and_draw_nothing(page: Page, heard: Heard) -> None:
    expect(page.get_by_text("No change landed on these days.")).to_be_visible()
    expect(page.locator(".chart")).to_have_count(0)
    assert heard.complaints == []
