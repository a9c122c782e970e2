"""Keys whose events need more than their positions to be ordered (FORMATS O8, O15, O16).

An entry is the effect of an event on a key: it writes a row there or removes it, and an update that
changes the key does both, each at its own key. Most days have no such key: the highest position of
each key decides, and no other day's events are read.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date

from pyspark.sql import DataFrame, Row

from cdc_assets.cdc.positions import (
    COMMIT_LSN,
    HALF,
    SOURCE_TIME,
    TAIL,
    is_kafka_placed,
    is_late_checked,
)
from cdc_assets.cdc.sqltext import Query, Sql, case, is_one_of, literal

# What a copy repeats beside its identity (O15).
CONTENT = "xxhash64(op, before, after, old_key, new_key)"
# What is counted of the entries of a key.
TIED, SCATTERED, CROSSED = "tied", "scattered", "crossed"
# An update whose images have different keys removes the old row itself (D10). Otherwise a header
# says the old key, and a delete before it removes the row (D9).
LEAVES_KEY = "(op = 'u' AND before IS NOT NULL AND old_key IS NOT NULL)"
SAYS_OLD_KEY = (
    "(op IN ('c', 'u') AND old_key IS NOT NULL AND NOT (op = 'u' AND before IS NOT NULL))"
)
SAYS_NEW_KEY = "(op = 'd' AND new_key IS NOT NULL)"


def transaction() -> Sql:
    """The transaction of an event in which keys may be held twice (O16); null for all others."""
    commit = "array_join(slice(position, size(position) - 5, 3), ':')"
    is_commit = f"position_basis = '{','.join([COMMIT_LSN, *TAIL])}'"
    in_one = case((is_commit, commit), otherwise="tx_id")
    return case((is_late_checked("position_basis", "connector"), in_one))


def compared_elements() -> Sql:
    """The ordering elements, in which tied events are equal (O15), without a Kafka timestamp."""
    own = case((is_kafka_placed("position_basis"), "1"), otherwise="0")
    return f"slice(position, 1, greatest(size(position) - {len(TAIL)} - {own}, 0))"


def may_be_copied() -> Sql:
    """True for an event with an identity or position by which another can be its copy (O15)."""
    says_nothing = (
        f"startswith(position_basis, '{SOURCE_TIME},') AND element_at(position, "
        f"CASE WHEN position_basis LIKE '%,{HALF},%' THEN -5 ELSE -4 END) <= 0"
    )
    is_known = f"NOT {is_kafka_placed('position_basis')} AND NOT ({says_nothing})"
    return f"(identity IS NOT NULL OR ({is_known}))"


def entries(events: Query, group: Sequence[Sql], key: Sql, old_key: Sql) -> Query:
    """The entries of events that have a position.

    Args:
        events: has the columns of `CHANGES`.
        group: what tells tables and days apart.
        key: the event's key.
        old_key: the key that it left (D10).

    Returns:
        `group`, and as hashes `key_hash`, `elements`, `identified` (elements and identity), `tx`,
        `lane` (topic and partition), `row` and `row_before`; `arrives`, `departs`, `updates`,
        `says` (a header says that a row left, which its delete should, too: D9), `offset`.
    """
    # The first half of a split update and a truncate have no key of their own.
    is_entry = (
        "position IS NOT NULL AND (op = 'd' OR (op IN ('c', 'u') AND after IS NOT NULL)) "
        f"AND {key} IS NOT NULL"
    )
    opened = events.where(is_entry).extend(
        {
            "compared": compared_elements(),
            "can_copy": may_be_copied(),
            "at": _entries_by_key(key, old_key),
            "in_tx": transaction(),
        }
    )
    one_event = "xxhash64(topic, partition, offset, position)"
    identified = case(("can_copy", "xxhash64(compared, identity)"), otherwise=one_event)
    exploded = opened.select(
        *(*group, "op", "compared", "in_tx", "position_basis"),
        "inline(at)",
        "xxhash64(topic, partition) AS lane",
        "offset",
        f"{identified} AS identified",
        "position",
        "xxhash64(after) AS row",
        "CASE WHEN before IS NOT NULL THEN xxhash64(before) END AS row_before",
    )
    elements = case(
        (is_kafka_placed("position_basis"), "xxhash64(element_at(position, -4))"),
        otherwise="xxhash64(compared)",
    )
    return exploded.select(
        *group,
        "hash AS key_hash",
        f"{elements} AS elements",
        "identified",
        "CASE WHEN in_tx IS NOT NULL THEN xxhash64(in_tx) END AS tx",
        *("lane", "offset", "row", "row_before", "arrives", "departs", "says"),
        "op = 'u' AND NOT arrives AND NOT departs AND NOT says AS updates",
    )


def _entries_by_key(key: Sql, old_key: Sql) -> Sql:
    """An event's entries: an array of structs `hash, arrives, departs, says`, one a key."""

    def entry(at: Sql, arrives: Sql, departs: Sql, says: Sql) -> Sql:
        return (
            f"struct(xxhash64({at}) AS hash, {arrives} AS arrives, {departs} AS departs, "
            f"{says} AS says)"
        )

    is_other = f"{old_key} IS NOT NULL AND NOT ({old_key} <=> {key})"
    arrives = f"op = 'c' OR (op = 'u' AND {is_other})"
    own = entry(key, arrives, "op = 'd'", "false")
    left, said = (entry(old_key, "false", *at) for at in (("true", "false"), ("false", "true")))
    return case(
        (f"{LEAVES_KEY} AND {is_other}", f"array({own}, {left})"),
        (f"{SAYS_OLD_KEY} AND {is_other}", f"array({own}, {said})"),
        otherwise=f"array({own})",
    )


# Consecutive updates have the previous row as `before`: every row but the last appears twice. Where
# another one is left over, an update changed another row that held the key.
_LEFT_OVER = (
    "bit_xor(CASE WHEN arrives OR updates THEN row END) ^ "
    "coalesce(bit_xor(CASE WHEN updates THEN row_before END), 0L)"
)
# One row leaves before another arrives: the key is never held twice.
_LEFT_FIRST = (
    "coalesce(count_if(arrives) = 1 AND count_if(departs) = 1 AND min(lane) = max(lane) "
    "AND max(CASE WHEN departs THEN offset END) < min(CASE WHEN arrives THEN offset END), "
    "false)"
)
# Aggregates of a key's entries in one transaction.
_TRANSACTION_COUNTS = {
    "in_transaction": "count(tx)",
    "arrived": "count_if(arrives)",
    "departed": "count_if(departs)",
    "said": "count_if(says)",
    "compared": "count_if(updates AND row_before IS NOT NULL)",
    "left_over": _LEFT_OVER,
    "newest": "max_by(row, offset)",
    "left_first": _LEFT_FIRST,
}
_IS_CROSSED = (
    "coalesce(in_transaction > 0 AND arrived > 0 AND ((departed > 0 AND NOT left_first) "
    "OR said > departed OR (compared > 0 AND left_over <> newest)), false)"
)


def keys_to_fold(found: Query, group: Sequence[str]) -> Query:
    """Keys whose highest position may not decide.

    Args:
        found: :func:`entries`.
        group: the names of what tells tables and days apart.

    Returns:
        `group`, `key_hash`, and true or false: `tied`, two entries that nothing of the source tells
        apart; `scattered`, entries of equal elements in several partitions; `crossed`, rows arrive
        and leave within one transaction.
    """
    own_lane = case(("NOT says", "lane"))
    counted = {
        "own": "count_if(NOT says)",
        "is_scattered": f"coalesce(min({own_lane}) < max({own_lane}), false)",
        **_TRANSACTION_COUNTS,
    }
    groups = ("identified", "elements", "tx")
    known = found.aggregate_sets([*group, "key_hash"], groups, counted).select(
        *group,
        "key_hash",
        f"nth = 0 AND own > 1 AS {TIED}",
        f"nth = 1 AND is_scattered AS {SCATTERED}",
        f"nth = 2 AND {_IS_CROSSED} AS {CROSSED}",
    )
    return known.where(f"{TIED} OR {SCATTERED} OR {CROSSED}")


def placed_by_files(events: Query, group: Sequence[str]) -> Query:
    """What the place of records decides where offsets are only counted from where files begin.

    Args:
        events: has the columns of `CHANGES`.
        group: the names of what tells tables and days apart.

    Returns:
        `group`, and for each that has any: `placed_ties`, keys with several events of equal
        elements that are not copies of one another (O4); `placed_reads`, snapshot reads of keys
        that have other events (O6).
    """
    is_read = "op = 'r' AND position IS NULL"
    events = events.where("key IS NOT NULL AND op <> 't'").extend(
        {
            "read": is_read,
            "elements": case(("position IS NOT NULL", f"xxhash64({compared_elements()})")),
            "content": f"xxhash64(identity, {CONTENT})",
        }
    )
    by_elements = events.aggregate(
        (*group, "key", "elements"),
        {
            "events": "count(*)",
            "reads": "count_if(read)",
            "is_tie": "elements IS NOT NULL AND min(content) < max(content)",
        },
    )
    by_key = by_elements.aggregate(
        (*group, "key"),
        {
            "placed_reads": "CASE WHEN sum(events) > 1 THEN sum(reads) ELSE 0L END",
            "is_placed": "bool_or(is_tie)",
        },
    )
    return by_key.aggregate(
        group, {"placed_ties": "count_if(is_placed)", "placed_reads": "sum(placed_reads)"}
    ).where("placed_ties > 0 OR placed_reads > 0")


def crossed_keys(found: Query) -> DataFrame:
    """`key_hash` of keys at which rows arrive and leave within one transaction.

    Args:
        found: :func:`entries` of one table.
    """
    by_tx = found.where("tx IS NOT NULL").aggregate(("key_hash", "tx"), _TRANSACTION_COUNTS)
    return by_tx.where(_IS_CROSSED).select("key_hash").plan()


@dataclass(frozen=True)
class Scattered:
    """Keys of a table whose tied events are in several partitions: their order is unknown.

    `example` is None where the source shows no values. `by_kafka`: Kafka's timestamp replaces their
    elements, and they tie by chance.
    """

    table: str
    keys: int
    example: str | None
    lanes: str
    by_kafka: bool


def scattered_keys(
    changes: DataFrame, days: Mapping[date, Iterable[str]], shows_values: bool = True
) -> dict[date, list[Scattered]]:
    """The scattered keys of some days, by table (FORMATS O8); a job where there is a table.

    Args:
        changes: rows of `changes`.
        days: the tables of each day that may have such keys.
        shows_values: whether a key may be shown.
    """
    chosen = " OR ".join(
        f"(landing_date = {literal(day)} AND {is_one_of('table_name', tables)})"
        for day, tables in days.items()
    )
    if not chosen:
        return {}
    listed: dict[date, list[Scattered]] = {}
    for row in _scattered_rows(changes.where(chosen), shows_values):
        lanes = ", ".join(f"{lane.topic} [{lane.partition}]" for lane in row.example.lanes)
        scattered = Scattered(row.table_name, row["keys"], row.example.key, lanes, row.by_kafka)
        listed.setdefault(row.landing_date, []).append(scattered)
    return listed


def _scattered_rows(changes: DataFrame, shows_values: bool) -> list[Row]:
    """Rows of `landing_date, table_name, by_kafka, keys`, and an `example` (key and lanes)."""
    by_kafka = is_kafka_placed("position_basis")
    elements = f"slice(position, 1, size(position) - {len(TAIL)})"
    shown = "key" if shows_values else "CAST(NULL AS string) AS key"
    first_lane = "min_by(struct(topic, partition), struct(landing_date, offset))"
    tie = ("landing_date", "table_name", "key", "tied", "by_kafka")
    return (
        Query(changes)
        .where("position IS NOT NULL AND key IS NOT NULL AND op <> 't'")
        .extend(
            {
                "by_kafka": by_kafka,
                "tied": case((by_kafka, "slice(position, 1, 1)"), otherwise=elements),
                "content": CONTENT,
            }
        )
        # A copy takes the place of the event that it repeats (O15).
        .aggregate((*tie, "identity", "content"), {"lane": first_lane})
        .aggregate(tie, {"lanes": "sort_array(collect_set(lane))"})
        .where("size(lanes) > 1")
        .aggregate(
            ("landing_date", "table_name", "by_kafka"),
            {"keys": "count(DISTINCT key)", "example": f"min_by(struct({shown}, lanes), key)"},
        )
        .plan()
        .orderBy("landing_date", "table_name")
        .collect()
    )
