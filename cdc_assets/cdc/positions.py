"""The order of events (FORMATS O1–O16): positions, per connector.

A position is an array of BIGINT of one length per basis, compared element by element: the source
elements that order changes, partition, offset, place within the record. DataWorks' positions also
have the half of a split update before the partition. The *basis* names the elements, such as
``lsn,partition,offset,place``; positions of different bases can't be compared, so a table has one
basis per epoch (:func:`on_basis`). The merge puts the epoch in front (:func:`epoch_of`).

An *effective* position belongs to an event without a position (a snapshot read, a lone tombstone):
the highest position that landed before it for its key, followed by
``[-1, day, partition, offset]``, so that it sorts directly after. If nothing landed before it, the
tail alone sorts below every position, as their first element is 0 or more.

Elements that only *identify* a change are not in its position: they tell a redelivered copy from
another change (:func:`identity_of`, O15).
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from datetime import date, datetime

from pyspark.sql import Column
from pyspark.sql import functions as F

from cdc_assets.cdc.json_reader import read
from cdc_assets.cdc.sqltext import Sql, case, is_one_of, literal, literals, whole

_POSITION = "array<bigint>"
_HIGHEST_PLACE = 2**62
_NUMBER_WIDTH, _NUMBER_PARTS = 13, 3
TAIL, HALF = ("partition", "offset", "place"), "half"
_OTHER_BASIS = -2  # below every source element; -1 marks an effective position


@dataclass(frozen=True)
class Elements:
    """The source elements that order an event (O8), as SQL expressions.

    `own` (ARRAY<BIGINT>) has a null for each missing element; `basis` names their members of the
    source; `stand_in` (BIGINT) is the source time, which replaces elements that are all absent or
    0, unless the Kafka timestamp does (`KAFKA_PLACED`).
    """

    own: Sql
    basis: Sql
    stand_in: Sql


SOURCE_TIME, KAFKA_TIME = "ts_ms", "kafka_ts_ms"
LSN, BINLOG, COMMIT_LSN, SCN = "lsn", "file,pos", "commit_lsn", "scn"
COMMIT_TS, ORDINAL = "commit_ts", "ts_ms,ord"
CONNECTORS = {
    LSN: ("postgresql",),
    BINLOG: ("mysql", "mariadb"),
    COMMIT_LSN: ("sqlserver", "db2", "informix"),
    SCN: ("oracle",),
    COMMIT_TS: ("ticdc",),
    ORDINAL: ("mongodb",),
}
# The Kafka timestamp replaces their missing elements: their source time is the statement's start
# (O8).
KAFKA_PLACED = (BINLOG, KAFKA_TIME)
# Their databases check keys at the end of a statement or transaction: two rows may share a key
# until then (O16). Flattened events may lack the connector, but have its elements.
KEYS_CHECKED_LATE = (LSN, COMMIT_LSN, SCN)
# Members of a Debezium event's `source` that order or identify it, beside `ts_ms`.
SOURCE_MEMBERS = (
    "lsn", "sequence", "pos", "row", "gtid", "commit_lsn", "change_lsn", "event_serial_no",
    "commit_scn", "scn", "rs_id", "ssn", "lcr_position", "commit_ts", "ord",
)  # fmt: skip
_IDENTIFYING = {
    BINLOG: ("gtid", "row"),
    COMMIT_LSN: ("change_lsn", "event_serial_no"),
    SCN: ("lcr_position", "rs_id", "ssn", "txId"),
}
NO_ELEMENTS = "CAST(array() AS array<bigint>)"


def debezium_basis(connector: Sql) -> Sql:
    """The members of the source that order a connector's events (O2)."""
    branches = (
        (f"lower({connector}) IN ({literals(names)})", literal(basis))
        for basis, names in CONNECTORS.items()
    )
    return case(*branches, otherwise=literal(SOURCE_TIME))


def basis_of_members(member: Callable[[str], Sql]) -> Sql:
    """:func:`debezium_basis` of events without a connector, by the members they have (O8)."""
    signs = {
        LSN: "lsn",
        BINLOG: "pos",
        COMMIT_LSN: "commit_lsn",
        SCN: "scn",
        COMMIT_TS: "commit_ts",
    }
    branches = ((f"{member(n)} IS NOT NULL", literal(basis)) for basis, n in signs.items())
    return case(*branches, otherwise=literal(SOURCE_TIME))


def debezium_elements(basis: Sql, member: Callable[[str], Sql], file: Sql) -> Elements:
    """The source elements of a Debezium or Lindorm event (O2, O8).

    Args:
        basis: :func:`debezium_basis`.
        member: the text of a member of the event's `source`.
        file: its member `file`; null unless it is a JSON string.
    """

    def number(name: str) -> Sql:
        return whole(member(name))

    file_number = f"regexp_extract({file}, '([0-9]+)$', 1)"
    members = {
        LSN: [number("lsn")],
        BINLOG: [whole(f"nullif({file_number}, '')"), number("pos")],
        COMMIT_LSN: _lsn_parts(member("commit_lsn")),
        SCN: [number("scn")],
        COMMIT_TS: [number("commit_ts")],
        ORDINAL: [number("ts_ms"), number("ord")],
    }
    branches = (
        (f"{basis} = {literal(name)}", f"array({', '.join(parts)})")
        for name, parts in members.items()
    )
    own = case(*branches, otherwise=f"array({number('ts_ms')})")
    return Elements(own, basis, stand_in=number("ts_ms"))


def debezium_identity(
    basis: Sql, member: Callable[[str], Sql], transaction: Sql, total_order: Sql
) -> Sql:
    """The identity of a Debezium event beside its ordering elements (O8), as :func:`identity_of`.

    Args:
        basis: :func:`debezium_basis`.
        member: the text of a member of the event's `source`.
        transaction: its transaction's id.
        total_order: its place in the transaction.
    """
    members = {
        name: case((f"{basis} = {literal(identified)}", member(name)))
        for identified, names in _IDENTIFYING.items()
        for name in names
    }
    is_numbered = f"{transaction} IS NOT NULL AND {total_order} IS NOT NULL"
    members["transaction.id"] = case((is_numbered, transaction))
    members["transaction.total_order"] = case((is_numbered, f"CAST({total_order} AS string)"))
    return identity_of(members)


def last_commit(basis: Sql, sequence: Sql) -> Sql:
    """The commit before a PostgreSQL event, the first element of its `sequence` (O3): BIGINT."""
    first = f"get({read(sequence, items=('texts',))}.items, 0)"
    return case((f"{basis} = '{LSN}'", whole(first)))


def stream_element(basis: Sql, ordered: Sql, says_order: Sql, last_commit: Sql) -> Sql:
    """Elements that fall only by a redelivery or a new server (O11): ARRAY<BIGINT>.

    Null for an event without such elements. LSNs and Oracle's SCNs fall for other reasons, too.

    Args:
        basis: the basis of the source elements.
        ordered: these, as they are compared.
        says_order: whether one of them is present and not 0.
        last_commit: :func:`last_commit`.
    """
    return case(
        (f"{basis} IN ({literals((BINLOG, COMMIT_LSN))}) AND {says_order}", ordered),
        (f"{last_commit} > 0", f"array({last_commit})"),
    )


def stream_of(connector: Sql, server: Sql, db: Sql) -> Sql:
    """The stream of an event's positions (O11), as JSON; null without connector or server."""
    has_databases = f"lower({connector}) IN ({literals(CONNECTORS[COMMIT_LSN])})"
    names = case(
        (has_databases, f"array(lower({connector}), {server}, coalesce({db}, ''))"),
        otherwise=f"array(lower({connector}), {server})",
    )
    return case((f"{connector} <> '' AND {server} <> ''", f"to_json({names})"))


def identity_of(members: Mapping[str, Sql]) -> Sql:
    """Texts as a JSON object by their names; null if all are null."""
    listed = ", ".join(f"{literal(name)}, {members[name]}" for name in sorted(members))
    has_any = f"coalesce({', '.join(members.values())}) IS NOT NULL"
    return case((has_any, f"to_json(named_struct({listed}))"))


def transaction_of(basis: Sql, tx_id: Sql, transaction: Sql) -> Sql:
    """The transaction of a Debezium event (O7, O16).

    Args:
        basis: :func:`debezium_basis`.
        tx_id: the source's `txId`.
        transaction: the id of the event's `transaction`.
    """
    # PostgreSQL's is `571:53195832`; the LSN behind the colon differs within one transaction.
    own = f"coalesce({tx_id}, substring_index({transaction}, ':', 1))"
    return case(
        (f"{basis} = '{LSN}'", own),
        (f"{basis} = '{SCN}'", f"coalesce({tx_id}, {transaction})"),
        otherwise=transaction,
    )


def wide_number(digits: Sql) -> list[Sql]:
    """A decimal text of up to 39 digits as three elements of 13 digits (O10); nulls if unfit."""
    padded = f"lpad({digits}, {_NUMBER_WIDTH * _NUMBER_PARTS}, '0')"
    is_number = f"{digits} RLIKE '^[0-9]{{1,39}}$'"
    starts = (1 + part * _NUMBER_WIDTH for part in range(_NUMBER_PARTS))
    return [
        case((is_number, whole(f"substring({padded}, {start}, {_NUMBER_WIDTH})")))
        for start in starts
    ]


def elements_of(parts: Sequence[Sql], basis: str, stand_in: Sql) -> Elements:
    """The elements of a format that has one basis."""
    return Elements(f"array({', '.join(parts)})", literal(basis), stand_in)


def ordered(elements: Sql) -> Sql:
    """Source elements as they are compared."""
    return f"transform({elements}, number -> {_element('number')})"


def _element(value: Sql) -> Sql:
    """A number of 0 or more, 0 for null: -1 marks an effective position."""
    return f"greatest(coalesce({value}, 0L), 0L)"


_HEX_PARTS = r"^([0-9a-fA-F]{1,32}):([0-9a-fA-F]{1,32}):([0-9a-fA-F]{1,32})$"


def _lsn_parts(lsn: Sql) -> list[Sql]:
    """``00000027:00000ac0:0002``, as SQL Server and Db2 write it, or one decimal (Informix)."""

    def part(number: int) -> Sql:
        # conv() fails above 64 bits; longer parts are no LSN.
        hexadecimal = f"regexp_extract({lsn}, {literal(_HEX_PARTS)}, {number})"
        digits = f"regexp_extract({hexadecimal}, '^0*(.{{1,15}})$', 1)"
        hexadecimal_part = whole(f"conv(nullif({digits}, ''), 16, 10)")
        decimal = whole(lsn) if number == 1 else "0L"
        return case((f"{lsn} RLIKE '^[0-9]{{1,18}}$'", decimal), otherwise=hexadecimal_part)

    return [part(number) for number in (1, 2, 3)]


# --- positions of `changes`


@dataclass(frozen=True)
class Placed:
    """The position (ARRAY<BIGINT>) of an event and its basis (STRING), as SQL expressions."""

    position: Sql
    basis: Sql


def placed(
    elements: Sql,
    says_order: Sql,
    basis: Sql,
    source_time: Sql,
    kafka_time: Sql,
    place: Sql,
    half: Sql | None,
) -> Placed:
    """The position of an event (O4).

    Args:
        elements: its source elements, :func:`ordered`.
        says_order: whether any of them is present and not 0 (O8).
        basis: the basis of the elements.
        source_time: replaces the elements, ms.
        kafka_time: replaces the elements if no source time gives the order, ms.
        place: the place of the row within its record.
        half: 0 or 1 in a format with split updates.
    """
    is_kafka = f"{basis} IN ({literals(KAFKA_PLACED)})"
    ordering = case(
        (says_order, elements),
        (is_kafka, f"array({_element(kafka_time)})"),
        otherwise=f"array({_element(source_time)})",
    )
    time_basis = case((is_kafka, literal(KAFKA_TIME)), otherwise=literal(SOURCE_TIME))
    tail = [
        *((f"CAST({half} AS bigint)",) if half is not None else ()),
        *("CAST(partition AS bigint)", "CAST(offset AS bigint)", f"CAST({place} AS bigint)"),
    ]
    names = ",".join(["", *((HALF,) if half is not None else ()), *TAIL])
    return Placed(
        f"concat({ordering}, array({', '.join(tail)}))",
        f"concat({case((says_order, basis), otherwise=time_basis)}, {literal(names)})",
    )


def place_of(row_number: Sql, writes: Sql) -> Sql:
    """The place of a row within its record (O4): twice its number, plus 1 for a key written."""
    return f"2L * coalesce({row_number}, 0) + CASE WHEN {writes} THEN 1L ELSE 0L END"


def is_late_checked(basis: Sql, connector: Sql) -> Sql:
    """True for events of databases that check keys at the end of a statement (O16)."""
    names = [name for late in KEYS_CHECKED_LATE for name in CONNECTORS[late]]
    bases = [",".join([late, *TAIL]) for late in KEYS_CHECKED_LATE]
    return f"({is_one_of(basis, bases)} OR {is_one_of(f'lower({connector})', names)})"


def has_whole_rows(basis: Sql, connector: Sql, is_full: bool) -> Sql:
    """True for events whose `before`, if any, is the whole old row (O16).

    Args:
        is_full: PostgreSQL's replica identity is FULL.
    """
    is_postgresql = (
        f"coalesce(startswith({basis}, '{LSN},') OR lower({connector}) = 'postgresql', false)"
    )
    is_known = literal(True) if is_full else f"NOT {is_postgresql}"
    return f"({is_late_checked(basis, connector)} AND {is_known})"


def is_kafka_placed(basis: Sql) -> Sql:
    """True if the Kafka timestamp replaces source elements; `basis` is a position's."""
    return f"startswith({basis}, '{KAFKA_TIME},')"


def is_placed_by_kafka(basis: str) -> bool:
    """As :func:`is_kafka_placed`, of a basis that was read."""
    return basis.startswith(f"{KAFKA_TIME},")


def stands_in(basis: str) -> bool:
    """Whether a time orders positions of this basis, as it may replace source elements."""
    times = (SOURCE_TIME, KAFKA_TIME)
    return basis in times or basis.startswith(
        tuple(f"{time},{behind}" for time in times for behind in (TAIL[0], HALF))
    )


def start_of_day(day: Sql, timezone: str) -> Sql:
    """The start of a day in a time zone, ms UTC."""
    return f"unix_millis(to_utc_timestamp(CAST({day} AS timestamp), {literal(timezone)}))"


def time_in_day(timezone: str) -> Sql:
    """The Kafka timestamp of an event of `changes` or its replacement, ms, within its landing day.

    A fast clock or a missing time does not move an event to another day (O11).

    Args:
        timezone: the time zone of the days.
    """
    start, end = (start_of_day(day, timezone) for day in ("landing_date", "landing_date + 1"))
    return f"least({time_in_kafka('processed_ts_ms', start)}, {end} - 1)"


def time_in_kafka(processed_ts_ms: Sql, *otherwise: Sql) -> Sql:
    """The Kafka timestamp of an event, or its replacement if none landed (O11), ms."""
    own = "CASE WHEN kafka_ts_ms >= 0 THEN kafka_ts_ms END"
    return f"coalesce({', '.join([own, processed_ts_ms, *otherwise])})"


def with_kafka_time(position: Sql, basis: Sql, kafka_time: Sql) -> Sql:
    """The position with another Kafka timestamp (ms), if that replaces its source elements."""
    raised = f"concat(array({_element(kafka_time)}), slice({position}, 2, size({position})))"
    return case((is_kafka_placed(basis), raised), otherwise=position)


def says_order(elements: Column) -> Column:
    """True unless all of the source's own elements are absent or 0 (O8)."""
    return F.exists(elements, lambda element: element > 0)


# --- positions of a table: the epoch in front


def epoch_of(kafka_ts_ms: Sql, resets: Sequence[datetime]) -> Sql:
    """The epoch of an event (O11): the number of instants that its Kafka timestamp has reached."""
    reached = [
        f"CASE WHEN {kafka_ts_ms} >= {int(instant.timestamp() * 1000)}L THEN 1L ELSE 0L END"
        for instant in resets
    ]
    return " + ".join(["0L", *reached])


def in_epoch(position: Sql, epoch: Sql) -> Sql:
    """A position of a table, with the epoch in front; null for null."""
    return f"concat(array({epoch}), {position})"


def on_basis(position: Sql, basis: Sql, table_bases: Mapping[int, str]) -> Sql:
    """A position, moved below all others of its epoch if its basis is not its table's (O8).

    Args:
        position: with its epoch.
        basis: the position's basis.
        table_bases: the basis of the table in each epoch.
    """
    own = (
        f"(get({position}, 0) = {epoch}L AND {basis} = {literal(name)})"
        for epoch, name in table_bases.items()
    )
    below = (
        f"concat(slice({position}, 1, 1), array({_OTHER_BASIS}L), "
        f"slice({position}, 2, size({position})))"
    )
    return case((" OR ".join(own) or "false", position), otherwise=below)


def on_other_basis(position: Sequence[int]) -> list[int]:
    """A position of another basis than its table's, as :func:`on_basis` moves it."""
    return [position[0], _OTHER_BASIS, *position[1:]]


def removal_position(position: Sql) -> Sql:
    """The position at which an event removes the row from the key that it leaves (O4)."""
    return (
        f"concat(slice({position}, 1, size({position}) - 1), array(element_at({position}, -1) - 1))"
    )


def elements_in(position: Sql) -> Sql:
    """Epoch and ordering elements of a table's position; equal ones are a tie."""
    return f"slice({position}, 1, greatest(size({position}) - {len(TAIL)}, 0))"


def is_all_after(lowest: Sequence[int], highest: Sequence[int]) -> bool:
    """Whether positions from `lowest` on follow those up to `highest`, whatever their tails.

    Effective positions (:func:`directly_after`) and removals (:func:`removal_position`) differ from
    another event's position in their tails only.
    """
    elements = min(len(lowest), len(highest)) - len(TAIL)
    return list(lowest[:elements]) > list(highest[:elements])


def is_one_change(one: Sql, other: Sql, has_halves: bool = False) -> Sql:
    """Whether two effective positions share epoch and source elements, as parts of a key change.

    False without source elements, that is if all are 0. Both parts of a split update are one
    change.
    """
    size = f"greatest(size({other}) - {len(TAIL) + has_halves}, 0)"
    elements = f"slice({other}, 1, {size})"
    is_known = f"NOT array_contains({other}, -1L) AND exists(slice({other}, 2, {size}), n -> n > 0)"
    return f"({is_known} AND slice({one}, 1, {size}) = {elements})"


def real_part(effective: Sql) -> Sql:
    """The position that an effective position follows; other positions are unchanged."""
    marker = f"CAST(array_position({effective}, -1L) AS int)"
    return case((f"{marker} > 0", f"slice({effective}, 1, {marker} - 1)"), otherwise=effective)


def directly_after(base: Column, in_several_topics: bool) -> Column:
    """The effective position of an event without one (O6); `base` may be null.

    Args:
        base: the position that it follows.
        in_several_topics: a key's events are; then Kafka's time orders those of a day.
    """
    place = "partition, offset"
    if in_several_topics:  # different for each record
        place = "kafka_time, abs(xxhash64(topic) div 2), offset"
    tail = F.expr(f"CAST(array(-1, unix_date(landing_date), {place}) AS {_POSITION})")
    return F.concat(F.coalesce(base, F.array().cast(_POSITION)), tail)


def behind_all(base: Column, day: date, offset: int) -> Column:
    """The effective position behind all that :func:`directly_after` gives for a day."""
    tail = (-1, (day - date(1970, 1, 1)).days, _HIGHEST_PLACE, offset)
    return F.concat(F.coalesce(base, F.array().cast(_POSITION)), literal_position(tail))


def literal_position(position: Sequence[int] | None) -> Column:
    """A position as a literal; null for None."""
    if position is None:
        return F.lit(None).cast(_POSITION)
    return F.array(*(F.lit(int(n)).cast("bigint") for n in position))


def latest(*positions: Column) -> Column:
    """The highest of some positions; null if all are."""
    return F.array_max(F.array(*positions))


def cut_before() -> Column:
    """The highest truncate that landed before an event; `cuts` lists the day's truncates.

    Before: at a lower offset of the same partition, or at an earlier Kafka time of another (O6).
    """
    earlier = F.expr(
        "filter(cuts, t -> t.landing_date = landing_date AND CASE WHEN t.topic <=> topic "
        "AND t.partition <=> partition THEN t.offset < offset ELSE t.kafka_time < kafka_time END)"
    )
    return F.array_max(F.transform(earlier, lambda t: t["position"]))
