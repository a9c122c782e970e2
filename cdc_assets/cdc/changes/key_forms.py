"""The keys that fit their table (FORMATS R6), decided by the driver from counts.

A few records whose key has other columns, or a type that the table's key can't hold, must not
stop a day: they are quarantined. If they are more than half of the table's records of the day, the
key has drifted: they stay, and the table's merge refuses them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from cdc_assets.cdc.values.spark_types import evolution


@dataclass(frozen=True)
class KeyForm:
    """The columns of a key with their types, in the order of their names.

    Each column has the types that its values can be read as, the type that was sent first: the
    text "12" is a string, and a bigint where the column is one. No type: nothing is known.
    """

    columns: tuple[tuple[str, tuple[str, ...]], ...]

    @property
    def names(self) -> tuple[str, ...]:
        """The columns' names."""
        return tuple(name for name, _ in self.columns)

    def holds(self, other: KeyForm) -> bool:
        """True where a key of this form holds every key of another."""
        if self.names != other.names:
            return False
        pairs = zip(self.columns, other.columns, strict=True)
        return all(_holds(own, kinds) for (_, own), (_, kinds) in pairs)

    def __str__(self) -> str:
        return ", ".join(" ".join([name, *kinds[:1]]) for name, kinds in self.columns)


def _holds(own: tuple[str, ...], kinds: tuple[str, ...]) -> bool:
    if not own or not kinds:
        return True
    return any(evolution(own[0], kind) is not None for kind in kinds)


def readable_as(kind: str, unquoted: str) -> tuple[str, ...]:
    """The types that a JSON value without a schema can be read as.

    Args:
        kind: the type of the value.
        unquoted: its type where a whole number in quotes counts as one.
    """
    kinds = [kind, unquoted]
    if "bigint" in kinds:
        kinds.append("double")
    return tuple(dict.fromkeys([*kinds, "string"]))


def majority_key_form(counts: Mapping[KeyForm, int], before: KeyForm | None) -> KeyForm | None:
    """The form of a table's keys on a day; None where the records leave it open.

    Args:
        counts: the forms of the day's keys, with how many records have each.
        before: the form of the table's keys so far.
    """
    total = sum(counts.values())

    def held(form: KeyForm) -> int:
        return sum(count for other, count in counts.items() if form.holds(other))

    if before is not None and (total - held(before)) * 2 <= total:
        return before
    if not counts:
        return None
    most = max(counts, key=lambda form: (counts[form], held(form), str(form)))
    return most if held(most) * 2 > total else None
