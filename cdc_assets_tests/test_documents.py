"""README and docs say what the code does: links, keys, commands, messages, reasons and checks."""

from __future__ import annotations

import ast
import re
from collections.abc import Callable, Iterator, Mapping
from datetime import timedelta
from functools import cache
from pathlib import Path
from typing import Any, get_args

import pytest
import yaml
from pydantic import BaseModel
from pydantic.fields import FieldInfo
from typer.main import get_command

from cdc_assets.cdc.changes.reasons import REASONS
from cdc_assets.cdc.config import Config, parse_config
from cdc_assets.cdc.findings import Severity
from cdc_assets.cdc.lake import schemas
from cdc_assets.cdc.verification.findings import MATCHES_SOURCE
from cdc_assets.cli.app import app
from cdc_assets.orchestration import checks
from cdc_assets_tests.paths import REPOSITORY

README = REPOSITORY / "README.md"
DOCS = REPOSITORY / "docs"
PAGES = [README, REPOSITORY / "CHANGELOG.md", REPOSITORY / "data/README.md", *DOCS.glob("*.md")]
WRITTEN = [README, *DOCS.glob("*.md")]


def read(page: Path) -> str:
    return page.read_text("utf-8")


def without_code(text: str) -> str:
    """Markdown without its blocks of code, which may hold what looks like links and headings."""
    return re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)


def blocks(text: str, language: str) -> list[str]:
    return re.findall(rf"^```{language}\n(.*?)^```$", text, flags=re.MULTILINE | re.DOTALL)


Row = list[str]


def tables(text: str) -> Iterator[tuple[str, Row, list[Row]]]:
    """Of each table the heading above it, its head and its rows."""
    heading, head, rows = "", [], []
    for line in [*without_code(text).splitlines(), ""]:
        if line.startswith("#"):
            heading = line.lstrip("#").strip()
        if not line.startswith("|"):
            if head:
                yield heading, head, rows
            head, rows = [], []
            continue
        inner = re.sub(r"^\||\|$", "", line)
        cells = [cell.strip().replace(r"\|", "|") for cell in re.split(r"(?<!\\)\|", inner)]
        if not head:
            head = cells
        elif not set(line) <= set("|-: "):
            rows.append(cells)


def rows_under(text: str, *head: str) -> list[Row]:
    """The rows of all tables whose head begins with these cells."""
    found = [rows for _, cells, rows in tables(text) if tuple(cells[: len(head)]) == head]
    assert found, f"no table with the head {head}"
    return [row for rows in found for row in rows]


# --- links


def anchors(page: Path) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    found: set[str] = set()
    for line in without_code(read(page)).splitlines():
        if heading := re.match(r"#{1,6} +(.*)", line):
            slug = re.sub(r"[^\w\- ]", "", heading[1].lower()).replace(" ", "-")
            found.add(
                next(s for s in [slug, *(f"{slug}-{n}" for n in range(1, 99))] if s not in found)
            )
    return found


def links(page: Path) -> list[str]:
    text = re.sub(r"`[^`\n]*`", "`", without_code(read(page)))
    return re.findall(r"\]\(([^)\s]+)\)", text)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_links_lead_somewhere(page: Path) -> None:
    dead = []
    for link in links(page):
        if re.match(r"[a-z]+:", link):
            continue
        place, _, anchor = link.partition("#")
        target = (page.parent / place).resolve() if place else page
        if not target.exists() or (anchor and anchor not in anchors(target)):
            dead.append(link)
    assert not dead


def test_each_page_is_reached_from_the_readme() -> None:
    linked = {link.partition("#")[0] for link in links(README)}
    assert {f"docs/{page.name}" for page in DOCS.glob("*.md")} <= linked


def test_pictures_are_shown() -> None:
    shown = {(page.parent / link).resolve() for page in WRITTEN for link in links(page)}
    assert set(DOCS.glob("images/*")) <= shown


def test_the_readme_is_short() -> None:
    assert len(read(README).splitlines()) <= 250


# --- commands


def commands() -> dict[str, set[str]]:
    """The options of each command of the command line."""
    group: Any = get_command(app)
    return {
        name: {option for param in command.params for option in param.opts}
        for name, command in group.commands.items()
    }


def test_the_readme_lists_all_commands() -> None:
    shown = {row[0].split()[1].strip("`") for row in rows_under(read(README), "command", "does")}
    assert set(commands()) <= shown


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_commands_have_the_options_that_are_shown(page: Path) -> None:
    known = commands()
    code = r"^ {4}.*$|```.*?```|`[^`\n]+`"
    unknown = []
    for shown in re.findall(code, read(page), flags=re.MULTILINE | re.DOTALL):
        for name, rest in re.findall(r"cdc-assets (\w+)([^\n#`]*)", shown):
            options = set(re.findall(r"(?<![\w-])--[a-z-]+", rest))
            if name in known and not options <= known[name]:
                unknown.append((name, options - known[name]))
    assert not unknown


@pytest.mark.parametrize("page", WRITTEN, ids=lambda page: page.name)
def test_make_has_the_targets_that_are_shown(page: Path) -> None:
    targets = set(re.findall(r"^([a-z][a-z0-9-]*):", read(REPOSITORY / "Makefile"), re.MULTILINE))
    shown = set(re.findall(r"(?:^ {4}|`)make ([a-z][a-z0-9-]*)", read(page), re.MULTILINE))
    assert shown <= targets


# --- configuration


def models(model: type[BaseModel], path: str = "") -> Iterator[tuple[str, type[BaseModel]]]:
    """A model and those of its fields, each with its path; the keys of a mapping are `<>`."""
    yield path, model
    for name, field in model.model_fields.items():
        for inner, is_mapping in _models_in(field.annotation):
            yield from models(
                inner, f"{path}.{field.alias or name}".lstrip(".") + (".<>" if is_mapping else "")
            )


def _models_in(kind: Any, is_mapping: bool = False) -> Iterator[tuple[type[BaseModel], bool]]:
    if isinstance(kind, type) and issubclass(kind, BaseModel):
        yield kind, is_mapping
    for inner in get_args(kind):
        yield from _models_in(inner, is_mapping or getattr(kind, "__origin__", None) is dict)


def keys() -> dict[str, FieldInfo]:
    """Every key of cdc.yaml by its path."""
    return {
        f"{path}.{field.alias or name}".lstrip("."): field
        for path, model in models(Config)
        for name, field in model.model_fields.items()
    }


def documented_keys() -> dict[str, str]:
    """The default of each key that docs/configuration.md lists."""
    found = {}
    for heading, head, rows in tables(read(DOCS / "configuration.md")):
        if head[:2] == ["key", "default"]:
            prefix = re.sub(r"<\w+>", "<>", heading.strip("`")) + "."
            for key, default, *_ in rows:
                found[("" if heading == "Top level" else prefix) + key.strip("`")] = default
    return found


def test_each_key_is_documented_and_no_other() -> None:
    assert set(documented_keys()) == set(keys())


def _default(field: FieldInfo) -> Any:
    value = field.get_default(call_default_factory=True)
    return list(value) if isinstance(value, tuple) else value


def test_documented_defaults_are_those_of_the_code() -> None:
    wrong = {}
    for key, cell in documented_keys().items():
        field = keys()[key]
        if cell == "required":
            is_right = field.is_required()
        elif cell == "none":
            is_right = not field.is_required() and _default(field) is None
        elif cell.startswith("`"):
            is_right = yaml.safe_load(cell.strip("`")) == _default(field)
        else:
            is_right = cell.startswith("see [") and isinstance(_default(field), BaseModel)
        if not is_right:
            wrong[key] = cell
    assert not wrong


def yaml_blocks() -> list[Any]:
    return [
        pytest.param(block, id=f"{page.name}-{number}")
        for page in WRITTEN
        for number, block in enumerate(blocks(read(page), "yaml"))
    ]


@pytest.mark.parametrize("block", yaml_blocks())
def test_shown_configurations_are_right(block: str, tmp_path: Path) -> None:
    """What is no whole file is completed by what each file must have."""
    least = {
        "start_date": "2026-11-01",
        "sources": {"s": {"format": "debezium", "landing": {"files": "landing"}}},
    }
    block = re.sub(r"\$\{\w+\}", "https://example.org/secret", block)
    parse_config({**least, **yaml.safe_load(block)}, tmp_path)


# --- troubleshooting


@cache
def texts_of_the_code() -> tuple[str, ...]:
    """Every text that the code holds; what is put into it is `…`."""
    found = []
    for file in sorted((REPOSITORY / "cdc_assets").rglob("*.py")):
        for node in ast.walk(ast.parse(read(file))):
            if isinstance(node, (ast.Constant, ast.JoinedStr, ast.BinOp)):
                found.append(_text(node))
    return tuple(filter(None, found))


def _text(node: ast.AST) -> str:
    if isinstance(node, ast.Constant):
        return node.value if isinstance(node.value, str) else ""
    if isinstance(node, ast.JoinedStr):
        return "".join(_text(part) or "…" for part in node.values)
    if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Add):
        return (_text(node.left) or "…") + (_text(node.right) or "…")
    return ""


def pattern_of(message: str) -> re.Pattern[str]:
    parts = [part for part in message.split("…") if part]
    return re.compile(".*".join(map(re.escape, parts)), re.DOTALL)


def is_said(message: str) -> bool:
    """True where a text of the code has all parts of the message in order."""
    pattern = pattern_of(message)
    return any(pattern.search(text) for text in texts_of_the_code())


def messages() -> list[str]:
    heads = (["message"], ["`detail`"])
    return [
        message
        for _, head, rows in tables(read(DOCS / "troubleshooting.md"))
        if head[:1] in heads
        for row in rows
        for message in re.findall(r"`([^`]+)`", row[0])
    ]


def test_messages_are_those_of_the_code() -> None:
    said = messages()
    assert len(said) > 50
    assert [message for message in said if not is_said(message)] == []


# Errors whose message is at the place that raises them.
RAISED = (
    "AuditError", "ConfigError", "LakeError", "LandingError", "MissingTableError", "RegistryError",
    "SchemaDriftError",
)  # fmt: skip


def raised() -> Iterator[tuple[str, list[str]]]:
    """Where an error of the project is made, with the texts of its message."""
    for file in sorted((REPOSITORY / "cdc_assets").rglob("*.py")):
        # pydantic turns a ValueError of the models into a fault.
        names = (*RAISED, *(["ValueError"] if file.parent.name == "config" else []))
        for node in ast.walk(ast.parse(read(file))):
            if isinstance(node, ast.Call) and getattr(node.func, "id", "") in names:
                texts = [_text(n) for n in ast.walk(node) if isinstance(n, ast.expr)]
                if said := [text for text in texts if len(text) > 15]:
                    yield f"{file.relative_to(REPOSITORY)}:{node.lineno}", said


def test_each_error_is_in_the_troubleshooting() -> None:
    patterns = [pattern_of(message) for message in messages()]
    missing = [
        (place, max(texts, key=len))
        for place, texts in raised()
        if not any(pattern.search(text) for pattern in patterns for text in texts)
    ]
    assert missing == []


def test_the_reasons_are_those_of_the_code() -> None:
    rows = rows_under(read(DOCS / "troubleshooting.md"), "reason", "the record", "what to do")
    assert rows == [[f"`{r.code}`", r.record, r.remedy] for r in REASONS.values()]


def all_checks() -> dict[str, str]:
    of_code = (*checks.DAY_CHECKS, MATCHES_SOURCE)
    return {c.name: "error" if c.severity == Severity.ERROR else "warning" for c in of_code}


def test_the_checks_are_those_of_the_code() -> None:
    rows = rows_under(read(DOCS / "troubleshooting.md"), "check", "on", "severity")
    assert {row[0].strip("`"): row[2] for row in rows} == all_checks()


@pytest.mark.parametrize("severity", ["error", "warning"])
def test_operations_lists_the_checks_by_severity(severity: str) -> None:
    listed = re.search(
        rf"^- \*\*{severity.title()}s\*\*:(.*?)\.$",
        read(DOCS / "operations.md"),
        re.MULTILINE | re.DOTALL,
    )
    assert listed is not None
    names = set(re.findall(r"`(\w+)`", listed[1]))
    assert names == {name for name, of in all_checks().items() if of == severity}


# --- the lake


@pytest.mark.parametrize("table", ["LANDING", "QUARANTINE", "CHANGES", "CONTROL", "LAG", "SCHEMAS"])
def test_the_columns_of_the_lake_are_documented(table: str) -> None:
    text = without_code(read(DOCS / "lake.md"))
    words = set(re.findall(r"\w+", " ".join(re.findall(r"(?<!`)`[^`]+`(?!`)", text))))
    assert set(getattr(schemas, table).names) <= words


def test_the_shown_query_reads_the_lake_without_spark(
    lake_of: Callable[[Mapping[str, Any]], Any], name: str, tmp_path: Path, capsys: Any
) -> None:
    from cdc_assets_tests import events as ev
    from cdc_assets_tests.lakes import run_all, write_source

    log = ev.PgLog()
    log.create(id=1, status="active")
    log.create(id=2, status="blocked")
    log.next_day()
    log.delete(id=1)
    source = write_source(tmp_path, log.landed, tables={"public.customers": {"key": ["id"]}})
    lake = lake_of({name: source})
    run_all(lake, name, [ev.DAY, ev.DAY + timedelta(days=1)], lag=True)

    (code,) = [block for block in blocks(read(DOCS / "lake.md"), "python") if "duckdb" in block]
    for shown, own in (
        ("/absolute/path/to/data/warehouse", lake.config.lake.warehouse),
        ("inventory.public.customers", f"{name}.public.customers"),
        ("2026-11-03", str(ev.DAY)),
    ):
        assert shown in code
        code = code.replace(shown, own)
    exec(compile(code, "docs/lake.md", "exec"), {})
    printed = capsys.readouterr().out
    assert "active" in printed
    assert "blocked" in printed
