"""Figures of days → one HTML page that needs no network: style, script and plotly.js are inline.

The browser draws the charts from the JSON of :func:`page_data`. Texts from data are escaped by
Jinja, by `textContent`, or by the script for Plotly, which interprets some tags.
"""

from __future__ import annotations

import base64
import hashlib
import json
import os
import tempfile
from collections import Counter
from collections.abc import Mapping
from datetime import datetime
from pathlib import Path
from typing import Any

from jinja2 import Environment, FileSystemLoader, StrictUndefined
from markupsafe import Markup

from cdc_assets.cdc.errors import CdcError, ConfigError, first_line
from cdc_assets.cdc.lag.charts import duration
from cdc_assets.cdc.names import printable
from cdc_assets.cli.report.charts import panels, some
from cdc_assets.cli.report.data import Figures
from cdc_assets.cli.report.tables import check_tables, lag_table

# In the page's first lines: only a report may be overwritten.
GENERATOR = "cdc-assets report"

_FILES = Path(__file__).parent


def check_out(out: Path) -> None:
    """Check that a page may be written: over an older report, but over nothing else.

    Raises:
        ConfigError: the folder is missing, or the file exists and is no report.
    """
    if not out.absolute().parent.is_dir():
        raise ConfigError(
            [f"--out {out}: the folder {out.absolute().parent} does not exist; create it"]
        )
    if out.exists():
        with out.open("rb") as file:
            is_report = f'content="{GENERATOR} '.encode() in file.read(1_000)
        if not is_report:
            raise ConfigError(
                [f"--out {out}: it exists and is not a report of cdc-assets; name another file"]
            )


def write(figures: Figures, out: Path) -> int:
    """Write the page, whole or not at all; returns its size in bytes.

    Raises:
        CdcError: the file can't be written.
    """
    content = page(figures).encode()
    try:
        with tempfile.NamedTemporaryFile(dir=out.absolute().parent, delete=False) as file:
            unfinished = Path(file.name)
            try:
                file.write(content)
                file.close()
                # The usual rights of this user's files; a temporary file is private.
                unfinished.chmod(0o666 & ~_umask())
                unfinished.replace(out)
            except BaseException:
                unfinished.unlink(missing_ok=True)
                raise
    except OSError as error:
        raise CdcError(
            f"{out} can't be written: {first_line(error)}. See that the disk has room and that "
            "this user may write there, or name another --out"
        ) from error
    return len(content)


def _umask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask


def page(figures: Figures) -> str:
    """The page as HTML."""
    from plotly.offline import get_plotlyjs

    environment = Environment(
        loader=FileSystemLoader(_FILES),
        autoescape=True,
        undefined=StrictUndefined,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters["shown"] = printable
    scripts = [get_plotlyjs(), (_FILES / "report.js").read_text("utf-8")]
    data = page_data(figures)
    return environment.get_template("report.html.jinja").render(
        generator=GENERATOR,
        figures=figures,
        made_at=_instant(figures.made_at),
        headline=headline(figures),
        panels=data["panels"],
        checks=_checks_summary(figures),
        style=Markup((_FILES / "report.css").read_text("utf-8")),
        data=Markup(_json_in_html(data)),
        scripts=[Markup(script) for script in scripts],
        hashes=" ".join(f"'sha256-{_sha256(script)}'" for script in scripts),
    )


def _sha256(script: str) -> str:
    return base64.b64encode(hashlib.sha256(script.encode()).digest()).decode()


def _json_in_html(data: Any) -> str:
    """JSON that can't end a script element."""
    text = json.dumps(data, ensure_ascii=True, separators=(",", ":"))
    return text.replace("<", "\\u003c").replace(">", "\\u003e").replace("&", "\\u0026")


def _instant(moment: datetime) -> str:
    return f"{moment:%Y-%m-%d %H:%M} UTC"


# --- the top of the page


def headline(figures: Figures) -> list[dict[str, Any]]:
    """The figures at the top: `label, value` and `state` (ok, warn, error or empty)."""
    tables = {c.table for c in figures.changes} | {size.table for size in figures.sizes}
    quarantined = sum(count.records for count in figures.quarantine)
    capture = [r for r in figures.lag_days if r["kind"] == "capture" and r["p95_ms"] is not None]
    worst = max(capture, key=lambda row: row["p95_ms"], default=None)
    failing = Counter(v.severity for v in figures.verdicts if not v.passed)
    return [
        {"label": "tables", "value": f"{len(tables):,}", "state": ""},
        {"label": "changes", "value": f"{sum(c.records for c in figures.changes):,}", "state": ""},
        {
            "label": "records in quarantine",
            "value": f"{quarantined:,}",
            "state": "warn" if quarantined else "ok",
        },
        {
            "label": "worst p95 capture lag of a table's day",
            "value": "none measured" if worst is None else duration(worst["p95_ms"]),
            "detail": ""
            if worst is None
            else f"{worst['p95_ms']:,} ms: {worst['table']}, {worst['landing_date']}",
            "state": "warn" if worst is not None and figures.is_over_slo(worst) else "",
        },
        _failing(figures, failing),
    ]


def _failing(figures: Figures, failing: Mapping[str, int]) -> dict[str, Any]:
    label = "failing verdicts of checks"
    if figures.no_records:
        return {"label": label, "value": "not known", "state": ""}
    errors, warnings = failing.get("ERROR", 0), failing.get("WARN", 0)
    return {
        "label": label,
        "value": f"{errors + warnings:,}",
        "detail": f"{some(errors, 'error')}, {some(warnings, 'warning')}",
        "state": "error" if errors else "warn" if warnings else "ok",
    }


def _checks_summary(figures: Figures) -> str:
    if figures.no_records:
        return figures.no_records
    failing = [verdict for verdict in figures.verdicts if not verdict.passed]
    newest = f"{len(figures.verdicts):,} newest verdicts (one a check, asset and day)"
    if not failing:
        return f"None of the {newest} fails."
    checks = len({(verdict.asset, verdict.check) for verdict in failing})
    return f"{len(failing):,} of the {newest} fail, of {checks:,} checks."


def page_data(figures: Figures) -> dict[str, Any]:
    """The panels and tables that the script draws; control characters in names are visible.

    A panel is `columns` (labels), `rows` (names), `figures` (`label` and `unit`), and `groups`
    of `cells`: ``[row, [columns], [values of the first figure], …]``, missing values null. A table
    is `columns` (`label` and whether it is a `number`), `rows`, and `asset`: the index of the
    column that the filter reads.
    """
    tables = {"lag-days": lag_table(figures), **check_tables(figures)}
    return {"panels": panels(figures), "tables": tables}
