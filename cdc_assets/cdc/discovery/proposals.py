"""The settings that the evidence in a landing suggests for cdc.yaml.

Each setting has a note with its evidence, and so has each setting that could not be inferred.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from cdc_assets.cdc.changes.reasons import REASONS
from cdc_assets.cdc.config import RESERVED_PREFIX
from cdc_assets.cdc.discovery.evidence import Findings, Member, Table
from cdc_assets.cdc.discovery.looks import hint
from cdc_assets.cdc.envelopes.formats import FORMATS
from cdc_assets.cdc.names import TableName, config_key
from cdc_assets.cdc.places import OWN_ASSETS

# A key in at least this part of the records is the table's; other keys are exceptions.
_MOST = 0.9
# One pattern replaces at least so many tables of a namespace.
_MANY = 20
_TO_DECIDE = "TO DECIDE"


@dataclass
class Proposal:
    """The settings of one table; `notes` are one-line texts.

    `blocked` says why the table can't be written into cdc.yaml; None: it can.
    """

    table: Table
    config: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    blocked: str | None = None
    database: str | None = None  # where the source reads several (D4)

    @property
    def key(self) -> str:
        """The table as cdc.yaml names it."""
        return config_key(self.table.name, self.database)

    @property
    def needs_settings(self) -> bool:
        """True where the defaults do not suffice: settings are proposed, or have to be decided."""
        return bool(self.config) or any(note.startswith(_TO_DECIDE) for note in self.notes)


def propose(found: Findings) -> list[Proposal]:
    """A proposal for each table, by name."""
    own = FORMATS[found.format]
    whole_old_rows = own.whole_old_rows
    proposals = []
    for name in sorted(found.tables):
        proposal = Proposal(found.tables[name])
        if found.has_databases:
            proposal.database = _database_of(proposal.table)
        is_full = not whole_old_rows and _sends_whole_old_rows(proposal.table)
        _key(proposal, own.names_keys, is_full)
        if not whole_old_rows:
            _replica_identity(proposal, is_full)
        if not own.columns_choose:
            _columns(proposal)
        _rename(proposal)
        if TableName.parse(name).namespace in OWN_ASSETS:
            proposal.blocked = (
                "its namespace is the name of one of the source's own tables: set "
                "lake.namespaces: flat, then list it"
            )
        proposals.append(proposal)
    return proposals


def _database_of(table: Table) -> str | None:
    """The database that has the namespace as a schema."""
    namespace = TableName.parse(table.name).namespace
    fitting = [db for db in table.databases if namespace.startswith(f"{db}__")]
    return max(fitting, key=len, default=None)


def by_pattern(proposals: Sequence[Proposal]) -> dict[str, list[Proposal]]:
    """The tables of each namespace that has so many that one pattern replaces them."""
    found: dict[str, list[Proposal]] = {}
    for proposal in proposals:
        if not proposal.blocked:
            namespace = TableName.parse(proposal.table.name).namespace
            found.setdefault(namespace, []).append(proposal)
    return {name: tables for name, tables in found.items() if len(tables) >= _MANY}


def pattern_of(namespace: str, database: str | None = None) -> str:
    """The pattern that adopts all tables of a namespace."""
    return config_key(str(TableName(namespace, "t")), database).removesuffix("t") + "*"


def landing_notes(found: Findings) -> list[str]:
    """Notes on the landing as a whole."""
    tried = ", ".join(f"{t.format} {t.rows}" for t in sorted(found.tried, key=lambda t: -t.rows))
    notes = [
        f"format {found.format}, judged by the row events that each reader finds in a sample: "
        f"{tried}"
    ]
    if found.has_databases:
        notes.append(
            f"several databases ({', '.join(_all_databases(found))}): tables have names of three "
            "parts, and those of all databases are told apart"
        )
    first_halves = sum(table.first_halves for table in found.tables.values())
    counts = [f"{sum(table.records for table in found.tables.values())} changes"]
    if first_halves:
        counts.append(f"{first_halves} first halves of split updates")
    if found.control:
        counts.append(f"{sum(found.control.values())} control ({listed(found.control)})")
    if found.tombstones:
        counts.append(f"{found.tombstones} tombstones")
    notes.append(f"{found.records} records: {', '.join(counts)}, {_bad_count(found)}")
    for code in (code for code in REASONS if code in found.bad):
        bad, reason = found.bad[code], REASONS[code]
        notes.append(
            f"{code} {bad.count}: {reason.record}. Next: {reason.remedy}. Such as {bad.example}"
        )
    shared = _shared_topics(found)
    notes += [
        f"topic {topic} holds {', '.join(names)}: the table of a lone tombstone there is unknown"
        for topic, names in shared.items()
        if found.tombstones
    ]
    return notes


def _all_databases(found: Findings) -> list[str]:
    return sorted({db for table in found.tables.values() for db in table.databases})


def _bad_count(found: Findings) -> str:
    count = sum(bad.count for bad in found.bad.values())
    return f"{count} that can't be read" if count else "all can be read"


def _shared_topics(found: Findings) -> dict[str, list[str]]:
    by_topic: dict[str, list[str]] = {}
    for name in sorted(found.tables):
        for topic in found.tables[name].topics:
            by_topic.setdefault(topic, []).append(name)
    return {topic: names for topic, names in sorted(by_topic.items()) if len(names) > 1}


def listed(counts: Mapping[str, int]) -> str:
    """`c 3, u 1`."""
    return ", ".join(f"{name} {count}" for name, count in counts.items())


def _names(columns: Iterable[str]) -> str:
    return "[" + ", ".join(columns) + "]"


# --- key

_UNKEYED = {
    "none": "no message key",
    "bare": "a bare value as message key",
    "unreadable": "a message key that can't be read",
    "partial": "a message key that holds a null",
}


def _key(proposal: Proposal, names_keys: bool, is_full: bool) -> None:
    table = proposal.table
    unkeyed = sum(table.unkeyed.values())
    ranked = sorted(table.keys.items(), key=lambda pair: (-pair[1], pair[0]))
    if not ranked:
        _no_key(proposal, is_full) if unkeyed else proposal.notes.append(
            "only truncates: no key seen"
        )
        return
    names, count = ranked[0]
    keyed = sum(table.keys.values())
    if count < _MOST * keyed:
        several = ", ".join(f"{_names(n)} {c}" for n, c in ranked)
        _undecided(
            proposal, f"the messages name different keys ({several}): say which it is", names
        )
        return
    says = "the messages name the key" if names_keys else "the message key is"
    said = f"{says} {_names(names)} in {count} of {keyed + unkeyed} records"
    # Formats that name the key do so beside the row: records without a key lack its column.
    is_known = names_keys or set(names) <= set(table.members)
    helps = len(ranked) > 1 or unkeyed > table.unkeyed["partial"]
    if names_keys and len(ranked) == 1:
        helps = False
    if not helps:
        proposal.notes.append(said)
    elif is_known:
        others = [f"{_names(n)} {c}" for n, c in ranked[1:]] + _unkeyed_parts(table)
        _set_key(proposal, names, f"{said}; the others have {', '.join(others)}")
    else:
        missing = _names(n for n in names if n not in table.members)
        _undecided(proposal, f"{said}, but no row has {missing}: say which columns are it", names)


def _unkeyed_parts(table: Table) -> list[str]:
    return [f"{_UNKEYED[state]} ({n})" for state, n in sorted(table.unkeyed.items()) if n]


def _no_key(proposal: Proposal, is_full: bool) -> None:
    """Infer a key that no record names: from bare message keys, or from inserts alone."""
    table = proposal.table
    lacks = " and ".join(_unkeyed_parts(table))
    equal = [
        name
        for name, member in sorted(table.members.items())
        if table.bare_images and member.equal_to_key == table.bare_images
    ]
    if len(equal) == 1 and table.bare_keys > 1:
        says = f"the message keys are bare values, equal to this column in {table.bare_images} rows"
        _set_key(proposal, equal, says)
    elif table.rewrites or table.bare_images:
        hint = f"its bare message keys equal {_names(equal)}; " if equal else ""
        _undecided(
            proposal,
            f"{lacks}, {hint}and {listed(table.ops)}: name the columns that are the key, or all "
            "of these records are quarantined as missing_key or malformed_key",
            equal or ("row" if is_full else ["…"]),
        )
    else:
        proposal.config["key"] = "none"
        proposal.notes.append(f"{lacks}, and only {listed(table.ops)}: rows are appended")


def _set_key(proposal: Proposal, names: Sequence[str], says: str) -> None:
    if any("${" in name for name in names):
        proposal.notes.append(f"{says}; cdc.yaml can't spell a key column that holds ${{")
        return
    proposal.config["key"] = list(names)
    proposal.notes.append(f"key {_names(names)}: {says}")


def _undecided(proposal: Proposal, says: str, names: Sequence[str]) -> None:
    proposal.notes.append(f"{_TO_DECIDE}: {says}")
    proposal.notes.append(f"key: {names if isinstance(names, str) else _names(names)}")


# --- replica identity


def _lacking(table: Table) -> list[str]:
    """Columns with values in new images (of u if there are any), but never in old ones."""
    reference = "u" if any(m.real["u"] for m in table.members.values()) else "c"
    return sorted(n for n, m in table.members.items() if m.real[reference] and not m.real["old"])


def _sends_whole_old_rows(table: Table) -> bool:
    """True for FULL: every u and d has its whole old row, with values not made up (D8)."""
    is_whole = table.olds == table.rewrites and table.whole_names == table.ops["u"]
    return table.olds > 0 and is_whole and not _lacking(table)


def _replica_identity(proposal: Proposal, is_full: bool) -> None:
    table, lacking = proposal.table, _lacking(proposal.table)
    judged = f"{table.olds} before images of {table.rewrites} u and d"
    if is_full:
        proposal.config["replica_identity"] = "full"
        proposal.notes.append(f"replica_identity full: judged by {judged}, all of them whole rows")
    elif (
        table.olds
        and table.olds >= _MOST * table.rewrites
        and len(lacking) < len(table.members) / 2
    ):
        why = f"none has a value in {_names(lacking)}" if lacking else "not all are whole"
        proposal.notes.append(
            f"replica_identity could not be inferred: {judged} were seen, but {why}. Look at the "
            "source (PostgreSQL: SELECT relreplident FROM pg_class)"
        )


# --- columns


def _columns(proposal: Proposal) -> None:
    table = proposal.table
    columns: dict[str, str] = {}
    hints = []
    for name, member in sorted(table.members.items()):
        if not member.without_schema or name in table.schema_columns:
            continue
        kind, hint = _type(member)
        if kind:
            columns[name] = kind
        if hint:
            hints.append(f"{name}: {hint}")
    if columns:
        proposal.config["columns"] = columns
        most = max(table.members[name].without_schema for name in columns)
        proposal.notes.append(f"columns: by the values of up to {most} rows without schema")
    proposal.notes += hints


def _type(member: Member) -> tuple[str | None, str | None]:
    """The type that holds all values of a column without schema, and a note."""
    kinds = Counter({k: n for k, n in member.kinds.items() if k not in ("VOID", "UNCHANGED")})
    if not kinds:
        return None, "no value seen; its type is inferred from the first that lands"
    if set(kinds) == {"BOOLEAN"}:
        return "boolean", None
    if set(kinds) == {"STRING"}:
        return "string", hint(member.looks, kinds["STRING"])
    if all(re.match("BIGINT|DECIMAL|DOUBLE|FLOAT", kind) for kind in kinds):
        return _number(member, kinds)
    shown = listed({_word(kind): 0 for kind in sorted(kinds)}).replace(" 0", "")
    return "string", f"holds {shown}: text keeps them all"


def _word(kind: str) -> str:
    words = {"STRING": "texts", "BOOLEAN": "booleans", "OBJECT": "objects", "ARRAY": "lists"}
    return words.get(kind, "numbers")


def _number(member: Member, kinds: Counter[str]) -> tuple[str, str | None]:
    if set(kinds) == {"BIGINT"}:
        return "bigint", None
    parts = [re.fullmatch(r"DECIMAL\((\d+),(\d+)\)", kind) for kind in kinds]
    digits = [(int(p.group(1)) - int(p.group(2)), int(p.group(2))) for p in parts if p]
    is_decimal = len(digits) == len([k for k in kinds if k != "BIGINT"])
    scale = max((s for _, s in digits), default=0)
    whole = max((w for w, _ in digits), default=0)
    if is_decimal and scale == 0:
        return "decimal(38,0)", "whole numbers beyond 64 bits"
    if not member.inexact:
        return "double", None
    if is_decimal and max(whole, 19 if "BIGINT" in kinds else 0) + scale <= 38:
        return f"decimal(38,{scale})", f"numbers that a double would round; at most {scale} places"
    return "double", f"{member.inexact} numbers are rounded; `string` would keep them"


def _rename(proposal: Proposal) -> None:
    """Rename columns whose names are reserved in the lake's tables."""
    table = proposal.table
    known = {*table.members, *table.schema_columns}
    taken = {n for n in sorted(known) if n.startswith(RESERVED_PREFIX)}
    renamed: dict[str, str] = {}
    for name in sorted(taken):
        to = name.removeprefix(RESERVED_PREFIX) or "column"
        while to in known | set(renamed.values()) or to.startswith(RESERVED_PREFIX):
            to = f"own_{to}"
        renamed[name] = to
    if renamed:
        proposal.config["rename"] = renamed
        proposal.notes.append(f"rename: names that start with {RESERVED_PREFIX} are taken")
