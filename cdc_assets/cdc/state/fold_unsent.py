"""What entries of folded keys did not send: the value of the row that they take over (R2, O16)."""

from __future__ import annotations

from collections.abc import Sequence

from pyspark.sql import DataFrame
from pyspark.sql import functions as F

from cdc_assets.cdc.lake.checkpoints import Checkpoints
from cdc_assets.cdc.sqltext import Query, case, literals
from cdc_assets.cdc.state.entry_queue import ARRIVES, LEAVES, REMOVING, UPDATES
from cdc_assets.cdc.state.unsent_values import UnsentColumns

_ROUNDS = 32  # each looks twice as far back as the one before
_LEFT = ("left_k", "left_to", "left_at", "left_nth", "left_last", "left_taken")


def with_unsent_values(
    entries: DataFrame, unsent: UnsentColumns, checkpoints: Checkpoints
) -> DataFrame:
    """Give what was not sent the value of the row that was taken, or left another key (R2).

    Args:
        entries: a local checkpoint; `taken` is the number of the entry whose row each took.
        checkpoints: keeps each round: a job each.
    """
    known = _with_left_rows(entries, unsent, checkpoints)
    current = _taken_over(checkpoints.add(known), unsent.lasts, checkpoints)
    # Where what is known to have left says nothing, the newest of its own key.
    lacking = f"kind = '{ARRIVES}' AND ({_lack(unsent.lasts)})"
    may_look_further = f"{lacking} AND taken >= 0 AND first_k <> k"
    if not current.where(may_look_further).isEmpty():
        again = Query(current).replace(
            {
                "from_k": case((may_look_further, "k"), otherwise="first_k"),
                "from_n": case((may_look_further, "taken"), otherwise="first_n"),
            }
        )
        current = _taken_over(again.plan(), unsent.lasts, checkpoints)
    return Query(current).drop("from_k", "from_n", "first_k", "first_n").plan()


def _with_left_rows(
    entries: DataFrame, unsent: UnsentColumns, checkpoints: Checkpoints
) -> DataFrame:
    """Add `from_k`, `from_n`: the entry whose row each takes over, and what its old image says."""
    same = "compared"
    moved = Query(entries).extend(
        {
            "leaving": f"row_number() OVER (PARTITION BY k, to_k, {same}, kind ORDER BY n)",
            "arriving": f"row_number() OVER (PARTITION BY k, link, {same}, kind ORDER BY n)",
            "left_count": f"count(*) OVER (PARTITION BY k, to_k, {same}, kind)",
        }
    )
    frame = checkpoints.add(moved.plan())
    held = {c: f"left_{c.old}" for c in unsent.columns}
    leaving = Query(frame).where(f"kind = '{LEAVES}'")
    left = leaving.select(
        "k AS left_k", "to_k AS left_to", f"{same} AS left_at", "leaving AS left_nth",
        "left_count AS left_last", "taken AS left_taken",
        *(f"{c.old} AS {name}" for c, name in held.items()),
    ).plan()  # fmt: skip
    is_it = F.expr(
        f"kind = '{ARRIVES}' AND link = left_k AND k = left_to AND {same} = left_at "
        "AND least(arriving, left_last) = left_nth"
    )
    known = Query(frame.join(left, is_it, "left"))
    linked = (_with_old_rows(known, frame) if unsent.has_links else known).extend(
        {
            # Where no row is known to have left, the newest of its own key.
            "from_k": case(("left_taken >= 0", "left_k"), otherwise="k"),
            "from_n": case(("left_taken >= 0", "left_taken"), otherwise="taken"),
        }
    )
    # An old image says what the row was, that of the row that left or its own.
    said = linked.replace(
        {
            c.last: f"coalesce({c.last}, CASE WHEN kind = '{ARRIVES}' THEN {name} END, "
            f"CASE WHEN kind IN ('{ARRIVES}', '{UPDATES}') THEN {c.old} END)"
            for c, name in held.items()
        }
    )
    gone = (*_LEFT, "leaving", "left_count", "arriving", *held.values())
    return said.extend({"first_k": "from_k", "first_n": "from_n"}).drop(*gone).plan()


def _with_old_rows(entries: Query, frame: DataFrame) -> Query:
    """Where no entry leaves for a key that says which one it had: the row that stood there below.

    A removal ends it, unless it may be that of the key change itself.
    """
    row = case((f"kind IN ({literals(REMOVING)})", "taken"), otherwise="n")
    stood = Query(frame).select(
        "k AS old_k", "pos AS old_pos", f"struct(n, {row} AS row, compared) AS old"
    ).plan()  # fmt: skip
    lone = f"kind = '{ARRIVES}' AND link IS NOT NULL AND left_k IS NULL"
    moved = entries.where(lone).select("k AS new_k", "n AS new_n", "link AS of_k", "pos AS new_pos")
    below = moved.plan().join(stood, F.expr("of_k = old_k AND old_pos < new_pos"))
    newest = Query(below).aggregate(("new_k", "new_n", "old_k"), {"old": "max(old)"}).plan()
    joined = entries.plan().join(newest, F.expr("k = new_k AND n = new_n"), "left")
    is_row = "old.row = old.n OR old.compared <=> compared"
    return Query(joined).replace(
        {
            "left_k": "coalesce(left_k, old_k)",
            "left_taken": case(("old IS NULL", "left_taken"), (is_row, "old.row")),
        }
    ).drop("new_k", "new_n", "old_k", "old")  # fmt: skip


def _lack(lasts: Sequence[str]) -> str:
    return " OR ".join(f"{name} IS NULL" for name in lasts)


def _taken_over(entries: DataFrame, lasts: Sequence[str], checkpoints: Checkpoints) -> DataFrame:
    """Give each entry what it lacks of the entry `from_k`, `from_n`, and of those before it.

    Each round looks twice as far back as the one before.
    """
    current = entries
    is_open = f"kind IN ('{ARRIVES}', '{UPDATES}') AND from_n >= 0 AND ({_lack(lasts)})"
    for _ in range(_ROUNDS):
        if current.where(is_open).isEmpty():
            break
        renamed = ", ".join(f"{name} AS p_{name}" for name in lasts)
        before = Query(current).select(
            "k AS p_k", "n AS p_n", "from_k AS p_from_k", "from_n AS p_from_n", renamed
        )
        joined = current.join(
            before.plan(), F.expr(f"{is_open} AND from_k = p_k AND from_n = p_n"), "left"
        )
        step = Query(joined).replace(
            {
                **{name: f"coalesce({name}, p_{name})" for name in lasts},
                "from_k": "p_from_k",
                "from_n": "coalesce(p_from_n, -1)",
            }
        )
        names = ("p_k", "p_n", "p_from_k", "p_from_n", *(f"p_{name}" for name in lasts))
        current = checkpoints.add(step.drop(*names).plan())
    return current
