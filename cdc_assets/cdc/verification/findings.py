"""What `verify` found out, and the check `matches_source` of a table."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field
from datetime import datetime, timezone
from typing import Any

from cdc_assets.cdc import markdown
from cdc_assets.cdc.findings import Check, Finding

MATCHES_SOURCE = Check(
    "matches_source",
    "The table has the rows that its database has in one snapshot (cdc-assets verify).",
)


@dataclass(frozen=True)
class Verification:
    """What the comparison of a table with its source came to.

    Attributes:
        table: `<source>.<table>`.
        day: the day of the lake's table.
        against: the database, without a password.
        lsn: the place in the WAL that the lake had to reach.
        taken_ms: when the snapshot was taken (ms UTC).
        equal, differs, only_in_source, only_in_lake, doubled: rows.
        not_comparable: rows of keys that changed meanwhile, whose values nothing says exactly, and
            rows with a value that the lake's column can't hold.
        moved: keys whose rows were told by their events.
        compared: which rows were compared: `all`, a sample, those of a condition.
        columns: by column how many of the rows looked at differ in it.
        left_out: columns that were not compared, each with the reason.
        examples: of rows that are not equal: `what`, `key`, and `columns`, each with both values.
    """

    table: str
    day: str
    against: str
    lsn: int
    taken_ms: int
    equal: int = 0
    differs: int = 0
    only_in_source: int = 0
    only_in_lake: int = 0
    doubled: int = 0
    not_comparable: int = 0
    moved: int = 0
    compared: str = "all"
    columns: Mapping[str, int] = field(default_factory=dict)
    left_out: Mapping[str, str] = field(default_factory=dict)
    examples: Sequence[Mapping[str, Any]] = ()
    seconds: float = 0.0

    @property
    def is_equal(self) -> bool:
        """No row differs, is missing, or is there twice."""
        return not (self.differs or self.only_in_source or self.only_in_lake or self.doubled)

    def as_row(self) -> dict[str, Any]:
        """Its attributes by name."""
        return {**asdict(self), "is_equal": self.is_equal}

    @property
    def summary(self) -> str:
        """It as a sentence, without values of rows."""
        counts = (
            (self.equal, "equal"),
            (self.differs, "differ"),
            (self.only_in_source, "only in the source"),
            (self.only_in_lake, "only in the lake"),
            (self.doubled, "doubled in the lake"),
            (self.not_comparable, "not comparable"),
        )
        listed = ", ".join(f"{count} {what}" for count, what in counts if count or what == "equal")
        rows = "" if self.compared == "all" else f" ({self.compared})"
        return (
            f"{self.table} of {self.day}{rows} against {self.against} at {place(self.lsn)}: "
            f"{listed}; {self.moved} keys as their events of this moment say"
        )

    @property
    def finding(self) -> Finding:
        """It as the finding of :data:`MATCHES_SOURCE`."""
        counts = ("equal", "differs", "only_in_source", "only_in_lake", "doubled", "not_comparable")
        values: dict[str, Any] = {
            "position": place(self.lsn),
            "taken": datetime.fromtimestamp(self.taken_ms / 1000, timezone.utc),
            "day": self.day,
            "rows": self.compared,
            **{name: getattr(self, name) for name in counts},
        }
        for name in ("columns", "left_out"):
            if getattr(self, name):
                values[name] = dict(getattr(self, name))
        if self.examples:
            values["examples"] = markdown.bullets([_line(example) for example in self.examples])
        return Finding(MATCHES_SOURCE.name, self.is_equal, values, description=self.summary)


def place(lsn: int) -> str:
    """A place in the WAL as PostgreSQL writes it."""
    return f"{lsn >> 32:X}/{lsn & 0xFFFFFFFF:X}"


def _line(example: Mapping[str, Any]) -> str:
    key = "a key that is not shown" if example["key"] is None else str(example["key"])
    pairs = (
        f"{name} {'not shown' if pair is None else f'{pair[0]!r} in the source, {pair[1]!r} here'}"
        for name, pair in example["columns"].items()
    )
    return f"{example['what']}: {key}" + "".join(f"; {pair}" for pair in pairs)
