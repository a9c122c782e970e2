"""The `sources:` block that reads a landing, with comments on its evidence."""

from __future__ import annotations

import json
import sys
from collections.abc import Collection, Iterator, Sequence
from datetime import date
from typing import Any

import yaml

from cdc_assets.cdc.discovery.evidence import Findings
from cdc_assets.cdc.discovery.landing_place import Place, undecoded_note
from cdc_assets.cdc.discovery.proposals import (
    Proposal,
    by_pattern,
    landing_notes,
    listed,
    pattern_of,
    propose,
)
from cdc_assets.cdc.landing.files import NO_DAY
from cdc_assets.cdc.names import TableName


def proposed(found: Findings, place: Place) -> dict[str, Any]:
    """The `sources:` block as plain values."""
    proposals = [p for p in propose(found) if not p.blocked]
    namespaces = by_pattern(proposals)
    tables = {
        **{pattern_of(n, own[0].database): {} for n, own in namespaces.items()},
        **{p.key: p.config for p in proposals if _is_listed(p, namespaces)},
    }
    settings = {"format": found.format, "landing": place.landing_block, "tables": tables}
    return {"sources": {place.source: settings}}


def as_yaml(found: Findings, place: Place, bounds: Sequence[str] = ()) -> str:
    """The `sources:` block with comments on its evidence.

    Args:
        found: the findings in the place.
        place: names the source.
        bounds: notes on what was left unread.
    """
    lines = [*_comments(_head(found, place, bounds), ""), "sources:", f"  {_bare(place.source)}:"]
    lines += _dumped({"format": found.format, "landing": place.landing_block}, "    ")
    proposals = propose(found)
    lines.append("    tables:" if any(not p.blocked for p in proposals) else "    tables: {}")
    indent, namespaces = "      ", by_pattern(proposals)
    for namespace, tables in namespaces.items():
        own = sum(_is_listed(p, namespaces) for p in tables)
        lines += _comments([_adopts(tables, own)], indent)
        lines += _dumped({pattern_of(namespace, tables[0].database): {}}, indent)
    for proposal in proposals:
        if not (proposal.blocked or _is_listed(proposal, namespaces)):
            continue
        notes = [_seen(proposal), *proposal.notes, *_against(proposal, place)]
        if proposal.blocked:
            lines += _comments([f"{proposal.table.name}: {proposal.blocked}", *notes], indent)
        else:
            lines += _comments(notes, indent)
            lines += _dumped({proposal.key: proposal.config}, indent)
    if place.settings:
        gone = sorted(set(place.settings.tables) - set(found.tables))
        lines += _comments([f"{n}: in cdc.yaml, but nothing of it landed" for n in gone], indent)
    return "\n".join(lines) + "\n"


def _is_listed(proposal: Proposal, namespaces: Collection[str]) -> bool:
    """True for a table with an own entry: no pattern has its namespace, or it needs settings."""
    is_adopted = TableName.parse(proposal.table.name).namespace in namespaces
    return not is_adopted or proposal.needs_settings


def _adopts(tables: Sequence[Proposal], own: int) -> str:
    records = sum(p.table.records for p in tables)
    says = f"{len(tables)} tables, {records} records: adopts these and each that lands later"
    return f"{says}; {own} with settings of their own follow" if own else says


def as_rows(found: Findings, place: Place) -> Iterator[dict[str, Any]]:
    """One JSON object for each table: its figures, the proposed settings, and notes."""
    for proposal in propose(found):
        table = proposal.table
        yield {
            "source": place.source,
            "format": found.format,
            "landing": place.landing,
            "table": proposal.key,
            "records": table.records,
            "ops": dict(table.ops),
            "first_day": _shown_day(table.first),
            "last_day": _shown_day(table.last),
            "topics": sorted(table.topics),
            "config": proposal.config,
            "blocked": proposal.blocked,
            "notes": [*proposal.notes, *_against(proposal, place)],
        }


def notes(found: Findings, place: Place, bounds: Sequence[str] = ()) -> list[str]:
    """Notes on the landing as a whole, for output other than YAML."""
    return [_one_line(note) for note in _head(found, place, bounds)]


def _head(found: Findings, place: Place, bounds: Sequence[str]) -> list[str]:
    said = [f"{place.source}: {_days(found.first, found.last)} in {place.landing}", *bounds]
    said += landing_notes(found)
    if place.registry is None and (encoded := undecoded_note(found, place)):
        said.append(encoded)
    if place.registry is not None and (place.registry.username or place.registry.token):
        said.append("the login of landing.registry is not printed: keep it")
    if place.settings and place.settings.format != found.format:
        said.append(f"cdc.yaml says format {place.settings.format}")
    if place.settings:
        said.append("other settings of this source in cdc.yaml are not repeated here: keep them")
    elif found.first and found.first != NO_DAY:
        said.append(f"a new cdc.yaml also needs a line such as: start_date: {found.first}")
    return said


def _seen(proposal: Proposal) -> str:
    table = proposal.table
    topics = ", ".join(sorted(table.topics))
    return (
        f"{table.records} records ({listed(table.ops)}), {_days(table.first, table.last)}, "
        f"topic {topics}"
    )


def _against(proposal: Proposal, place: Place) -> list[str]:
    if place.settings is None:
        return []
    name = proposal.table.name
    if name in place.settings.tables:
        return []
    pattern = place.settings.pattern_of(name)
    if pattern is None:
        return ["not in cdc.yaml yet"]
    excluded = place.settings.table_patterns[pattern] is None
    return [f"cdc.yaml {'excludes' if excluded else 'adopts'} it by {pattern}"]


def _days(first: date | None, last: date | None) -> str:
    if first is None or first == NO_DAY:
        return "no landing day"
    return str(first) if first == last else f"{first} to {last}"


def _shown_day(day: date | None) -> str | None:
    return None if day is None or day == NO_DAY else str(day)


# --- YAML


class _Dumper(yaml.SafeDumper):
    """Block style, lists of plain values in one line, odd names escaped in double quotes."""

    def increase_indent(self, flow: bool = False, indentless: bool = False) -> None:
        super().increase_indent(flow, False)


def _represent_text(dumper: yaml.SafeDumper, text: str) -> yaml.Node:
    style = None if text.isprintable() else '"'
    return dumper.represent_scalar("tag:yaml.org,2002:str", text, style=style)


def _represent_list(dumper: yaml.SafeDumper, values: list[Any]) -> yaml.Node:
    return dumper.represent_sequence("tag:yaml.org,2002:seq", values, flow_style=True)


_Dumper.add_representer(str, _represent_text)
_Dumper.add_representer(list, _represent_list)


def _dumped(value: dict[str, Any], indent: str) -> list[str]:
    # No scalar spans lines (odd texts are escaped), so that indenting them is safe.
    text = yaml.dump(
        value, Dumper=_Dumper, sort_keys=False, allow_unicode=True, default_flow_style=False,
        width=sys.maxsize,
    )  # fmt: skip
    return [indent + line for line in text.rstrip("\n").split("\n")]


def _bare(name: str) -> str:
    """A source's name as a YAML key; words such as `on` need quotes."""
    return name if yaml.safe_load(name) == name else f'"{name}"'


def _comments(texts: Sequence[str], indent: str) -> list[str]:
    return [f"{indent}# {_one_line(text)}" for text in texts]


def _one_line(text: str) -> str:
    """Texts from data on one line: what is not printable is shown as an escape."""
    return "".join(c if c.isprintable() else json.dumps(c)[1:-1] for c in text)
