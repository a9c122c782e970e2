"""The place of each table in the lake: namespace levels and a name, unique per table."""

from __future__ import annotations

from collections.abc import Iterable

from cdc_assets.cdc.names import TableName, derived_name, escape, escape_in_upper_case

CATALOG = "lake"
Place = tuple[str, ...]

OWN_ASSETS = ("landing", "changes", "control", "quarantine", "lag", "schemas", "facts", "epochs")


def own_place(source: str, stage: str) -> Place:
    """One of a source's own tables."""
    return (escape(source), stage)


def state_place(source: str, table: TableName, flat: bool) -> Place:
    """A state table; `flat`: in one namespace level."""
    return _place(flat, *map(escape, (source, table.namespace, table.table)))


def earlier_place(source: str, table: TableName, flat: bool) -> Place:
    """A state table's place in earlier versions, whose escapes were in upper case."""
    return _place(flat, *map(escape_in_upper_case, (source, table.namespace, table.table)))


def _place(flat: bool, source: str, namespace: str, table: str) -> Place:
    return (f"{source}__{namespace}", table) if flat else (source, namespace, table)


class Places:
    """The taken places, and the table at each.

    Args:
        sources: their names.
        flat: whether state tables are in one namespace level.
        folds_case: whether the catalog ignores case.
    """

    def __init__(self, sources: Iterable[str], flat: bool, folds_case: bool) -> None:
        self._flat, self._folds_case = flat, folds_case
        self._taken = {
            self._same(own_place(source, stage)): f"{source}.{stage}"
            for source in sources
            for stage in OWN_ASSETS
        }
        self._own = dict(self._taken)
        self._kinds: dict[Place, str] = {}  # of derived tables

    def fault_of(self, source: str, table: str) -> str | None:
        """Why a table can't have its place, as text behind its name; None if it can."""
        place = state_place(source, TableName.parse(table), self._flat)
        if not self._flat and self._same(place[:-1]) in self._own:
            return (
                "the namespace of this table is the name of one of the source's own tables "
                f"({', '.join(OWN_ASSETS)}); set lake.namespaces: flat"
            )
        other = self._taken.get(self._same(place))
        if other is None or other == f"{source}.{table}":
            return None
        if (kind := self._kinds.get(self._same(place))) is not None:
            taken = f"{other}, its {kind},"
            return f"it and {taken} would be one; set {kind}: false there, or leave one out"
        why = "the catalog does not tell upper and lower case apart"
        cure = "leave one of them out with `false`, or use another catalog"
        if self._flat:
            why = "lake.namespaces is flat"
            cure = "set lake.namespaces: nested, or give a source another name"
        return f"it and {other} would be one table of the lake, {'.'.join(place)}: {why}; {cure}"

    def take(self, source: str, table: str) -> None:
        """Give a table its place."""
        place = state_place(source, TableName.parse(table), self._flat)
        self._taken.setdefault(self._same(place), f"{source}.{table}")

    def take_derived(self, source: str, table: str, kind: str) -> None:
        """Give a table's history or feed its place, which none of the source's tables may have."""
        name, derived = TableName.parse(table), derived_name(table, kind)
        # The second is another place, but Dagster joins both names by the same two underscores.
        for taken in (derived, TableName(f"{name.namespace}__{name.table}", kind)):
            place = self._same(state_place(source, taken, self._flat))
            if place not in self._taken:
                self._taken[place], self._kinds[place] = f"{source}.{table}", kind

    def _same(self, place: Place) -> Place:
        return tuple(level.lower() for level in place) if self._folds_case else place
