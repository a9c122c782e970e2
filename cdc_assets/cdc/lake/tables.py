"""The tables of the lake: their names, places and kinds."""

from __future__ import annotations

import difflib
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from datetime import date

from cdc_assets.cdc.config import Config
from cdc_assets.cdc.errors import UnknownTableError
from cdc_assets.cdc.lake.commits import DayCommits, TableState
from cdc_assets.cdc.names import FEED as FEED_END
from cdc_assets.cdc.names import HISTORY as HISTORY_END
from cdc_assets.cdc.names import TableName, derived_name, with_database
from cdc_assets.cdc.places import CATALOG, OWN_ASSETS, earlier_place, own_place, state_place

# When a version of a history began and ended.
VALID_FROM, VALID_TO = "_cdc_valid_from", "_cdc_valid_to"
# The day of a change in a feed, and its number among those of its key on the day.
CHANGED_ON, NUMBER = "_cdc_landing_date", "_cdc_sequence"


@dataclass(frozen=True)
class TableKind:
    """What differs between the kinds of tables.

    Attributes:
        days: the days in a table's metadata, oldest first.
        sql_clause: SQL behind a table's name that selects the rows of a `{day}`.
        row_filter: the same as PyIceberg's row filter; None where a day is a tag.
        sorted_by: the sort columns of its rows; None: the table's key.
        in_words: text behind a table's name for its rows of a `{day}`.
        is_own: whether it is one of a source's own tables, always named with the source.
        has_messages: whether a row has a message's key, value and headers.
        behind_key: the sort columns of its rows behind the key.
        is_history: whether its rows are the versions of another table's.
        has_each_day: whether any day can be read, even one that was not made.
    """

    days: Callable[[TableState], list[date]]
    sql_clause: str
    row_filter: str | None = None
    sorted_by: tuple[str, ...] | None = None
    in_words: str = ""
    is_own: bool = True
    has_messages: bool = False
    behind_key: tuple[str, ...] = ()
    is_history: bool = False
    has_each_day: bool = False


STATE = TableKind(
    days=lambda state: sorted(state.tags),
    sql_clause="VERSION AS OF '{day}'",
    in_words=" at the end of {day}",
    is_own=False,
)
HISTORY = replace(
    STATE,
    in_words=" up to the end of {day}",
    behind_key=(VALID_FROM, VALID_TO),
    is_history=True,
)
FEED = replace(STATE, in_words=" up to the end of {day}", behind_key=(CHANGED_ON, NUMBER))
_DERIVED = {HISTORY_END: HISTORY, FEED_END: FEED}
STAGE = TableKind(
    days=lambda state: sorted(DayCommits.recorded_in(state)),
    sql_clause="WHERE landing_date = DATE '{day}'",
    row_filter="landing_date = '{day}'",
    sorted_by=(
        "landing_date", "first_landed", "table_name", "topic", "partition", "offset", "kind", "hour"
    ),
)  # fmt: skip
MESSAGES = replace(STAGE, has_messages=True)
# The table `schemas` has no days: a day reads the schemas known by then.
SCHEMAS = replace(
    STAGE,
    sql_clause="WHERE first_landed <= DATE '{day}'",
    row_filter="first_landed <= '{day}'",
    has_each_day=True,
)
_OWN_KINDS = {
    **dict.fromkeys(OWN_ASSETS, STAGE),
    "landing": MESSAGES,
    "quarantine": MESSAGES,
    "schemas": SCHEMAS,
}


def kind_of(table: str) -> TableKind:
    """The kind of a table: one of a source's own (`changes`), or ``namespace.table``."""
    return _OWN_KINDS.get(table, STATE)


@dataclass(frozen=True)
class LakeTable:
    """A table of the lake: a source's own (`changes`) or a state table (`public.customers`).

    `of` is the configured table, of a derived one that which it is derived from; of a source's own
    table its name.
    """

    source: str
    name: str
    parts: tuple[str, ...]
    kind: TableKind
    earlier: tuple[str, ...] = ()  # where an earlier version made it, if elsewhere
    of: str = ""

    def __str__(self) -> str:
        return f"{self.source}.{self.name}"


def own_table(source: str, name: str) -> LakeTable:
    """One of a source's own tables: landing, changes, control, quarantine, lag, schemas."""
    return LakeTable(source, name, own_place(source, name), kind_of(name), of=name)


def state_table(config: Config, source: str, name: str) -> LakeTable:
    """The state table ``namespace.table``, configured or not."""
    table, flat = TableName.parse(name), config.lake.is_flat
    parts, earlier = state_place(source, table, flat), earlier_place(source, table, flat)
    return LakeTable(source, name, parts, STATE, earlier if earlier != parts else (), name)


def derived_table(config: Config, source: str, of: str, kind: str) -> LakeTable:
    """The history or the feed of a table."""
    table = state_table(config, source, str(derived_name(of, kind)))
    return replace(table, kind=_DERIVED[kind], of=of)


def derived_tables(config: Config, source: str) -> list[LakeTable]:
    """The histories and feeds of a source, as configured."""
    return [derived_table(config, source, *derived) for derived in config.source(source).derived]


def state_tables(config: Config, source: str) -> list[LakeTable]:
    """The state tables of a source, as configured."""
    return [state_table(config, source, name) for name in config.source(source).tables]


def known_tables(config: Config) -> list[LakeTable]:
    """All tables that the configuration names, each source's own ones last."""
    found = []
    for source in config.sources:
        found += [*state_tables(config, source), *derived_tables(config, source)]
        found += [own_table(source, name) for name in OWN_ASSETS]
    return found


def find_table(config: Config, text: str, source: str | None = None) -> LakeTable:
    """The table that a user means.

    `inventory.public.customers`; `public.customers` or `customers` if one source has it;
    `inventory.changes` for a source's own table; names of three parts as in cdc.yaml. Quotes around
    a part with a dot are optional if the name stays unambiguous.

    Raises:
        UnknownTableError: no table has that name, or several have.
    """
    known = [t for t in known_tables(config) if source is None or t.source == source]
    for spelled in (_exactly, _without_quotes):
        written = {spelled(text), spelled(with_database(text) or text)}
        for names in (_full_names, _own_names, _last_parts):
            found = [t for t in known if written & {spelled(n) for n in names(t)}]
            if len(found) == 1:
                return found[0]
            if found:
                listed = ", ".join(str(t) for t in found)
                raise UnknownTableError(text, f"it may be one of {listed}; write which")
    sources = list(config.sources) if source is None else [source]
    raise UnknownTableError(text, _suggestion(text, known) + config.hint_of_pattern(text, sources))


def _exactly(text: str) -> str:
    return text


def _without_quotes(text: str) -> str:
    return text.replace('"', "")


def _full_names(table: LakeTable) -> list[str]:
    return [str(table), f"{CATALOG}.{table}"]


def _own_names(table: LakeTable) -> list[str]:
    return [] if table.kind.is_own else [table.name]


def _last_parts(table: LakeTable) -> list[str]:
    return [table.name if table.kind.is_own else TableName.parse(table.name).table]


def _suggestion(text: str, known: Sequence[LakeTable]) -> str:
    spellings = {n: str(t) for t in known for n in (*_full_names(t), *_last_parts(t), t.name)}
    close = [spellings[n] for n in difflib.get_close_matches(text, spellings, n=3, cutoff=0.7)]
    hint = f"did you mean {' or '.join(dict.fromkeys(close))}? " if close else ""
    states = ", ".join(str(t) for t in known if not t.kind.is_own)
    return f"{hint}There are {states}, and of each source {', '.join(OWN_ASSETS)}"
